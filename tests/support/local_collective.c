/*
 * local_collective.c - ranks that are threads: calls, requests, failure. The last rank that makes a
 * call computes it (local_compute.c) and wakes the others; local_world.c has their shared state.
 */
#include "support/local_world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    group *group;
    int32_t rank; /* in the group */
    double timeout;
    int64_t sent, received;
} local;

static const char *const kind_names[] = {
    [LOCAL_BARRIER] = "barrier",       [LOCAL_BROADCAST] = "broadcast", [LOCAL_ALL_REDUCE] = "all_reduce",
    [LOCAL_ALL_GATHER] = "all_gather", [LOCAL_REDUCE] = "reduce",       [LOCAL_REDUCE_SCATTER] = "reduce_scatter",
    [LOCAL_GATHER] = "gather",         [LOCAL_SCATTER] = "scatter",     [LOCAL_ALL_TO_ALL] = "all_to_all",
    [LOCAL_SPLIT] = "split",
};

/* ---- joining ---- */

static group *group_of_all(const world *w)
{
    group *g = w->groups;
    while (g->next)
        g = g->next;
    return g;
}

static nrl_status local_open(const void *options, nrl_store *store, int32_t rank, int32_t size, double timeout,
                             void **self)
{
    world *w;
    (void)options;
    *self = NULL;
    NRL_TRY(local_world_join(store, rank, size, timeout, &w));
    local *l = *self = calloc(1, sizeof *l);
    pthread_mutex_lock(&w->lock);
    *l = (local){.rank = rank, .timeout = timeout, .group = group_of_all(w)};
    pthread_mutex_unlock(&w->lock);
    return NRL_OK;
}

/* ---- starting ---- */

static const int64_t *copy_counts(const int64_t *counts, int32_t size)
{
    size_t bytes = (size_t)size * sizeof *counts;
    return counts ? memcpy(malloc(bytes), counts, bytes) : NULL;
}

/* Arrays of operands may be freed when the call returns. */
static nrl_comm_args copy_operands(const nrl_comm_args *a, int32_t size)
{
    nrl_comm_args copy = *a;
    copy.counts = copy_counts(a->counts, size);
    copy.offsets = copy_counts(a->offsets, size);
    copy.receive_counts = copy_counts(a->receive_counts, size);
    copy.receive_offsets = copy_counts(a->receive_offsets, size);
    return copy;
}

static nrl_status check_operands(const local *l, const nrl_comm_args *a, bool needs_other)
{
    if (a->dtype > NRL_DTYPE_U8) return nrl_fail(NRL_ERR_CONFIG, "dtype %u is not a dtype", a->dtype);
    if (a->peer < 0 || a->peer >= l->group->size || (needs_other && a->peer == l->rank))
        return nrl_fail(NRL_ERR_CONFIG, "peer %d of %d ranks, here rank %d", a->peer, l->group->size, l->rank);
    if (a->count < 0) return nrl_fail(NRL_ERR_CONFIG, "%lld elements", (long long)a->count);
    if (a->reduce == NRL_REDUCE_OP_AVERAGE && a->dtype >= NRL_DTYPE_I32)
        return nrl_fail(NRL_ERR_CONFIG, "an average of %s; expected a floating type", nrl_dtype_name(a->dtype));
    return NRL_OK;
}

static nrl_status fail_if_dead(const local *l)
{
    const world *w = l->group->world;
    if (w->aborted_by < 0) return NRL_OK;
    return nrl_fail(NRL_ERR_PEER, "rank %d has aborted", w->aborted_by);
}

