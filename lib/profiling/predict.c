/*
 * predict.c - see predict.h.
 */
#include "profiling/predict.h"
#include "mesh/mesh.h"
#include "run/internal.h"
#include "tensor/device/profile.h"
#include "tensor/internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 3, MOST_WALKED = 16, MOST_MEASURED = 8, MOST_SUMS = 64, MOST_SAMPLES = 4096 };

/* ---- what a rank does, in order ---- */

typedef enum { EVENT_COMPUTE, EVENT_CALL, EVENT_WAIT, EVENT_STEP } event_kind;
typedef struct {
    event_kind kind;
    double seconds; /* COMPUTE */
    int32_t call;   /* CALL, WAIT: number of the call on this rank */
} event;

typedef struct {
    call_kind kind;
    int32_t base, stride, ranks; /* of the group */
    int32_t from, to;            /* send, recv: ranks of the world; else -1 */
    uint64_t tag;
    double bytes, sent; /* sent: by this rank */
    bool has_left;      /* a message that a poll has found sent */
} call;

typedef struct {
    event *events;
    call *calls;
    size_t n_events, events_room, n_calls, calls_room;
    double compute, host; /* of all steps */
    int32_t rank, n_steps;
    traffic sent[STEPS]; /* in each step */
} rank_log;

