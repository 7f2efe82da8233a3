/*
 * tensor.c - headers, views and reference counts; the functions of nrl/tensor.h.
 */
#include "tensor/device/profile.h"
#include "tensor/internal.h"
#include <stdio.h>
#include <string.h>

shape_text dims_shape(int n_dims, const int64_t *dims)
{
    shape_text s = {"["};
    size_t used = 1;
    for (int i = 0; i < n_dims; i++) {
        int n = snprintf(s.text + used, sizeof s.text - used, "%s%lld", i ? "," : "", (long long)dims[i]);
        used += (size_t)n;
    }
    snprintf(s.text + used, sizeof s.text - used, "]");
    return s;
}

shape_text tensor_shape(const nrl_tensor *t)
{
    return dims_shape(t->n_dims, t->dims);
}

nrl_status dims_numel(int n_dims, const int64_t *dims, int64_t *numel)
{
    if (n_dims < 1 || n_dims > NRL_MAX_DIMS)
        return nrl_fail(NRL_ERR_BUG, "cannot create a tensor of %d dimensions, expected 1 to %d", n_dims, NRL_MAX_DIMS);
    *numel = 1;
    for (int i = 0; i < n_dims; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(*numel, dims[i], numel) || *numel > INT64_MAX / 16)
            return nrl_fail(NRL_ERR_BUG, "cannot create a tensor of shape %s", dims_shape(n_dims, dims).text);
    return NRL_OK;
}

nrl_tensor *tensor_header(nrl_ctx *ctx, nrl_dtype dtype, int n_dims, const int64_t *dims)
{
    nrl_tensor *t = ctx->spare_tensors;
    if (t)
        ctx->spare_tensors = t->next;
    else
        t = arena_alloc(&ctx->memory, sizeof *t);
    *t = (nrl_tensor){.uses = 1, .dtype = dtype, .n_dims = n_dims, .rows = 1, .cols = dims[n_dims - 1]};
    memcpy(t->dims, dims, sizeof *dims * (size_t)n_dims);
    for (int i = 0; i < n_dims - 1; i++)
        t->rows *= dims[i];
    t->stride = t->cols;
    t->numel = t->rows * t->cols;
    return t;
}

static void header_recycle(nrl_ctx *ctx, nrl_tensor *t)
{
    if (t->uses || t->refs) return;
    t->next = ctx->spare_tensors;
    ctx->spare_tensors = t;
}

nrl_tensor *tensor_borrowed(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, void *memory, bool counts)
{
    nrl_tensor *t = tensor_header(ctx, dtype, 1, &n);
    t->block = pool_borrow(&ctx->pool, memory, counts ? (size_t)n * nrl_dtype_size(dtype) : 0);
    t->data = memory;
    if (counts && ctx->profiler) ctx->profiler->memory(ctx, t->block, true);
    return t;
}

nrl_tensor *tensor_retain(nrl_tensor *t)
{
    t->uses++;
    return t;
}

void tensor_release(nrl_ctx *ctx, nrl_tensor *t)
{
    if (!t) return;
    NRL_ASSERT(t->uses, >, 0);
    if (--t->uses) return;
    if (ctx->profiler && t->block->count == 1) ctx->profiler->memory(ctx, t->block, false);
    pool_release(&ctx->pool, t->block);
    t->block = NULL;
    t->data = NULL;
    header_recycle(ctx, t);
}

void tensor_ref(nrl_tensor *t)
{
    if (t) t->refs++;
}

void tensor_unref(nrl_ctx *ctx, nrl_tensor *t)
{
    if (!t) return;
    NRL_ASSERT(t->refs, >, 0);
    t->refs--;
    header_recycle(ctx, t);
}

static nrl_status allocate(nrl_ctx *ctx, nrl_dtype dtype, int n_dims, const int64_t *dims, bool exact, nrl_tensor **out)
{
    int64_t numel = 0;
    NRL_TRY(dims_numel(n_dims, dims, &numel));
    size_t bytes = (size_t)numel * nrl_dtype_size(dtype);
    pool_block *block;
    nrl_status st = exact ? pool_take_exact(&ctx->pool, bytes, &block) : pool_take(&ctx->pool, bytes, &block);
    if (st) {
        nrl_add_context("tensor %s of %s", dims_shape(n_dims, dims).text, nrl_dtype_name(dtype));
        return st;
    }
    if (ctx->profiler) ctx->profiler->memory(ctx, block, true);
    *out = tensor_header(ctx, dtype, n_dims, dims);
    (*out)->block = block;
    (*out)->data = block->data;
    return NRL_OK;
}

