/*
 * launch_watch.c - the launcher's loop: forwards output and signals until every rank has ended.
 *
 * The first failing rank determines the exit code. Ranks that only report the loss of another rank
 * (exit code 4) may end before the rank that has the cause; that rank's code replaces theirs. The
 * others get a moment to end by themselves, then TERM, then KILL. A signal is forwarded, and the ranks
 * stop where they can be resumed; after a second signal, or when --grace is over, they are killed.
 */
#include "cli/launch.h"
#include "base/clock.h"
#include "cli/common/cli.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CODE_PEER = 4, CODE_STOPPED = 75, CODE_SIGNAL = 128 };
/* Seconds: for ranks to end by themselves; for the last output if a process keeps a pipe open. */
static const double OWN_TIME = 1, LAST_OUTPUT = 1;

typedef struct {
    launch *l;
    int signals;             /* a signalfd */
    launch_rank *cause;      /* the rank whose failure counts; NULL = none has failed */
    int stopped;             /* the code of ranks that stopped on request; 0 = none */
    int signal;              /* the latest forwarded signal; 0 = none */
    bool at_once;            /* it was a second signal: ranks are killed */
    double term_at, kill_at; /* 0 = not planned */
    bool termed, killed;
} watch;

static int32_t running(const launch *l)
{
    int32_t n = 0;
    for (int32_t i = 0; i < l->n_ranks; i++)
        n += l->ranks[i].running;
    return n;
}

/* ---- ranks that end ---- */

/* An exit that follows from a request to end is not a cause. */
static bool is_consequence(const watch *w, int code)
{
    if (code == CODE_PEER || code == CODE_STOPPED) return true;
    return (w->termed && code == 128 + SIGTERM) || (w->killed && code == 128 + SIGKILL);
}

static void judge(watch *w, launch_rank *r)
{
    if (!r->code) return;
    bool asked = r->code == CODE_STOPPED || (w->signal && r->code == CODE_SIGNAL + w->signal);
    if (w->signal && w->killed && !w->cause) asked = true; /* its grace period is over */
    if (asked && !w->stopped) w->stopped = r->code;
    if (w->at_once || (asked && w->killed)) w->stopped = CODE_SIGNAL + w->signal; /* whatever its exit code */
    if (asked || w->at_once) return;
    bool first = !w->cause;
    if (!first && (w->cause->code != CODE_PEER || is_consequence(w, r->code))) return;
    w->cause = r;
    if (first && w->term_at <= 0) w->term_at = clock_seconds() + OWN_TIME;
    if (r->code != CODE_PEER) launch_report(w->l, r);
}

static void take_ended(watch *w)
{
    for (int32_t i = 0; i < w->l->n_ranks; i++) {
        launch_rank *r = &w->l->ranks[i];
        siginfo_t info = {0};
        if (!r->running || waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT)) continue;
        if (!info.si_pid) continue;
        kill(-r->pid, SIGKILL); /* the group keeps this number until the rank is reaped */
        waitpid(r->pid, NULL, 0);
        lines_read_all(&r->out);
        lines_read_all(&r->err);
        r->running = false;
        r->code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
        judge(w, r);
    }
}

/* ---- signals ---- */

static void send(const launch *l, int number, bool to_group)
{
    for (int32_t i = 0; i < l->n_ranks; i++)
        if (l->ranks[i].running) kill(to_group ? -l->ranks[i].pid : l->ranks[i].pid, number);
}

static void take_signals(watch *w)
{
    struct signalfd_siginfo info;
    while (read(w->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD) continue;
        w->signal = (int)info.ssi_signo;
        w->l->was_signalled = true;
        w->at_once |= signals_is_second(w->signal, info.ssi_code, (pid_t)info.ssi_pid);
        send(w->l, w->signal, false);
        if (w->at_once)
            w->kill_at = clock_seconds() + OWN_TIME;
        else if (w->l->signal_grace >= 0 && w->kill_at <= 0)
            w->kill_at = clock_seconds() + w->l->signal_grace;
    }
}

static void keep_time(watch *w)
{
    double t = clock_seconds();
    if (w->term_at > 0 && !w->termed && t >= w->term_at) {
        send(w->l, SIGTERM, false);
        w->termed = true;
        if (w->kill_at <= 0) w->kill_at = t + w->l->grace;
    }
    if (w->kill_at > 0 && !w->killed && t >= w->kill_at) {
        send(w->l, SIGKILL, true);
        w->killed = true;
    }
}

/* ---- waiting ---- */

static int wait_ms(const watch *w, double end)
{
    double at = end > 0 ? end : 0;
    if (w->term_at > 0 && !w->termed)
        at = w->term_at;
    else if (w->kill_at > 0 && !w->killed)
        at = w->kill_at;
    if (at <= 0) return -1;
    double left = at - clock_seconds();
    return left > 0 ? (int)(left * 1e3) + 1 : 0;
}