/* Checks that this is the same call as that of the first rank. */
static nrl_status compare_calls(const op *o, local_kind kind, int32_t rank)
{
    const nrl_comm_args *a = &o->operands[o->first], *b = &o->operands[rank];
    bool same = o->kind == kind && a->dtype == b->dtype && a->reduce == b->reduce && a->peer == b->peer &&
                !a->counts == !b->counts && (a->counts || a->count == b->count);
    size_t bytes = (size_t)o->group->size * sizeof *a->counts;
    if (same && a->counts && kind != LOCAL_ALL_TO_ALL) same = !memcmp(a->counts, b->counts, bytes);
    if (same || (kind == LOCAL_SPLIT && o->kind == kind)) return NRL_OK;
    return nrl_fail(NRL_ERR_PEER, "call %lld differs: rank %d: %s of %lld %s, peer %d; rank %d: %s of %lld %s, peer %d",
                    (long long)o->number, o->first, kind_names[o->kind], (long long)a->count, nrl_dtype_name(a->dtype),
                    a->peer, rank, kind_names[kind], (long long)b->count, nrl_dtype_name(b->dtype), b->peer);
}

/* Ends an operation that waits for a rank that has left. */
static void end_if_lost(op *o)
{
    group *g = o->group;
    for (int32_t r = 0; r < g->size; r++)
        if (g->gone[r] && !o->requests[r] && (o->number >= 0 || o->operands[o->first].peer == r)) {
            g->lost = r;
            local_op_end(o, nrl_fail(NRL_ERR_PEER, "%s: rank %d has left", kind_names[o->kind], r));
            return;
        }
}

static void split_groups(op *o);

static op *find_op(const group *g, int64_t number)
{
    op *o = g->world->ops;
    while (o && (o->group != g || o->number != number))
        o = o->next;
    return o;
}

static void join_op(local *l, local_kind kind, const nrl_comm_args *a, nrl_request *q)
{
    group *g = l->group;
    int64_t number = g->calls[l->rank]++;
    op *o = find_op(g, number);
    if (!o) o = local_op_new(g, kind, number, l->rank);
    o->operands[l->rank] = copy_operands(a, g->size);
    o->requests[l->rank] = q;
    nrl_status st = compare_calls(o, kind, l->rank);
    bool is_last = ++o->joined == g->size;
    if (st == NRL_OK && is_last && kind == LOCAL_SPLIT) split_groups(o);
    if (st == NRL_OK && is_last) st = local_compute(kind, g->size, o->operands);
    if (st != NRL_OK || is_last)
        local_op_end(o, st);
    else
        end_if_lost(o);
}

static nrl_status start(void *self, local_kind kind, const nrl_comm_args *a, nrl_request **request)
{
    local *l = self;
    *request = NULL;
    NRL_TRY(check_operands(l, a, false));
    pthread_mutex_lock(&l->group->world->lock);
    nrl_status st = fail_if_dead(l);
    if (st == NRL_OK) join_op(l, kind, a, *request = calloc(1, sizeof **request));
    l->sent += a->send ? a->count * (int64_t)nrl_dtype_size(a->dtype) : 0;
    l->received += a->receive ? a->count * (int64_t)nrl_dtype_size(a->dtype) : 0;
    pthread_mutex_unlock(&l->group->world->lock);
    return st;
}

#define STARTER(name, kind)                                                                                            \
    static nrl_status local_##name(void *self, const nrl_comm_args *a, nrl_request **request)                          \
    {                                                                                                                  \
        return start(self, kind, a, request);                                                                          \
    }
STARTER(barrier, LOCAL_BARRIER)
STARTER(broadcast, LOCAL_BROADCAST)
STARTER(all_reduce, LOCAL_ALL_REDUCE)
STARTER(all_gather, LOCAL_ALL_GATHER)
STARTER(reduce, LOCAL_REDUCE)
STARTER(reduce_scatter, LOCAL_REDUCE_SCATTER)
STARTER(gather, LOCAL_GATHER)
STARTER(scatter, LOCAL_SCATTER)
STARTER(all_to_all, LOCAL_ALL_TO_ALL)

/* ---- send and recv ---- */

static op *find_partner(const local *l, const nrl_comm_args *a, bool is_send)
{
    for (op *o = l->group->world->ops; o; o = o->next) {
        const nrl_comm_args *theirs = &o->operands[o->first];
        if (o->group == l->group && o->number < 0 && o->is_send != is_send && o->first == a->peer &&
            theirs->peer == l->rank && theirs->tag == a->tag)
            return o;
    }
    return NULL;
}

