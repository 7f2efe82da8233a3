/*
 * read_ahead.c - copies what a step reads from the device to the host in one piece, beside later work of the device.
 */
#include "tensor/internal.h"
#include <stdlib.h>
#include <string.h>

/* Waits for the copy; the values are there afterwards. */
static nrl_status wait_copied(nrl_ctx *ctx)
{
    const nrl_backend *b = &ctx->device->table;
    read_ahead *a = &ctx->ahead;
    if (!a->copied) return NRL_OK;
    if (ctx->before_read) NRL_TRY(ctx->before_read(ctx->before_read_user));
    nrl_status st = b->event_wait(ctx->device->self, a->copied);
    b->event_destroy(ctx->device->self, a->copied);
    a->copied = NULL;
    return st;
}

void ctx_read_ahead_end(nrl_ctx *ctx)
{
    read_ahead *a = &ctx->ahead;
    /* After a step that failed the device may still write the values. */
    if (wait_copied(ctx) != NRL_OK && a->copied) ctx->device->table.event_destroy(ctx->device->self, a->copied);
    a->copied = NULL;
    for (int64_t i = 0; i < a->n; i++)
        tensor_release(ctx, a->list[i].tensor);
    a->n = a->next = 0;
}

void read_ahead_free(nrl_ctx *ctx)
{
    read_ahead *a = &ctx->ahead;
    ctx_read_ahead_end(ctx);
    if (a->values) ctx_host_free(ctx, a->values);
    free(a->list);
    *a = (read_ahead){0};
}

/* Appends a tensor; one without contents is left to nrl_tensor_fetch, which reports it. */
static void append(read_ahead *a, nrl_tensor *t, int64_t *n_values)
{
    if (!t->data) return;
    if ((size_t)a->n == a->room) {
        a->room = a->room ? 2 * a->room : 32;
        a->list = mem_realloc(a->list, a->room * sizeof *a->list);
    }
    a->list[a->n].tensor = tensor_retain(t);
    a->list[a->n++].at = *n_values;
    *n_values += t->numel;
}

/* false: there is no pinned memory for so many values. */
static bool reserve(nrl_ctx *ctx, size_t n_values)
{
    read_ahead *a = &ctx->ahead;
    void *values;
    if (n_values <= a->value_room) return true;
    if (ctx_host_alloc(ctx, 2 * n_values * sizeof *a->values, &values) != NRL_OK) {
        nrl_warn("%s\nhint: the numbers of a step are read one by one", nrl_error_text());
        a->is_off = true;
        return false;
    }
    if (a->values) ctx_host_free(ctx, a->values);
    a->values = values;
    a->value_room = 2 * n_values;
    return true;
}

/* Gathers the values on the device as doubles and queues one copy of them. */
static nrl_status queue_copy(nrl_ctx *ctx, int64_t n_values)
{
    const device *d = ctx->device;
    read_ahead *a = &ctx->ahead;
    nrl_tensor *all;
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F64, 1, &n_values, &all));
    for (int64_t i = 0; i < a->n; i++) {
        const nrl_mat x = tensor_mat(a->list[i].tensor);
        nrl_copy_args copy = {.size = sizeof copy,
                              .x = x,
                              .y = {(double *)all->data + a->list[i].at, NRL_DTYPE_F64, 0, x.rows, x.cols, x.cols},
                              .alpha = 1};
        NRL_TRY(backend_copy(ctx, &copy));
    }
    NRL_TRY(backend_transfer(ctx, a->values, all->data, (size_t)n_values * sizeof *a->values, NRL_COPY_TO_HOST));
    return d->table.event_record ? d->table.event_record(d->self, ctx->stream, &a->copied) : NRL_OK;
}

nrl_status read_ahead_start(nrl_ctx *ctx, nrl_tensor *const *tensors, int64_t n, bool metrics)
{
    const device *d = ctx->device;
    int64_t n_values = 0;
    ctx_read_ahead_end(ctx);
    if (d->info.host_memory || !d->table.alloc_host || ctx->ahead.is_off) return NRL_OK;
    for (int64_t i = 0; i < n; i++)
        append(&ctx->ahead, tensors[i], &n_values);
    for (size_t i = 0; metrics && i < ctx->n_metrics; i++)
        append(&ctx->ahead, ctx->metrics[i].value, &n_values);
    if (!n_values) return NRL_OK;
    ctx_scope_begin(ctx);
    const bool queues = reserve(ctx, (size_t)n_values);
    nrl_status st = queues ? queue_copy(ctx, n_values) : NRL_OK;
    ctx_scope_end(ctx);
    if (!queues || st != NRL_OK) ctx_read_ahead_end(ctx);
    return st;
}

nrl_status ctx_read_ahead(nrl_ctx *ctx, nrl_tensor *const *tensors, int64_t n)
{
    return read_ahead_start(ctx, tensors, n, true);
}

/* Tensors are mostly fetched in the order of the list, so the search begins behind the last one. */
bool read_ahead_find(nrl_ctx *ctx, const nrl_tensor *t)
{
    read_ahead *a = &ctx->ahead;
    for (int64_t i = 0; i < a->n; i++, a->next++) {
        if (a->next == a->n) a->next = 0;
        if (a->list[a->next].tensor == t) return true;
    }
    return false;
}

nrl_status read_ahead_fetch(nrl_ctx *ctx, double *out)
{
    const read_ahead *a = &ctx->ahead;
    NRL_TRY(wait_copied(ctx));
    memcpy(out, a->values + a->list[a->next].at, (size_t)a->list[a->next].tensor->numel * sizeof *out);
    return NRL_OK;
}
