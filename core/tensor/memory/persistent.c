/*
 * persistent.c - the public functions for strategies that create persistent tensors and open scopes, wrappers of
 * tensor.c and ctx.c.
 */
#include "tensor/internal.h"

nrl_status nrl_tensor_persistent(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, bool zero, nrl_tensor **out)
{
    return tensor_persistent(ctx, dtype, 1, &n, zero, out);
}

nrl_status nrl_tensor_slice(nrl_ctx *ctx, nrl_tensor *t, int64_t begin, int64_t n, nrl_tensor **out)
{
    return tensor_flat_view(ctx, t, begin, n, out);
}

void nrl_tensor_free(nrl_ctx *ctx, nrl_tensor *t)
{
    tensor_release(ctx, t);
}

nrl_status nrl_tensor_fill(nrl_ctx *ctx, nrl_tensor *t, double value)
{
    return t->numel ? tensor_fill(ctx, t, value) : NRL_OK;
}

bool nrl_ctx_host_memory(const nrl_ctx *ctx)
{
    return ctx->device->info.host_memory;
}

void nrl_scope_begin(nrl_ctx *ctx)
{
    ctx_scope_begin(ctx);
}

void nrl_scope_end(nrl_ctx *ctx)
{
    ctx_scope_end(ctx);
}
