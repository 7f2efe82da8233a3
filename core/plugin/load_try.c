/*
 * load_try.c - opens plugin files in a child process, which reports one frame (status, size, text) for each file in
 * turn. The file whose frame does not come is the one that ended the child or that it hangs in.
 */
#include "base/clock.h"
#include "plugin/load.h"
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
    int32_t status;
    uint32_t size; /* of the text that follows */
} frame;

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
    const struct rlimit none = {0, 0};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        signal(crashes[i], SIG_DFL);
    on_exit(leave, NULL);
}

static void run_child(int fd, const load_trial *list, size_t n, load_describe *describe)
{
    isolate();
    for (const load_trial *t = list; t < list + n; t++) {
        arena a = {0};
        const nrl_plugin *table;
        frame f = {.status = (int32_t)load_table(&a, t->path, t->kind, t->name, &table)};
        char *text = f.status != NRL_OK ? mem_strdup(nrl_error_text()) : describe ? describe(table) : mem_strdup("");
        f.size = (uint32_t)strlen(text);
        if (!write_whole(fd, &f, sizeof f) || !write_whole(fd, text, f.size)) _exit(1);
        free(text);
        arena_free(&a);
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

static read_result read_one(arena *a, int fd, load_trial *t, double seconds)
{
    frame f;
    double deadline = clock_seconds() + seconds;
    read_result result = read_whole(fd, &f, sizeof f, deadline);
    if (result != READ_WHOLE) return result;
    if (f.size > MAX_TEXT) return READ_ENDED;
    char *text = arena_alloc(a, (size_t)f.size + 1);
    result = read_whole(fd, text, f.size, deadline);
    t->status = (nrl_status)f.status;
    t->text = text;
    return result;
}

static const char *why_ended(arena *a, read_result result, int state, double seconds)
{
    if (result == READ_LATE) return arena_printf(a, "does not return within %g s when it is opened", seconds);
    if (WIFSIGNALED(state)) return arena_printf(a, "crashes when it is opened: %s", strsignal(WTERMSIG(state)));
    return arena_printf(a, "ends the process when it is opened (exit code %d)", WEXITSTATUS(state));
}

/* Tries files until one ends the child, and returns how many have a result then. */
static size_t try_some(arena *a, load_trial *list, size_t n, load_describe *describe, double seconds)
{
    int ends[2], state = 0;
    size_t done = 0;
    read_result result = READ_WHOLE;
    if (pipe2(ends, O_CLOEXEC)) return 0;
    fflush(NULL); /* a file that calls exit must not write this process's buffers a second time */
    pid_t child = fork();
    if (child == 0) run_child(ends[1], list, n, describe);
    int error = errno;
    close(ends[1]);
    while (child > 0 && done < n && (result = read_one(a, ends[0], &list[done], seconds)) == READ_WHOLE)
        done++;
    close(ends[0]);
    errno = error;
    if (child < 0) return 0;
    kill(child, SIGKILL); /* without effect on a child that has ended */
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    if (done == n) return n;
    list[done].status = NRL_ERR_PLUGIN;
    list[done].text = why_ended(a, result, state, seconds);
    return done + 1;
}

void load_try(arena *a, load_trial *list, size_t n, load_describe *describe, double seconds)
{
    for (size_t done = 0; done < n;) {
        size_t more = try_some(a, list + done, n - done, describe, seconds);
        for (; !more && done < n; done++) {
            list[done].status = NRL_ERR_IO;
            list[done].text = arena_printf(a, "cannot be tried: cannot start a process: %s", strerror(errno));
        }
        done += more;
    }
}
