/*
 * calls.c - the operations. Operations that NCCL does not have (uneven shares, gather, scatter,
 * all_to_all) are groups of operations that it has, which NCCL runs as one.
 *
 * Bytes are counted as a ring moves them. NCCL matches messages between two ranks by their order and
 * has no tags; neither have this plugin's send and recv, which take a way if the group is connected.
 */
#include "group.h"

typedef struct {
    nccl_group *group;
    const nrl_comm_args *a;
    const nccl_api *api;
    void *comm, *stream;
    int type, op;
    size_t element;
} call;

typedef int call_body(const call *c);

static nrl_status wrong(const char *op, const char *text)
{
    return nrl_fail(NRL_ERR_BUG, "nccl: %s: %s", op, text);
}

/* ---- operands ---- */

static int type_of(uint32_t dtype)
{
    switch (dtype) {
    case NRL_DTYPE_F32:
        return NCCL_F32;
    case NRL_DTYPE_BF16:
        return NCCL_BF16;
    case NRL_DTYPE_F16:
        return NCCL_F16;
    case NRL_DTYPE_F64:
        return NCCL_F64;
    case NRL_DTYPE_I32:
        return NCCL_I32;
    case NRL_DTYPE_I64:
        return NCCL_I64;
    case NRL_DTYPE_U8:
        return NCCL_U8;
    default:
        return -1;
    }
}

static int reduction_of(uint32_t reduce, uint32_t dtype)
{
    bool whole = dtype == NRL_DTYPE_I32 || dtype == NRL_DTYPE_I64 || dtype == NRL_DTYPE_U8;
    switch (reduce) {
    case NRL_REDUCE_OP_SUM:
        return NCCL_SUM;
    case NRL_REDUCE_OP_AVERAGE:
        return whole ? -1 : NCCL_AVERAGE;
    case NRL_REDUCE_OP_MAX:
        return NCCL_MAX;
    case NRL_REDUCE_OP_MIN:
        return NCCL_MIN;
    case NRL_REDUCE_OP_PRODUCT:
        return NCCL_PRODUCT;
    default:
        return -1;
    }
}

int64_t nccl_count_at(const int64_t *counts, int64_t count, int32_t r)
{
    return counts ? counts[r] : count;
}

int64_t nccl_offset_at(const int64_t *counts, const int64_t *offsets, int64_t count, int32_t r)
{
    int64_t at = 0;
    if (offsets) return offsets[r];
    if (!counts) return count * r;
    for (int32_t k = 0; k < r; k++)
        at += counts[k];
    return at;
}

/* Rank r's share of the operand that holds all shares. */
static int64_t share(const call *c, int32_t r)
{
    return nccl_count_at(c->a->counts, c->a->count, r);
}

static size_t share_at(const call *c, int32_t r)
{
    return (size_t)nccl_offset_at(c->a->counts, c->a->offsets, c->a->count, r) * c->element;
}

static bool is_even(const call *c)
{
    return !c->a->counts && !c->a->offsets;
}

static void count_bytes(const call *c, int64_t sent, int64_t received)
{
    nccl_engine *e = c->group->engine;
    atomic_fetch_add(&e->bytes_sent, sent * (int64_t)c->element);
    atomic_fetch_add(&e->bytes_received, received * (int64_t)c->element);
}

/* ---- from operands to a request ---- */

/* Makes the group's stream wait for the caller's work. */
static nrl_status follow(const nccl_group *g, const nrl_comm_args *a, void *event)
{
    const nccl_driver *d = g->engine->driver;
    if (a->after) return nccl_driver_check(d->stream_fence(g->stream, a->after, 0), "waiting for operands");
    if (!a->stream) return NRL_OK; /* host operands: their copies are queued already */
    NRL_TRY(nccl_driver_check(d->event_record(event, a->stream), "waiting for operands"));
    return nccl_driver_check(d->stream_fence(g->stream, event, 0), "waiting for operands");
}

