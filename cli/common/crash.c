/*
 * crash.c - the last message of a process that crashes: whose code, and which step. Then the signal is
 * raised again: exit code 128 + n, and a core file if enabled.
 */
#include "cli/common/cli.h"
#include "base/memory.h"
#include <execinfo.h>
#include <nrl/host.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { N_FRAMES = 64, MOST_SECONDS = 10 };

static const struct {
    int number;
    const char *name;
} crashes[] = {{SIGSEGV, "segmentation fault"},
               {SIGBUS, "bus error"},
               {SIGFPE, "arithmetic error"},
               {SIGILL, "illegal instruction"},
               {SIGABRT, "aborted"}};
enum { N_CRASHES = sizeof crashes / sizeof *crashes };

/* A handler has no argument for state. */
static volatile int64_t step;

static const char *name_of(int number)
{
    for (int i = 0; i < N_CRASHES; i++)
        if (crashes[i].number == number) return crashes[i].name;
    return "signal";
}

/* Names the innermost frame that belongs to a plugin, because code that the plugin called (a library, the
 * core) failed on its behalf. */
static void report_crash(int number)
{
    void *frames[N_FRAMES];
    char who[96] = "nrl", when[32] = "", line[256 + MEMORY_HINT], hint[MEMORY_HINT];
    alarm(MOST_SECONDS); /* locks that were held at the crash are never released */
    int n = backtrace(frames, N_FRAMES), i = 0;
    while (i < n && !nrl_plugin_locate(frames[i], who, sizeof who))
        i++;
    if (step > 0) snprintf(when, sizeof when, "step %lld: ", (long long)step);
    int size = snprintf(line, sizeof line, "error: %s%s crashed: %s%s\n", when, who, name_of(number),
                        memory_limit_hint(hint)); /* libraries that cannot allocate memory may crash */
    if (write(STDERR_FILENO, line, (size_t)size) < 0) _exit(128 + number);
    raise(number);
}

/* A sanitizer's handlers print more, so they stay. */
volatile int64_t *cli_report_crashes(void)
{
    void *first[1];
    struct sigaction now, action = {.sa_handler = report_crash, .sa_flags = SA_ONSTACK | SA_RESETHAND | SA_NODEFER};
    backtrace(first, 1); /* the first call loads a library, which a handler should not do */
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < N_CRASHES; i++)
        if (!sigaction(crashes[i].number, NULL, &now) && now.sa_handler == SIG_DFL)
            sigaction(crashes[i].number, &action, NULL);
    return &step;
}
