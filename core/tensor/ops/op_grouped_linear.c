/*
 * op_grouped_linear.c - ranges of rows, each multiplied by a weight of its own: the experts of a mixture. The backend
 * gets the products of all ranges together.
 */
#include "base/arena.h"
#include "tensor/tape/tape.h"
#include <stdlib.h>

typedef struct {
    nrl_param *weight;
    int64_t begin, end; /* rows */
} group;

typedef struct {
    int64_t n;
    group groups[];
} groups_attributes;

static nrl_mat rows_of(const nrl_tensor *t, const group *g)
{
    nrl_mat m = tensor_mat(t);
    m.data = (char *)m.data + (size_t)(g->begin * m.stride) * nrl_dtype_size(t->dtype);
    m.rows = g->end - g->begin;
    return m;
}

/* c [rows,C] = a [rows,A] times each group's weight, W or W^T */
static nrl_status products(nrl_ctx *ctx, const groups_attributes *at, const nrl_tensor *a, bool transpose,
                           const nrl_tensor *c, bool overwrite)
{
    nrl_gemm_args *calls = mem_alloc((size_t)at->n * sizeof *calls);
    nrl_status st = NRL_OK;
    for (int64_t i = 0; i < at->n && st == NRL_OK; i++) {
        const group *g = &at->groups[i];
        calls[i] = (nrl_gemm_args){.size = sizeof *calls,
                                   .transpose_b = transpose,
                                   .overwrite = overwrite,
                                   .a = rows_of(a, g),
                                   .c = rows_of(c, g),
                                   .alpha = 1,
                                   .weight_key = g->weight->key,
                                   .weight_version = g->weight->version};
        st = param_work(g->weight, &calls[i].b);
    }
    if (st == NRL_OK) st = backend_gemm_all(ctx, calls, at->n);
    free(calls);
    return st;
}

/* dW[M,K] += dY[rows,M]^T X[rows,K] of each group; x as saved by the forward */
static nrl_status param_grads(nrl_ctx *ctx, const groups_attributes *at, const nrl_tensor *x, const nrl_tensor *dy)
{
    nrl_gemm_args *calls = mem_alloc((size_t)at->n * sizeof *calls);
    nrl_status st = NRL_OK;
    int64_t n = 0;
    for (int64_t i = 0; i < at->n && st == NRL_OK; i++) {
        const group *g = &at->groups[i];
        calls[n] = (nrl_gemm_args){.size = sizeof *calls, .transpose_a = true, .a = rows_of(dy, g), .alpha = 1};
        st = param_grad(g->weight, &calls[n].c, &calls[n].overwrite);
        if (calls[n].c.data) calls[n++].b = rows_of(x, g);
    }
    if (st == NRL_OK) st = backend_gemm_all(ctx, calls, n);
    free(calls);
    return st;
}

static nrl_status groups_deferred(nrl_ctx *ctx, nrl_tape_node *node)
{
    return param_grads(ctx, nrl_tape_attributes(node), nrl_tape_saved(node, 0), nrl_tape_saved(node, 1));
}

static size_t attributes_size(const groups_attributes *at)
{
    return sizeof *at + (size_t)at->n * sizeof *at->groups;
}

static bool any_is_trained(const groups_attributes *at)
{
    for (int64_t i = 0; i < at->n; i++)
        if (at->groups[i].weight->trained) return true;
    return false;
}

static nrl_status groups_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const groups_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *x = nrl_tape_saved(node, 0), *dy = nrl_tape_grad(node, 0), *dx;
    bool overwrite;
    if (nrl_tape_wants(node, 0)) {
        NRL_TRY(tape_grad_target(ctx, node, 0, &dx, &overwrite));
        NRL_TRY(products(ctx, at, dy, false, dx, overwrite));
        if (overwrite) NRL_TRY(nrl_tape_give(ctx, node, 0, dx));
    }
    if (!any_is_trained(at)) return NRL_OK;
    tape *later = tape_later(ctx, nrl_tape_input(node, 0));
    if (!later) return param_grads(ctx, at, x, dy);
    nrl_tape_record r = {.name = "grouped linear, gradients of parameters",
                         .saved = {x, dy},
                         .attributes = at,
                         .attributes_size = attributes_size(at),
                         .backward = groups_deferred};
    tape_defer(ctx, later, &r);
    return NRL_OK;
}

