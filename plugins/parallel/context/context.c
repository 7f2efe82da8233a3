/*
 * context.c - context parallel: ranks divide the tokens of each micro-batch, so that a sequence may be longer than the
 * activations of one rank. Every rank holds all weights and computes everything but attention for its own tokens alone;
 * attention sees all of them (ulysses.c). Gradients of weights are summed over the ranks once per step.
 */
#include "context.h"
#include <stdio.h>
#include <stdlib.h>

enum { TOGETHER = 1 << 20 }; /* gradients of fewer elements are summed in one buffer of this size */

static const nrl_mesh_axis context_axis = {
    .size = sizeof(nrl_mesh_axis),
    .divides = NRL_DIVIDES_TOKENS,
    .name = "context",
    .order = 350,
};

static const nrl_option context_rows[] = {
    NRL_OPT_ENUM(
        context_options, kind, "ulysses", "ulysses",
        "how attention sees the tokens of other ranks; ulysses: each rank attends with its share of the heads"),
};

static nrl_status context_create(const void *options, nrl_mesh *mesh, void **self)
{
    context *c = calloc(1, sizeof *c);
    if (!c) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'context'");
    c->options = *(const context_options *)options;
    c->comm = nrl_mesh_comm(mesh, context_axis.name);
    c->size = nrl_mesh_size(mesh, context_axis.name);
    c->rank = nrl_mesh_coord(mesh, context_axis.name);
    *self = c;
    return NRL_OK;
}

static void context_destroy(void *self)
{
    context *c = self;
    free(c->trained);
    free(c->works);
    free(c->counts);
    free(c);
}

static nrl_status context_plan(void *self, nrl_parallel_plan *plan)
{
    context *c = self;
    const int64_t kv = plan->n_kv_heads ? plan->n_kv_heads : plan->n_heads;
    plan->takes_split16 = plan->takes_bf16_gradients = true;
    plan->text = "one rank, nothing to divide";
    c->params = plan->params;
    c->n_params = plan->n_params;
    if (c->size == 1) return NRL_OK;
    NRL_TRY(ulysses_check(c, plan->n_heads, kv));
    c->trained = calloc((size_t)plan->n_params + 1, sizeof(nrl_param *));
    c->works = calloc((size_t)plan->n_params + 1, sizeof(nrl_work *));
    c->counts = calloc(2 * (size_t)c->size, sizeof *c->counts);
    if (!c->trained || !c->works || !c->counts) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'context'");
    for (int32_t i = 0; i < plan->n_params && plan->train; i++)
        if (nrl_param_trained(plan->params[i])) c->trained[c->n_trained++] = plan->params[i];
    if (c->n_trained) plan->buffer_bytes = TOGETHER * (int64_t)sizeof(float);
    snprintf(c->text, sizeof c->text,
             "%d ranks divide the tokens of each micro-batch; in attention each has %lld of %lld "
             "heads",
             (int)c->size, (long long)(plan->n_heads / c->size), (long long)plan->n_heads);
    plan->text = c->text;
    return NRL_OK;
}

/* ---- activations ---- */

static int64_t context_divide(void *self, int64_t n, int32_t *own)
{
    const context *c = self;
    const int64_t begin = ulysses_begin(c, n, c->rank), end = ulysses_begin(c, n, c->rank + 1);
    if (n < c->size) return 0;
    for (int64_t i = begin; i < end; i++)
        own[i - begin] = (int32_t)i;
    return end - begin;
}

static nrl_status context_attention(void *self, nrl_ctx *ctx, int64_t n, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                    const nrl_attention_spec *spec, double soft_cap, nrl_tensor **y)
{
    return ulysses_attention(self, ctx, n, q, k, v, spec, soft_cap, y);
}

