/*
 * local_collective.c - ranks that are threads: joining, operations in flight, requests, failure.
 * Everything lies in one `world` under one lock. The n-th call of a group is one operation on all
 * its ranks; the last rank to come computes it (local_compute.c) and wakes the others.
 */
#include "support/local_collective.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct world world;

typedef struct group {
    struct group *next; /* of the world's */
    world *world;
    int32_t size;
    int32_t *members; /* [size] their ranks in the world */
    int64_t *calls;   /* [size] made so far */
    bool *gone;       /* [size] has closed */
    int32_t lost;     /* whose leaving ended an operation, -1: nobody's */
} group;

struct nrl_request {
    bool done;
    nrl_status status;
    char text[256];
    group *group; /* a split's: what this rank belongs to now, and as whom */
    int32_t rank;
};

/* A call that not all ranks have made yet; or a send or recv without its partner. */
typedef struct op {
    struct op *next;
    group *group;
    int64_t number; /* of the group's calls; -1: send or recv */
    local_kind kind;
    bool is_send;
    int32_t first, joined;   /* rank that came first; how many have come */
    nrl_comm_args *operands; /* [size]; their arrays are copies */
    nrl_request **requests;  /* [size], NULL: has not come */
} op;

struct world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t size, references;
    bool *here;         /* [size] has joined */
    int32_t aborted_by; /* -1: nobody */
    group *groups;      /* all there ever were */
    op *ops;            /* in flight, oldest first */
};

/* The thread sanitizer cannot see that a pointer which went through a file was handed over. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define HAND_OVER(p) __tsan_release(p)
#define TAKE_OVER(p) __tsan_acquire(p)
#else
#define HAND_OVER(p) (void)(p)
#define TAKE_OVER(p) (void)(p)
#endif

typedef struct {
    group *group;
    int32_t rank; /* in the group */
    double timeout;
    int64_t sent, received;
} local;

static const char *const kind_names[] = {
    [LOCAL_BARRIER] = "barrier",       [LOCAL_BROADCAST] = "broadcast",
    [LOCAL_ALL_REDUCE] = "all_reduce", [LOCAL_ALL_GATHER] = "all_gather",
    [LOCAL_REDUCE] = "reduce",         [LOCAL_REDUCE_SCATTER] = "reduce_scatter",
    [LOCAL_GATHER] = "gather",         [LOCAL_SCATTER] = "scatter",
    [LOCAL_ALL_TO_ALL] = "all_to_all", [LOCAL_SPLIT] = "split",
};

/* ---- making and ending ---- */

static group *group_new(world *w, int32_t size)
{
    group *g = calloc(1, sizeof *g);
    *g = (group){.world = w, .size = size, .lost = -1, .next = w->groups};
    g->members = calloc((size_t)size, sizeof *g->members);
    g->calls = calloc((size_t)size, sizeof *g->calls);
    g->gone = calloc((size_t)size, sizeof *g->gone);
    return w->groups = g;
}

static world *world_new(int32_t size)
{
    pthread_condattr_t monotonic;
    world *w = calloc(1, sizeof *w);
    w->size = size;
    w->aborted_by = -1;
    w->here = calloc((size_t)size, sizeof *w->here);
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    group *all = group_new(w, size);
    for (int32_t r = 0; r < size; r++)
        all->members[r] = r;
    return w;
}

static void world_free(world *w)
{
    for (group *g = w->groups, *next; g; g = next) {
        next = g->next;
        free(g->members);
        free(g->calls);
        free(g->gone);
        free(g);
    }
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w->here);
    free(w);
}

/* Under the lock, which it gives up. */
static void world_leave(world *w)
{
    bool last = --w->references == 0;
    pthread_mutex_unlock(&w->lock);
    if (last) world_free(w);
}

static op *op_new(group *g, local_kind kind, int64_t number, int32_t first)
{
    op *o = calloc(1, sizeof *o), **end = &g->world->ops;
    *o = (op){.group = g, .kind = kind, .number = number, .first = first};
    o->operands = calloc((size_t)g->size, sizeof *o->operands);
    o->requests = calloc((size_t)g->size, sizeof(nrl_request *));
    while (*end)
        end = &(*end)->next;
    return *end = o;
}

