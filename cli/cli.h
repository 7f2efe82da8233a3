/*
 * cli.h - the command line: verbs, and what they share. The only folder that reads the environment,
 * prints errors and turns a status into an exit code.
 * A verb gets its own arguments, argv[0] being its name, and reports like any function: nrl_fail.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H
#include "config/problems.h"
#include "plugin/host.h"
#include <sys/types.h>

/* 1. verbs, one file each; a new one is a line here and a row in cli.c */
nrl_status cli_bench(int argc, char **argv);
nrl_status cli_check(int argc, char **argv);
nrl_status cli_checkpoint(int argc, char **argv);
nrl_status cli_describe(int argc, char **argv);
void cli_describe_lua(void); /* the page of the script functions */
nrl_status cli_eval(int argc, char **argv);
nrl_status cli_export(int argc, char **argv);
nrl_status cli_import(int argc, char **argv);
nrl_status cli_launch(int argc, char **argv);
nrl_status cli_profile(int argc, char **argv);
nrl_status cli_report(int argc, char **argv);
nrl_status cli_resume(int argc, char **argv);
nrl_status cli_run(int argc, char **argv);
nrl_status cli_sample(int argc, char **argv);
nrl_status cli_tokenizer(int argc, char **argv);
nrl_status cli_env(int argc, char **argv);
nrl_status cli_plugins(int argc, char **argv);
nrl_status cli_plugins_test(int argc, char **argv); /* `nrl plugins test ...`, and so on */
nrl_status cli_plugins_new(int argc, char **argv);
nrl_status cli_version(int argc, char **argv);

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
const char *cli_exe_dir(arena *a);        /* folder of the running program; NULL if unknown */
const char *cli_getenv(const char *name); /* NULL also where it is empty */
/* With NRL_PLUGIN_PATH and the folder beside the program. */
plugin_host *cli_plugin_host(arena *a, const char *const *folders, size_t n_folders);

/* Reads FILE and applies the key=value arguments and ${env:VAR}. What can still be told together
 * with later mistakes goes to `problems`. */
nrl_status cli_read_config(arena *a, config_problems *problems, const char *file, int n_overrides,
                           char **overrides, nrl_node **root);

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
