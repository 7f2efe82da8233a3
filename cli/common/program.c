/*
 * program.c - what every program of nrl does before and after its verb: standard descriptors,
 * switches, the error and the exit code.
 */
#include "base/escape.h"
#include "base/memory.h"
#include "cli/common/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- before ---- */

/* The next opened file would get a number below 3 that the caller left closed, and messages would be
 * written into it. A descriptor that neither reads nor writes reserves the number: reads and writes fail
 * as if it were closed. */
bool cli_reserve_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/", O_PATH) != fd) return false;
    return true;
}

bool cli_is_help(const char *word)
{
    return !strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h");
}

/* OpenMP's threads spin for milliseconds at every barrier by default, which is twenty times slower as soon
 * as two processes share the cores. GNU's runtime reads this variable when the CPU backend is opened. */
static void spin_less(void)
{
    if (getenv("OMP_WAIT_POLICY") == NULL) setenv("GOMP_SPINCOUNT", "1000", 0);
}

/* Switches that any verb accepts, before or after the verb; what follows "--" is another program's command line. */
static void take_switches(int *argc, char **argv)
{
    int n = 1;
    while (n < *argc && strcmp(argv[n], "--"))
        n++;
    char *end = argv[n];
    argv[n] = NULL;
    int left = n;
    if (cli_take_flag(&left, argv, "--no-plugins-from-config")) setenv(CLI_NO_CONFIG_PLUGINS, "1", 1);
    if (cli_take_flag(&left, argv, "--no-scripts")) setenv(CLI_NO_SCRIPTS, "1", 1);
    argv[n] = end;
    memmove(argv + left, argv + n, (size_t)(*argc - n + 1) * sizeof *argv);
    *argc -= n - left;
}

void cli_prepare(int *argc, char **argv)
{
    take_switches(argc, argv);
    spin_less();
}

/* ---- after ---- */

static const int exit_codes[] = {
    [NRL_OK] = 0,          [NRL_ERR_CONFIG] = 2,   [NRL_ERR_DATA] = 65,  [NRL_ERR_PLUGIN] = 1, [NRL_ERR_IO] = 1,
    [NRL_ERR_FULL] = 7,    [NRL_ERR_DEVICE] = 1,   [NRL_ERR_MEMORY] = 6, [NRL_ERR_PEER] = 4,   [NRL_ERR_DIVERGED] = 3,
    [NRL_ERR_CORRUPT] = 5, [NRL_ERR_STOPPED] = 75, [NRL_ERR_BUG] = 1,
};

static int exit_code(nrl_status st)
{
    if (st == NRL_ERR_STOPPED && signals_caught() == SIGINT) return 130;
    return (size_t)st < sizeof exit_codes / sizeof *exit_codes ? exit_codes[st] : 1;
}

nrl_status cli_status(int code)
{
    for (size_t st = 0; st < sizeof exit_codes / sizeof *exit_codes; st++)
        if (exit_codes[st] == code) return (nrl_status)st;
    return NRL_ERR_PLUGIN;
}

/* Why standard output could not be written; 0 if it could. The error of an earlier write is lost by then,
 * so this tries one more write. */
static int output_error(void)
{
    errno = 0;
    if (fflush(stdout)) return errno ? errno : EIO;
    if (!ferror(stdout)) return 0;
    return write(STDOUT_FILENO, "\n", 1) < 0 ? errno : EIO;
}

int cli_finish(nrl_status st)
{
    /* A failed write to standard output is a failure too: `nrl describe >/dev/full`. */
    int error = output_error(); /* flush before the error is printed */
    if (error && st == NRL_OK)
        st = nrl_fail(error == ENOSPC ? NRL_ERR_FULL : NRL_ERR_IO, "cannot write standard output: %s", strerror(error));
    char hint[MEMORY_HINT] = "";
    if (st == NRL_ERR_MEMORY) memory_limit_hint(hint);
    if (st != NRL_OK) {
        fputs("error: ", stderr);
        escape_print(stderr, nrl_error_text(), strlen(nrl_error_text()));
        fprintf(stderr, "%s\n", hint);
    }
    return exit_code(st);
}

/* ---- a tool ---- */

int cli_tool_main(int argc, char **argv, const char *name, cli_run_verb run)
{
    static char no_arguments[] = "";
    char *none[] = {no_arguments, NULL};
    if (!cli_reserve_descriptors()) {
        perror("error: standard input, output and error");
        return 1;
    }
    if (!argc) argv = none, argc = 1; /* exec with an empty list */
    cli_prepare(&argc, argv);
    signals_let_writes_fail();
    argv[0] = (char *)(uintptr_t)name; /* errors and help say `nrl NAME` */
    if (argc > 1 && cli_is_help(argv[1]) && *argv[1] == '-') {
        cli_print_verb_help(cli_find_verb(name));
        return cli_finish(NRL_OK);
    }
    return cli_finish(run(argc, argv));
}