/* Everybody who has come gets the same status, with this thread's words; the operation is over. */
static void op_end(op *o, nrl_status st)
{
    op **at = &o->group->world->ops;
    for (int32_t r = 0; r < o->group->size; r++) {
        nrl_request *q = o->requests[r];
        free((void *)o->operands[r].counts);
        free((void *)o->operands[r].offsets);
        free((void *)o->operands[r].receive_counts);
        free((void *)o->operands[r].receive_offsets);
        if (!q) continue;
        if (st != NRL_OK) snprintf(q->text, sizeof q->text, "%s", nrl_error_text());
        q->status = st;
        q->done = true;
    }
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    pthread_cond_broadcast(&o->group->world->changed);
    free(o->operands);
    free(o->requests);
    free(o);
}

/* ---- joining ---- */

static struct timespec time_in(double seconds)
{
    struct timespec t;
    double most = 1e6, wait = seconds > 0 ? (seconds < most ? seconds : most) : 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + (int64_t)(wait * 1e9);
    t.tv_sec += ns / 1000000000;
    t.tv_nsec = ns % 1000000000;
    return t;
}

typedef struct {
    int64_t process;
    world *world;
} address;

static nrl_status find_world(nrl_store *store, int32_t rank, int32_t size, double timeout,
                             world **w)
{
    address mine = {.process = getpid()}, theirs = {0};
    void *value;
    size_t n;
    if (rank == 0) {
        mine.world = *w = world_new(size);
        HAND_OVER(*w);
        nrl_status st = nrl_store_set(store, "local_collective", &mine, sizeof mine);
        if (st != NRL_OK) world_free(*w);
        return st;
    }
    NRL_TRY(nrl_store_get(store, "local_collective", timeout, &value, &n));
    if (n == sizeof theirs) memcpy(&theirs, value, n);
    free(value);
    *w = theirs.world;
    if (theirs.process == mine.process) TAKE_OVER(*w);
    if (theirs.process == mine.process && theirs.world->size == size) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "the ranks of collective 'local' are %d threads of one process",
                    size);
}

static bool all_are_here(const world *w)
{
    for (int32_t r = 0; r < w->size; r++)
        if (!w->here[r]) return false;
    return true;
}

static nrl_status fail_missing(const world *w, double timeout)
{
    char who[200] = "";
    for (int32_t r = 0; r < w->size; r++)
        if (!w->here[r] && strlen(who) < sizeof who - 16)
            snprintf(who + strlen(who), sizeof who - strlen(who), "%s%d", *who ? ", " : "", r);
    return nrl_fail(NRL_ERR_PEER, "joining %d ranks: missing after %g s: rank %s", w->size, timeout,
                    who);
}

static nrl_status join_world(world *w, int32_t rank, double timeout)
{
    struct timespec end = time_in(timeout);
    bool in_time = true;
    pthread_mutex_lock(&w->lock);
    w->here[rank] = true;
    w->references++;
    pthread_cond_broadcast(&w->changed);
    while (!all_are_here(w) && in_time)
        in_time = pthread_cond_timedwait(&w->changed, &w->lock, &end) == 0;
    if (all_are_here(w)) {
        pthread_mutex_unlock(&w->lock);
        return NRL_OK;
    }
    nrl_status st = fail_missing(w, timeout);
    world_leave(w);
    return st;
}

static group *group_of_all(const world *w)
{
    group *g = w->groups;
    while (g->next)
        g = g->next;
    return g;
}

static nrl_status local_open(const void *options, nrl_store *store, int32_t rank, int32_t size,
                             double timeout, void **self)
{
    world *w;
    (void)options;
    *self = NULL;
    NRL_TRY(find_world(store, rank, size, timeout, &w));
    NRL_TRY(join_world(w, rank, timeout));
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

/* Arrays of operands may go when the call returns. */
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
    if (a->dtype > NRL_DTYPE_U8) return nrl_fail(NRL_ERR_CONFIG, "dtype %u is none", a->dtype);
    if (a->peer < 0 || a->peer >= l->group->size || (needs_other && a->peer == l->rank))
        return nrl_fail(NRL_ERR_CONFIG, "peer %d of %d ranks, here rank %d", a->peer,
                        l->group->size, l->rank);
    if (a->count < 0) return nrl_fail(NRL_ERR_CONFIG, "%lld elements", (long long)a->count);
    if (a->reduce == NRL_SUM_AVERAGE && a->dtype >= NRL_DTYPE_I32)
        return nrl_fail(NRL_ERR_CONFIG, "an average of %s: floating types have one",
                        nrl_dtype_name(a->dtype));
    return NRL_OK;
}

static nrl_status fail_if_dead(const local *l)
{
    const world *w = l->group->world;
    if (w->aborted_by < 0) return NRL_OK;
    return nrl_fail(NRL_ERR_PEER, "rank %d has aborted", w->aborted_by);
}