static nrl_status check(const call *c, const char *op, bool reduces, bool rooted)
{
    const nrl_comm_args *a = c->a;
    if (c->type < 0) return wrong(op, "unknown dtype");
    if (reduces && c->op < 0)
        return nrl_fail(NRL_ERR_CONFIG, "nccl: %s: reduction %u is not supported for %s", op, a->reduce,
                        nrl_dtype_name((nrl_dtype)a->dtype));
    if (rooted && (a->peer < 0 || a->peer >= c->group->size)) return wrong(op, "no such rank");
    if (a->count < 0) return wrong(op, "negative count");
    for (int32_t r = 0; r < c->group->size; r++)
        if ((a->counts && a->counts[r] < 0) || (a->receive_counts && a->receive_counts[r] < 0))
            return wrong(op, "negative count");
    return NRL_OK;
}

/* Makes all NCCL calls of an operation in one group; ncclGroupEnd must follow also after an error. */
static int submit(const call *c, call_body *body)
{
    int code = c->api->group_start();
    if (code) return code;
    int inner = body(c);
    code = c->api->group_end();
    return inner && inner != NCCL_IN_PROGRESS ? inner : code;
}

static nrl_status enqueue(call *c, const char *op, call_body *body, const nrl_request *r)
{
    nccl_group *g = c->group;
    nccl_engine *e = g->engine;
    NRL_TRY(follow(g, c->a, r->event));
    pthread_mutex_lock(&e->lock);
    c->comm = g->comm;
    int code = g->comm ? submit(c, body) : NCCL_IN_PROGRESS;
    pthread_mutex_unlock(&e->lock);
    NRL_TRY(nccl_settle(g, code, e->options.timeout, op));
    return nccl_driver_check(e->driver->event_record(r->event, g->stream), op);
}

/* The properties of an operation. */
typedef struct {
    const char *name;
    bool reduces, rooted; /* combines values; peer is a root rank */
    nccl_extent send, receive;
    call_body *body;
} operation;

static nrl_status start(void *self, const nrl_comm_args *given, const operation *o, int32_t peer, nrl_request **request)
{
    nccl_group *g = self, *way = peer < 0 ? NULL : nccl_way(g, peer, o->send != NCCL_NOTHING);
    nrl_comm_args args = *given, *a = &args;
    if (way) {
        g = way;
        args.peer = 1 - way->rank;
    }
    call c = {.group = g,
              .a = a,
              .api = g->engine->api,
              .stream = g->stream,
              .type = type_of(a->dtype),
              .op = reduction_of(a->reduce, a->dtype),
              .element = nrl_dtype_size((nrl_dtype)a->dtype)};
    *request = NULL;
    NRL_TRY(check(&c, o->name, o->reduces, o->rooted));
    NRL_TRY(nccl_enter(g->engine));
    NRL_TRY(nccl_request_take(g, o->name, peer, request));
    nrl_status st = NRL_OK;
    if (!a->stream && !a->after) st = nccl_host_in(g, *request, o->send, o->receive, a);
    if (!st) st = enqueue(&c, o->name, o->body, *request);
    if (!st) return NRL_OK;
    nccl_release(g, *request);
    *request = NULL;
    return st;
}

/* Every body checks each of its calls with this. */
#define CALL_TRY(expression)                                                                                           \
    do {                                                                                                               \
        int call_code_ = (expression);                                                                                 \
        if (call_code_ && call_code_ != NCCL_IN_PROGRESS) return call_code_;                                           \
    } while (0)

static int copy(const call *c, void *to, const void *from, int64_t count)
{
    if (!count || to == from) return NCCL_SUCCESS;
    int code = c->group->engine->driver->copy((uintptr_t)to, (uintptr_t)from, (size_t)count * c->element, c->stream);
    return code ? 1 : NCCL_SUCCESS; /* ncclUnhandledCudaError */
}

