/*
 * context.c - context parallel: ranks divide the tokens of each micro-batch, so that a sequence may be longer than the
 * activations of one rank. Every rank holds all weights and computes everything but attention for its own tokens alone;
 * attention sees all of them (ulysses.c, ring.c). Gradients of weights are summed over the ranks once per step.
 */
#include "context.h"
#include <stdio.h>
#include <stdlib.h>

static const nrl_mesh_axis context_axis = {
    .size = sizeof(nrl_mesh_axis),
    .divides = NRL_DIVIDES_TOKENS,
    .name = "context",
    .order = 350,
};

static const nrl_option context_rows[] = {
    NRL_OPT_ENUM(
        context_options, kind, "ulysses", "ulysses|ring",
        "how attention accesses the tokens of other ranks; ulysses: each rank has all tokens of its share of the "
        "heads; ring: keys and values pass from rank to rank, for any number of heads"),
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
    gradient_sums_free(&c->sums);
    free(c->counts);
    free(c);
}

static bool is_summed(const nrl_param *p)
{
    return !nrl_param_of_algorithm(p); /* its gradient is whole on every rank */
}

static nrl_status context_plan(void *self, nrl_parallel_plan *plan)
{
    context *c = self;
    const int64_t kv = plan->n_kv_heads ? plan->n_kv_heads : plan->n_heads;
    plan->takes_split16 = plan->takes_bf16_gradients = true;
    plan->text = "one rank, nothing to shard";
    c->params = plan->params;
    c->n_params = plan->n_params;
    if (c->size == 1) return NRL_OK;
    plan->merges_attention = c->options.kind == CONTEXT_RING;
    if (c->options.kind == CONTEXT_ULYSSES) NRL_TRY(ulysses_check(c, plan->n_heads, kv));
    c->counts = calloc(2 * (size_t)c->size, sizeof *c->counts);
    if (!c->counts) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'context'");
    NRL_TRY(gradient_sums_plan(&c->sums, c->comm, plan, is_summed));
    const int used =
        snprintf(c->text, sizeof c->text, "%d ranks share the tokens of each micro-batch; in attention ", (int)c->size);
    if (c->options.kind == CONTEXT_RING)
        snprintf(c->text + used, sizeof c->text - (size_t)used, "keys and values pass from rank to rank");
    else
        snprintf(c->text + used, sizeof c->text - (size_t)used, "each rank has %lld of %lld heads",
                 (long long)(plan->n_heads / c->size), (long long)plan->n_heads);
    plan->text = c->text;
    return NRL_OK;
}

/* ---- activations ---- */

static int64_t context_divide(void *self, int64_t n, int32_t *own)
{
    const context *c = self;
    if (c->options.kind == CONTEXT_RING) return ring_divide(c, n, own);
    const int64_t begin = ulysses_begin(c, n, c->rank), end = ulysses_begin(c, n, c->rank + 1);
    if (n < c->size) return 0;
    for (int64_t i = begin; i < end; i++)
        own[i - begin] = (int32_t)i;
    return end - begin;
}

static nrl_status context_attention(void *self, nrl_ctx *ctx, int64_t n, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                    const nrl_attention_spec *spec, double soft_cap, nrl_tensor **y)
{
    const context *c = self;
    return (c->options.kind == CONTEXT_RING ? ring_attention : ulysses_attention)(self, ctx, n, q, k, v, spec, soft_cap,
                                                                                  y);
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

/* ---- parameters ---- */

static nrl_status context_finish(void *self, nrl_ctx *ctx)
{
    context *c = self;
    return gradient_sums_finish(&c->sums, ctx);
}

static nrl_status context_updated(void *self, nrl_ctx *ctx, int64_t step)
{
    const context *c = self;
    return step ? NRL_OK : weights_from_masters(c->params, c->n_params, ctx);
}

static void context_unbind(void *self, nrl_ctx *ctx)
{
    context *c = self;
    gradient_sums_unbind(&c->sums, ctx);
}

static const nrl_parallel context_table = {
    NRL_PLUGIN(NRL_KIND_PARALLEL, nrl_parallel, context_options, context_rows, "context", "0.1",
               "context parallelism: ranks share the tokens of each micro-batch, for sequences too long for one rank"),
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
