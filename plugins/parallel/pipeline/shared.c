/*
 * shared.c - gradients of parameters that several ranks hold (such as an embedding that is also the
 * head). After the sums over the other axes, the lowest of the ranks adds up the others' GRAD_SHARD
 * in their order and sends the sum back, so that all have the same bits and the same weights after the
 * same update.
 */
#include "pipeline.h"
#include <stdlib.h>

enum { CHUNK = 1 << 22 }; /* elements per message */

/* The core sets this bit in none of its tags. */
#define TAG UINT64_C(0x80000000)

static bool holds(const pipeline *p, int32_t param, int32_t stage)
{
    return p->owner_stages[param * p->n + stage];
}

static int32_t count_holders(const pipeline *p, int32_t param)
{
    int32_t n = 0;
    for (int32_t s = 0; s < p->n; s++)
        n += holds(p, param, s);
    return n;
}

nrl_status pipeline_find_shared(pipeline *p)
{
    p->shared = calloc((size_t)p->plan.n_params + 1, sizeof *p->shared);
    if (!p->shared) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'pipeline'");
    for (int32_t i = 0; p->plan.train && i < p->plan.n_params; i++) {
        nrl_param *q = p->plan.params[i];
        if (!nrl_param_trained(q) || !holds(p, i, p->index) || count_holders(p, i) < 2) continue;
        int32_t owner = 0;
        while (!holds(p, i, owner))
            owner++;
        p->shared[p->n_shared++] = (pipeline_shared){q, owner};
        int64_t most = nrl_param_numel(q) < CHUNK ? nrl_param_numel(q) : CHUNK;
        if (owner == p->index && most > p->chunk) p->chunk = most;
    }
    return NRL_OK;
}

nrl_status pipeline_bind(void *self, nrl_ctx *ctx)
{
    pipeline *p = self;
    NRL_TRY(pipeline_measure_bind(p, ctx));
    if (!p->chunk) return NRL_OK;
    return nrl_tensor_persistent(ctx, p->plan.bf16_gradients ? NRL_DTYPE_BF16 : NRL_DTYPE_F32, p->chunk, false,
                                 &p->incoming);
}

void pipeline_unbind(void *self, nrl_ctx *ctx)
{
    pipeline *p = self;
    nrl_tensor_free(ctx, p->incoming);
    p->incoming = NULL;
    pipeline_measure_unbind(p, ctx);
}

static nrl_status move(const pipeline *p, nrl_ctx *ctx, int32_t peer, nrl_tensor *send, nrl_tensor *receive)
{
    nrl_work *work = NULL;
    nrl_comm_call call = {.size = sizeof call,
                          .peer = peer,
                          .send = send,
                          .receive = receive,
                          .tag = TAG,
                          .what = "gradient of a shared parameter"};
    if (send)
        NRL_TRY(nrl_comm_send(p->comm, ctx, &call, &work));
    else
        NRL_TRY(nrl_comm_recv(p->comm, ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

/* The owner adds in the order of ranks and sends the sum to all. */
static nrl_status add_others(const pipeline *p, nrl_ctx *ctx, int32_t param, nrl_tensor *part)
{
    nrl_tensor *incoming;
    NRL_TRY(nrl_tensor_slice(ctx, p->incoming, 0, nrl_tensor_numel(part), &incoming));
    nrl_status st = NRL_OK;
    for (int32_t s = p->index + 1; s < p->n && st == NRL_OK; s++) {
        if (!holds(p, param, s)) continue;
        st = move(p, ctx, s, NULL, incoming);
        if (st == NRL_OK) st = nrl_tensor_add(ctx, incoming, part);
    }
    for (int32_t s = p->index + 1; s < p->n && st == NRL_OK; s++)
        if (holds(p, param, s)) st = move(p, ctx, s, part, NULL);
    nrl_tensor_free(ctx, incoming);
    return st;
}

static nrl_status sum_part(const pipeline *p, nrl_ctx *ctx, const pipeline_shared *q, int32_t param, nrl_tensor *part)
{
    if (q->owner == p->index) return add_others(p, ctx, param, part);
    NRL_TRY(move(p, ctx, q->owner, part, NULL));
    return move(p, ctx, q->owner, NULL, part);
}

static int32_t index_of(const pipeline *p, const nrl_param *q)
{
    int32_t i = 0;
    while (p->plan.params[i] != q)
        i++;
    return i;
}

/* At equal coordinates of the other axes, the stages hold the same elements of the parameter. */
static nrl_status sum_param(const pipeline *p, nrl_ctx *ctx, const pipeline_shared *q)
{
    nrl_tensor *grad = nrl_param_tensor(q->param, NRL_SLOT_GRAD_SHARD), *part;
    int64_t n = grad ? nrl_tensor_numel(grad) : 0;
    int32_t param = index_of(p, q->param);
    for (int64_t at = 0; at < n; at += CHUNK) {
        NRL_TRY(nrl_tensor_slice(ctx, grad, at, n - at < CHUNK ? n - at : CHUNK, &part));
        nrl_status st = sum_part(p, ctx, q, param, part);
        nrl_tensor_free(ctx, part);
        NRL_TRY(st);
    }
    return NRL_OK;
}

nrl_status pipeline_finish(void *self, nrl_ctx *ctx)
{
    pipeline *p = self;
    for (int32_t i = 0; i < p->n_shared; i++)
        NRL_TRY(sum_param(p, ctx, &p->shared[i]));
    return pipeline_measure_finish(p, ctx);
}
