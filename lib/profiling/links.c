/*
 * links.c - times of the calls of a collective between processes of this machine, which are started for this and end
 * with it. For predict.c.
 */
#include "mesh/store.h"
#include "profiling/predict.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZES = 5, KINDS = 4, ROUNDS = 5 };
#define MEETING_S 60.0
#define CALL_S 60.0

static const int64_t link_bytes[SIZES] = {1 << 10, 32 << 10, 512 << 10, 4 << 20, 16 << 20};

typedef nrl_status (*link_call)(void *self, const nrl_comm_args *a, nrl_request **request);

typedef struct {
    double seconds[KINDS][SIZES], host_seconds[KINDS][SIZES];
    char error[512]; /* of the first rank that failed */
} link_times;

/* `send` and `receive` have `room` bytes each. Successive calls use different parts of them, because in a step the data
 * are in no cache. */
typedef struct {
    const nrl_collective *table;
    void *self;
    int32_t rank, ranks;
    char *send, *receive;
    size_t room, at;
} link_rank;

static double link_clock(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static nrl_status link_finish(link_rank *r, link_call start, const nrl_comm_args *a)
{
    nrl_request *request = NULL;
    bool done = false;
    NRL_TRY(start(r->self, a, &request));
    nrl_status st = r->table->wait(r->self, request, CALL_S, &done);
    if (st == NRL_OK && !done) st = nrl_fail(NRL_ERR_PEER, "a call took longer than %g s", CALL_S);
    if (r->table->release) r->table->release(r->self, request);
    return st;
}

/* Call `kind` with `bytes` in total: as predict.c counts them. A message goes from even ranks to odd ones and back. */
static nrl_status link_once(link_rank *r, int kind, int64_t bytes)
{
    nrl_comm_args a = {.size = sizeof a, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_SUM};
    const int64_t n = bytes / (int64_t)sizeof(float);
    const size_t used = ((size_t)bytes + 4 * (size_t)r->ranks + 63) / 64 * 64;
    if (r->at + used > r->room) r->at = 0;
    a.send = r->send + r->at;
    a.receive = r->receive + r->at;
    r->at += used;
    a.count = kind == 0 || kind == 3 ? n : (n + r->ranks - 1) / r->ranks;
    if (kind == 0) a.send = a.receive;
    if (kind < 3)
        return link_finish(r,
                           kind == 0   ? r->table->all_reduce
                           : kind == 1 ? r->table->all_gather
                                       : r->table->reduce_scatter,
                           &a);
    a.peer = r->rank ^ 1;
    if (a.peer >= r->ranks) return NRL_OK;
    a.tag = 1;
    nrl_comm_args back = a;
    a.receive = NULL;
    back.send = NULL;
    if (r->rank % 2 == 0) NRL_TRY(link_finish(r, r->table->send, &a));
    NRL_TRY(link_finish(r, r->table->recv, &back));
    return r->rank % 2 ? link_finish(r, r->table->send, &a) : NRL_OK;
}

static nrl_status link_measure(link_rank *r, int kind, int64_t bytes, double *seconds, double *host_seconds)
{
    const nrl_comm_args none = {.size = sizeof none, .dtype = NRL_DTYPE_U8};
    double wall[ROUNDS], busy[ROUNDS];
    NRL_TRY(link_once(r, kind, bytes));
    /* The same number of calls on all ranks. */
    const int64_t calls = bytes > (1 << 20) ? 2 : bytes > (64 << 10) ? 8 : 50;
    for (int k = 0; k < ROUNDS; k++) {
        NRL_TRY(link_finish(r, r->table->barrier, &none));
        const double begin = link_clock(CLOCK_MONOTONIC), used = link_clock(CLOCK_PROCESS_CPUTIME_ID);
        for (int64_t i = 0; i < calls; i++)
            NRL_TRY(link_once(r, kind, bytes));
        const double n = (double)(kind == 3 ? 2 * calls : calls); /* a message, and the one back */
        wall[k] = (link_clock(CLOCK_MONOTONIC) - begin) / n;
        busy[k] = (link_clock(CLOCK_PROCESS_CPUTIME_ID) - used) / n;
    }
    *seconds = machine_median(wall, ROUNDS);
    *host_seconds = fmin(machine_median(busy, ROUNDS), *seconds);
    return NRL_OK;
}

static nrl_status link_run(link_rank *r, const void *options, const store_kind *kind, const char *address,
                           link_times *times)
{
    nrl_store *store;
    const store_setup s = {.address = address, .job = "plan", .timeout_s = MEETING_S};
    NRL_TRY(store_open(kind, &s, &store));
    nrl_status st = r->table->open(options, store, r->rank, r->ranks, MEETING_S, &r->self);
    r->room = (size_t)link_bytes[SIZES - 1] * 2;
    r->send = malloc(r->room);
    r->receive = malloc(r->room);
    if (st == NRL_OK && (!r->send || !r->receive)) st = nrl_fail(NRL_ERR_MEMORY, "no memory to measure links");
    if (st == NRL_OK) memset(r->send, 1, r->room); /* all pages that were never written are one zero page */
    if (st == NRL_OK) memset(r->receive, 1, r->room);
    for (int call = 0; call < KINDS && st == NRL_OK; call++)
        for (int i = 0; i < SIZES && st == NRL_OK; i++) {
            double seconds, host;
            if (call == 3 && !r->table->send) break;
            st = link_measure(r, call, link_bytes[i], &seconds, &host);
            if (st == NRL_OK && r->rank == 0) {
                times->seconds[call][i] = seconds;
                times->host_seconds[call][i] = host;
            }
        }
    if (st == NRL_OK) r->table->close(r->self);
    store_close(store);
    return st;
}

static void link_child(const session *se, const store_kind *kind, const char *address, int32_t rank, int32_t ranks,
                       link_times *times)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    link_rank r = {.table = se->collective, .rank = rank, .ranks = ranks};
    if (link_run(&r, se->collective_options, kind, address, times) == NRL_OK) _exit(0);
    if (!*times->error) snprintf(times->error, sizeof times->error, "%s", nrl_error_text());
    _exit(1);
}