/* Is this the same call as that of the rank that came first? */
static nrl_status compare_calls(const op *o, local_kind kind, int32_t rank)
{
    const nrl_comm_args *a = &o->operands[o->first], *b = &o->operands[rank];
    bool same = o->kind == kind && a->dtype == b->dtype && a->reduce == b->reduce &&
                a->peer == b->peer && !a->counts == !b->counts &&
                (a->counts || a->count == b->count);
    size_t bytes = (size_t)o->group->size * sizeof *a->counts;
    if (same && a->counts && kind != LOCAL_ALL_TO_ALL) same = !memcmp(a->counts, b->counts, bytes);
    if (same || (kind == LOCAL_SPLIT && o->kind == kind)) return NRL_OK;
    return nrl_fail(
        NRL_ERR_PEER,
        "call %lld differs: rank %d: %s of %lld %s, peer %d; rank %d: %s of %lld %s, peer %d",
        (long long)o->number, o->first, kind_names[o->kind], (long long)a->count,
        nrl_dtype_name(a->dtype), a->peer, rank, kind_names[kind], (long long)b->count,
        nrl_dtype_name(b->dtype), b->peer);
}

/* Ends an operation that waits for a rank that has left. */
static void end_if_lost(op *o)
{
    group *g = o->group;
    for (int32_t r = 0; r < g->size; r++)
        if (g->gone[r] && !o->requests[r] && (o->number >= 0 || o->operands[o->first].peer == r)) {
            g->lost = r;
            op_end(o, nrl_fail(NRL_ERR_PEER, "%s: rank %d has left", kind_names[o->kind], r));
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
    if (!o) o = op_new(g, kind, number, l->rank);
    o->operands[l->rank] = copy_operands(a, g->size);
    o->requests[l->rank] = q;
    nrl_status st = compare_calls(o, kind, l->rank);
    bool is_last = ++o->joined == g->size;
    if (st == NRL_OK && is_last && kind == LOCAL_SPLIT) split_groups(o);
    if (st == NRL_OK && is_last) st = local_compute(kind, g->size, o->operands);
    if (st != NRL_OK || is_last)
        op_end(o, st);
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

#define STARTER(name, kind)                                                                        \
    static nrl_status local_##name(void *self, const nrl_comm_args *a, nrl_request **request)      \
    {                                                                                              \
        return start(self, kind, a, request);                                                      \
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
        st = nrl_fail(NRL_ERR_PEER, "%s: %zu bytes here, %zu at rank %d", is_send ? "send" : "recv",
                      mine, bytes, a->peer);
    else if (bytes)
        memcpy(is_send ? theirs->receive : a->receive, is_send ? a->send : theirs->send, bytes);
    o->requests[l->rank] = q;
    op_end(o, st);
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
            o = op_new(l->group, LOCAL_BARRIER, -1, l->rank);
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
    struct timespec end = time_in(timeout);
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

static void local_facts(void *self, nrl_collective_facts *fill)
{
    const local *l = self;
    *fill = (nrl_collective_facts){.size = sizeof *fill,
                                   .bytes_sent = l->sent,
                                   .bytes_received = l->received,
                                   .text = "local, threads of one process"};
}

/* ---- groups and the end ---- */

/* A split's operands are its colour and key, as count and tag. */
static int32_t color_of(const op *o, int32_t r)
{
    return (int32_t)o->operands[r].count;
}

static bool comes_before(const op *o, int32_t a, int32_t b)
{
    int32_t key_a = (int32_t)o->operands[a].tag, key_b = (int32_t)o->operands[b].tag;
    return key_a != key_b ? key_a < key_b : a < b;
}

/* A rank's place is how many of its colour come before it; place 0 makes the group. */
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
        if (place == 0 && color_of(o, r) >= 0) o->requests[r]->group = group_new(all->world, size);
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
    if (st == NRL_OK && !done)
        return nrl_fail(NRL_ERR_PEER, "split: not all ranks came in %g s", l->timeout);
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
        op_end(w->ops, nrl_fail(NRL_ERR_PEER, "%s: rank %d has aborted", kind_names[w->ops->kind],
                                w->aborted_by));
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
    world_leave(w);
    free(l);
}

const nrl_collective local_collective = {
    NRL_PLUGIN_PLAIN(NRL_KIND_COLLECTIVE, nrl_collective, "local", "0.1",
                     "ranks that are threads of one process"),
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
    .facts = local_facts,
};