static int send_to(const call *c, const void *from, int64_t count, int32_t peer)
{
    if (!count) return NCCL_SUCCESS;
    count_bytes(c, count, 0);
    return c->api->send(from, (size_t)count, c->type, peer, c->comm, c->stream);
}

static int receive_from(const call *c, void *to, int64_t count, int32_t peer)
{
    if (!count) return NCCL_SUCCESS;
    count_bytes(c, 0, count);
    return c->api->recv(to, (size_t)count, c->type, peer, c->comm, c->stream);
}

/* ---- the operations ---- */

static int barrier(const call *c)
{
    void *word = (void *)c->group->engine->word;
    return c->api->all_reduce(word, word, 1, NCCL_F32, NCCL_MAX, c->comm, c->stream);
}

static int broadcast(const call *c)
{
    const nrl_comm_args *a = c->a;
    if (!a->count) return NCCL_SUCCESS;
    bool root = a->peer == c->group->rank;
    count_bytes(c, root ? a->count : 0, root ? 0 : a->count);
    return c->api->broadcast(a->receive, a->receive, (size_t)a->count, c->type, a->peer, c->comm, c->stream);
}

static int all_reduce(const call *c)
{
    const nrl_comm_args *a = c->a;
    int64_t moved = 2 * a->count * (c->group->size - 1) / c->group->size;
    if (!a->count) return NCCL_SUCCESS;
    count_bytes(c, moved, moved);
    return c->api->all_reduce(a->send, a->receive, (size_t)a->count, c->type, c->op, c->comm, c->stream);
}

static int all_gather(const call *c)
{
    const nrl_comm_args *a = c->a;
    int32_t n = c->group->size;
    if (is_even(c)) {
        count_bytes(c, a->count * (n - 1), a->count * (n - 1));
        return a->count ? c->api->all_gather(a->send, a->receive, (size_t)a->count, c->type, c->comm, c->stream)
                        : NCCL_SUCCESS;
    }
    for (int32_t r = 0; r < n; r++) {
        char *to = (char *)a->receive + share_at(c, r);
        const void *from = r == c->group->rank ? a->send : to;
        if (!share(c, r)) continue;
        count_bytes(c, r == c->group->rank ? share(c, r) : 0, r == c->group->rank ? 0 : share(c, r));
        CALL_TRY(c->api->broadcast(from, to, (size_t)share(c, r), c->type, r, c->comm, c->stream));
    }
    return NCCL_SUCCESS;
}

static int reduce(const call *c)
{
    const nrl_comm_args *a = c->a;
    bool root = a->peer == c->group->rank;
    if (!a->count) return NCCL_SUCCESS;
    count_bytes(c, root ? 0 : a->count, root ? a->count : 0);
    return c->api->reduce(a->send, a->receive, (size_t)a->count, c->type, c->op, a->peer, c->comm, c->stream);
}

static int reduce_scatter(const call *c)
{
    const nrl_comm_args *a = c->a;
    int32_t n = c->group->size;
    if (is_even(c)) {
        count_bytes(c, a->count * (n - 1), a->count * (n - 1));
        return a->count
                   ? c->api->reduce_scatter(a->send, a->receive, (size_t)a->count, c->type, c->op, c->comm, c->stream)
                   : NCCL_SUCCESS;
    }
    for (int32_t r = 0; r < n; r++) {
        const char *from = (const char *)a->send + share_at(c, r);
        if (!share(c, r)) continue;
        count_bytes(c, r == c->group->rank ? 0 : share(c, r), r == c->group->rank ? share(c, r) : 0);
        CALL_TRY(c->api->reduce(from, r == c->group->rank ? a->receive : NULL, (size_t)share(c, r), c->type, c->op, r,
                                c->comm, c->stream));
    }
    return NCCL_SUCCESS;
}