static nrl_status link_wait(const pid_t *children, int32_t n, const link_times *times)
{
    bool failed = false;
    for (int32_t i = 0; i < n; i++) {
        int status = 0;
        if (children[i] <= 0) continue;
        while (waitpid(children[i], &status, 0) < 0 && errno == EINTR)
            ;
        failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    return failed ? nrl_fail(NRL_ERR_PEER, "cannot measure communication between %d processes: %s", (int)n,
                             *times->error ? times->error : "a process ended early")
                  : NRL_OK;
}

/* Starts the processes of a group, which meet at a store of their own. Its rank 0 fills `times`. */
static nrl_status link_start(const session *se, const store_kind *kind, int32_t ranks, link_times *times,
                             store_server **server, pid_t *children)
{
    const store_setup s = {.address = "127.0.0.1:0", .job = "plan", .timeout_s = MEETING_S};
    NRL_TRY(store_serve(kind, &s, server));
    fflush(NULL);
    for (int32_t r = 0; r < ranks; r++) {
        children[r] = fork();
        if (!children[r]) link_child(se, kind, store_server_address(*server), r, ranks, times);
        if (children[r] < 0) return nrl_fail(NRL_ERR_IO, "cannot start a process: %s", strerror(errno));
    }
    return NRL_OK;
}

/* Calls of groups of `ranks`, which n_groups of them make at once, as the groups of a run do. */
static nrl_status link_groups(machine *m, const session *se, const store_kind *kind, int32_t ranks, int32_t n_groups)
{
    static const call_kind kinds[KINDS] = {CALL_ALL_REDUCE, CALL_ALL_GATHER, CALL_REDUCE_SCATTER, CALL_SEND};
    const size_t bytes = (size_t)n_groups * sizeof(link_times);
    link_times *times = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (times == MAP_FAILED) return nrl_fail(NRL_ERR_MEMORY, "no memory to measure links");
    store_server **servers = mem_alloc((size_t)n_groups * sizeof(store_server *));
    pid_t *children = mem_alloc((size_t)(n_groups * ranks) * sizeof *children);
    nrl_status st = NRL_OK;
    for (int32_t g = 0; g < n_groups && st == NRL_OK; g++)
        st = link_start(se, kind, ranks, &times[g], &servers[g], children + g * ranks);
    for (int32_t i = 0; i < n_groups * ranks && st != NRL_OK; i++)
        if (children[i] > 0) kill(children[i], SIGKILL);
    for (int32_t g = 0; g < n_groups; g++) {
        nrl_status waited = link_wait(children + g * ranks, ranks, &times[g]);
        if (st == NRL_OK) st = waited;
    }
    for (int32_t g = 0; g < n_groups; g++)
        store_server_close(servers[g]);
    for (int k = 0; k < KINDS && st == NRL_OK; k++)
        for (int i = 0; i < SIZES; i++) {
            machine_sample x = {.dims = {ranks}, .bytes = (double)link_bytes[i]};
            for (int32_t g = 0; g < n_groups; g++) {
                x.seconds += times[g].seconds[k][i] / n_groups;
                x.host_seconds += times[g].host_seconds[k][i] / n_groups;
            }
            snprintf(x.name, sizeof x.name, "%s", call_names[kinds[k]]);
            if (x.seconds > 0) machine_add(m, &x);
        }
    free(children);
    free(servers);
    munmap(times, bytes);
    return st;
}

nrl_status links_measure(machine *m, run *r, int32_t ranks, int32_t most)
{
    const session *se = &r->session;
    store_kind kind;
    if (m->is_file || m->ranks_per_node || !se->collective) return NRL_OK;
    if (!se->collective->host_only) /* a process that was forked cannot use the GPU of its parent */
        return nrl_fail(
            NRL_ERR_CONFIG,
            "the calls of the collective '%s' cannot be measured\n"
            "hint: --machine FILE: a file of --save-machine that contains their times or describes a cluster",
            se->collective->plugin.name);
    arena a = {0};
    nrl_status st = store_find(se->host, &a, "127.0.0.1:0", NULL, &kind);
    for (int32_t g = 2; g <= ranks && g <= most && st == NRL_OK; g++)
        if ((ranks % g == 0 || (ranks > most && (g & (g - 1)) == 0)) && !machine_knows_ranks(m, g))
            st = link_groups(m, se, &kind, g, (ranks < most ? ranks : most) / g);
    arena_free(&a);
    return st;
}