typedef struct {
    machine *m;
    bool times;
    rank_log *log; /* NULL: nothing is recorded */
    nrl_status st; /* of the first time that is not known */
    nrl_phase phase;
    const model *policy;  /* of the rank that is walked */
    int32_t unit;         /* of the policy, -1 = none */
    double *unit_seconds; /* [n_units] of all steps and ranks; NULL: no rank has been walked */
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

/* Elements of all ranks' shares. */
static double count_all(const nrl_comm_args *a, int32_t ranks)
{
    double sum = 0;
    for (int32_t r = 0; a->counts && r < ranks; r++)
        sum += (double)a->counts[r];
    return a->counts ? sum : (double)a->count * ranks;
}

static nrl_status log_call(void *self, const nrl_comm_args *a, call_kind kind, nrl_request **request)
{
    rank_log *l = recording ? recording->log : NULL;
    *request = (nrl_request *)(uintptr_t)(kind == CALL_SEND);
    if (!l) return NRL_OK;
    if (!l->calls || l->n_calls == l->calls_room) {
        l->calls_room = l->calls_room ? 2 * l->calls_room : 256;
        l->calls = mem_realloc(l->calls, l->calls_room * sizeof *l->calls);
    }
    call c = {.kind = kind, .from = -1, .to = -1, .tag = a->tag};
    c.ranks = mesh_comm_ranks(self, &c.base, &c.stride);
    const bool shares = kind == CALL_ALL_GATHER || kind == CALL_REDUCE_SCATTER || kind == CALL_ALL_TO_ALL;
    c.bytes = (shares ? count_all(a, c.ranks) : (double)a->count) * (double)nrl_dtype_size((nrl_dtype)a->dtype);
    if (kind == CALL_SEND) c.to = c.base + a->peer * c.stride;
    if (kind == CALL_RECV) c.from = c.base + a->peer * c.stride;
    const traffic t = traffic_of(kind, a, (l->rank - c.base) / c.stride, c.ranks);
    c.sent = t.bytes;
    if (l->n_steps < STEPS) {
        l->sent[l->n_steps].bytes += t.bytes;
        l->sent[l->n_steps].messages += t.messages;
        l->sent[l->n_steps].received += t.received;
    }
    l->calls[l->n_calls] = c;
    add_event(l, EVENT_CALL)->call = (int32_t)l->n_calls++;
    *request = (nrl_request *)(uintptr_t)(2 * l->n_calls + (kind == CALL_SEND)); /* at least 2 */
    return NRL_OK;
}

#define DRY_CALL(name, kind)                                                                                           \
    static nrl_status dry_##name(void *self, const nrl_comm_args *a, nrl_request **r)                                  \
    {                                                                                                                  \
        return log_call(self, a, kind, r);                                                                             \
    }
DRY_CALL(barrier, CALL_BARRIER)
DRY_CALL(broadcast, CALL_BROADCAST)
DRY_CALL(all_reduce, CALL_ALL_REDUCE)
DRY_CALL(all_gather, CALL_ALL_GATHER)
DRY_CALL(reduce_scatter, CALL_REDUCE_SCATTER)
DRY_CALL(all_to_all, CALL_ALL_TO_ALL)
DRY_CALL(send, CALL_SEND)
DRY_CALL(recv, CALL_RECV)
#undef DRY_CALL

static nrl_status dry_wait(void *self, nrl_request *request, double timeout_s, bool *done)
{
    const uintptr_t number = (uintptr_t)request;
    rank_log *l = recording && number > 1 ? recording->log : NULL;
    call *c = l ? &l->calls[number / 2 - 1] : NULL;
    (void)self;
    /* A poll (timeout 0) finds a call still in progress, but a message already sent: its receiver was waiting for
     * it. */
    *done = timeout_s > 0 || number % 2;
    if (c && *done && timeout_s <= 0) c->has_left = true;
    if (c && timeout_s > 0 && !c->has_left) add_event(l, EVENT_WAIT)->call = (int32_t)(c - l->calls);
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

static nrl_status dry_op_begin(nrl_ctx *ctx, backend_op op, const void *args, int64_t n, double flops)
{
    double seconds;
    (void)ctx, (void)n; /* this device makes single calls */
    recorder *r = recording;
    if (!r || !r->log || r->st != NRL_OK) return NRL_OK;
    r->st = machine_op(r->m, op, args, flops, &seconds);
    if (r->st == NRL_OK) add_seconds(r->log, seconds);
    const bool of_unit = r->phase == NRL_PHASE_FORWARD || r->phase == NRL_PHASE_RECOMPUTE ||
                         r->phase == NRL_PHASE_BACKWARD || r->phase == NRL_PHASE_HEAD;
    if (r->st == NRL_OK && of_unit && r->unit >= 0) r->unit_seconds[r->unit] += seconds;
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
    (void)ctx;
    recorder *r = recording;
    const nrl_phase before = r->phase;
    r->phase = phase;
    if (phase == NRL_PHASE_UPDATE || phase == NRL_PHASE_HOST) r->unit = -1;
    return before;
}

static void dry_unit(nrl_ctx *ctx, const char *name, const nrl_batch *batch)
{
    (void)ctx, (void)batch;
    recorder *r = recording;
    r->unit = r->policy->n_units - 1;
    while (r->unit >= 0 && r->policy->units[r->unit].name != name)
        r->unit--;
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

/* The memory of a step with a larger micro-batch than those of the first steps, if the first MOST_SAMPLES samples have
 * one. The samples of a stream are not known in advance. */
static nrl_status walk_largest(run *r)
{
    const session *se = &r->session;
    const int64_t updates = session_updates(se), all = se->total_steps / updates;
    int64_t n = MOST_SAMPLES / se->config.train.global_batch + 1;
    nrl_run_event e;
    bool done;
    if (se->stream || !se->train.plan) return NRL_OK;
    const int64_t step = data_plan_largest_step(se->train.plan, n < all ? n : all) * updates;
    if (step <= r->trainer.progress.step) return NRL_OK;
    r->trainer.progress.step = step;
    return walk_step(r, &e, &done);
}

/* Steps with times, and one without, whose duration is the host's own work. */
static nrl_status walk_steps(run *r, recorder *rec, rank_log *l, prediction *out)
{
    nrl_run_event e;
    bool done = false;
    out->n_steps = 0;
    out->tokens = 0;
    rec->phase = NRL_PHASE_NONE;
    rec->policy = r->session.model;
    rec->unit = -1;
    ctx_set_profiler(r->session.ctx, rec->times ? &dry_profiler : NULL, NULL);
    rec->log = rec->times ? l : NULL;
    nrl_status st = NRL_OK;
    while (st == NRL_OK && out->n_steps < STEPS) {
        st = walk_step(r, &e, &done);
        if (st != NRL_OK || done) break;
        out->tokens += (int64_t)e.tokens;
        out->n_steps++;
        if (rec->times) l->n_steps++;
        if (rec->times) add_event(l, EVENT_STEP);
    }
    rec->log = NULL;
    ctx_set_profiler(r->session.ctx, NULL, NULL);
    if (rec->st != NRL_OK || st != NRL_OK) return st;
    const double begin = thread_seconds();
    if (!done) NRL_TRY(walk_step(r, &e, &done));
    if (!done) l->host = thread_seconds() - begin;
    return rec->times ? NRL_OK : walk_largest(r);
}

/* Ranks with the same coordinates on the axes that divide a model differ in their batches alone, and those of an axis
 * that divides the width compute alike: of many ranks a few are walked. Ranks that send messages to each other are on
 * an axis that divides the depth or the tokens, and all of these are. */
static bool stands_for_others(const run *r, int32_t rank)
{
    const session *se = &r->session;
    int32_t stride = nrl_mesh_world(se->mesh), most = MOST_WALKED, n_batches = 0;
    for (size_t i = 0; i < se->config.n_axes; i++) {
        const nrl_mesh_axis *axis = se->config.axes[i].axis;
        n_batches += axis->divides == NRL_DIVIDES_BATCH || axis->divides == NRL_DIVIDES_EXPERTS;
        if (axis->divides == NRL_DIVIDES_DEPTH || axis->divides == NRL_DIVIDES_TOKENS)
            most /= nrl_mesh_size(se->mesh, axis->name);
    }
    if (n_batches > 1) most /= 4;
    for (size_t i = 0; i < se->config.n_axes; i++) {
        const nrl_mesh_axis *axis = se->config.axes[i].axis;
        const int32_t size = nrl_mesh_size(se->mesh, axis->name);
        stride /= size;
        const int32_t at = rank / stride % size;
        if (axis->divides == NRL_DIVIDES_WIDTH && at) return false;
        if (axis->divides == NRL_DIVIDES_DEPTH || axis->divides == NRL_DIVIDES_TOKENS) continue;
        if (at >= (most > 1 ? most : 1)) return false;
    }
    return true;
}

/* Groups of ranks with different batches. */
static int32_t batches(const run *r)
{
    const session *se = &r->session;
    int32_t n = 1;
    for (size_t i = 0; i < se->config.n_axes; i++) {
        const nrl_mesh_axis *axis = se->config.axes[i].axis;
        if (axis->divides == NRL_DIVIDES_BATCH || axis->divides == NRL_DIVIDES_EXPERTS)
            n *= nrl_mesh_size(se->mesh, axis->name);
    }
    return n;
}

static nrl_status walk_rank(const predict_setup *setup, const nrl_rank_info *place, nrl_config *config, recorder *rec,
                            rank_log *l, bool *walks, int32_t *n_batches, prediction *out)
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
    if (st == NRL_OK && place) *n_batches = batches(r);
    for (int32_t k = 1; k < setup->ranks && st == NRL_OK && place->rank == 0; k++)
        walks[k] = setup->ranks <= MOST_WALKED || stands_for_others(r, k);
    if (st == NRL_OK && rec->times && setup->ranks > 1) {
        const int32_t node = predict_node(setup, rec->m);
        st = links_measure(rec->m, r, setup->ranks, !setup->on_nodes ? MOST_MEASURED : node > 2 ? node : 2);
    }
    if (st == NRL_OK && !out->config) out->config = node_as_written(setup->memory, r->session.config.resolved);
    if (st == NRL_OK) out->n_units = r->session.model->n_units;
    if (st == NRL_OK && !rec->unit_seconds)
        rec->unit_seconds = arena_alloc(setup->memory, (size_t)out->n_units * sizeof *rec->unit_seconds);
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

/* A call of all ranks of a group, or a message; n_ranks: those of them that are walked. */
typedef struct {
    int32_t n_begun, n_ranks;
    double begun, end; /* begun: by the last rank */
    bool is_known;     /* end */
} joint;

/* The calls of a group, or the messages between two ranks with one tag: the n-th of one rank is the n-th of all. */
typedef struct {
    int32_t first, last, stride, ranks; /* last: the receiver, -1 for a group */
    uint64_t tag;
    int32_t *joints;                         /* [n] */
    int32_t n, room, rank, n_seen, n_walked; /* n_seen: of `rank`; n_walked: ranks */
} lane;

typedef struct {
    const rank_log *log; /* of a rank that is walked */
    size_t at;
    double left;            /* seconds that it still computes with a processor of its own */
    double channel, waited; /* channel: when the calls begun so far have ended */
    int32_t *joints;        /* [n_calls] */
} sim_rank;

typedef struct {
    const machine *m;
    sim_rank *ranks;
    lane *lanes;
    joint *joints;
    int32_t n, n_lanes, lanes_room, n_joints, joints_room;
    double now, processors; /* processors: so many of the ranks can compute at once */
    bool is_full;           /* ranks leave no processor to communication */
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
                      .stride = pair ? 0 : c->stride,
                      .ranks = pair ? 2 : c->ranks,
                      .tag = pair ? c->tag : 0,
                      .rank = -1};
    for (int32_t i = 0; i < s->n_lanes; i++) {
        const lane *l = &s->lanes[i];
        if (l->first == key.first && l->last == key.last && l->stride == key.stride && l->ranks == key.ranks &&
            l->tag == key.tag)
            return &s->lanes[i];
    }
    if (s->n_lanes == s->lanes_room) {
        s->lanes_room = s->lanes_room ? 2 * s->lanes_room : 64;
        s->lanes = mem_realloc(s->lanes, (size_t)s->lanes_room * sizeof *s->lanes);
    }
    lane *l = &s->lanes[s->n_lanes++];
    *l = key;
    l->n_walked = pair ? 2 : 0;
    for (int32_t i = 0; i < s->n && !pair; i++) {
        const int32_t at = s->ranks[i].log->rank - c->base;
        if (at >= 0 && at % c->stride == 0 && at / c->stride < c->ranks) l->n_walked++;
    }
    return l;
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
        s->joints[s->n_joints] = (joint){.n_ranks = l->n_walked};
        l->joints[l->n++] = s->n_joints++;
    }
    return l->joints[l->n_seen++];
}

/* A message has two ranks. */
static machine_call on_machine(const call *c, int32_t rank)
{
    const int32_t other = c->from >= 0 ? c->from : c->to;
    if (other < 0) return (machine_call){c->kind, c->base, c->stride, c->ranks, c->bytes};
    return (machine_call){c->kind, rank < other ? rank : other, abs(other - rank), 2, c->bytes};
}

#define INSTANT 1e-12 /* seconds: shorter than any event */

static joint *joint_of(const simulation *s, const sim_rank *r, const event *e)
{
    return &s->joints[r->joints[e->call]];
}

static nrl_status begin_call(simulation *s, sim_rank *r, const event *e)
{
    double seconds, busy;
    const call *c = &r->log->calls[e->call];
    const machine_call where = on_machine(c, r->log->rank);
    joint *j = joint_of(s, r, e);
    if (!machine_link(s->m, &where, &seconds, &busy))
        return nrl_fail(NRL_ERR_CONFIG,
                        "the machine file contains no time of '%s'\n"
                        "hint: `nrl plan --save-machine` with --ranks measures it",
                        call_names[c->kind]);
    const double begins = s->now > r->channel ? s->now : r->channel;
    if (begins > j->begun) j->begun = begins;
    r->channel = begins + seconds;
    if (s->is_full) r->left = busy;   /* its threads take the processors from the computation */
    if (++j->n_begun == j->n_ranks) { /* the data travel when the channels of all are free */
        j->end = j->begun + seconds;
        j->is_known = true;
    }
    return NRL_OK;
}

/* Passes a rank's events until it computes, waits or ends. */
static nrl_status pass_events(simulation *s, sim_rank *r, bool *moved)
{
    for (; r->at < r->log->n_events && r->left <= 0; r->at++) {
        const event *e = &r->log->events[r->at];
        if (e->kind == EVENT_COMPUTE) r->left = e->seconds;
        if (e->kind == EVENT_CALL) NRL_TRY(begin_call(s, r, e));
        if (e->kind == EVENT_WAIT) {
            const joint *j = joint_of(s, r, e);
            if (!j->is_known || j->end > s->now + INSTANT) return NRL_OK;
            if (j->end > r->channel) r->channel = j->end;
        }
        *moved = true;
    }
    return NRL_OK;
}

/* Until the next rank has computed, or the next call that a rank waits for has ended. Ranks that compute at once share
 * the processors. false: nothing is left to come. */
static bool pass_time(simulation *s)
{
    double least = INFINITY;
    int32_t n_computing = 0;
    for (int32_t r = 0; r < s->n; r++)
        n_computing += s->ranks[r].left > 0;
    const double rate = n_computing > s->processors ? s->processors / n_computing : 1;
    for (int32_t r = 0; r < s->n; r++) {
        const sim_rank *k = &s->ranks[r];
        const joint *j = k->left <= 0 && k->at < k->log->n_events ? joint_of(s, k, &k->log->events[k->at]) : NULL;
        if (k->left > 0) least = fmin(least, k->left / rate);
        if (j && j->is_known) least = fmin(least, j->end - s->now);
    }
    if (!isfinite(least)) return false;
    s->now += least;
    for (int32_t r = 0; r < s->n; r++) {
        sim_rank *k = &s->ranks[r];
        if (k->left > 0)
            k->left = k->left - least * rate > INSTANT ? k->left - least * rate : 0;
        else if (k->at < k->log->n_events)
            k->waited += least;
    }
    return true;
}

static nrl_status simulate(const machine *m, const rank_log *logs, int32_t n, double processors, bool is_full,
                           prediction *out)
{
    simulation s = {
        .m = m, .n = n, .processors = processors, .is_full = is_full, .ranks = mem_alloc((size_t)n * sizeof *s.ranks)};
    nrl_status st = NRL_OK;
    for (int32_t r = 0; r < n; r++)
        s.ranks[r] = (sim_rank){.log = &logs[r], .joints = mem_alloc((logs[r].n_calls + 1) * sizeof(int32_t))};
    for (int32_t r = 0; r < n; r++)
        for (size_t i = 0; i < logs[r].n_calls; i++)
            s.ranks[r].joints[i] = join_call(&s, &logs[r].calls[i], logs[r].rank);
    do {
        for (bool moved = true; moved && st == NRL_OK;) {
            moved = false;
            for (int32_t r = 0; r < n && st == NRL_OK; r++)
                st = pass_events(&s, &s.ranks[r], &moved);
        }
    } while (st == NRL_OK && pass_time(&s));
    out->seconds = s.now;
    int32_t longest = 0;
    for (int32_t r = 0; r < n; r++) {
        if (st == NRL_OK && s.ranks[r].at < logs[r].n_events)
            st = nrl_fail(NRL_ERR_PLUGIN, "cannot predict the time: rank %d waits for a call that no other rank makes",
                          (int)logs[r].rank);
        if (logs[r].compute > logs[longest].compute) longest = r;
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
        const machine_call where = on_machine(&l->calls[i], l->rank);
        if (machine_link(m, &where, &seconds, &busy)) sum += busy;
    }
    return sum;
}

int32_t predict_node(const predict_setup *setup, const machine *m)
{
    if (m->ranks_per_node) return m->ranks_per_node;
    if (!setup->on_nodes) return setup->ranks;
    const long n = m->threads ? m->processors / m->threads : sysconf(_SC_NPROCESSORS_ONLN);
    return n > 1 ? (int32_t)n : 1;
}

/* Sums over the calls of one kind and group. */
static void put_calls(const predict_setup *setup, const rank_log *l, prediction *out)
{
    struct {
        const call *of;
        double count, bytes;
    } sums[MOST_SUMS];
    int32_t n = 0, steps = 0;
    for (size_t i = 0; i < l->n_events; i++) {
        if (l->events[i].kind == EVENT_STEP) steps++;
        if (l->events[i].kind != EVENT_CALL) continue;
        const call *c = &l->calls[l->events[i].call];
        int32_t k = 0;
        while (k < n &&
               (sums[k].of->kind != c->kind || sums[k].of->ranks != c->ranks || sums[k].of->stride != c->stride))
            k++;
        if (k == MOST_SUMS) continue;
        if (k == n) sums[n++].of = c, sums[k].count = sums[k].bytes = 0;
        sums[k].count++;
        sums[k].bytes += c->sent;
    }
    out->calls = node_new(setup->memory, NRL_NODE_LIST);
    for (int32_t k = 0; k < n; k++) {
        nrl_node *map = node_new(setup->memory, NRL_NODE_MAP);
        node_append(setup->memory, out->calls, NULL, map);
        node_append_text(setup->memory, map, "call", call_names[sums[k].of->kind]);
        node_append_int(setup->memory, map, "ranks", sums[k].of->ranks);
        node_append_int(setup->memory, map, "stride", sums[k].of->stride);
        node_append(setup->memory, map, "count", node_f64(setup->memory, sums[k].count / steps));
        node_append(setup->memory, map, "sent_bytes", node_f64(setup->memory, sums[k].bytes / steps));
    }
}

static void put_traffic(const predict_setup *setup, const rank_log *l, prediction *out)
{
    static const char *const names[] = {"sent_bytes", "sent_messages", "received_messages"};
    nrl_node *map = node_new(setup->memory, NRL_NODE_MAP);
    traffic sum = {0};
    node_append(setup->memory, out->traffic, NULL, map);
    node_append_int(setup->memory, map, "rank", l->rank);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        nrl_node *list = node_new(setup->memory, NRL_NODE_LIST);
        node_append(setup->memory, map, names[k], list);
        for (int32_t i = 0; i < l->n_steps; i++) {
            const traffic *t = &l->sent[i];
            node_append(setup->memory, list, NULL,
                        node_f64(setup->memory, k == 0   ? t->bytes
                                                : k == 1 ? t->messages
                                                         : t->received));
        }
    }
    for (int32_t i = 0; i < l->n_steps; i++) {
        sum.bytes += l->sent[i].bytes / l->n_steps;
        sum.messages += l->sent[i].messages / l->n_steps;
    }
    if (sum.bytes > out->sent_bytes) out->sent_bytes = sum.bytes;
    if (sum.messages > out->sent_messages) out->sent_messages = sum.messages;
}

