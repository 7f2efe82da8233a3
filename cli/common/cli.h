/*
 * cli.h - what the program `nrl` (cli/) and the programs behind its other verbs (tools/) share: arguments, the
 * environment, errors printed, exit codes.
 * A verb gets its own arguments, argv[0] being its name, and reports like any function: nrl_fail.
 */
#ifndef CLI_COMMON_CLI_H
#define CLI_COMMON_CLI_H
#include "base/arena.h"
#include <nrl/status.h>
#include <stdbool.h>
#include <sys/types.h>

/* 1. verbs and programs */

typedef nrl_status (*cli_run_verb)(int argc, char **argv);

typedef struct {
    const char *name;
    const char *usage;   /* arguments */
    const char *example; /* as typed, without "nrl" */
    const char *summary; /* NULL: `nrl help` leaves it out, as another verb is_rank0 there */
    const char *notes;   /* what the usage does not say by itself; NULL = nothing */
} cli_verb;

extern const cli_verb cli_verbs[];
extern const size_t cli_n_verbs;
const cli_verb *cli_find_verb(const char *name); /* NULL = none of that name comes with nrl */
void cli_print_verb_help(const cli_verb *v);

/* The main function of the program nrl-NAME: what stands in front of every verb, `run`, and what follows it.
 * Returns the exit code. */
int cli_tool_main(int argc, char **argv, const char *name, cli_run_verb run);

/* Parts of it, for the program `nrl`. */
bool cli_is_help(const char *word);
bool cli_reserve_descriptors(void); /* false: errno says why */
/* Takes the switches that any verb has out of argv, and sets the environment that libraries read. */
void cli_prepare(int *argc, char **argv);
int cli_finish(nrl_status st); /* prints the error; returns the exit code */

/* 2. arguments */

/* Takes `flag` out of argv wherever it stands; true if it was there. */
bool cli_take_flag(int *argc, char **argv, const char *flag);
/* The same for `flag VALUE` and `flag=VALUE`; NULL if absent. NRL_ERR_CONFIG without a value. */
nrl_status cli_take_value(int *argc, char **argv, const char *flag, const char **value);
/* NRL_ERR_CONFIG if an argument that starts with '-' is left, or if there are not min to max
 * arguments after the verb (max < 0: any number). */
nrl_status cli_expect(int argc, char **argv, int min, int max);

/* 3. the surroundings */

/* Variables that switch off code which files bring, where they are not empty; flags of the same names set them, so that
 * the ranks of a launcher have them too. */
#define CLI_NO_CONFIG_PLUGINS "NRL_NO_PLUGINS_FROM_CONFIG"
#define CLI_NO_SCRIPTS "NRL_NO_SCRIPTS"
const char *cli_exe_dir(arena *a);          /* PREFIX/bin of the running program, also of one in PREFIX/libexec/nrl;
                                               NULL if unknown */
const char *cli_getenv(const char *name);   /* NULL also where it is empty */
const char *cli_variable(const char *name); /* as it is: for ${env:NAME} */

/* 4. signals (signals.c) */

/* From now on SIGTERM, SIGUSR1 and SIGINT are remembered for a run to see, which saves its state; a second SIGINT or
 * SIGTERM ends the process at once, with 128 + its number. For verbs that save; others end with the first one.
 * Returns where the number appears (0 = none). */
volatile int *signals_catch(void);
int signals_caught(void); /* the number; 0 = none */
/* Whether this one, got from `pid` with a siginfo's `code`, is the second SIGINT or SIGTERM. [signal] */
bool signals_is_second(int number, int code, pid_t pid);
/* A write to a pipe without a reader, or beyond the limit of a file's size, fails instead of ending the process. */
void signals_let_writes_fail(void);

volatile int64_t *cli_tell_crashes(void); /* says who crashed from now on; the place of the step under way */

/* To standard output: what a model or a file says; control characters are escaped where that is a terminal. */
void cli_print(const char *text);
/* printf of a page for people, to standard output; control characters in what is inserted are always escaped. */
void cli_page(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
