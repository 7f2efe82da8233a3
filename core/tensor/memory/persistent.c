/*
 * persistent.c - the public functions for strategies that create persistent tensors and open scopes, wrappers of
 * tensor.c and ctx.c.
 */
#include "tensor/internal.h"

nrl_status nrl_tensor_persistent(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, bool zero, nrl_tensor **out)
{
    return tensor_persistent(ctx, dtype, 1, &n, zero, out);
}

nrl_status ctx_offload_open(nrl_ctx *ctx, ctx_offload what, const char *folder)
{
    const nrl_offload *table = nrl_ctx_backend_extension(ctx, "offload");
    nrl_offload_copy *copy;
    const bool copies = table && table->size >= sizeof *table && table->copy_create;
    if (!table || (what == CTX_OFFLOAD_ACTIVATIONS && !copies))
        return nrl_fail(NRL_ERR_CONFIG, "train.offload: backend '%s' does not offer it; expected none",
                        ctx->device->table.plugin.name);
    if (what == CTX_OFFLOAD_ACTIVATIONS) { /* now rather than in the first step */
        NRL_TRY(table->copy_create(table->self, folder, 1, &copy));
        table->copy_free(table->self, copy);
    }
    ctx->offload[what].table = table;
    ctx->offload[what].folder = folder;
    return NRL_OK;
}

static nrl_status allocate(nrl_ctx *ctx, const nrl_offload *table, const char *folder, nrl_dtype dtype, int64_t n,
                           nrl_tensor **out)
{
    void *memory;
    NRL_TRY(table->alloc(table->self, folder, (size_t)n * nrl_dtype_size(dtype), &memory));
    *out = tensor_borrowed(ctx, dtype, n, memory, false);
    (*out)->is_elsewhere = true;
    return NRL_OK;
}

nrl_status tensor_offloaded(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, bool zero, nrl_tensor **out)
{
    const nrl_offload *table = ctx->offload[CTX_OFFLOAD_OPTIMIZER].table;
    return table ? allocate(ctx, table, ctx->offload[CTX_OFFLOAD_OPTIMIZER].folder, dtype, n, out)
                 : tensor_persistent(ctx, dtype, 1, &n, zero, out);
}

nrl_status nrl_tensor_elsewhere(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, bool disk, nrl_tensor **out)
{
    ctx->elsewhere = nrl_ctx_backend_extension(ctx, "offload");
    if (!ctx->elsewhere)
        return nrl_fail(NRL_ERR_CONFIG, "offload: backend '%s' does not offer it; expected none",
                        ctx->device->table.plugin.name);
    return allocate(ctx, ctx->elsewhere,
                    disk && ctx->settings.offload_folder ? ctx->settings.offload_folder
                    : disk                               ? "."
                                                         : NULL,
                    dtype, n, out);
}

void nrl_tensor_expect(nrl_ctx *ctx, const nrl_tensor *t, bool soon)
{
    const nrl_offload *table = ctx->elsewhere;
    if (table && t && table->size >= sizeof *table && table->expect)
        table->expect(table->self, t->data, (size_t)t->numel * nrl_dtype_size(t->dtype), soon);
}

void ctx_offload_use(nrl_ctx *ctx, nrl_tensor *t)
{
    const nrl_offload *table = ctx->offload[CTX_OFFLOAD_OPTIMIZER].table;
    if (table && t) table->use(table->self, t->data, (size_t)t->numel * nrl_dtype_size(t->dtype));
}

bool ctx_offloads(const nrl_ctx *ctx)
{
    return ctx->elsewhere || ctx->offload[CTX_OFFLOAD_OPTIMIZER].table;
}

bool tensor_is_elsewhere(const nrl_tensor *t)
{
    return t->is_elsewhere;
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
