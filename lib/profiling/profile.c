/*
 * profile.c - the profiler of a context: marks, the times between them, and rows of operations by phase and shape.
 */
#include "base/clock.h"
#include "profiling/internal.h"
#include "profiling/op_work.h"
#include "tensor/device/profile.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_MARKS = 1 << 16,      /* marks are read, with a wait, before there are more */
    MOST_SHAPED_ROWS = 1 << 13 /* with more rows, shapes are merged: lengths may differ in every step */
};

const char *nrl_phase_name(nrl_phase p)
{
    static const char *const names[NRL_PHASE_COUNT] = {"none", "data",      "forward",       "recompute", "backward",
                                                       "head", "reference", "communication", "update",    "host"};
    return names[p];
}

/* ---- rows ---- */

static bool same_row(const nrl_op_time *a, const nrl_op_time *b)
{
    return !strcmp(a->name, b->name) && a->phase == b->phase && !memcmp(a->dims, b->dims, sizeof a->dims);
}

static uint64_t hash_row(const nrl_op_time *r)
{
    uint64_t h = 14695981039346656037u ^ (uint64_t)r->phase;
    for (const char *c = r->name; *c; c++)
        h = (h ^ (unsigned char)*c) * 1099511628211u;
    for (int i = 0; i < 3; i++)
        h = (h ^ (uint64_t)r->dims[i]) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* The slot of the row in the hash table, or the empty slot for it. */
static int32_t *place_of(const profile *p, const nrl_op_time *key)
{
    uint64_t mask = (uint64_t)p->table_size - 1, at = hash_row(key) & mask;
    while (p->table[at] && !same_row(&p->rows[p->table[at] - 1], key))
        at = (at + 1) & mask;
    return &p->table[at];
}

static void grow_rows(profile *p)
{
    p->table_size = p->table_size ? 2 * p->table_size : 256;
    free(p->table);
    p->table = mem_alloc((size_t)p->table_size * sizeof *p->table);
    p->rows = mem_realloc(p->rows, (size_t)p->table_size / 2 * sizeof *p->rows);
    for (int32_t i = 0; i < p->n_rows; i++)
        *place_of(p, &p->rows[i]) = i + 1;
}

static int32_t find_row(profile *p, const char *name, uint32_t phase, const int64_t *dims)
{
    nrl_op_time key = {.name = name, .phase = (nrl_phase)phase};
    if (dims && p->n_rows < MOST_SHAPED_ROWS) memcpy(key.dims, dims, sizeof key.dims);
    if (2 * p->n_rows >= p->table_size) grow_rows(p);
    int32_t *at = place_of(p, &key);
    if (!*at) {
        p->rows[p->n_rows] = key;
        *at = ++p->n_rows;
    }
    return *at - 1;
}

/* ---- reading ---- */

static nrl_status seconds_between(const nrl_ctx *ctx, const mark *a, const mark *b, double *seconds)
{
    const device *d = ctx->device;
    *seconds = b->host - a->host;
    return a->event && b->event ? d->table.event_seconds(d->self, a->event, b->event, seconds) : NRL_OK;
}

/* ---- the timeline ---- */

static bool is_inside(const profile *p, int32_t region, int32_t outer)
{
    while (region > outer)
        region = p->regions[region].parent;
    return region == outer;
}

/* At a mark, slices of what was until now end, and those of what is from now on begin. */
static void draw_mark(profile *p, const mark *m, double at)
{
    open_slices *o = &p->open;
    if (o->in_phase != m->phase || o->in_unit != m->unit) {
        if (o->in_unit) trace_slice(p->trace, "units", o->in_unit, o->unit, at, NULL);
        o->in_unit = m->unit;
        o->unit = at;
    }
    if (o->in_phase != m->phase) {
        if (o->in_phase) trace_slice(p->trace, "phases", nrl_phase_name((nrl_phase)o->in_phase), o->phase, at, NULL);
        if (o->in_phase && !m->phase) {
            char name[32];
            snprintf(name, sizeof name, "step %lld", (long long)(p->steps_before + p->times.steps));
            trace_slice(p->trace, "steps", name, o->step, at, NULL);
        }
        if (!o->in_phase) o->step = at;
        o->in_phase = m->phase;
        o->phase = at;
    }
    while (o->region >= 0 && !is_inside(p, m->region, o->region)) {
        trace_slice(p->trace, "regions", p->regions[o->region].name, o->regions[o->region], at, NULL);
        o->region = p->regions[o->region].parent;
    }
    if (o->region != m->region) {
        o->regions = mem_realloc(o->regions, (size_t)p->n_regions * sizeof *o->regions);
        for (int32_t r = m->region; r != o->region; r = p->regions[r].parent)
            o->regions[r] = at;
        o->region = m->region;
    }
}

/* The time of a mark is the host's, or with events the host's time of the first mark, when the device is idle, and the
 * device's from there on. */
static nrl_status add_up(nrl_ctx *ctx)
{
    profile *p = ctx->profile;
    const device *d = ctx->device;
    const mark *last = &p->marks[p->n_marks - 1];
    if (last->event) NRL_TRY(d->table.event_wait(d->self, last->event));
    for (const mark *m = p->marks; m < last; m++) {
        double seconds, at = m->event && p->open.last > 0 ? p->open.last : m->host;
        NRL_TRY(seconds_between(ctx, m, m + 1, &seconds));
        if (m->row >= 0) p->rows[m->row].seconds += seconds;
        if (m->row >= 0) p->times.busy[m->phase] += seconds;
        p->times.seconds[m->phase] += seconds;
        p->times.host_seconds[m->phase] += m[1].host - m->host;
        for (int32_t r = m->region; r >= 0; r = p->regions[r].parent) {
            p->regions[r].seconds += seconds;
            if (m->row >= 0) p->regions[r].busy += seconds;
        }
        if (p->trace) draw_mark(p, m, at);
        if (p->trace && m->row >= 0)
            trace_slice(p->trace, "operations", p->rows[m->row].name, at, at + seconds, p->rows[m->row].dims);
        p->open.last = at + seconds;
    }
    if (p->trace) draw_mark(p, last, last->event && p->open.last > 0 ? p->open.last : last->host);
    return NRL_OK;
}

/* Drops all marks but the last `keep` (0 or 1), from which the next time is measured. */
static void drop_marks(nrl_ctx *ctx, int64_t keep)
{
    profile *p = ctx->profile;
    const device *d = ctx->device;
    for (int64_t i = 0; i < p->n_marks - keep; i++)
        if (p->marks[i].event) d->table.event_destroy(d->self, p->marks[i].event);
    if (keep) p->marks[0] = p->marks[p->n_marks - 1];
    p->n_marks = keep;
}

static nrl_status read_marks(nrl_ctx *ctx, int64_t keep)
{
    profile *p = ctx->profile;
    if (!p->n_marks) return NRL_OK;
    nrl_status st = p->broken ? nrl_fail(NRL_ERR_DEVICE, "cannot profile: the device has no more events") : add_up(ctx);
    drop_marks(ctx, st == NRL_OK ? keep : 0);
    if (!p->n_marks) p->open.last = 0;
    return st;
}

nrl_status ctx_profile_read(nrl_ctx *ctx)
{
    const profile *p = ctx->profile;
    return p ? read_marks(ctx, p->phase == NRL_PHASE_NONE && p->region < 0 ? 0 : 1) : NRL_OK;
}

/* ---- marks ---- */

static bool has_stream(const nrl_ctx *ctx)
{
    return ctx->stream && ctx->device->table.stream_wait;
}

static bool has_timed_events(const nrl_ctx *ctx)
{
    const nrl_backend *t = &ctx->device->table;
    return ctx->stream && t->event_record_timed && t->event_seconds && t->event_wait && t->event_destroy;
}

static nrl_status add_mark(nrl_ctx *ctx)
{
    profile *p = ctx->profile;
    const nrl_backend *t = &ctx->device->table;
    mark m = {.row = p->row, .phase = p->phase, .region = p->region, .unit = p->unit};
    if (p->n_marks >= MOST_MARKS) NRL_TRY(read_marks(ctx, 1));
    if (has_timed_events(ctx))
        NRL_TRY(t->event_record_timed(ctx->device->self, ctx->stream, &m.event));
    else if (has_stream(ctx))
        NRL_TRY(t->stream_wait(ctx->device->self, ctx->stream));
    m.host = clock_seconds();
    if (p->n_marks == p->marks_capacity) {
        p->marks_capacity = p->marks_capacity ? 2 * p->marks_capacity : 1024;
        p->marks = mem_realloc(p->marks, (size_t)p->marks_capacity * sizeof *p->marks);
    }
    p->marks[p->n_marks++] = m;
    return NRL_OK;
}

/* A mark that cannot be made is reported where the marks are read. */
static void add_mark_of_change(nrl_ctx *ctx)
{
    profile *p = ctx->profile;
    if (add_mark(ctx) != NRL_OK) p->broken = true;
    if (!p->memory) return;
    memory_at(p->memory, (nrl_phase)p->phase, p->unit, p->region);
}

static nrl_status begin_work(nrl_ctx *ctx, op_work w, int64_t calls)
{
    profile *p = ctx->profile;
    ctx_memory use;
    ctx_memory_use(ctx, &use);
    if (p->trace) trace_counter(p->trace, "tensors", clock_seconds(), (double)use.live_bytes);
    int32_t row = find_row(p, w.name, p->phase, w.dims);
    p->rows[row].flops += w.flops;
    p->rows[row].bytes += w.bytes;
    p->rows[row].calls += calls;
    p->row = row;
    return add_mark(ctx);
}

/* The first of several calls has the row of all. */
static nrl_status profile_op_begin(nrl_ctx *ctx, backend_op op, const void *args, int64_t n, double flops)
{
    op_work w = op_work_of(op, args, flops);
    const size_t size = *(const uint32_t *)args; /* of one call's */
    for (int64_t i = 0; i < n; i++) {
        const char *call = (const char *)args + (size_t)i * size;
        if (i) w.bytes += op_work_of(op, call, 0).bytes;
        if (ctx->profile->memory) memory_operation(ctx->profile->memory, w.name, call);
    }
    return begin_work(ctx, w, n);
}

static nrl_status profile_copy_begin(nrl_ctx *ctx, nrl_copy_direction way, size_t bytes)
{
    const char *name = way == NRL_COPY_TO_DEVICE ? "copy to device"
                       : way == NRL_COPY_TO_HOST ? "copy to host"
                                                 : "copy on device";
    return begin_work(ctx, (op_work){.name = name, .bytes = (double)bytes}, 1);
}

static nrl_status profile_op_end(nrl_ctx *ctx)
{
    profile *p = ctx->profile;
    int32_t row = p->row;
    double begin = p->marks[p->n_marks - 1].host;
    p->row = -1;
    NRL_TRY(add_mark(ctx));
    double seconds = p->marks[p->n_marks - 1].host - begin;
    p->rows[row].host_seconds += seconds;
    p->host_in_ops += seconds;
    return NRL_OK;
}

static void set_phase(nrl_ctx *ctx, nrl_phase phase)
{
    profile *p = ctx->profile;
    bool has_unit = phase == NRL_PHASE_FORWARD || phase == NRL_PHASE_RECOMPUTE || phase == NRL_PHASE_BACKWARD ||
                    phase == NRL_PHASE_HEAD;
    p->phase = phase;
    profile_nvtx(&p->nvtx_phase, phase ? nrl_phase_name(phase) : NULL);
    if (!has_unit) p->unit = NULL;
    add_mark_of_change(ctx);
}

static void profile_unit(nrl_ctx *ctx, const char *name, const nrl_batch *batch)
{
    profile *p = ctx->profile;
    if (p->memory) memory_batch(p->memory, p->steps_before + p->times.steps + 1, batch);
    if (p->unit == name || p->phase == NRL_PHASE_NONE) return;
    p->unit = name;
    add_mark_of_change(ctx);
}

void profile_mark_region(nrl_ctx *ctx, int32_t region)
{
    ctx->profile->region = region;
    add_mark_of_change(ctx);
}

static void profile_memory(nrl_ctx *ctx, const pool_block *b, bool taken)
{
    profile *p = ctx->profile;
    if (!p->memory) return;
    if (taken)
        memory_take(p->memory, b);
    else
        memory_release(p->memory, b);
}

static nrl_phase profile_phase_set(nrl_ctx *ctx, nrl_phase phase)
{
    if (ctx->profile->phase == NRL_PHASE_NONE) return NRL_PHASE_NONE;
    nrl_phase before = (nrl_phase)ctx->profile->phase;
    if (before != phase) set_phase(ctx, phase);
    return before;
}

static nrl_status profile_step(nrl_ctx *ctx, bool begins)
{
    profile *p = ctx->profile;
    p->times.steps += !begins && p->phase != NRL_PHASE_NONE;
    if (p->memory && !begins) memory_end_step(p->memory);
    profile_nvtx(&p->nvtx_step, begins ? "step" : NULL);
    set_phase(ctx, begins ? NRL_PHASE_HOST : NRL_PHASE_NONE);
    return begins ? NRL_OK : ctx_profile_read(ctx); /* a mark that could not be made is reported there */
}

/* ---- results, and on and off ---- */

static void add_row(nrl_op_time *to, const nrl_op_time *r)
{
    to->seconds += r->seconds;
    to->host_seconds += r->host_seconds;
    to->flops += r->flops;
    to->bytes += r->bytes;
    to->calls += r->calls;
    to->on_host |= r->on_host;
}

nrl_op_time *ctx_profile_rows(const nrl_ctx *ctx, unsigned by, int *n)
{
    const profile *p = ctx->profile;
    profile merged = {0};
    for (int32_t i = 0; p && i < p->n_rows; i++) {
        const nrl_op_time *r = &p->rows[i];
        int32_t at = find_row(&merged, r->name, by & NRL_BY_PHASE ? r->phase : NRL_PHASE_NONE,
                              by & NRL_BY_SHAPE ? r->dims : NULL);
        add_row(&merged.rows[at], r);
    }
    free(merged.table);
    *n = merged.n_rows;
    return merged.rows;
}

void ctx_profile_phases(const nrl_ctx *ctx, nrl_phase_times *fill)
{
    *fill = ctx->profile ? ctx->profile->times : (nrl_phase_times){0};
}

const char *ctx_profile_clock(const nrl_ctx *ctx)
{
    return has_timed_events(ctx) ? "the device's events"
           : has_stream(ctx)     ? "the host's clock, with a wait before and after each operation"
                                 : "the host's clock";
}

static double profile_mark(const nrl_ctx *ctx)
{
    return clock_seconds() - ctx->profile->host_in_ops;
}

static void profile_host(nrl_ctx *ctx, const char *name, double begin)
{
    profile *p = ctx->profile;
    int32_t at = find_row(p, name, p->phase, NULL); /* may reallocate the rows */
    nrl_op_time *row = &p->rows[at];
    row->seconds += profile_mark(ctx) - begin;
    row->on_host = true;
    row->calls++;
}

static void profile_close(nrl_ctx *ctx)
{
    profile *p = ctx->profile;
    profile_unbind(ctx);
    profile_nvtx(&p->nvtx_phase, NULL);
    profile_nvtx(&p->nvtx_step, NULL);
    drop_marks(ctx, 0);
    trace_destroy(p->trace);
    memory_destroy(p->memory);
    arena_free(&p->names);
    free(p->regions);
    free(p->open.regions);
    free(p->marks);
    free(p->rows);
    free(p->table);
    free(p);
}

void ctx_profile_begin(nrl_ctx *ctx, unsigned what, int64_t steps_before)
{
    static const ctx_profiler profiler = {.op_begin = profile_op_begin,
                                          .copy_begin = profile_copy_begin,
                                          .op_end = profile_op_end,
                                          .phase_set = profile_phase_set,
                                          .unit = profile_unit,
                                          .memory = profile_memory,
                                          .step = profile_step,
                                          .mark = profile_mark,
                                          .host = profile_host,
                                          .close = profile_close};
    profile *p = mem_alloc(sizeof *p);
    ctx_memory use;
    ctx_memory_use(ctx, &use);
    p->row = p->region = p->open.region = -1;
    p->steps_before = steps_before;
    p->began = clock_seconds();
    if (what & NRL_PROFILE_TRACE) p->trace = trace_create();
    if (what & NRL_PROFILE_MEMORY) p->memory = memory_create((int64_t)use.live_bytes);
    ctx_set_profiler(ctx, &profiler, p);
    profile_bind(ctx);
}

void ctx_profile(nrl_ctx *ctx, bool on)
{
    if (on)
        ctx_profile_begin(ctx, 0, 0);
    else
        ctx_set_profiler(ctx, NULL, NULL);
}
