/*
 * gradient_sums.c - see gradient_sums.h.
 */
#include "gradient_sums.h"
#include <stdlib.h>

enum { TOGETHER = 1 << 20 }; /* gradients of fewer elements are summed in one buffer of this size */

nrl_status gradient_sums_plan(gradient_sums *s, nrl_comm *comm, nrl_parallel_plan *plan,
                              bool (*takes)(const nrl_param *p))
{
    s->comm = comm;
    s->trained = calloc((size_t)plan->n_params + 1, sizeof(nrl_param *));
    s->works = calloc((size_t)plan->n_params + 1, sizeof(nrl_work *));
    if (!s->trained || !s->works)
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for %d parameters", (int)plan->n_params);
    for (int32_t i = 0; i < plan->n_params && plan->train; i++)
        if (nrl_param_trained(plan->params[i]) && (!takes || takes(plan->params[i])))
            s->trained[s->n++] = plan->params[i];
    if (s->n) plan->buffer_bytes += TOGETHER * (int64_t)sizeof(float);
    return NRL_OK;
}

static nrl_tensor *gradient_of(const nrl_param *p)
{
    nrl_tensor *grad = nrl_param_tensor(p, NRL_SLOT_GRAD_SHARD);
    return grad ? grad : nrl_param_tensor(p, NRL_SLOT_GRAD);
}

/* Elements [begin, begin + n) of the gradients that are summed in the buffer, to and from it. */
static nrl_status move_piece(gradient_sums *s, nrl_ctx *ctx, nrl_tensor *grad, int64_t begin, int64_t at, int64_t n,
                             bool back)
{
    nrl_tensor *piece, *place = NULL;
    NRL_TRY(nrl_tensor_slice(ctx, grad, begin, n, &piece));
    nrl_status st = nrl_tensor_slice(ctx, s->buffer, at, n, &place);
    if (st == NRL_OK) st = back ? nrl_tensor_copy(ctx, place, piece) : nrl_tensor_copy(ctx, piece, place);
    nrl_tensor_free(ctx, place);
    nrl_tensor_free(ctx, piece);
    return st;
}

/* The next elements of those gradients, from element `*begin` of parameter `*i` on, as many as the buffer takes; with
 * `back` into them. *n: their number. */
static nrl_status move_pieces(gradient_sums *s, nrl_ctx *ctx, int32_t *i, int64_t *begin, bool back, int64_t *n)
{
    for (*n = 0; *i < s->n && *n < TOGETHER; ++*i, *begin = 0) {
        nrl_tensor *grad = gradient_of(s->trained[*i]);
        if (!grad || s->works[*i]) continue;
        const int64_t left = nrl_tensor_numel(grad) - *begin, room = TOGETHER - *n, now = left < room ? left : room;
        if (now) NRL_TRY(move_piece(s, ctx, grad, *begin, *n, now, back));
        *n += now;
        *begin += now;
        if (now < left) break;
    }
    return NRL_OK;
}

/* Runs after the sums over the batch. Large f32 gradients are summed where they are, all at once; small ones, and those
 * in bf16, in a buffer of f32. */
nrl_status gradient_sums_finish(gradient_sums *s, nrl_ctx *ctx)
{
    nrl_comm_call call = {.size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .what = "gradients"};
    if (!s->n) return NRL_OK;
    if (!s->buffer) NRL_TRY(nrl_tensor_persistent(ctx, NRL_DTYPE_F32, TOGETHER, false, &s->buffer));
    for (int32_t i = 0; i < s->n; i++) {
        nrl_tensor *grad = gradient_of(s->trained[i]);
        if (!grad || nrl_tensor_dtype(grad) != NRL_DTYPE_F32 || nrl_tensor_numel(grad) < TOGETHER) continue;
        call.receive = grad;
        NRL_TRY(nrl_comm_all_reduce(s->comm, ctx, &call, &s->works[i]));
    }
    int64_t begin = 0, n;
    for (int32_t i = 0; i < s->n;) {
        int32_t from = i;
        int64_t from_begin = begin;
        nrl_work *work = NULL;
        NRL_TRY(move_pieces(s, ctx, &i, &begin, false, &n));
        if (!n) break;
        NRL_TRY(nrl_tensor_slice(ctx, s->buffer, 0, n, &call.receive));
        nrl_status st = nrl_comm_all_reduce(s->comm, ctx, &call, &work);
        if (st == NRL_OK) st = nrl_work_wait(&work, ctx);
        nrl_tensor_free(ctx, call.receive);
        NRL_TRY(st);
        NRL_TRY(move_pieces(s, ctx, &from, &from_begin, true, &n));
    }
    for (int32_t i = 0; i < s->n; i++)
        NRL_TRY(nrl_work_wait(&s->works[i], ctx));
    return NRL_OK;
}

void gradient_sums_unbind(gradient_sums *s, nrl_ctx *ctx)
{
    nrl_tensor_free(ctx, s->buffer);
    s->buffer = NULL;
}

void gradient_sums_free(gradient_sums *s)
{
    free(s->trained);
    free(s->works);
}

nrl_status weights_from_masters(nrl_param *const *params, int32_t n, nrl_ctx *ctx)
{
    for (int32_t i = 0; i < n; i++) {
        nrl_param *p = params[i];
        nrl_tensor *master = nrl_param_tensor(p, NRL_SLOT_MASTER), *weight = nrl_param_tensor(p, NRL_SLOT_WEIGHT);
        nrl_param_touch(p);
        if (master && weight && master != weight && nrl_tensor_numel(master) == nrl_tensor_numel(weight))
            NRL_TRY(nrl_master_round(ctx, master, weight));
    }
    return NRL_OK;
}