static nrl_status check(const nrl_tensor *x, int64_t n, const int64_t *rows, nrl_param *const *w)
{
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        total += rows[i];
        if (rows[i] < 0 || w[i]->n_dims != 2 || w[i]->dims[1] != x->cols || w[i]->dims[0] != w[0]->dims[0])
            return nrl_fail(NRL_ERR_BUG, "grouped linear: x is %s, weight '%s' is %s and has %lld rows of it",
                            tensor_shape(x).text, w[i]->name, dims_shape(w[i]->n_dims, w[i]->dims).text,
                            (long long)rows[i]);
    }
    if (n < 1 || total != x->rows)
        return nrl_fail(NRL_ERR_BUG, "grouped linear: x is %s, and its %lld groups have %lld rows",
                        tensor_shape(x).text, (long long)n, (long long)total);
    return NRL_OK;
}

/* Weights that are adapted, quantized, or of 8 bits in products have operations of their own. */
static bool can_group(const nrl_ctx *ctx, const groups_attributes *at)
{
    for (int64_t i = 0; i < at->n; i++) {
        const nrl_param *w = at->groups[i].weight;
        if (w->packing || (w->adapter && !ctx->settings.adapters_off)) return false;
    }
    return !ctx->fp8 || !at->n;
}

static nrl_status group_by_group(nrl_ctx *ctx, nrl_tensor *x, const groups_attributes *at, nrl_tensor **y)
{
    nrl_tensor *parts[NRL_TAPE_MAX_OPERANDS], *rows;
    int n = 0;
    for (int64_t i = 0; i < at->n; i++) {
        if (n == NRL_TAPE_MAX_OPERANDS) {
            NRL_TRY(nrl_op_concat_rows(ctx, parts, n, &parts[0]));
            n = 1;
        }
        NRL_TRY(nrl_op_slice_rows(ctx, x, at->groups[i].begin, at->groups[i].end, &rows));
        NRL_TRY(nrl_op_partial_linear(ctx, rows, at->groups[i].weight, &parts[n++]));
    }
    *y = parts[0];
    return n > 1 ? nrl_op_concat_rows(ctx, parts, n, y) : NRL_OK;
}

static nrl_status grouped(nrl_ctx *ctx, nrl_tensor *x, const groups_attributes *at, int64_t outputs, nrl_tensor **y)
{
    NRL_TRY(tensor_with_columns(ctx, ctx->settings.compute, x, outputs, y));
    NRL_TRY(products(ctx, at, x, true, *y, true));
    nrl_tape_record r = {.name = "grouped linear",
                         .inputs = {x},
                         .outputs = {*y},
                         .saved = {any_is_trained(at) ? x : NULL},
                         .attributes = at,
                         .attributes_size = attributes_size(at),
                         .backward = groups_backward};
    NRL_TRY(tape_push(ctx, &r, any_is_trained(at)));
    tape_reads_later(ctx, *y);
    return NRL_OK;
}

nrl_status nrl_op_grouped_linear(nrl_ctx *ctx, nrl_tensor *x, int64_t n, const int64_t *rows, nrl_param *const *w,
                                 nrl_tensor **y)
{
    NRL_TRY(check(x, n, rows, w));
    groups_attributes *at = mem_alloc(sizeof *at + (size_t)n * sizeof *at->groups);
    int64_t begin = 0;
    at->n = 0;
    for (int64_t i = 0; i < n; begin += rows[i++])
        if (rows[i]) at->groups[at->n++] = (group){w[i], begin, begin + rows[i]};
    nrl_status st = can_group(ctx, at) ? grouped(ctx, x, at, w[0]->dims[0], y) : group_by_group(ctx, x, at, y);
    free(at);
    return st;
}
