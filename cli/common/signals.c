/*
 * signals.c - requests to end the process. The first SIGINT, SIGTERM or SIGUSR1 is recorded, and a run
 * stops where its state can be saved; a second SIGINT or SIGTERM ends the process in the handler,
 * whatever it is doing: a matrix product, a C function that a script called, a template that loops.
 *
 * One request may arrive twice: systemd and Slurm signal every process of a job, and the launcher
 * forwards its own signals. So a signal from another sender than the first one counts only after
 * RELAYED_NS.
 */
#include "cli/common/cli.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RELAYED_NS 1000000000LL

typedef enum { SENDER_KERNEL = 0, SENDER_PARENT, SENDER_OTHER, N_SENDERS } signal_sender;

/* A handler has no user argument, so these are the program's mutable globals. */
static volatile int caught;
static volatile sig_atomic_t seen[N_SENDERS];
static volatile int64_t first_ns;       /* of SIGINT or SIGTERM; 0 = none yet */
static const volatile int64_t *answers; /* the current step, for the answer to a Ctrl-C; NULL = no answer */
static const char *erase = "";          /* what precedes a line on this standard error */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The kernel sends the signal of a terminal's Ctrl-C. */
static signal_sender sender_of(int code, pid_t pid)
{
    if (code > 0) return SENDER_KERNEL;
    return pid == getppid() ? SENDER_PARENT : SENDER_OTHER;
}

bool signals_is_second(int number, int code, pid_t pid)
{
    if (number != SIGINT && number != SIGTERM) return false;
    signal_sender sender = sender_of(code, pid);
    int64_t now = now_ns();
    bool is_second = first_ns && (seen[sender] || now - first_ns > RELAYED_NS);
    seen[sender] = 1;
    if (!first_ns) first_ns = now;
    return is_second;
}

/* A step may take minutes, so the answer is printed at once, possibly on the line of a progress bar. */
static void answer(void)
{
    static const char text[] = "interrupted: stopping; a second Ctrl-C ends nrl at once\n",
                      in_step[] = "interrupted: finishing the current step; a second Ctrl-C ends nrl at once\n";
    const char *line = *answers > 0 ? in_step : text;
    const int saved = errno;
    const bool ok = write(STDERR_FILENO, erase, strlen(erase)) >= 0 && write(STDERR_FILENO, line, strlen(line)) >= 0;
    (void)ok; /* the result is not used */
    errno = saved;
}

static void remember(int number, siginfo_t *info, void *unused)
{
    (void)unused;
    if (signals_is_second(number, info->si_code, info->si_pid)) _exit(128 + number);
    if (number == SIGINT && !caught && answers) answer();
    caught = number;
}

/* Handlers run on their own stack: oneDNN's generated code uses memory below the stack pointer beyond the
 * 128 bytes that a signal preserves, and a handler's frame there corrupts the heap. */
static void use_own_stack(void)
{
    static char stack[1 << 16];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&own, NULL);
}

volatile int *signals_catch(void)
{
    static const int numbers[] = {SIGTERM, SIGUSR1, SIGINT};
    struct sigaction action = {.sa_sigaction = remember, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    use_own_stack();
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&action.sa_mask, numbers[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
    return &caught;
}

void signals_answer(const volatile int64_t *step)
{
    if (isatty(STDERR_FILENO)) erase = "\r\033[K";
    answers = step;
}

static void do_nothing(int number)
{
    (void)number;
}

/* Handlers instead of SIG_IGN, so that programs that a script starts get the default again. */
void signals_let_writes_fail(void)
{
    struct sigaction action = {.sa_handler = do_nothing, .sa_flags = SA_RESTART | SA_ONSTACK};
    use_own_stack();
    sigemptyset(&action.sa_mask);
    sigaction(SIGXFSZ, &action, NULL);
    sigaction(SIGPIPE, &action, NULL);
}

int signals_caught(void)
{
    return caught;
}