static nrl_status context_sum(void *self, nrl_ctx *ctx, nrl_tensor *x)
{
    const context *c = self;
    const nrl_comm_call call = {
        .size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .receive = x, .what = "values of all tokens"};
    nrl_work *work = NULL;
    NRL_TRY(nrl_comm_all_reduce(c->comm, ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

/* ---- gradients ---- */

static nrl_tensor *gradient_of(const nrl_param *p)
{
    nrl_tensor *grad = nrl_param_tensor(p, NRL_SLOT_GRAD_SHARD);
    return grad ? grad : nrl_param_tensor(p, NRL_SLOT_GRAD);
}

/* Elements [begin, begin + n) of the gradients that are summed in the buffer, to and from it. */
static nrl_status move_piece(context *c, nrl_ctx *ctx, nrl_tensor *grad, int64_t begin, int64_t at, int64_t n,
                             bool back)
{
    nrl_tensor *piece, *place = NULL;
    NRL_TRY(nrl_tensor_slice(ctx, grad, begin, n, &piece));
    nrl_status st = nrl_tensor_slice(ctx, c->buffer, at, n, &place);
    if (st == NRL_OK) st = back ? nrl_tensor_copy(ctx, place, piece) : nrl_tensor_copy(ctx, piece, place);
    nrl_tensor_free(ctx, place);
    nrl_tensor_free(ctx, piece);
    return st;
}

/* The next elements of those gradients, from element `*begin` of parameter `*i` on, as many as the buffer takes; with
 * `back` into them. *n: their number. */
static nrl_status move_pieces(context *c, nrl_ctx *ctx, int32_t *i, int64_t *begin, bool back, int64_t *n)
{
    for (*n = 0; *i < c->n_trained && *n < TOGETHER; ++*i, *begin = 0) {
        nrl_tensor *grad = gradient_of(c->trained[*i]);
        if (!grad || c->works[*i]) continue;
        const int64_t left = nrl_tensor_numel(grad) - *begin, room = TOGETHER - *n, now = left < room ? left : room;
        if (now) NRL_TRY(move_piece(c, ctx, grad, *begin, *n, now, back));
        *n += now;
        *begin += now;
        if (now < left) break;
    }
    return NRL_OK;
}

/* Runs after the sums over the batch. Large f32 gradients are summed where they are, all at once; small ones, and those
 * in bf16, in a buffer of f32. */
static nrl_status sum_gradients(context *c, nrl_ctx *ctx)
{
    nrl_comm_call call = {.size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .what = "gradients"};
    if (!c->buffer) NRL_TRY(nrl_tensor_persistent(ctx, NRL_DTYPE_F32, TOGETHER, false, &c->buffer));
    for (int32_t i = 0; i < c->n_trained; i++) {
        nrl_tensor *grad = gradient_of(c->trained[i]);
        if (!grad || nrl_tensor_dtype(grad) != NRL_DTYPE_F32 || nrl_tensor_numel(grad) < TOGETHER) continue;
        call.receive = grad;
        NRL_TRY(nrl_comm_all_reduce(c->comm, ctx, &call, &c->works[i]));
    }
    int64_t begin = 0, n;
    for (int32_t i = 0; i < c->n_trained;) {
        int32_t from = i;
        int64_t from_begin = begin;
        nrl_work *work = NULL;
        NRL_TRY(move_pieces(c, ctx, &i, &begin, false, &n));
        if (!n) break;
        NRL_TRY(nrl_tensor_slice(ctx, c->buffer, 0, n, &call.receive));
        nrl_status st = nrl_comm_all_reduce(c->comm, ctx, &call, &work);
        if (st == NRL_OK) st = nrl_work_wait(&work, ctx);
        nrl_tensor_free(ctx, call.receive);
        NRL_TRY(st);
        NRL_TRY(move_pieces(c, ctx, &from, &from_begin, true, &n));
    }
    for (int32_t i = 0; i < c->n_trained; i++)
        NRL_TRY(nrl_work_wait(&c->works[i], ctx));
    return NRL_OK;
}

static nrl_status context_finish(void *self, nrl_ctx *ctx)
{
    context *c = self;
    return c->n_trained ? sum_gradients(c, ctx) : NRL_OK;
}

/* Values from elsewhere; an update has written WEIGHT already. */
static nrl_status context_updated(void *self, nrl_ctx *ctx, int64_t step)
{
    const context *c = self;
    for (int32_t i = 0; i < c->n_params && !step; i++) {
        nrl_param *p = c->params[i];
        nrl_tensor *master = nrl_param_tensor(p, NRL_SLOT_MASTER), *weight = nrl_param_tensor(p, NRL_SLOT_WEIGHT);
        nrl_param_touch(p);
        if (master && weight && master != weight && nrl_tensor_numel(master) == nrl_tensor_numel(weight))
            NRL_TRY(nrl_master_round(ctx, master, weight));
    }
    return NRL_OK;
}

static void context_unbind(void *self, nrl_ctx *ctx)
{
    context *c = self;
    nrl_tensor_free(ctx, c->buffer);
    c->buffer = NULL;
}

static const nrl_parallel context_table = {
    NRL_PLUGIN(NRL_KIND_PARALLEL, nrl_parallel, context_options, context_rows, "context", "0.1",
               "ranks divide the tokens of each micro-batch, for sequences too long for one rank"),
    .plugin.priority = 100,
    .axis = &context_axis,
    .create = context_create,
    .destroy = context_destroy,
    .plan = context_plan,
    .unbind = context_unbind,
    .finish = context_finish,
    .updated = context_updated,
    .divide = context_divide,
    .attention = context_attention,
    .sum = context_sum,
};
NRL_EXPORT(context_table)
