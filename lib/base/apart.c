/*
 * apart.c - the child reports one frame (answer, size, text) for each call in turn. The call whose frame does not come
 * is the one that ended the child or that it hangs in.
 */
#include "base/apart.h"
#include "base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_TEXT = 64 << 20 };

typedef struct {
    int32_t answer;
    uint32_t size; /* of the text that follows */
} frame;

typedef struct {
    apart_call *call;
    void *user;
    const char *when;
    double seconds;
} calls;

/* ---- in the child ---- */

static bool write_whole(int fd, const void *from, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, (const char *)from + done, size - done);
        if (n < 0 && errno != EINTR) return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Runs before the handlers that this process inherited, which are for the parent to call. */
static void leave(int code, void *unused)
{
    (void)unused;
    _exit(code);
}

/* The child prints nothing, leaves no core file, and ends with its parent. */
static void isolate(void)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM, SIGPIPE};
    /* A limit of 1 also keeps a program that receives core files (systemd-coredump, apport) from reading this one. */
    const struct rlimit least = {1, 1}, none = {0, 0};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    if (setrlimit(RLIMIT_CORE, &least)) setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        signal(crashes[i], SIG_DFL);
    on_exit(leave, NULL);
}

static void run_child(int fd, const calls *c, size_t from, size_t n)
{
    isolate();
    for (size_t i = from; i < n; i++) {
        char *text = NULL;
        frame f = {.answer = c->call(c->user, i, &text)};
        f.size = text ? (uint32_t)strlen(text) : 0;
        if (!write_whole(fd, &f, sizeof f) || !write_whole(fd, text, f.size)) _exit(1);
        free(text);
    }
    _exit(0);
}

/* ---- in the parent ---- */

typedef enum { READ_WHOLE, READ_ENDED, READ_LATE } read_result;

static read_result read_whole(int fd, void *to, size_t size, double deadline)
{
    for (size_t done = 0; done < size;) {
        double left = deadline - clock_seconds();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left <= 0) return READ_LATE;
        if (poll(&p, 1, (int)(left * 1e3) + 1) <= 0) continue;
        ssize_t n = read(fd, (char *)to + done, size - done);
        if (n == 0 || (n < 0 && errno != EINTR)) return READ_ENDED;
        done += n > 0 ? (size_t)n : 0;
    }
    return READ_WHOLE;
}

static read_result read_one(arena *a, int fd, apart_result *to, double seconds)
{
    frame f;
    double deadline = clock_seconds() + seconds;
    read_result result = read_whole(fd, &f, sizeof f, deadline);
    if (result != READ_WHOLE) return result;
    if (f.size > MAX_TEXT) return READ_ENDED;
    char *text = arena_alloc(a, (size_t)f.size + 1);
    result = read_whole(fd, text, f.size, deadline);
    if (result == READ_WHOLE) *to = (apart_result){true, f.answer, text};
    return result;
}

static const char *why_ended(arena *a, const calls *c, read_result result, int state)
{
    if (result == READ_LATE) return arena_printf(a, "does not return within %g s %s", c->seconds, c->when);
    if (WIFSIGNALED(state)) return arena_printf(a, "crashes %s: %s", c->when, strsignal(WTERMSIG(state)));
    return arena_printf(a, "ends the process %s (exit code %d)", c->when, WEXITSTATUS(state));
}

/* Makes calls until one ends the child. Returns the number of the next one; `from`: there is no child. */
static size_t call_some(arena *a, const calls *c, size_t from, size_t n, apart_result *results)
{
    int ends[2], state = 0;
    size_t done = from;
    read_result result = READ_WHOLE;
    if (pipe2(ends, O_CLOEXEC)) return from;
    fflush(NULL); /* a call that ends the process must not write this process's buffers a second time */
    pid_t child = fork();
    if (child == 0) run_child(ends[1], c, from, n);
    int error = errno;
    close(ends[1]);
    while (child > 0 && done < n && (result = read_one(a, ends[0], &results[done], c->seconds)) == READ_WHOLE)
        done++;
    close(ends[0]);
    errno = error;
    if (child < 0) return from;
    kill(child, SIGKILL); /* without effect on a child that has ended */
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    if (done == n) return n;
    results[done] = (apart_result){.text = why_ended(a, c, result, state)};
    return done + 1;
}

void apart_calls(arena *a, apart_call *call, void *user, size_t n, const char *when, double seconds,
                 apart_result *results)
{
    const calls c = {call, user, when, seconds};
    for (size_t done = 0, next; done < n; done = next) {
        next = call_some(a, &c, done, n, results);
        if (next > done) continue;
        for (; next < n; next++)
            results[next].text = arena_printf(a, "cannot be tried: cannot start a process: %s", strerror(errno));
    }
}
