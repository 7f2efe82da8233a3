/*
 * helper.c - see helper.h.
 */
#include "helper.h"
#include "base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Found in PATH, as in an activated virtual environment. A config cannot name it: a config runs no program. */
static char python[] = "python3";

enum { MAX_ANSWER = 512, SLICE_MS = 100 };
#define PATIENCE_SECONDS 120.0 /* for an answer: an import of the package on a slow file system takes half a minute */

extern char **environ;

static char program[] = {
#include "wandb_helper.inc"
};

static void end_helper(helper *h)
{
    close(h->fd);
    kill(h->pid, SIGKILL);
    while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    h->pid = 0;
}

/* In a process group of its own, so that Ctrl-C does not end it before the run. */
static int spawn(helper *h, int input, int output)
{
    char option[] = "-c";
    char *argv[] = {python, option, program, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawn_file_actions_adddup2(&actions, output, 2);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int error = posix_spawnp(&h->pid, python, &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

nrl_status helper_start(helper *h)
{
    int ends[2];
    int output = open(h->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (output < 0) return nrl_fail(NRL_ERR_IO, "%s: %s", h->log, strerror(errno));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        int error = errno;
        close(output);
        return nrl_fail(NRL_ERR_IO, "cannot create a socket: %s", strerror(error));
    }
    int error = spawn(h, ends[1], output);
    close(ends[1]);
    close(output);
    h->fd = ends[0];
    if (!error) return NRL_OK;
    close(ends[0]);
    h->pid = 0;
    return nrl_fail(NRL_ERR_IO, "cannot start %s: %s", python, strerror(error));
}

/* Waits until the socket can be read or written; false if the time is over. */
static bool wait_for(const helper *h, short events, double end)
{
    while (clock_seconds() < end && !record_queue_gives_up(*h->queue)) {
        struct pollfd p = {.fd = h->fd, .events = events};
        if (poll(&p, 1, SLICE_MS) > 0) return true;
    }
    return false;
}

static nrl_status send_line(const helper *h, const char *line, size_t size, double end)
{
    for (size_t done = 0; done < size;) {
        if (!wait_for(h, POLLOUT, end)) return nrl_fail(NRL_ERR_IO, "the helper process does not read");
        ssize_t n = send(h->fd, line + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n < 0) break; /* it has ended; its last answer says why */
        done += (size_t)n;
    }
    return NRL_OK;
}

/* One line without its end. */
static nrl_status read_answer(const helper *h, char answer[MAX_ANSWER], double end)
{
    size_t n = 0;
    char c = 0;
    while (c != '\n') {
        if (!wait_for(h, POLLIN, end))
            return nrl_fail(NRL_ERR_IO, "the helper process does not respond; see %s", h->log);
        ssize_t got = recv(h->fd, &c, 1, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return nrl_fail(NRL_ERR_IO, "the helper process has ended; see %s", h->log);
        if (c != '\n' && n < MAX_ANSWER - 1) answer[n++] = c;
    }
    answer[n] = 0;
    if (!strcmp(answer, "ok")) return NRL_OK;
    bool lacks = strstr(answer, "No module named 'wandb'") != NULL;
    return nrl_fail(NRL_ERR_IO, "%s%s", !strncmp(answer, "error ", 6) ? answer + 6 : answer,
                    lacks ? "; expected the package wandb in the first python3 of PATH" : "");
}

nrl_status helper_ask(helper *h, const char *line, size_t size)
{
    char answer[MAX_ANSWER];
    double end = clock_seconds() + PATIENCE_SECONDS;
    nrl_status st = send_line(h, line, size, end);
    if (st == NRL_OK) st = read_answer(h, answer, end);
    if (st != NRL_OK) end_helper(h);
    return st;
}

nrl_status helper_finish(helper *h)
{
    char answer[MAX_ANSWER];
    int status;
    double end = clock_seconds() + 1e9; /* ended by the queue */
    shutdown(h->fd, SHUT_WR);
    nrl_status st = read_answer(h, answer, end);
    while (st == NRL_OK && waitpid(h->pid, &status, WNOHANG) == 0) {
        if (record_queue_gives_up(*h->queue))
            st = nrl_fail(NRL_ERR_IO, "the helper process does not end; see %s", h->log);
        clock_sleep(0.02);
    }
    if (st == NRL_OK) {
        close(h->fd);
        h->pid = 0;
    } else {
        end_helper(h);
    }
    return st;
}
