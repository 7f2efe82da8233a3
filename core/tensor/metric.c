/*
 * metric.c - numbers that plugins report during a step; they are fetched together afterwards.
 */
#include "tensor/internal.h"
#include <stdlib.h>

static nrl_status metric_push(nrl_ctx *ctx, const nrl_metric *row, uint32_t index, nrl_tensor *value, double weight)
{
    if (value->numel != 1)
        return nrl_fail(NRL_ERR_BUG, "metric %s: the value has shape %s, expected one element",
                        row ? row->name : "of the loss", tensor_shape(value).text);
    if (ctx->metrics_muted) return NRL_OK;
    if (ctx->n_metrics == ctx->metrics_capacity) {
        ctx->metrics_capacity = ctx->metrics_capacity ? 2 * ctx->metrics_capacity : 32;
        ctx->metrics = mem_realloc(ctx->metrics, ctx->metrics_capacity * sizeof *ctx->metrics);
        ctx->taken = mem_realloc(ctx->taken, ctx->metrics_capacity * sizeof *ctx->taken);
    }
    ctx->metrics[ctx->n_metrics++] = (pending_metric){row, index, tensor_retain(value), weight};
    return NRL_OK;
}

nrl_status nrl_metric_add(nrl_ctx *ctx, uint32_t index, nrl_tensor *value, double weight)
{
    if (ctx->settings.no_loss_metrics)
        return nrl_fail(NRL_ERR_PLUGIN, "nrl_metric_add is called outside a loss; expected nrl_metric_report");
    return metric_push(ctx, NULL, index, value, weight);
}

nrl_status nrl_metric_report(nrl_ctx *ctx, const nrl_metric *row, nrl_tensor *value, double weight)
{
    return metric_push(ctx, row, 0, value, weight);
}

void ctx_mute_metrics(nrl_ctx *ctx, bool begin)
{
    ctx->metrics_muted += begin ? 1 : -1;
}

/* Waits for the device once, for the metrics of all micro-batches. */
nrl_status ctx_take_metrics(nrl_ctx *ctx, const ctx_metric **list, int64_t *n)
{
    size_t count = ctx->n_metrics;
    double *numbers = mem_alloc((count ? count : 1) * sizeof *numbers);
    nrl_tensor **values = mem_alloc((count ? count : 1) * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = ctx->metrics[i].value;
    nrl_status st = tensor_fetch_numbers(ctx, values, (int64_t)count, numbers);
    for (size_t i = 0; i < count; i++) {
        const pending_metric *m = &ctx->metrics[i];
        ctx->taken[i] = (ctx_metric){m->row, m->index, st ? 0 : numbers[i], m->weight};
        tensor_release(ctx, m->value);
    }
    free(values);
    free(numbers);
    *list = ctx->taken;
    *n = (int64_t)count;
    ctx->n_metrics = 0;
    return st;
}