static void meet(local *l, op *o, const nrl_comm_args *a, bool is_send, nrl_request *q)
{
    const nrl_comm_args *theirs = &o->operands[o->first];
    size_t mine = (size_t)a->count * nrl_dtype_size(a->dtype);
    size_t bytes = (size_t)theirs->count * nrl_dtype_size(theirs->dtype);
    nrl_status st = NRL_OK;
    if (mine != bytes)
        st = nrl_fail(NRL_ERR_PEER, "%s: %zu bytes here, %zu at rank %d", is_send ? "send" : "recv", mine, bytes,
                      a->peer);
    else if (bytes)
        memcpy(is_send ? theirs->receive : a->receive, is_send ? a->send : theirs->send, bytes);
    o->requests[l->rank] = q;
    local_op_end(o, st);
}

static nrl_status transfer(local *l, const nrl_comm_args *a, bool is_send, nrl_request **request)
{
    *request = NULL;
    NRL_TRY(check_operands(l, a, true));
    pthread_mutex_lock(&l->group->world->lock);
    nrl_status st = fail_if_dead(l);
    if (st == NRL_OK) {
        nrl_request *q = *request = calloc(1, sizeof *q);
        op *o = find_partner(l, a, is_send);
        if (o)
            meet(l, o, a, is_send, q);
        else {
            o = local_op_new(l->group, LOCAL_BARRIER, -1, l->rank);
            o->is_send = is_send;
            o->operands[l->rank] = copy_operands(a, l->group->size);
            o->requests[l->rank] = q;
            end_if_lost(o);
        }
    }
    pthread_mutex_unlock(&l->group->world->lock);
    return st;
}

static nrl_status local_send(void *self, const nrl_comm_args *a, nrl_request **request)
{
    return transfer(self, a, true, request);
}

static nrl_status local_recv(void *self, const nrl_comm_args *a, nrl_request **request)
{
    return transfer(self, a, false, request);
}

/* ---- waiting ---- */

static nrl_status local_wait(void *self, nrl_request *q, double timeout, bool *done)
{
    world *w = ((local *)self)->group->world;
    struct timespec end = local_time_in(timeout);
    bool in_time = true;
    pthread_mutex_lock(&w->lock);
    while (!q->done && in_time)
        in_time = pthread_cond_timedwait(&w->changed, &w->lock, &end) == 0;
    *done = q->done;
    pthread_mutex_unlock(&w->lock);
    return !*done || q->status == NRL_OK ? NRL_OK : nrl_fail(q->status, "%s", q->text);
}

static void local_release(void *self, nrl_request *q)
{
    (void)self;
    free(q);
}

static int32_t group_rank(const group *g, int32_t world_rank)
{
    for (int32_t r = 0; r < g->size; r++)
        if (g->members[r] == world_rank) return r;
    return -1;
}

static int32_t local_failed_peer(void *self)
{
    const local *l = self;
    world *w = l->group->world;
    pthread_mutex_lock(&w->lock);
    int32_t peer = w->aborted_by >= 0 ? group_rank(l->group, w->aborted_by) : l->group->lost;
    pthread_mutex_unlock(&w->lock);
    return peer == l->rank ? -1 : peer;
}

static void local_info(void *self, nrl_collective_info *fill)
{
    const local *l = self;
    *fill = (nrl_collective_info){.size = sizeof *fill,
                                  .bytes_sent = l->sent,
                                  .bytes_received = l->received,
                                  .text = "local, threads of one process"};
}

/* ---- groups and the end ---- */

/* The operands of a split are its color and key, as count and tag. */
static int32_t color_of(const op *o, int32_t r)
{
    return (int32_t)o->operands[r].count;
}

