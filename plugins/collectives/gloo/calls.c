/*
 * calls.c - the calls of the table: checks operands and converts them to bytes, copies what stays on
 * this rank, and starts the plan. The number of a collective call is its tag in messages; every call
 * takes a number, even if it moves nothing, as in PyTorch.
 */
#include "gloo.h"
#include <stdlib.h>

static nrl_status wrong(const gloo_plan *plan, const char *text)
{
    return nrl_fail(NRL_ERR_BUG, "%s: %s", plan->name, text);
}

static size_t element_size(const nrl_comm_args *a)
{
    return nrl_dtype_size((nrl_dtype)a->dtype);
}

/* Bytes of count elements; < 0 if the size is not representable. */
static int64_t to_bytes(int64_t count, size_t element)
{
    int64_t bytes;
    if (count < 0 || __builtin_mul_overflow(count, (int64_t)element, &bytes)) return -1;
    return bytes;
}

static nrl_status begin(gloo_group *g, const gloo_plan *plan, unsigned kind, const nrl_comm_args *a, nrl_request **out)
{
    size_t element = element_size(a);
    uint32_t number = g->calls++;
    *out = NULL;
    if (!element && plan != &plan_barrier) return wrong(plan, "unknown dtype");
    int64_t total = to_bytes(a->count, element);
    if (total < 0) return wrong(plan, "count is negative or too large");
    bool rooted = plan == &plan_broadcast || plan == &plan_reduce || plan == &plan_gather || plan == &plan_scatter;
    if (rooted && (a->peer < 0 || a->peer >= g->size)) return wrong(plan, "no such root");
    nrl_request *r;
    NRL_TRY(request_take(g, plan, &r));
    r->number = number;
    r->collective = true;
    r->slot = wire_slot(kind, number, g->id);
    r->in = a->send ? a->send : a->receive;
    r->out = a->receive;
    r->total = (size_t)total;
    r->element = element ? element : 1;
    r->root = a->peer;
    *out = r;
    return NRL_OK;
}

static nrl_status submit(nrl_request *r, nrl_request **out)
{
    *out = r;
    engine_submit(r->group->engine, r);
    return NRL_OK;
}

static nrl_status give_up(nrl_request *r, nrl_request **out, nrl_status st)
{
    request_give_back(r);
    *out = NULL;
    return st;
}

static void copy(void *to, const void *from, size_t size)
{
    if (size && to && to != from) memmove(to, from, size);
}

/* ---- reductions ---- */

static nrl_status set_sum(nrl_request *r, const nrl_comm_args *a)
{
    const combine_table *t = combine_for_machine();
    gloo_combine *f = a->reduce < COMBINE_OPS && a->dtype < COMBINE_DTYPES ? t->combine[a->dtype][a->reduce] : NULL;
    if (!f && a->reduce == NRL_REDUCE_OP_AVERAGE)
        return nrl_fail(NRL_ERR_CONFIG, "%s: cannot average %s; expected a floating-point dtype", r->plan->name,
                        nrl_dtype_name((nrl_dtype)a->dtype));
    if (!f) return wrong(r->plan, "unknown reduction");
    r->combine = f;
    if (a->reduce == NRL_REDUCE_OP_AVERAGE) r->divide = t->divide[a->dtype];
    return NRL_OK;
}

GLOO_CALL(all_reduce)
{
    gloo_group *g = self;
    nrl_request *r;
    NRL_TRY(begin(g, &plan_all_reduce, WIRE_ALL_REDUCE, a, &r));
    nrl_status st = set_sum(r, a);
    if (st) return give_up(r, request, st);
    if (g->size > 1)
        plan_all_reduce_fill(r);
    else
        copy(r->out, r->in, r->total);
    return submit(r, request);
}