nrl_status predict(const predict_setup *setup, nrl_config *(*make_config)(void *user, arena *a), void *user, machine *m,
                   bool times, prediction *out)
{
    const int32_t world = setup->ranks, per_node = predict_node(setup, m);
    rank_log *logs = NULL;
    int64_t tokens = 0;
    int32_t steps = 0, n = 0, n_counted = 0, n_batches = 1;
    bool *walks = mem_alloc((size_t)world * sizeof *walks);
    nrl_status st = NRL_OK;
    recorder rec = {.m = m, .times = times};
    *out = (prediction){0};
    recording = &rec;
    for (int32_t r = 0; r < world && st == NRL_OK; r++) {
        if (r && !walks[r]) continue;
        arena a = {0};
        const int32_t node = r / per_node * per_node, left = world - node;
        const nrl_rank_info place = {.rank = r,
                                     .world = world,
                                     .local_rank = r - node,
                                     .local_world = left < per_node ? left : per_node,
                                     .origin = "plan"};
        nrl_config *config = make_config(user, &a);
        prediction own = *out;
        logs = mem_realloc(logs, (size_t)(n + 1) * sizeof *logs);
        logs[n] = (rank_log){.rank = r};
        st = walk_rank(setup, world > 1 ? &place : NULL, config, &rec, &logs[n++], walks, &n_batches, &own);
        out->memory = own.memory;
        out->n_units = own.n_units;
        out->config = own.config;
        tokens += own.tokens / world; /* in an exchange without other ranks these say the same */
        n_counted += own.tokens > 0;
        steps = own.n_steps;
        nrl_config_destroy(config);
        arena_free(&a);
    }
    free(walks);
    recording = NULL;
    if (st == NRL_OK) st = rec.st;
    if (st == NRL_OK && times && steps) {
        /* Ranks of a cluster have what the measured one had. */
        const double shares =
            m->ranks_per_node ? 0 : (double)(world < per_node ? world : per_node) * m->threads / m->processors;
        out->traffic = node_new(setup->memory, NRL_NODE_LIST);
        out->unit_seconds = rec.unit_seconds;
        for (int32_t u = 0; u < out->n_units; u++)
            out->unit_seconds[u] /= steps;
        put_calls(setup, &logs[0], out);
        for (int32_t r = 0; r < n; r++) {
            put_traffic(setup, &logs[r], out);
            out->busy += (logs[r].compute / steps + logs[r].host + calls_busy(m, &logs[r]) / steps) / n;
        }
        st = simulate(m, logs, n, shares > 1 ? n / shares : n, shares >= 1, out);
        out->has_time = st == NRL_OK;
        out->seconds = out->seconds / steps + out->host * (shares > 1 ? shares : 1);
        out->compute /= steps;
        out->waiting /= steps;
    }
    out->n_steps = steps;
    out->n_walked = n;
    out->tokens = steps && n_counted ? tokens * n_batches / n_counted / steps : 0;
    for (int32_t r = 0; r < n; r++) {
        free(logs[r].events);
        free(logs[r].calls);
    }
    free(logs);
    return st;
}
