/*
 * predict.c - see predict.h.
 */
#include "profiling/predict.h"
#include "mesh/mesh.h"
#include "run/internal.h"
#include "tensor/device/profile.h"
#include "tensor/internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 3 };

/* ---- what a rank does, in order ---- */

typedef enum { EVENT_COMPUTE, EVENT_CALL, EVENT_WAIT, EVENT_STEP } event_kind;
typedef struct {
    event_kind kind;
    double seconds; /* COMPUTE */
    int32_t call;   /* CALL, WAIT: number of the call on this rank */
} event;

typedef struct {
    const char *name;            /* "all_reduce" */
    int32_t base, stride, ranks; /* of the group */
    int32_t from, to;            /* send, recv: ranks of the world; else -1 */
    uint64_t tag;
    double bytes;
} call;

typedef struct {
    event *events;
    call *calls;
    size_t n_events, events_room, n_calls, calls_room;
    double compute, host; /* of all steps */
} rank_log;

typedef struct {
    machine *m;
    bool times;
    rank_log *log; /* NULL: nothing is recorded */
    nrl_status st; /* of the first time that is not known */
} recorder;

/* Of the dry run in this thread: the operations of a collective have no user pointer. */
static _Thread_local recorder *recording;

static event *add_event(rank_log *l, event_kind kind)
{
    if (!l->events || l->n_events == l->events_room) {
        l->events_room = l->events_room ? 2 * l->events_room : 1024;
        l->events = mem_realloc(l->events, l->events_room * sizeof *l->events);
    }
    l->events[l->n_events] = (event){.kind = kind};
    return &l->events[l->n_events++];
}

static void add_seconds(rank_log *l, double seconds)
{
    event *last = l->n_events ? &l->events[l->n_events - 1] : NULL;
    if (!last || last->kind != EVENT_COMPUTE) last = add_event(l, EVENT_COMPUTE);
    last->seconds += seconds;
    l->compute += seconds;
}

/* ---- the collective of a dry run: `self` is the nrl_comm ---- */

static nrl_status log_call(void *self, const nrl_comm_args *a, const char *name, double count, nrl_request **request)
{
    rank_log *l = recording ? recording->log : NULL;
    *request = NULL;
    if (!l) return NRL_OK;
    if (!l->calls || l->n_calls == l->calls_room) {
        l->calls_room = l->calls_room ? 2 * l->calls_room : 256;
        l->calls = mem_realloc(l->calls, l->calls_room * sizeof *l->calls);
    }
    call c = {.name = name, .from = -1, .to = -1, .tag = a->tag};
    c.ranks = mesh_comm_ranks(self, &c.base, &c.stride);
    c.bytes = count * (double)nrl_dtype_size((nrl_dtype)a->dtype);
    l->calls[l->n_calls] = c;
    add_event(l, EVENT_CALL)->call = (int32_t)l->n_calls++;
    *request = (nrl_request *)(uintptr_t)l->n_calls; /* never 0 */
    return NRL_OK;
}

/* Elements of all ranks' shares. */
static double count_all(void *self, const nrl_comm_args *a)
{
    int32_t base, stride, n = mesh_comm_ranks(self, &base, &stride);
    double sum = 0;
    for (int32_t r = 0; a->counts && r < n; r++)
        sum += (double)a->counts[r];
    return a->counts ? sum : (double)a->count * n;
}

static nrl_status dry_barrier(void *self, const nrl_comm_args *a, nrl_request **r)
{
    return log_call(self, a, "all_reduce", 0, r);
}

static nrl_status dry_broadcast(void *self, const nrl_comm_args *a, nrl_request **r)
{
    return log_call(self, a, "all_gather", (double)a->count, r);
}

static nrl_status dry_all_reduce(void *self, const nrl_comm_args *a, nrl_request **r)
{
    return log_call(self, a, "all_reduce", (double)a->count, r);
}

static nrl_status dry_all_gather(void *self, const nrl_comm_args *a, nrl_request **r)
{
    return log_call(self, a, "all_gather", count_all(self, a), r);
}

static nrl_status dry_reduce_scatter(void *self, const nrl_comm_args *a, nrl_request **r)
{
    return log_call(self, a, "reduce_scatter", count_all(self, a), r);
}

