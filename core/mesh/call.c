/*
 * call.c - one call on an axis, from start to end: numbers it, records it, and waits for it in slices, checking for a
 * failure of another rank after each. If the device can wait for the call, the host does not: it checks for the end
 * later, and waits before it synchronizes with the device.
 */
#include "base/arena.h"
#include "mesh/internal.h"
#include "base/clock.h"
#include <stdio.h>
#include <string.h>

#define SLICE_S 0.2

typedef nrl_status (*member)(void *self, const nrl_comm_args *a, nrl_request **request);

static const char *const op_names[] = {
    [MESH_BARRIER] = "barrier",
    [MESH_BROADCAST] = "broadcast",
    [MESH_ALL_REDUCE] = "all_reduce",
    [MESH_ALL_GATHER] = "all_gather",
    [MESH_REDUCE_SCATTER] = "reduce_scatter",
    [MESH_ALL_TO_ALL] = "all_to_all",
    [MESH_SEND] = "send",
    [MESH_RECV] = "recv",
};

static member member_of(const nrl_collective *t, mesh_op op)
{
    switch (op) {
    case MESH_BARRIER:
        return t->barrier;
    case MESH_BROADCAST:
        return t->broadcast;
    case MESH_ALL_REDUCE:
        return t->all_reduce;
    case MESH_ALL_GATHER:
        return t->all_gather;
    case MESH_REDUCE_SCATTER:
        return t->reduce_scatter;
    case MESH_ALL_TO_ALL:
        return t->all_to_all;
    case MESH_SEND:
        return t->send;
    default:
        return t->recv;
    }
}

static record_call describe(nrl_comm *c, mesh_op op, const nrl_comm_args *a, const char *what)
{
    bool pair = op == MESH_SEND || op == MESH_RECV;
    record_call call = {.axis = c->name,
                        .op = op_names[op],
                        .number = ++c->n_calls,
                        .count = a->count,
                        .step = c->mesh->step,
                        .dtype = (nrl_dtype)a->dtype,
                        .peer = pair ? c->base + a->peer * c->stride : -1,
                        .entered = clock_seconds()};
    snprintf(call.what, sizeof call.what, "%s", what ? what : "");
    return call;
}

static nrl_work *take_work(nrl_mesh *m)
{
    nrl_work *w = m->spare_works;
    if (!w) return mem_alloc(sizeof *w);
    m->spare_works = w->next;
    *w = (nrl_work){0};
    return w;
}

static nrl_status finish_fenced(nrl_mesh *m, bool waits);

nrl_status call_start(nrl_comm *c, mesh_op op, const nrl_comm_args *a, const char *what, nrl_work **work)
{
    nrl_mesh *m = c->mesh;
    member start = member_of(&m->table, op);
    if (!start)
        return nrl_fail(NRL_ERR_PLUGIN, "collective '%s' has no operation '%s'", m->table.plugin.name, op_names[op]);
    if (m->dead) return mesh_dead_error(m);
    NRL_TRY(finish_fenced(m, false));
    record_call call = describe(c, op, a, what);
    if (control_failed(m->control)) return mesh_broken(m, c, NULL, NRL_OK, 0);
    nrl_request *request = NULL;
    uint64_t handle = record_enter(&m->calls, &call);
    nrl_status st = start(c->group, a, &request);
    if (st) return mesh_broken(m, c, &call, st, 0);
    nrl_work *w = take_work(m);
    w->comm = c;
    w->request = request;
    w->record = handle;
    *work = w;
    return NRL_OK;
}

/* Returns NRL_OK without *done if another rank has failed or the call timed out. */
static nrl_status wait_slices(nrl_mesh *m, const nrl_work *w, double begin, bool *done)
{
    double end = begin + m->timeout_step;
    for (;;) {
        double left = end - clock_seconds();
        NRL_TRY(m->table.wait(w->comm->group, w->request, left < SLICE_S ? left : SLICE_S, done));
        if (*done || left < SLICE_S || control_failed(m->control)) return NRL_OK;
    }
}

/* Handles a call that failed: with a status, or with NRL_OK because another rank has failed or the call timed out. */
static nrl_status broken(nrl_mesh *m, const nrl_work *w, nrl_status st, double waited)
{
    record_call call;
    if (!record_find(&m->calls, w->record, &call))
        call = (record_call){.axis = w->comm->name, .op = "a call", .peer = -1, .step = m->step};
    return mesh_broken(m, w->comm, &call, st, waited);
}

nrl_status call_wait(nrl_work *w)
{
    nrl_mesh *m = w->comm->mesh;
    bool done = false;
    double begin = clock_seconds();
    if (m->dead) return mesh_dead_error(m);
    nrl_status st = wait_slices(m, w, begin, &done);
    double waited = clock_seconds() - begin;
    m->wait_seconds += waited;
    if (st || !done) return broken(m, w, st, waited);
    record_done(&m->calls, w->record);
    return NRL_OK;
}

void call_release(nrl_work *w)
{
    nrl_mesh *m = w->comm->mesh;
    if (w->request && m->table.release) m->table.release(w->comm->group, w->request);
    if (w->staged_send) w->staged_send->used = false;
    if (w->staged_receive) w->staged_receive->used = false;
    w->request = NULL;
    w->next = m->spare_works;
    m->spare_works = w;
}

/* ---- work that the device waits for ---- */

nrl_status call_fence(nrl_work *w, nrl_stream *stream)
{
    nrl_mesh *m = w->comm->mesh;
    nrl_status st = m->dead ? mesh_dead_error(m) : m->table.fence(w->comm->group, w->request, stream);
    if (st) {
        if (!m->dead) st = broken(m, w, st, 0);
        call_release(w);
        return st;
    }
    w->fenced_at = clock_seconds();
    w->next = NULL;
    if (!m->fenced) m->fenced_end = &m->fenced;
    *m->fenced_end = w;
    m->fenced_end = &w->next;
    return NRL_OK;
}

static void drop_oldest(nrl_mesh *m)
{
    nrl_work *w = m->fenced;
    m->fenced = w->next;
    call_release(w);
}

/* Drops the work that has ended, oldest first, or waits for all of it. */
static nrl_status finish_fenced(nrl_mesh *m, bool waits)
{
    while (m->fenced && !m->dead) {
        nrl_work *w = m->fenced;
        bool done = false;
        const double begin = waits ? clock_seconds() : w->fenced_at;
        nrl_status st = waits ? wait_slices(m, w, begin, &done) : m->table.wait(w->comm->group, w->request, 0, &done);
        const double waited = clock_seconds() - begin;
        if (!waits && !st && !done && waited < m->timeout_step) return NRL_OK;
        if (st || !done) return broken(m, w, st, waited);
        record_done(&m->calls, w->record);
        drop_oldest(m);
    }
    return NRL_OK;
}

nrl_status call_settle(nrl_mesh *m)
{
    NRL_TRY(finish_fenced(m, true));
    return m->dead ? mesh_dead_error(m) : NRL_OK;
}

void call_forget(nrl_mesh *m)
{
    while (m->fenced)
        drop_oldest(m);
}
