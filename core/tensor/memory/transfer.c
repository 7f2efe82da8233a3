/*
 * transfer.c - copies between host memory and tensors; fills, copies and adds tensors.
 */
#include "tensor/internal.h"
#include <stdlib.h>
#include <string.h>

nrl_status ctx_host_alloc(nrl_ctx *ctx, size_t bytes, void **out)
{
    const nrl_backend *t = &ctx->device->table;
    if (!t->alloc_host) return nrl_fail(NRL_ERR_PLUGIN, "backend '%s' has no pinned host memory", t->plugin.name);
    return t->alloc_host(ctx->device->self, bytes, out);
}

void ctx_host_free(nrl_ctx *ctx, void *memory)
{
    ctx->device->table.free_host(ctx->device->self, memory);
}

nrl_status ctx_wait(nrl_ctx *ctx)
{
    if (!ctx->stream) return NRL_OK;
    if (ctx->before_read) NRL_TRY(ctx->before_read(ctx->before_read_user));
    return ctx->device->table.stream_wait(ctx->device->self, ctx->stream);
}

static nrl_status transfer(nrl_ctx *ctx, void *to, const void *from, size_t bytes, nrl_copy_direction way)
{
    if (!bytes) return NRL_OK;
    if (way == NRL_COPY_TO_HOST && ctx->before_read) NRL_TRY(ctx->before_read(ctx->before_read_user));
    return backend_transfer(ctx, to, from, bytes, way);
}

static nrl_status need_contiguous(const nrl_tensor *t)
{
    if (tensor_is_contiguous(t)) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "cannot copy tensor %s: it is a slice of columns, expected a contiguous tensor",
                    tensor_shape(t).text);
}

nrl_status tensor_write(nrl_ctx *ctx, nrl_tensor *t, const void *host)
{
    NRL_TRY(need_contiguous(t));
    return transfer(ctx, t->data, host, (size_t)t->numel * nrl_dtype_size(t->dtype), NRL_COPY_TO_DEVICE);
}

nrl_status tensor_read(nrl_ctx *ctx, const nrl_tensor *t, void *host)
{
    NRL_TRY(need_contiguous(t));
    return transfer(ctx, host, t->data, (size_t)t->numel * nrl_dtype_size(t->dtype), NRL_COPY_TO_HOST);
}

nrl_status nrl_tensor_from_host(nrl_ctx *ctx, nrl_dtype dtype, int n_dims, const int64_t *dims, const void *data,
                                nrl_tensor **out)
{
    NRL_TRY(nrl_tensor_new(ctx, dtype, n_dims, dims, out));
    return tensor_write(ctx, *out, data);
}

nrl_status tensor_of_host(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, const void *host, bool keep, nrl_tensor **out)
{
    if (!keep || !ctx->device->info.host_memory) return nrl_tensor_from_host(ctx, dtype, 1, &n, host, out);
    /* The memory of batches is never written; the cast is needed because blocks have a non-const pointer. */
    *out = tensor_borrowed(ctx, dtype, n, (void *)(uintptr_t)host, false);
    ctx_own(ctx, *out);
    return NRL_OK;
}

/* One copy of a contiguous tensor, else a copy of each row (slices of columns). */
static nrl_status fetch_rows(nrl_ctx *ctx, const nrl_tensor *t, char *row, double *out)
{
    size_t element = nrl_dtype_size(t->dtype);
    bool whole = tensor_is_contiguous(t);
    int64_t rows = whole ? 1 : t->rows, cols = whole ? t->numel : t->cols;
    for (int64_t r = 0; r < rows; r++) {
        const char *from = (const char *)t->data + (size_t)(r * t->stride) * element;
        NRL_TRY(transfer(ctx, row, from, (size_t)cols * element, NRL_COPY_TO_HOST));
        for (int64_t c = 0; c < cols; c++)
            out[r * cols + c] = nrl_dtype_f64(t->dtype, row + (size_t)c * element);
    }
    return NRL_OK;
}