static int gather(const call *c)
{
    const nrl_comm_args *a = c->a;
    int32_t me = c->group->rank;
    if (me != a->peer) return send_to(c, a->send, share(c, me), a->peer);
    for (int32_t r = 0; r < c->group->size; r++) {
        char *to = (char *)a->receive + share_at(c, r);
        CALL_TRY(r == me ? copy(c, to, a->send, share(c, r)) : receive_from(c, to, share(c, r), r));
    }
    return NCCL_SUCCESS;
}

static int scatter(const call *c)
{
    const nrl_comm_args *a = c->a;
    int32_t me = c->group->rank;
    if (me != a->peer) return receive_from(c, a->receive, share(c, me), a->peer);
    for (int32_t r = 0; r < c->group->size; r++) {
        const char *from = (const char *)a->send + share_at(c, r);
        CALL_TRY(r == me ? copy(c, a->receive, from, share(c, r)) : send_to(c, from, share(c, r), r));
    }
    return NCCL_SUCCESS;
}

static int all_to_all(const call *c)
{
    const nrl_comm_args *a = c->a;
    for (int32_t r = 0; r < c->group->size; r++) {
        const char *from = (const char *)a->send + share_at(c, r);
        int64_t n = nccl_count_at(a->receive_counts, a->count, r);
        char *to = (char *)a->receive +
                   (size_t)nccl_offset_at(a->receive_counts, a->receive_offsets, a->count, r) * c->element;
        if (r == c->group->rank) {
            CALL_TRY(copy(c, to, from, n));
            continue;
        }
        CALL_TRY(send_to(c, from, share(c, r), r));
        CALL_TRY(receive_from(c, to, n, r));
    }
    return NCCL_SUCCESS;
}

static int send(const call *c)
{
    return send_to(c, c->a->send, c->a->count, c->a->peer);
}

static int recv(const call *c)
{
    return receive_from(c, c->a->receive, c->a->count, c->a->peer);
}

/* ---- the table's members ---- */

nrl_status nccl_barrier(void *self, const nrl_comm_args *a, nrl_request **request)
{
    static const operation o = {"barrier", false, false, NCCL_NOTHING, NCCL_NOTHING, barrier};
    nrl_comm_args plain = *a;
    plain.dtype = NRL_DTYPE_F32;
    return start(self, &plain, &o, -1, request);
}

/* reduces: combines values; rooted: peer is a root; peer: the rank that a failure is attributed to, -1 = unknown. */
#define NCCL_DEFINE(name, reduces, rooted, send_extent, receive_extent, peer)                                          \
    nrl_status nccl_##name(void *self, const nrl_comm_args *a, nrl_request **request)                                  \
    {                                                                                                                  \
        static const operation o = {#name, reduces, rooted, send_extent, receive_extent, name};                        \
        return start(self, a, &o, peer, request);                                                                      \
    }
NCCL_DEFINE(broadcast, false, true, NCCL_NOTHING, NCCL_COUNT, -1)
NCCL_DEFINE(all_reduce, true, false, NCCL_COUNT, NCCL_COUNT, -1)
NCCL_DEFINE(all_gather, false, false, NCCL_OWN, NCCL_ALL, -1)
NCCL_DEFINE(reduce, true, true, NCCL_COUNT, NCCL_COUNT, -1)
NCCL_DEFINE(reduce_scatter, true, false, NCCL_ALL, NCCL_OWN, -1)
NCCL_DEFINE(gather, false, true, NCCL_OWN, NCCL_ALL, -1)
NCCL_DEFINE(scatter, false, true, NCCL_ALL, NCCL_OWN, -1)
NCCL_DEFINE(all_to_all, false, false, NCCL_ALL, NCCL_GIVEN, -1)
NCCL_DEFINE(send, false, true, NCCL_COUNT, NCCL_NOTHING, a->peer)
NCCL_DEFINE(recv, false, true, NCCL_NOTHING, NCCL_COUNT, a->peer)
