/*
 * op_custom.c - nrl/custom_op.h: operations with kernels of a plugin, and what they may ask of the context.
 */
#include "tensor/packed.h"
#include "tensor/tape/tape.h"
#include <nrl/custom_op.h>
#include <stdio.h>
#include <string.h>

/* ---- what kernels may ask ---- */

const nrl_batch *nrl_ctx_batch(const nrl_ctx *ctx)
{
    return ctx->batch;
}

const void *nrl_ctx_backend_extension(const nrl_ctx *ctx, const char *name)
{
    const void *found = NULL;
    for (const device *d = ctx->device; d && !found; d = d->delegate)
        if (d->table.extension) found = d->table.extension(d->self, name);
    return found;
}

/* All arrays of nrl_packing in one: cu_seqlens, prefix, positions, segments. */
static nrl_packing packing_of(const nrl_batch *b, const int32_t *on_device)
{
    const int64_t n = b->n_segments + b->n_prompts;
    nrl_packing p = {.size = sizeof p, .n_segments = (int32_t)n, .n_tokens = b->n_tokens};
    p.cu_seqlens = on_device;
    p.prefix = p.cu_seqlens + n + 1;
    p.positions = p.prefix + n;
    p.segments = p.positions + b->n_tokens;
    p.host_cu_seqlens = b->packing;
    p.host_prefix = p.host_cu_seqlens + n + 1;
    p.host_positions = p.host_prefix + n;
    p.host_segments = p.host_positions + b->n_tokens;
    return p;
}

static nrl_status make_packing(nrl_ctx *ctx)
{
    nrl_batch *b = ctx->batch;
    const int64_t n = b->n_segments + b->n_prompts, size = 2 * n + 1 + 2 * b->n_tokens;
    nrl_tensor *t;
    if (ctx->index.packing) return NRL_OK;
    if (!b->packing) {
        int32_t *to = b->packing = arena_try(&b->memory, (size_t)size * sizeof *to, "the packing of a micro-batch");
        if (!to) return NRL_ERR_MEMORY;
        memcpy(to, b->cu_seqlens, (size_t)(n + 1) * sizeof *to);
        to += n + 1;
        for (int64_t s = 0; s < n; s++)
            *to++ = b->prefix ? b->prefix[s] : -1;
        memcpy(to, b->positions, (size_t)b->n_tokens * sizeof *to);
        to += b->n_tokens;
        for (int64_t s = 0; s < n; s++)
            for (int32_t i = b->cu_seqlens[s]; i < b->cu_seqlens[s + 1]; i++)
                to[i] = (int32_t)s;
    }
    NRL_TRY(tensor_of_host(ctx, NRL_DTYPE_I32, size, b->packing, true, &t));
    ctx->index.packing = tensor_retain(t);
    return NRL_OK;
}

nrl_status nrl_ctx_packing(nrl_ctx *ctx, nrl_packing *fill)
{
    if (!ctx->batch) return nrl_fail(NRL_ERR_BUG, "packing: there is no current batch");
    if (ctx->settings.attention.call)
        return nrl_fail(NRL_ERR_PLUGIN,
                        "the model reads neighbouring tokens outside attention, which decoding with a key/value "
                        "cache does not support");
    if (ctx->batch->whole)
        return nrl_fail(NRL_ERR_CONFIG,
                        "the model reads neighbouring tokens outside attention, so ranks cannot shard the tokens of "
                        "a micro-batch; expected no such axis in `parallel`");
    NRL_TRY(make_packing(ctx));
    *fill = packing_of(ctx->batch, tensor_index(ctx->index.packing));
    return NRL_OK;
}

/* ---- custom operations ---- */

typedef struct {
    const nrl_kernel *kernel;
    void *self; /* the backend of the kernel */
    const nrl_custom_op *op;
    const nrl_batch *batch; /* NULL = recorded without one */
    int32_t n_inputs, n_outputs;
    _Alignas(16) unsigned char attributes[128];
} custom_attributes;

static const nrl_kernel *kernel_of(const nrl_custom_op *op, const char *backend)
{
    for (const char *at = (const char *)op->kernels;; at += op->kernel_size) {
        const nrl_kernel *k = (const nrl_kernel *)(const void *)at;
        if (!k->backend) return NULL;
        if (!strcmp(k->backend, backend)) return k;
    }
}