static nrl_status dry_all_to_all(void *self, const nrl_comm_args *a, nrl_request **r)
{
    return log_call(self, a, "all_gather", count_all(self, a), r);
}

static nrl_status log_pair(void *self, const nrl_comm_args *a, const char *name, bool sends, nrl_request **r)
{
    int32_t base, stride;
    NRL_TRY(log_call(self, a, name, (double)a->count, r));
    if (!*r) return NRL_OK;
    call *c = &recording->log->calls[recording->log->n_calls - 1];
    mesh_comm_ranks(self, &base, &stride);
    const int32_t other = base + a->peer * stride;
    c->from = sends ? -1 : other;
    c->to = sends ? other : -1;
    return NRL_OK;
}

static nrl_status dry_send(void *self, const nrl_comm_args *a, nrl_request **r)
{
    return log_pair(self, a, "send", true, r);
}

static nrl_status dry_recv(void *self, const nrl_comm_args *a, nrl_request **r)
{
    return log_pair(self, a, "send", false, r);
}

static nrl_status dry_wait(void *self, nrl_request *request, double timeout_s, bool *done)
{
    (void)self;
    *done = timeout_s > 0; /* whoever only asks is told that the call goes on */
    if (request && recording && recording->log && *done)
        add_event(recording->log, EVENT_WAIT)->call = (int32_t)((uintptr_t)request - 1);
    return NRL_OK;
}

static const nrl_collective dry_collective = {.plugin = {.size = sizeof(nrl_collective), .name = "dry run"},
                                              .barrier = dry_barrier,
                                              .broadcast = dry_broadcast,
                                              .all_reduce = dry_all_reduce,
                                              .all_gather = dry_all_gather,
                                              .reduce_scatter = dry_reduce_scatter,
                                              .all_to_all = dry_all_to_all,
                                              .send = dry_send,
                                              .recv = dry_recv,
                                              .wait = dry_wait};

/* ---- the profiler of a dry run ---- */

static nrl_status dry_op_begin(nrl_ctx *ctx, backend_op op, const void *args, double flops)
{
    double seconds;
    (void)ctx;
    recorder *r = recording;
    if (!r || !r->log || r->st != NRL_OK) return NRL_OK;
    r->st = machine_op(r->m, op, args, flops, &seconds);
    if (r->st == NRL_OK) add_seconds(r->log, seconds);
    return r->st;
}

static nrl_status dry_copy_begin(nrl_ctx *ctx, nrl_copy_direction way, size_t bytes)
{
    (void)ctx, (void)way, (void)bytes;
    return NRL_OK;
}

static nrl_status dry_op_end(nrl_ctx *ctx)
{
    (void)ctx;
    return NRL_OK;
}

static nrl_phase dry_phase_set(nrl_ctx *ctx, nrl_phase phase)
{
    (void)ctx, (void)phase;
    return NRL_PHASE_NONE;
}

static void dry_unit(nrl_ctx *ctx, const char *name, const nrl_batch *batch)
{
    (void)ctx, (void)name, (void)batch;
}

static void dry_memory(nrl_ctx *ctx, const pool_block *b, bool taken)
{
    (void)ctx, (void)b, (void)taken;
}

static nrl_status dry_step(nrl_ctx *ctx, bool begins)
{
    (void)ctx, (void)begins;
    return NRL_OK;
}

static double dry_mark(const nrl_ctx *ctx)
{
    (void)ctx;
    return 0;
}

static void dry_host(nrl_ctx *ctx, const char *name, double mark)
{
    (void)ctx, (void)name, (void)mark;
}

static void dry_close(nrl_ctx *ctx)
{
    (void)ctx;
}

static const ctx_profiler dry_profiler = {.op_begin = dry_op_begin,
                                          .copy_begin = dry_copy_begin,
                                          .op_end = dry_op_end,
                                          .phase_set = dry_phase_set,
                                          .unit = dry_unit,
                                          .memory = dry_memory,
                                          .step = dry_step,
                                          .mark = dry_mark,
                                          .host = dry_host,
                                          .close = dry_close};

