/*
 * metric.c - numbers that an algorithm reports while its loss runs, fetched together afterwards.
 */
#include "tensor/internal.h"

nrl_status nrl_metric_add(nrl_ctx *ctx, uint32_t index, nrl_tensor *value, double weight)
{
    if (value->numel != 1)
        return nrl_fail(NRL_ERR_BUG, "metric %u: a value of shape %s, expected one number", index,
                        tensor_shape(value).text);
    if (ctx->n_metrics == ctx->metrics_capacity) {
        ctx->metrics_capacity = ctx->metrics_capacity ? 2 * ctx->metrics_capacity : 32;
        ctx->metrics = mem_realloc(ctx->metrics, ctx->metrics_capacity * sizeof *ctx->metrics);
        ctx->taken = mem_realloc(ctx->taken, ctx->metrics_capacity * sizeof *ctx->taken);
    }
    ctx->metrics[ctx->n_metrics++] = (pending_metric){index, tensor_retain(value), weight};
    return NRL_OK;
}

nrl_status ctx_take_metrics(nrl_ctx *ctx, const ctx_metric **list, int64_t *n)
{
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < ctx->n_metrics; i++) {
        pending_metric *m = &ctx->metrics[i];
        ctx->taken[i] = (ctx_metric){m->index, 0, m->weight};
        if (!st) st = nrl_tensor_fetch(ctx, m->value, &ctx->taken[i].value, 1);
        tensor_release(ctx, m->value);
    }
    *list = ctx->taken;
    *n = (int64_t)ctx->n_metrics;
    ctx->n_metrics = 0;
    return st;
}