nrl_status nrl_tensor_new(nrl_ctx *ctx, nrl_dtype dtype, int n_dims, const int64_t *dims, nrl_tensor **out)
{
    NRL_TRY(allocate(ctx, dtype, n_dims, dims, false, out));
    ctx_own(ctx, *out);
    return NRL_OK;
}

nrl_status tensor_persistent(nrl_ctx *ctx, nrl_dtype dtype, int n_dims, const int64_t *dims, bool zero,
                             nrl_tensor **out)
{
    nrl_tensor *t;
    NRL_TRY(allocate(ctx, dtype, n_dims, dims, true, &t));
    nrl_status st = zero ? tensor_fill(ctx, t, 0) : NRL_OK;
    if (st)
        tensor_release(ctx, t);
    else
        *out = t;
    return st;
}

nrl_status tensor_with_columns(nrl_ctx *ctx, nrl_dtype dtype, const nrl_tensor *x, int64_t cols, nrl_tensor **out)
{
    int64_t dims[NRL_MAX_DIMS];
    memcpy(dims, x->dims, sizeof dims);
    dims[x->n_dims - 1] = cols;
    return nrl_tensor_new(ctx, dtype, x->n_dims, dims, out);
}

nrl_status tensor_rows_like(nrl_ctx *ctx, const nrl_tensor *x, int64_t n, nrl_tensor **out)
{
    return x->n_dims == 1 ? tensor_vector(ctx, x->dtype, n, out) : tensor_matrix(ctx, x->dtype, n, x->cols, out);
}

nrl_status tensor_like(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor **out)
{
    return nrl_tensor_new(ctx, x->dtype, x->n_dims, x->dims, out);
}

nrl_status tensor_vector(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, nrl_tensor **out)
{
    return nrl_tensor_new(ctx, dtype, 1, &n, out);
}

nrl_status tensor_matrix(nrl_ctx *ctx, nrl_dtype dtype, int64_t rows, int64_t cols, nrl_tensor **out)
{
    return nrl_tensor_new(ctx, dtype, 2, (int64_t[]){rows, cols}, out);
}

/* A new header that shares x's block; the caller owns it. */
static nrl_tensor *share(nrl_ctx *ctx, nrl_tensor *x, int64_t offset, int n_dims, const int64_t *dims, int64_t stride)
{
    nrl_tensor *v = tensor_header(ctx, x->dtype, n_dims, dims);
    v->block = x->block;
    v->block->count++;
    v->data = (char *)x->data + (size_t)offset * nrl_dtype_size(x->dtype);
    v->stride = stride;
    v->is_elsewhere = x->is_elsewhere;
    return v;
}

nrl_tensor *tensor_view(nrl_ctx *ctx, nrl_tensor *x, int64_t offset, int n_dims, const int64_t *dims, int64_t stride)
{
    nrl_tensor *v = share(ctx, x, offset, n_dims, dims, stride);
    ctx_own(ctx, v);
    return v;
}

nrl_status tensor_flat_view(nrl_ctx *ctx, nrl_tensor *t, int64_t begin, int64_t n, nrl_tensor **out)
{
    if (!tensor_is_contiguous(t) || begin < 0 || n < 0 || begin > t->numel - n)
        return nrl_fail(NRL_ERR_BUG, "elements %lld to %lld are not in tensor %s", (long long)begin,
                        (long long)begin + n, tensor_shape(t).text);
    *out = share(ctx, t, begin, 1, &n, n);
    return NRL_OK;
}

void tensor_set_leaf(nrl_tensor *t)
{
    t->has_grad = true;
}

nrl_dtype nrl_tensor_dtype(const nrl_tensor *t)
{
    return t->dtype;
}

int nrl_tensor_n_dims(const nrl_tensor *t)
{
    return t->n_dims;
}

int64_t nrl_tensor_dim(const nrl_tensor *t, int i)
{
    if (i < 0) i += t->n_dims;
    return i >= 0 && i < t->n_dims ? t->dims[i] : 1;
}

int64_t nrl_tensor_numel(const nrl_tensor *t)
{
    return t->numel;
}

bool nrl_tensor_has_grad(const nrl_tensor *t)
{
    return t->has_grad;
}

nrl_mat nrl_tensor_mat(const nrl_tensor *t)
{
    return tensor_mat(t);
}