GLOO_CALL(reduce)
{
    gloo_group *g = self;
    nrl_request *r;
    NRL_TRY(begin(g, &plan_reduce, WIRE_REDUCE, a, &r));
    nrl_status st = set_sum(r, a);
    if (!st && g->size > 1) st = plan_reduce_fill(r);
    if (st) return give_up(r, request, st);
    if (g->size == 1) copy(r->out, r->in, r->total);
    return submit(r, request);
}

/* ---- counts and offsets ---- */

/* Fills counts and offsets in bytes, from the given ones or from equal counts end to end. */
static nrl_status fill_blocks(nrl_request *r, int64_t *blocks, int64_t count, const int64_t *counts,
                              const int64_t *offsets, int64_t *sum)
{
    int32_t n = r->group->size;
    int64_t at = 0;
    *sum = 0;
    for (int32_t i = 0; i < n; i++) {
        blocks[i] = to_bytes(counts ? counts[i] : count, r->element);
        if (blocks[i] < 0 || __builtin_add_overflow(*sum, blocks[i], sum))
            return wrong(r->plan, "counts are negative or too large");
        blocks[n + i] = offsets ? to_bytes(offsets[i], r->element) : at;
        if (blocks[n + i] < 0) return wrong(r->plan, "offsets are negative or too large");
        at = *sum;
    }
    return NRL_OK;
}

/* Blocks that are sent or gathered; total is their sum. */
static nrl_status own_blocks(nrl_request *r, const nrl_comm_args *a)
{
    int64_t sum;
    NRL_TRY(request_blocks(r, 4 * (size_t)r->group->size));
    NRL_TRY(fill_blocks(r, r->blocks, a->count, a->counts, a->offsets, &sum));
    r->total = (size_t)sum;
    return NRL_OK;
}

static int64_t own_count(const nrl_request *r)
{
    return r->blocks[r->group->rank];
}

static int64_t own_offset(const nrl_request *r)
{
    return r->blocks[r->group->size + r->group->rank];
}

GLOO_CALL(all_gather)
{
    gloo_group *g = self;
    nrl_request *r;
    const gloo_plan *plan = a->counts ? &plan_all_gather_uneven : &plan_all_gather;
    NRL_TRY(begin(g, plan, WIRE_ALL_GATHER, a, &r));
    nrl_status st = own_blocks(r, a);
    if (st) return give_up(r, request, st);
    if (a->send) copy(r->out + own_offset(r), a->send, (size_t)own_count(r));
    plan_fill(r, plan);
    return submit(r, request);
}

GLOO_CALL(gather)
{
    gloo_group *g = self;
    nrl_request *r;
    NRL_TRY(begin(g, &plan_gather, WIRE_GATHER, a, &r));
    nrl_status st = own_blocks(r, a);
    if (st) return give_up(r, request, st);
    if (g->rank == r->root && a->send) copy(r->out + own_offset(r), a->send, (size_t)own_count(r));
    plan_fill(r, &plan_gather);
    return submit(r, request);
}

GLOO_CALL(scatter)
{
    gloo_group *g = self;
    nrl_request *r;
    NRL_TRY(begin(g, &plan_scatter, WIRE_SCATTER, a, &r));
    nrl_status st = own_blocks(r, a);
    if (st) return give_up(r, request, st);
    if (g->rank == r->root && a->send) copy(r->out, r->in + own_offset(r), (size_t)own_count(r));
    plan_fill(r, &plan_scatter);
    return submit(r, request);
}

GLOO_CALL(all_to_all)
{
    gloo_group *g = self;
    nrl_request *r;
    NRL_TRY(begin(g, &plan_all_to_all, WIRE_ALL_TO_ALL, a, &r));
    nrl_status st = own_blocks(r, a);
    if (st) return give_up(r, request, st);
    int64_t sum, *theirs = r->blocks + 2 * g->size;
    st = fill_blocks(r, theirs, a->count, a->counts ? a->receive_counts : NULL, a->counts ? a->receive_offsets : NULL,
                     &sum);
    if (!st && own_count(r) != theirs[g->rank]) st = wrong(r->plan, "this rank's block has two different sizes");
    if (st) return give_up(r, request, st);
    copy(r->out + theirs[g->size + g->rank], r->in + own_offset(r), (size_t)own_count(r));
    plan_fill(r, &plan_all_to_all);
    return submit(r, request);
}