/* ---- the walk of one rank ---- */

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The device of the config, to measure on; open until the machine is closed. */
static nrl_status open_measures(const predict_setup *setup, machine *m, const session *se)
{
    if (m->measures || (m->is_file && !setup->opens_device)) return NRL_OK;
    device *d = arena_alloc(&m->memory, sizeof *d);
    NRL_TRY(device_open(se->backend, se->backend_options, 0, d));
    if (se->delegate) NRL_TRY(device_open_delegate(d, se->delegate, se->delegate_options));
    if (d->table.stream_create) NRL_TRY(d->table.stream_create(d->self, &m->stream));
    m->measures = d;
    m->threads = (int32_t)d->info.n_threads;
    m->processors = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(m->device, sizeof m->device, "%s, %s, %lld threads", d->info.name, d->info.isa,
             (long long)d->info.n_threads);
    return NRL_OK;
}

static nrl_status walk_step(run *r, nrl_run_event *e, bool *done)
{
    *e = (nrl_run_event){.size = sizeof *e};
    return nrl_run_step(r, e, done);
}

/* Steps with times, and one without, whose duration is the host's own work. */
static nrl_status walk_steps(run *r, recorder *rec, rank_log *l, prediction *out)
{
    nrl_run_event e;
    bool done = false;
    out->n_steps = 0;
    out->tokens = 0;
    ctx_set_profiler(r->session.ctx, rec->times ? &dry_profiler : NULL, NULL);
    rec->log = rec->times ? l : NULL;
    nrl_status st = NRL_OK;
    while (st == NRL_OK && out->n_steps < STEPS) {
        st = walk_step(r, &e, &done);
        if (st != NRL_OK || done) break;
        out->tokens += (int64_t)e.tokens;
        out->n_steps++;
        if (rec->times) add_event(l, EVENT_STEP);
    }
    rec->log = NULL;
    ctx_set_profiler(r->session.ctx, NULL, NULL);
    if (rec->st != NRL_OK || st != NRL_OK) return st;
    const double begin = thread_seconds();
    if (!done) NRL_TRY(walk_step(r, &e, &done));
    if (!done) l->host = thread_seconds() - begin;
    return NRL_OK;
}

static nrl_status walk_rank(const predict_setup *setup, const nrl_rank_info *place, nrl_config *config, recorder *rec,
                            rank_log *l, prediction *out)
{
    nrl_environment env = setup->env;
    run *r = NULL;
    env.quiet = env.no_output = env.takes_warnings = true;
    env.dry_run = &dry_collective;
    env.ranks = place;
    env.event = NULL;
    env.services = NULL;
    nrl_status st = nrl_run_open(config, &env, &r);
    if (st == NRL_OK) st = open_measures(setup, rec->m, &r->session);
    if (st == NRL_OK && rec->times && setup->ranks > 1) st = links_measure(rec->m, r, setup->ranks);
    if (st == NRL_OK) st = walk_steps(r, rec, l, out);
    if (st == NRL_OK) {
        nrl_run_info info = {.size = sizeof info};
        nrl_run_info_fill(r, &info);
        info.device = NULL;
        info.clock = NULL;
        if (info.used_peak_bytes > out->memory.used_peak_bytes) out->memory = info;
    }
    nrl_run_close(r);
    return st;
}

/* ---- all ranks together ---- */

/* A call of all ranks of a group, or a message. */
typedef struct {
    const call *of;
    int32_t n_begun, n_ranks;
    double begun, end; /* begun: by the last rank */
    bool is_known;     /* end */
} joint;

/* The calls of a group, or the messages between two ranks with one tag: the n-th of one rank is the n-th of all. */
typedef struct {
    int32_t first, last, stride; /* last: the receiver, -1 for a group */
    uint64_t tag;
    int32_t *joints;               /* [n] */
    int32_t n, room, rank, n_seen; /* n_seen: of `rank` */
} lane;

typedef struct {
    const rank_log *log;
    size_t at;
    double now, channel, waited; /* channel: when the calls begun so far have ended */
    int32_t *joints;             /* [n_calls] */
} sim_rank;

typedef struct {
    const machine *m;
    sim_rank *ranks;
    lane *lanes;
    joint *joints;
    int32_t n, n_lanes, lanes_room, n_joints, joints_room;
    bool is_full; /* ranks leave no processor to communication */
} simulation;