/* Of the backend itself; not if they read what the operation does not save. */
static const nrl_kernel *kernel_of_backend(const nrl_backend *b, const char *name, const nrl_custom_op *op)
{
    for (const nrl_custom_op *const *own = b->custom_ops; own && *own; own++)
        if (!strcmp((*own)->name, op->name) && !((*own)->saved_inputs & ~op->saved_inputs) &&
            !((*own)->saved_outputs & ~op->saved_outputs))
            return kernel_of(*own, name);
    return NULL;
}

static nrl_status find_kernel(nrl_ctx *ctx, custom_attributes *at)
{
    char known[160] = "";
    size_t used = 0;
    const device *d = ctx->device;
    do {
        const char *name = d->table.plugin.name ? d->table.plugin.name : "";
        at->self = d->self;
        at->kernel = kernel_of(at->op, name);
        if (!at->kernel) at->kernel = kernel_of_backend(&d->table, name, at->op);
        if (at->kernel) return NRL_OK;
        d = d->delegate;
    } while (d);
    ctx->device->lacked = true;
    for (const nrl_kernel *k = at->op->kernels; k->backend && used < sizeof known;
         k = (const nrl_kernel *)(const void *)((const char *)k + at->op->kernel_size))
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", k->backend);
    return nrl_fail(NRL_ERR_PLUGIN, "backend '%s' has no kernel of operation '%s'; there are kernels for: %s",
                    ctx->device->table.plugin.name, at->op->name, *known ? known : "none");
}

static nrl_status custom_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const custom_attributes *at = nrl_tape_attributes(node);
    nrl_kernel_args a = {.size = sizeof a,
                         .n_inputs = (uint32_t)at->n_inputs,
                         .n_outputs = (uint32_t)at->n_outputs,
                         .ctx = ctx,
                         .attributes = at->attributes,
                         .self = at->self};
    nrl_tensor *grads[NRL_CUSTOM_MAX_OPERANDS] = {0};
    nrl_packing packing;
    int saved = 1; /* 0 is the packing */
    if (at->batch) packing = packing_of(at->batch, tensor_index(nrl_tape_saved(node, 0)));
    if (at->batch) a.packing = &packing;
    for (int i = 0; i < at->n_inputs; i++) {
        if (at->op->saved_inputs >> i & 1) a.inputs[i] = tensor_mat(nrl_tape_saved(node, saved++));
        if (!nrl_tape_wants(node, i)) continue;
        NRL_TRY(tensor_like(ctx, nrl_tape_input(node, i), &grads[i]));
        a.input_grads[i] = tensor_mat(grads[i]);
    }
    for (int i = 0; i < at->n_outputs; i++) {
        if (at->op->saved_outputs >> i & 1) a.outputs[i] = tensor_mat(nrl_tape_saved(node, saved++));
        if (nrl_tape_grad(node, i)) a.output_grads[i] = tensor_mat(nrl_tape_grad(node, i));
    }
    if (!at->kernel->backward) return nrl_fail(NRL_ERR_PLUGIN, "operation '%s' has no gradient", at->op->name);
    if (!ctx->device->is_shapes) NRL_TRY(at->kernel->backward(&a));
    for (int i = 0; i < at->n_inputs; i++)
        if (grads[i]) NRL_TRY(nrl_tape_give(ctx, node, i, grads[i]));
    return NRL_OK;
}