/* ---- reduce_scatter ---- */

/* Foreign ranks see an all_reduce of everything, of which each rank keeps its part. */
static nrl_status reduce_scatter_by_all_reduce(gloo_group *g, nrl_request *r)
{
    size_t end = 0;
    for (int32_t i = 0; i < g->size; i++) {
        size_t last = (size_t)(r->blocks[i] + r->blocks[g->size + i]);
        if (last > end) end = last;
    }
    r->slot = wire_slot(WIRE_ALL_REDUCE, r->number, g->id);
    r->total = end;
    NRL_TRY(request_scratch(r, end));
    r->result = r->out;
    r->out = r->scratch;
    r->plan = &plan_reduce_scatter_foreign;
    plan_all_reduce_fill(r);
    return NRL_OK;
}

GLOO_CALL(reduce_scatter)
{
    gloo_group *g = self;
    nrl_request *r;
    NRL_TRY(begin(g, &plan_reduce_scatter, WIRE_REDUCE_SCATTER, a, &r));
    nrl_status st = set_sum(r, a);
    if (!st) st = own_blocks(r, a);
    if (!st && g->size > 1)
        st = g->engine->options.peers == PEERS_GLOO ? reduce_scatter_by_all_reduce(g, r) : plan_reduce_scatter_fill(r);
    if (st) return give_up(r, request, st);
    if (g->size == 1) copy(r->out, r->in + own_offset(r), (size_t)own_count(r));
    return submit(r, request);
}

/* ---- other calls ---- */

GLOO_CALL(barrier)
{
    static const nrl_comm_args none = {.size = sizeof none};
    nrl_request *r;
    (void)a;
    NRL_TRY(begin(self, &plan_barrier, WIRE_BARRIER, &none, &r));
    plan_fill(r, &plan_barrier);
    return submit(r, request);
}

GLOO_CALL(broadcast)
{
    gloo_group *g = self;
    nrl_request *r;
    NRL_TRY(begin(g, &plan_broadcast, WIRE_BROADCAST, a, &r));
    if (g->rank == r->root)
        copy(r->out, r->in, r->total);
    else
        r->in = r->out; /* non-root ranks forward what they received */
    plan_fill(r, &plan_broadcast);
    return submit(r, request);
}

/* In the world group the slot is the bare tag, as in Gloo; in other groups the tag must leave room for the
 * group's id. */
static nrl_status point(gloo_group *g, const gloo_plan *plan, const nrl_comm_args *a, nrl_request **out)
{
    uint64_t limit = g->id ? (uint64_t)1 << 32 : (uint64_t)1 << 56;
    int64_t total = to_bytes(a->count, element_size(a));
    *out = NULL;
    if (!element_size(a)) return wrong(plan, "unknown dtype");
    if (total < 0) return wrong(plan, "count is negative or too large");
    if (a->peer < 0 || a->peer >= g->size || a->peer == g->rank) return wrong(plan, "no such peer");
    if (a->tag >= limit) return wrong(plan, "tag is too large");
    nrl_request *r;
    NRL_TRY(request_take(g, plan, &r));
    r->number = (uint32_t)a->tag;
    r->slot = g->id ? wire_slot(WIRE_POINT, (uint32_t)a->tag, g->id) : a->tag;
    r->in = a->send;
    r->out = a->receive;
    r->total = (size_t)total;
    r->element = element_size(a);
    r->root = a->peer;
    plan_fill(r, plan);
    return submit(r, out);
}

GLOO_CALL(send)
{
    return point(self, &plan_send, a, request);
}

GLOO_CALL(recv)
{
    return point(self, &plan_recv, a, request);
}