nrl_status nrl_tensor_fetch(nrl_ctx *ctx, const nrl_tensor *t, double *out, int64_t n)
{
    if (n != t->numel)
        return nrl_fail(NRL_ERR_BUG, "cannot fetch %lld values of tensor %s", (long long)n, tensor_shape(t).text);
    if (!t->data) return nrl_fail(NRL_ERR_BUG, "cannot fetch tensor %s: it was released", tensor_shape(t).text);
    if (read_ahead_find(ctx, t)) return read_ahead_fetch(ctx, out);
    char *row = mem_try((size_t)t->numel * nrl_dtype_size(t->dtype), "the values of a tensor");
    if (!row) return NRL_ERR_MEMORY;
    nrl_status st = fetch_rows(ctx, t, row, out);
    free(row);
    return st;
}

nrl_status tensor_fetch_numbers(nrl_ctx *ctx, nrl_tensor *const *numbers, int64_t n, double *out)
{
    const bool together = n > 1 && !read_ahead_find(ctx, numbers[0]); /* else all of them are read ahead */
    nrl_status st = together ? read_ahead_start(ctx, numbers, n, false) : NRL_OK;
    for (int64_t i = 0; i < n && st == NRL_OK; i++)
        st = nrl_tensor_fetch(ctx, numbers[i], &out[i], 1);
    if (together) ctx_read_ahead_end(ctx);
    return st;
}

nrl_status tensor_fill(nrl_ctx *ctx, nrl_tensor *t, double value)
{
    if (!t->numel) return NRL_OK;
    return backend_fill(ctx, &(nrl_fill_args){sizeof(nrl_fill_args), tensor_mat(t), value});
}

static nrl_status copy(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *y, bool accumulate)
{
    if (!x->numel) return NRL_OK;
    NRL_ASSERT(x->rows, ==, y->rows);
    NRL_ASSERT(x->cols, ==, y->cols);
    nrl_copy_args a = {.size = sizeof a, .accumulate = accumulate, .x = tensor_mat(x), .y = tensor_mat(y), .alpha = 1};
    return backend_copy(ctx, &a);
}

nrl_status tensor_copy(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *y)
{
    return copy(ctx, x, y, false);
}

static nrl_status write_whole(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *to, bool accumulate)
{
    if (x->numel != to->numel || !x->data || !to->data)
        return nrl_fail(NRL_ERR_BUG, "cannot copy tensor %s to tensor %s%s", tensor_shape(x).text,
                        tensor_shape(to).text, x->data && to->data ? "" : ": a tensor was released");
    if (tensor_same_matrix(x, to)) return copy(ctx, x, to, accumulate); /* also slices of columns */
    NRL_TRY(need_contiguous(x));
    NRL_TRY(need_contiguous(to));
    nrl_copy_args a = {.size = sizeof a,
                       .accumulate = accumulate,
                       .x = {x->data, (uint32_t)x->dtype, 0, 1, x->numel, x->numel},
                       .y = {to->data, (uint32_t)to->dtype, 0, 1, to->numel, to->numel},
                       .alpha = 1};
    return x->numel ? backend_copy(ctx, &a) : NRL_OK;
}

nrl_status nrl_tensor_copy(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *to)
{
    return write_whole(ctx, x, to, false);
}

nrl_status nrl_tensor_add(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *to)
{
    return write_whole(ctx, x, to, true);
}

nrl_status tensor_accumulate(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *y)
{
    return copy(ctx, x, y, true);
}

nrl_status tensor_expand(nrl_ctx *ctx, const nrl_tensor *b, const nrl_tensor *x, nrl_tensor **out)
{
    nrl_tensor *zero, *same = NULL;
    NRL_TRY(tensor_like(ctx, x, &zero));
    NRL_TRY(tensor_fill(ctx, zero, 0));
    NRL_TRY(tensor_like(ctx, x, out));
    if (b->dtype != x->dtype) {
        NRL_TRY(nrl_tensor_new(ctx, x->dtype, b->n_dims, b->dims, &same));
        NRL_TRY(tensor_copy(ctx, b, same));
        b = same;
    }
    if (!x->numel) return NRL_OK;
    nrl_binary_args a = {
        .size = sizeof a, .op = NRL_BINARY_ADD, .a = tensor_mat(zero), .b = tensor_mat(b), .y = tensor_mat(*out)};
    return backend_binary(ctx, &a);
}