static lane *find_lane(simulation *s, const call *c, int32_t rank)
{
    const bool pair = c->from >= 0 || c->to >= 0;
    const lane key = {.first = !pair          ? c->base
                               : c->from >= 0 ? c->from
                                              : rank,
                      .last = !pair        ? -1
                              : c->to >= 0 ? c->to
                                           : rank,
                      .stride = pair ? 0 : c->stride * c->ranks,
                      .tag = pair ? c->tag : 0,
                      .rank = -1};
    for (int32_t i = 0; i < s->n_lanes; i++) {
        const lane *l = &s->lanes[i];
        if (l->first == key.first && l->last == key.last && l->stride == key.stride && l->tag == key.tag)
            return &s->lanes[i];
    }
    if (s->n_lanes == s->lanes_room) {
        s->lanes_room = s->lanes_room ? 2 * s->lanes_room : 64;
        s->lanes = mem_realloc(s->lanes, (size_t)s->lanes_room * sizeof *s->lanes);
    }
    s->lanes[s->n_lanes] = key;
    return &s->lanes[s->n_lanes++];
}

static int32_t join_call(simulation *s, const call *c, int32_t rank)
{
    lane *l = find_lane(s, c, rank);
    if (l->rank != rank) l->n_seen = 0;
    l->rank = rank;
    if (l->n_seen == l->n) {
        if (l->n == l->room) {
            l->room = l->room ? 2 * l->room : 16;
            l->joints = mem_realloc(l->joints, (size_t)l->room * sizeof *l->joints);
        }
        if (s->n_joints == s->joints_room) {
            s->joints_room = s->joints_room ? 2 * s->joints_room : 256;
            s->joints = mem_realloc(s->joints, (size_t)s->joints_room * sizeof *s->joints);
        }
        s->joints[s->n_joints] = (joint){.of = c, .n_ranks = l->last >= 0 ? 2 : c->ranks};
        l->joints[l->n++] = s->n_joints++;
    }
    return l->joints[l->n_seen++];
}

/* Both ranks of a message, or all of a group, have begun: the data travel when the channels of all are free. */
static nrl_status end_joint(simulation *s, joint *j)
{
    double seconds, busy;
    const int32_t ranks = j->n_ranks;
    if (!machine_link(s->m, j->of->name, ranks, j->of->bytes, &seconds, &busy))
        return nrl_fail(NRL_ERR_CONFIG,
                        "the machine file has no time of '%s' between %d ranks\nhint: `nrl plan --save-machine` with "
                        "--ranks %d measures it",
                        j->of->name, ranks, (int)s->n);
    j->end = j->begun + seconds;
    j->is_known = true;
    return NRL_OK;
}

/* Runs a rank until it waits for a call that another rank has not begun, or ends. */
static nrl_status run_rank(simulation *s, int32_t rank, bool *moved)
{
    sim_rank *r = &s->ranks[rank];
    for (; r->at < r->log->n_events; r->at++) {
        const event *e = &r->log->events[r->at];
        joint *j = e->kind == EVENT_CALL || e->kind == EVENT_WAIT ? &s->joints[r->joints[e->call]] : NULL;
        if (e->kind == EVENT_COMPUTE) {
            r->now += e->seconds;
        } else if (e->kind == EVENT_CALL) {
            double seconds = 0, busy = 0;
            machine_link(s->m, j->of->name, j->n_ranks, j->of->bytes, &seconds, &busy);
            const double begins = r->now > r->channel ? r->now : r->channel;
            if (begins > j->begun) j->begun = begins;
            r->channel = begins + seconds;
            if (s->is_full) r->now += busy; /* its threads take the processors from the computation */
            if (++j->n_begun == j->n_ranks) NRL_TRY(end_joint(s, j));
        } else if (e->kind == EVENT_WAIT) {
            if (!j->is_known) return NRL_OK;
            if (j->end > r->channel) r->channel = j->end;
            if (j->end > r->now) {
                r->waited += j->end - r->now;
                r->now = j->end;
            }
        }
        *moved = true;
    }
    return NRL_OK;
}

