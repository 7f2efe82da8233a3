/*
 * launch_start.c - starts one process per rank. A rank never outlives its launcher: the kernel kills
 * the rank when the launcher ends for whatever reason. A rank leads a process group, so that a
 * terminal's Ctrl-C arrives only through the launcher, and the rank's children end with it.
 */
#include "cli/launch.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OWN_VARIABLES = 11 }; /* including the final NULL */

static bool is_name_of(const char *assignment, const char *with)
{
    size_t n = (size_t)(strchr(with, '=') - with) + 1;
    return !strncmp(assignment, with, n);
}

/* The launcher's environment, with the variables in `own` (NULL-terminated) replaced. */
static char **merge(arena *a, char **own)
{
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **all = arena_alloc(a, (n + OWN_VARIABLES) * sizeof *all);
    for (size_t i = 0; i < n; i++) {
        char **o = own;
        while (*o && !is_name_of(environ[i], *o))
            o++;
        if (!*o) all[kept++] = environ[i];
    }
    for (; *own; own++)
        all[kept++] = *own;
    return all;
}

static char **environment(const launch *l, const launch_rank *r)
{
    const launch_node *node = &l->nodes.list[l->own];
    char *secret = l->secret_fd >= 0 ? arena_printf(l->a, "NRL_JOB_SECRET_FD=%d", l->secret_fd) : NULL;
    char *gpu = node->n_gpus ? arena_printf(l->a, "CUDA_VISIBLE_DEVICES=%d", node->gpus[r->local_rank]) : NULL;
    char *again = l->restarts ? arena_printf(l->a, "NRL_RESTART=%d %s", l->restarts, l->restart_cause) : NULL;
    char *store = l->store ? arena_printf(l->a, "NRL_STORE=%s", l->store) : NULL,
         *optional[] = {secret, gpu, store, again};
    char *own[OWN_VARIABLES] = {
        arena_printf(l->a, "NRL_RANK=%d", r->rank),
        arena_printf(l->a, "NRL_WORLD_SIZE=%d", l->world),
        arena_printf(l->a, "NRL_LOCAL_RANK=%d", r->local_rank),
        arena_printf(l->a, "NRL_LOCAL_WORLD_SIZE=%d", l->n_ranks),
        arena_printf(l->a, "NRL_RUN_ID=%s", l->run_id),
        arena_strdup(l->a, "NRL_STORE_HELD=1"), /* by a launcher */
    };
    char **at = own;
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
        while (*at)
            at++;
        *at = optional[i];
    }
    return merge(l->a, own);
}

/* In the child: only calls that are allowed between fork and exec in a process with threads. */
static void become_rank(const launch *l, pid_t launcher, char **variables, const int out[2], const int err[2])
{
    static const char sorry[] = "error: cannot restart nrl\n";
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(128 + SIGKILL);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    if (null > STDERR_FILENO) close(null);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    if (l->secret_fd >= 0) fcntl(l->secret_fd, F_SETFD, 0);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &l->mask, NULL);
    execve("/proc/self/exe", l->command, variables);
    if (write(STDERR_FILENO, sorry, sizeof sorry - 1) < 0) _exit(1);
    _exit(1);
}

static nrl_status start_rank(launch *l, launch_rank *r)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    char **variables = environment(l, r);
    pid_t launcher = getpid();
    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
        nrl_fail(NRL_ERR_IO, "cannot create a pipe to rank %d: %s", r->rank, strerror(errno));
        if (out[0] >= 0) close(out[0]);
        if (out[1] >= 0) close(out[1]);
        return NRL_ERR_IO;
    }
    lines_open(&r->out, out[0], &l->out, r->rank);
    lines_open(&r->err, err[0], &l->err, r->rank);
    r->pid = fork();
    if (r->pid == 0) become_rank(l, launcher, variables, out, err);
    close(out[1]);
    close(err[1]);
    if (r->pid < 0) return nrl_fail(NRL_ERR_IO, "cannot create a process for rank %d: %s", r->rank, strerror(errno));
    setpgid(r->pid, r->pid); /* in both processes: one of them is first */
    r->running = true;
    return NRL_OK;
}

static void end_all(launch *l)
{
    for (int32_t i = 0; i < l->n_ranks; i++) {
        launch_rank *r = &l->ranks[i];
        if (!r->running) continue;
        kill(-r->pid, SIGKILL);
        waitpid(r->pid, NULL, 0);
        r->running = false;
    }
}

nrl_status launch_alone(launch *l)
{
    fflush(NULL);
    execve("/proc/self/exe", l->command, environment(l, &l->ranks[0]));
    return nrl_fail(NRL_ERR_IO, "cannot restart nrl: %s", strerror(errno));
}

nrl_status launch_start(launch *l)
{
    fflush(NULL);
    for (int32_t i = 0; i < l->n_ranks; i++) {
        launch_rank *r = &l->ranks[i];
        r->rank = l->first_rank + i;
        r->local_rank = i;
        nrl_status st = start_rank(l, r);
        if (st == NRL_OK) continue;
        end_all(l);
        return st;
    }
    return NRL_OK;
}
