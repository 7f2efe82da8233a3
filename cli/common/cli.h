/*
 * cli.h - shared by the program `nrl` (cli/) and the programs of its other verbs (tools/): arguments,
 * environment, error output, exit codes. A verb gets its own arguments, with its name in argv[0], and
 * reports errors with nrl_fail like any function.
 */
#ifndef CLI_COMMON_CLI_H
#define CLI_COMMON_CLI_H
#include "base/arena.h"
#include <nrl/status.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* 1. verbs and programs */

typedef nrl_status (*cli_run_verb)(int argc, char **argv);

typedef struct {
    const char *name;
    const char *usage;   /* arguments */
    const char *example; /* as typed, without "nrl" */
    const char *summary; /* NULL: `nrl help` omits the verb, because another verb leads to it */
    const char *notes;   /* what the usage does not express by itself; NULL = nothing */
} cli_verb;

extern const cli_verb cli_verbs[];
extern const size_t cli_n_verbs;
const cli_verb *cli_find_verb(const char *name); /* NULL = nrl has no verb of that name */
void cli_print_verb_help(const cli_verb *v);

/* The main function of the program nrl-NAME: what precedes every verb, `run`, and what follows. Returns
 * the exit code. */
int cli_tool_main(int argc, char **argv, const char *name, cli_run_verb run);

/* Parts of it, for the program `nrl`. */
bool cli_is_help(const char *word);
bool cli_reserve_descriptors(void); /* false: errno has the reason */
/* Removes the switches of all verbs from argv, and sets the environment that libraries read. */
void cli_prepare(int *argc, char **argv);
int cli_finish(nrl_status st); /* prints the error; returns the exit code */
/* The first status with that exit code, of a program of this tree; NRL_ERR_PLUGIN if there is none. */
nrl_status cli_status(int code);

/* 2. arguments */

/* Removes `flag` from argv wherever it is; true if it was present. */
bool cli_take_flag(int *argc, char **argv, const char *flag);
/* The same for `flag VALUE` and `flag=VALUE`; NULL if absent. NRL_ERR_CONFIG without a value. */
nrl_status cli_take_value(int *argc, char **argv, const char *flag, const char **value);
/* The same for a number of bytes such as 1.5GiB; *bytes stays as it is if the flag is absent. */
nrl_status cli_take_size(int *argc, char **argv, const char *flag, int64_t *bytes);
/* The same for a flag that may be given up to `most` times. */
nrl_status cli_take_values(int *argc, char **argv, const char *flag, const char **values, size_t most,
                           size_t *n_values);
/* NRL_ERR_CONFIG if an argument that starts with '-' is left, or if there are not min to max
 * arguments after the verb (max < 0: any number). */
nrl_status cli_expect(int argc, char **argv, int min, int max);

/* Reads the standard input to its end, at most `most` bytes, into `a`; terminated. NRL_ERR_CONFIG. */
nrl_status cli_read_input(arena *a, size_t most, char **text, size_t *size);

/* 3. the environment */

/* Environment variables that, if not empty, disable code that comes with files; flags of the same names set
 * them, so that the ranks of a launcher have them too. */
#define CLI_NO_CONFIG_PLUGINS "NRL_NO_PLUGINS_FROM_CONFIG"
#define CLI_NO_SCRIPTS "NRL_NO_SCRIPTS"
const char *cli_exe_dir(arena *a);          /* PREFIX/bin of the running program, also for a program in
                                             * PREFIX/libexec/nrl; NULL if unknown */
const char *cli_user_plugins(arena *a);     /* $XDG_DATA_HOME/nrl/plugins, there or not; NULL = no home */
const char *cli_getenv(const char *name);   /* NULL also if it is empty */
const char *cli_variable(const char *name); /* unchanged: for ${env:NAME} */

/* 4. signals (signals.c) */

/* From now on SIGTERM, SIGUSR1 and SIGINT are recorded for a run, which then saves its state; a second
 * SIGINT or SIGTERM ends the process at once, with 128 + its number. For verbs that save; other verbs end
 * at the first signal. Returns where the number appears (0 = none). */
volatile int *signals_catch(void);
int signals_caught(void); /* the number; 0 = none */
/* From now on the first SIGINT also prints a line on standard error, which says what happens next. `step` is 0 before
 * the first step. */
void signals_answer(const volatile int64_t *step);
/* Whether this signal, received from `pid` with a siginfo's `code`, is the second SIGINT or SIGTERM. [signal] */
bool signals_is_second(int number, int code, pid_t pid);
/* A write to a pipe without a reader, or beyond the limit of a file's size, fails instead of ending the process. */
void signals_let_writes_fail(void);

volatile int64_t *cli_report_crashes(void); /* reports crashes from now on; returns where to store the current step */

/* Prints text of a model or a file to standard output; escapes control characters if standard output is a terminal. */
void cli_print(const char *text);
/* printf to standard output for human readers; always escapes control characters in inserted text. */
void cli_page(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