static nrl_status simulate(const machine *m, const rank_log *logs, int32_t n, bool is_full, prediction *out)
{
    simulation s = {.m = m, .n = n, .is_full = is_full, .ranks = mem_alloc((size_t)n * sizeof *s.ranks)};
    nrl_status st = NRL_OK;
    for (int32_t r = 0; r < n; r++) {
        s.ranks[r] = (sim_rank){.log = &logs[r], .joints = mem_alloc((logs[r].n_calls + 1) * sizeof(int32_t))};
        for (size_t i = 0; i < logs[r].n_calls; i++)
            s.ranks[r].joints[i] = join_call(&s, &logs[r].calls[i], r);
    }
    for (bool moved = true; moved && st == NRL_OK;) {
        moved = false;
        for (int32_t r = 0; r < n && st == NRL_OK; r++)
            st = run_rank(&s, r, &moved);
    }
    int32_t longest = 0;
    for (int32_t r = 0; r < n; r++) {
        if (st == NRL_OK && s.ranks[r].at < logs[r].n_events)
            st = nrl_fail(NRL_ERR_PLUGIN, "cannot predict the time: rank %d waits for a call that no other rank makes",
                          (int)r);
        if (logs[r].compute > logs[longest].compute) longest = r;
        if (s.ranks[r].now > out->seconds) out->seconds = s.ranks[r].now;
        free(s.ranks[r].joints);
    }
    out->compute = logs[longest].compute;
    out->waiting = s.ranks[longest].waited;
    out->host = logs[longest].host;
    for (int32_t i = 0; i < s.n_lanes; i++)
        free(s.lanes[i].joints);
    free(s.lanes);
    free(s.joints);
    free(s.ranks);
    return st;
}

/* Processor time of a rank's calls. */
static double calls_busy(const machine *m, const rank_log *l)
{
    double sum = 0, seconds, busy = 0;
    for (size_t i = 0; i < l->n_calls; i++) {
        const call *c = &l->calls[i];
        if (machine_link(m, c->name, c->from >= 0 || c->to >= 0 ? 2 : c->ranks, c->bytes, &seconds, &busy)) sum += busy;
    }
    return sum;
}

/* Ranks that compute on the processors of one machine at once share them. */
static void spread(rank_log *l, double factor)
{
    for (size_t i = 0; i < l->n_events; i++)
        l->events[i].seconds *= factor;
    l->compute *= factor;
    l->host *= factor;
}

nrl_status predict(const predict_setup *setup, nrl_config *(*make_config)(void *user, arena *a), void *user, machine *m,
                   bool times, prediction *out)
{
    const int32_t n = setup->ranks;
    rank_log *logs = mem_alloc((size_t)n * sizeof *logs);
    int64_t tokens = 0;
    int32_t steps = 0;
    nrl_status st = NRL_OK;
    recorder rec = {.m = m, .times = times};
    *out = (prediction){0};
    recording = &rec;
    for (int32_t r = 0; r < n && st == NRL_OK; r++) {
        arena a = {0};
        const nrl_rank_info place = {.rank = r, .world = n, .local_rank = r, .local_world = n, .origin = "plan"};
        nrl_config *config = make_config(user, &a);
        prediction own = *out;
        st = walk_rank(setup, n > 1 ? &place : NULL, config, &rec, &logs[r], &own);
        out->memory = own.memory;
        tokens += own.tokens;
        steps = own.n_steps;
        nrl_config_destroy(config);
        arena_free(&a);
    }
    recording = NULL;
    if (st == NRL_OK) st = rec.st;
    if (st == NRL_OK && times && steps) {
        const double shares = (double)n * m->threads / m->processors;
        for (int32_t r = 0; r < n; r++)
            out->busy += (logs[r].compute / steps + logs[r].host + calls_busy(m, &logs[r]) / steps) / n;
        for (int32_t r = 0; r < n && shares > 1; r++)
            spread(&logs[r], shares);
        if (st == NRL_OK) st = simulate(m, logs, n, shares >= 1, out);
        out->has_time = st == NRL_OK;
        out->seconds = out->seconds / steps + out->host;
        out->compute /= steps;
        out->waiting /= steps;
    }
    out->n_steps = steps;
    out->tokens = steps ? tokens / n / steps : 0;
    for (int32_t r = 0; r < n; r++) {
        free(logs[r].events);
        free(logs[r].calls);
    }
    free(logs);
    return st;
}