static bool comes_before(const op *o, int32_t a, int32_t b)
{
    int32_t key_a = (int32_t)o->operands[a].tag, key_b = (int32_t)o->operands[b].tag;
    return key_a != key_b ? key_a < key_b : a < b;
}

/* The rank in a group is the number of ranks with the same color before it; rank 0 creates the
 * group. */
static void split_groups(op *o)
{
    const group *all = o->group;
    for (int32_t r = 0; r < all->size; r++) {
        int32_t place = 0, size = 0;
        for (int32_t i = 0; i < all->size; i++) {
            if (color_of(o, i) != color_of(o, r)) continue;
            size++;
            place += comes_before(o, i, r);
        }
        o->requests[r]->rank = place;
        if (place == 0 && color_of(o, r) >= 0) o->requests[r]->group = local_group_new(all->world, size);
    }
    for (int32_t r = 0; r < all->size; r++)
        for (int32_t i = 0; i < all->size && color_of(o, r) >= 0; i++) {
            nrl_request *q = o->requests[r], *first = o->requests[i];
            if (color_of(o, i) != color_of(o, r) || first->rank != 0) continue;
            q->group = first->group;
            q->group->members[q->rank] = all->members[r];
        }
}

static nrl_status local_split(void *self, int32_t color, int32_t key, void **out)
{
    local *l = self;
    world *w = l->group->world;
    nrl_request *q;
    bool done;
    nrl_comm_args a = {.size = sizeof a, .count = color, .tag = (uint64_t)(int64_t)key};
    *out = NULL;
    pthread_mutex_lock(&w->lock);
    nrl_status st = fail_if_dead(l);
    if (st == NRL_OK) join_op(l, LOCAL_SPLIT, &a, q = calloc(1, sizeof *q));
    pthread_mutex_unlock(&w->lock);
    if (st != NRL_OK) return st;
    st = local_wait(self, q, l->timeout, &done);
    if (st == NRL_OK && !done) return nrl_fail(NRL_ERR_PEER, "split: not all ranks came in %g s", l->timeout);
    if (st == NRL_OK && q->group) {
        local *member = *out = calloc(1, sizeof *member);
        *member = (local){.group = q->group, .rank = q->rank, .timeout = l->timeout};
        pthread_mutex_lock(&w->lock);
        w->references++;
        pthread_mutex_unlock(&w->lock);
    }
    free(q);
    return st;
}

static void local_abort(void *self)
{
    const local *l = self;
    world *w = l->group->world;
    pthread_mutex_lock(&w->lock);
    if (w->aborted_by < 0) w->aborted_by = l->group->members[l->rank];
    while (w->ops)
        local_op_end(w->ops,
                     nrl_fail(NRL_ERR_PEER, "%s: rank %d has aborted", kind_names[w->ops->kind], w->aborted_by));
    pthread_mutex_unlock(&w->lock);
}

static void local_close(void *self)
{
    local *l = self;
    world *w = l->group->world;
    pthread_mutex_lock(&w->lock);
    l->group->gone[l->rank] = true;
    for (op *o = w->ops, *next; o; o = next) {
        next = o->next;
        if (o->group == l->group) end_if_lost(o);
    }
    local_world_leave(w);
    free(l);
}

const nrl_collective local_collective = {
    NRL_PLUGIN_PLAIN(NRL_KIND_COLLECTIVE, nrl_collective, "local", "0.1", "ranks that are threads of one process"),
    .host_only = true,
    .open = local_open,
    .split = local_split,
    .close = local_close,
    .abort = local_abort,
    .barrier = local_barrier,
    .broadcast = local_broadcast,
    .all_reduce = local_all_reduce,
    .all_gather = local_all_gather,
    .reduce = local_reduce,
    .reduce_scatter = local_reduce_scatter,
    .gather = local_gather,
    .scatter = local_scatter,
    .all_to_all = local_all_to_all,
    .send = local_send,
    .recv = local_recv,
    .wait = local_wait,
    .release = local_release,
    .failed_peer = local_failed_peer,
    .info = local_info,
};