static void add_source(struct pollfd *list, nfds_t *n, const lines_source *s)
{
    bool take = s->fd >= 0 && !lines_full(s->to);
    list[(*n)++] = (struct pollfd){take ? s->fd : -1, POLLIN, 0};
}

static void add_sink(struct pollfd *list, nfds_t *n, const lines_sink *s)
{
    list[(*n)++] = (struct pollfd){lines_waiting(s) ? s->fd : -1, POLLOUT, 0};
}

/* One round: waits until something is ready, and does it. The list: signals, sinks, two a rank. */
static void turn(watch *w, struct pollfd *list, double end)
{
    launch *l = w->l;
    nfds_t n = 0;
    list[n++] = (struct pollfd){w->signals, POLLIN, 0};
    add_sink(list, &n, &l->out);
    add_sink(list, &n, &l->err);
    for (int32_t i = 0; i < l->n_ranks; i++) {
        add_source(list, &n, &l->ranks[i].out);
        add_source(list, &n, &l->ranks[i].err);
    }
    if (poll(list, n, wait_ms(w, end)) < 0) return;
    if (list[1].revents) lines_write(&l->out);
    if (list[2].revents) lines_write(&l->err);
    for (int32_t i = 0; i < l->n_ranks; i++) {
        if (list[3 + 2 * i].revents) lines_read(&l->ranks[i].out);
        if (list[4 + 2 * i].revents) lines_read(&l->ranks[i].err);
    }
    take_signals(w);
    take_ended(w);
    keep_time(w);
}

static bool has_output(const launch *l)
{
    bool any = lines_waiting(&l->out) || lines_waiting(&l->err);
    for (int32_t i = 0; i < l->n_ranks; i++)
        any |= l->ranks[i].out.fd >= 0 || l->ranks[i].err.fd >= 0;
    return any;
}

/* Reads the rest of the pipes; a process that left its rank's group may hold a pipe open for ever. Then writes what is
 * left, however slow its reader is. A signal ends this, and the next start of the ranks continues it. */
static void drain(watch *w, struct pollfd *list, bool restarts)
{
    launch *l = w->l;
    double end = clock_seconds() + LAST_OUTPUT;
    while (has_output(l) && clock_seconds() < end) {
        turn(w, list, end);
        if (lines_full(&l->out) || lines_full(&l->err)) end = clock_seconds() + LAST_OUTPUT;
    }
    for (int32_t i = 0; i < l->n_ranks; i++) {
        lines_close(&l->ranks[i].out);
        lines_close(&l->ranks[i].err);
    }
    for (end = 0; has_output(l) && !(end > 0 && clock_seconds() >= end); turn(w, list, end))
        if ((restarts || w->signal) && end <= 0) end = clock_seconds() + LAST_OUTPUT;
}

/* ---- the end ---- */

static nrl_status output_problem(const launch *l)
{
    int problem = l->out.problem ? l->out.problem : l->err.problem;
    if (!problem) return NRL_OK;
    return nrl_fail(problem == ENOSPC ? NRL_ERR_FULL : NRL_ERR_IO, "standard %s: %s",
                    l->out.problem ? "output" : "error", strerror(problem));
}

nrl_status launch_watch(launch *l, int *code)
{
    watch w = {.l = l};
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGUSR1);
    sigaddset(&wanted, SIGCHLD);
    w.signals = signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
    if (w.signals < 0) return nrl_fail(NRL_ERR_IO, "signalfd: %s", strerror(errno));
    struct pollfd *list = arena_alloc(l->a, (size_t)(3 + 2 * l->n_ranks) * sizeof *list);
    take_ended(&w);
    while (running(l))
        turn(&w, list, 0);
    /* Ranks that stop while they open a run have not agreed to stop, so the others lose them. */
    if (w.cause && w.cause->code == CODE_PEER && w.stopped) w.cause = NULL;
    *code = w.cause ? w.cause->code : w.stopped;
    drain(&w, list, launch_may_restart(l, NRL_OK, *code));
    if (!*code && w.signal && has_output(l)) *code = CODE_SIGNAL + w.signal;
    close(w.signals);
    /* The rank's own message was already printed; among the output of many ranks, it is repeated here. */
    if (w.cause) fprintf(stderr, "error: rank %d failed with %s\n", w.cause->rank, launch_end_text(l, w.cause));
    if (w.cause) l->restart_cause = arena_printf(l->a, "rank %d: %s", w.cause->rank, launch_end_text(l, w.cause));
    for (int32_t i = 0; i < l->n_ranks; i++) {
        lines_forget(&l->ranks[i].out);
        lines_forget(&l->ranks[i].err);
    }
    lines_forget_error(&l->out);
    lines_forget_error(&l->err);
    return *code ? NRL_OK : output_problem(l);
}