nrl_status nrl_op_custom(nrl_ctx *ctx, const nrl_custom_op *op, nrl_tensor *const *inputs, int n_inputs,
                         nrl_tensor *const *outputs, int n_outputs, const void *attributes, size_t attributes_size)
{
    custom_attributes at = {.op = op, .n_inputs = n_inputs, .n_outputs = n_outputs};
    int n_saved = __builtin_popcount(op->saved_inputs) + __builtin_popcount(op->saved_outputs);
    if (n_inputs < 0 || n_inputs > NRL_CUSTOM_MAX_OPERANDS || n_outputs < 1 || n_outputs > NRL_CUSTOM_MAX_OPERANDS ||
        n_saved >= NRL_TAPE_MAX_OPERANDS || attributes_size > sizeof at.attributes)
        return nrl_fail(NRL_ERR_PLUGIN,
                        "operation '%s' has %d inputs, %d outputs, %d saved tensors and %zu bytes of attributes; "
                        "expected at most %d of each and %zu bytes",
                        op->name, n_inputs, n_outputs, n_saved, attributes_size, NRL_CUSTOM_MAX_OPERANDS,
                        sizeof at.attributes);
    NRL_TRY(find_kernel(ctx, &at));
    if (attributes_size) memcpy(at.attributes, attributes, attributes_size);
    nrl_kernel_args a = {.size = sizeof a,
                         .n_inputs = (uint32_t)n_inputs,
                         .n_outputs = (uint32_t)n_outputs,
                         .ctx = ctx,
                         .attributes = at.attributes,
                         .self = at.self};
    nrl_tape_record r = {
        .name = op->name, .backward = custom_backward, .attributes = &at, .attributes_size = sizeof at};
    nrl_packing packing;
    int saved = 1;
    if (ctx->batch && !ctx->settings.attention.call && !ctx->batch->whole) {
        NRL_TRY(nrl_ctx_packing(ctx, &packing));
        a.packing = &packing;
        at.batch = ctx->batch;
        r.saved[0] = ctx->index.packing;
    }
    for (int i = 0; i < n_inputs; i++) {
        a.inputs[i] = tensor_mat(inputs[i]);
        r.inputs[i] = inputs[i];
        if (op->saved_inputs >> i & 1) r.saved[saved++] = inputs[i];
    }
    for (int i = 0; i < n_outputs; i++) {
        a.outputs[i] = tensor_mat(outputs[i]);
        const nrl_dtype dtype = outputs[i]->dtype;
        if (dtype != NRL_DTYPE_I32 && dtype != NRL_DTYPE_I64 && dtype != NRL_DTYPE_U8) r.outputs[i] = outputs[i];
        if (op->saved_outputs >> i & 1) r.saved[saved++] = outputs[i];
    }
    if (!ctx->device->is_shapes) {
        nrl_status st = at.kernel->forward(&a);
        if (st != NRL_OK) nrl_add_context("operation '%s'", op->name);
        NRL_TRY(st);
    }
    return tape_push(ctx, &r, false);
}

/* ---- a parameter as a tensor ---- */

typedef struct {
    nrl_param *param;
} param_attributes;

/* Both mats have the parameter's elements in order; a parameter of three dimensions has other rows than its tensor. */
static nrl_status copy_elements(nrl_ctx *ctx, nrl_mat x, nrl_mat y, bool accumulate)
{
    nrl_copy_args c = {.size = sizeof c, .x = x, .y = y, .accumulate = accumulate, .alpha = 1};
    c.x.rows = c.y.rows = 1;
    c.x.cols = c.x.stride = c.y.cols = c.y.stride = x.rows * x.cols;
    return c.x.cols ? backend_copy(ctx, &c) : NRL_OK;
}

static nrl_status param_values(nrl_ctx *ctx, nrl_tape_node *node, nrl_tensor *y)
{
    const param_attributes *at = nrl_tape_attributes(node);
    nrl_mat weight;
    NRL_TRY(param_work(at->param, &weight));
    return copy_elements(ctx, weight, tensor_mat(y), false);
}

static nrl_status param_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const param_attributes *at = nrl_tape_attributes(node);
    nrl_mat grad;
    bool overwrite;
    NRL_TRY(param_grad(at->param, &grad, &overwrite));
    return grad.data ? copy_elements(ctx, tensor_mat(nrl_tape_grad(node, 0)), grad, !overwrite) : NRL_OK;
}

nrl_status nrl_op_param(nrl_ctx *ctx, nrl_param *p, nrl_dtype dtype, nrl_tensor **y)
{
    param_attributes at = {p};
    nrl_mat weight;
    nrl_tensor *temporary;
    NRL_TRY(param_unpack(ctx, p, &temporary, &weight));
    nrl_status st = nrl_tensor_new(ctx, dtype ? dtype : (nrl_dtype)weight.dtype, p->n_dims, p->dims, y);
    if (st == NRL_OK) st = copy_elements(ctx, weight, tensor_mat(*y), false);
    tensor_release(ctx, temporary);
    NRL_TRY(st);
    nrl_tape_record r = {
        .name = "param", .outputs = {*y}, .attributes = &at, .attributes_size = sizeof at, .backward = param_backward};
    if (!p->trained) return NRL_OK;
    NRL_TRY(tape_push(ctx, &r, true));
    tape_can_remake(ctx, *y, param_values);
    return NRL_OK;
}
