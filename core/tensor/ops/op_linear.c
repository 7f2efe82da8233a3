/*
 * op_linear.c - matrix products with a parameter (linear) and without (matmul).
 * R rows, K inputs, M outputs. The product itself accumulates weight gradients, in f32.
 */
#include "tensor/ops/adapter.h"
#include "tensor/packed.h"
#include "tensor/ops/tp_region.h"
#include "tensor/tape/tape.h"

typedef struct {
    nrl_param *weight, *bias;
    nrl_param *up; /* of an adapter that has added scale u up^T; NULL = none */
    double scale;
} linear_attributes;

/* Operands of the products of a linear operation, in the order of their scales. */
typedef enum { OPERAND_INPUT, OPERAND_WEIGHT, OPERAND_GRADIENT } operand;

/* How a product of w's linear operation rounds this operand. */
static nrl_gemm_fp8 rounding(const nrl_ctx *ctx, const nrl_param *w, operand k)
{
    nrl_gemm_fp8 f = {.format = k == OPERAND_GRADIENT && !ctx->fp8_blocks ? NRL_FP8_E5M2 : NRL_FP8_E4M3};
    if (!ctx->fp8 || !param_may_be_fp8(w)) return (nrl_gemm_fp8){0};
    if (ctx->fp8_blocks) f.blocks = k == OPERAND_WEIGHT ? NRL_FP8_TILES : NRL_FP8_ROWS;
    if (!w->fp8 || !ctx->fp8_scale) return f;
    f.scale = (const float *)ctx->fp8_scale->data + 3 * (w->fp8 - 1) + k;
    f.amax = (float *)ctx->fp8_amax->data + 3 * (w->fp8 - 1) + k;
    return f;
}

static nrl_status gemm(nrl_ctx *ctx, nrl_mat a, bool transpose_a, nrl_mat b, bool transpose_b, nrl_mat c,
                       bool overwrite)
{
    nrl_gemm_args g = {.size = sizeof g,
                       .transpose_a = transpose_a,
                       .transpose_b = transpose_b,
                       .overwrite = overwrite,
                       .a = a,
                       .b = b,
                       .c = c,
                       .alpha = 1};
    return backend_gemm(ctx, &g);
}

/* The product with g->b, the weight: of a quantized one, with its values, which live as long as the product. */
static nrl_status gemm_weight(nrl_ctx *ctx, nrl_gemm_args *g, const nrl_param *w)
{
    nrl_tensor *temporary;
    NRL_TRY(param_unpack(ctx, w, &temporary, &g->b));
    if (!temporary) {
        g->weight_key = w->key;
        g->weight_version = w->version;
    }
    nrl_status st = backend_gemm(ctx, g);
    tensor_release(ctx, temporary);
    return st;
}

/* The gradient of input i, which the forward multiplied by alpha W^T: dX[R,K] += alpha dY[R,M] W[M,K] */
static nrl_status linear_input_grad(nrl_ctx *ctx, nrl_tape_node *node, int i, nrl_param *w, double alpha)
{
    nrl_gemm_args g = {.size = sizeof g,
                       .a = tensor_mat(nrl_tape_grad(node, 0)),
                       .alpha = alpha,
                       .fp8_a = rounding(ctx, w, OPERAND_GRADIENT),
                       .fp8_b = rounding(ctx, w, OPERAND_WEIGHT)};
    nrl_tensor *dx;
    NRL_TRY(tape_grad_target(ctx, node, i, &dx, &g.overwrite));
    g.c = tensor_mat(dx);
    NRL_TRY(gemm_weight(ctx, &g, w));
    return g.overwrite ? nrl_tape_give(ctx, node, i, dx) : NRL_OK;
}

/* Gradients of the parameters; x and u as saved by the forward. */
static nrl_status linear_param_grads(nrl_ctx *ctx, const linear_attributes *at, const nrl_tensor *x,
                                     const nrl_tensor *u, const nrl_tensor *grad)
{
    nrl_mat dy = tensor_mat(grad), db;
    bool overwrite_b;
    if (at->up) {
        /* dB[M,r] += scale dY[R,M]^T U[R,r] */
        nrl_gemm_args g = {.size = sizeof g, .transpose_a = true, .a = dy, .b = tensor_mat(u), .alpha = at->scale};
        NRL_TRY(param_grad(at->up, &g.c, &g.overwrite));
        if (g.c.data) NRL_TRY(backend_gemm(ctx, &g));
    }
    /* dW[M,K] += dY[R,M]^T X[R,K] */
    nrl_gemm_args dw = {.size = sizeof dw,
                        .transpose_a = true,
                        .a = dy,
                        .alpha = 1,
                        .fp8_a = rounding(ctx, at->weight, OPERAND_GRADIENT),
                        .fp8_b = rounding(ctx, at->weight, OPERAND_INPUT)};
    NRL_TRY(param_grad(at->weight, &dw.c, &dw.overwrite));
    if (dw.c.data) dw.b = tensor_mat(x);
    if (dw.c.data) NRL_TRY(backend_gemm(ctx, &dw));
    NRL_TRY(param_grad(at->bias, &db, &overwrite_b));
    if (!db.data) return NRL_OK;
    nrl_reduce_args r = {
        .size = sizeof r, .op = NRL_REDUCTION_SUM, .axis = NRL_AXIS_ROWS, .overwrite = overwrite_b, .x = dy, .y = db};
    return backend_reduce(ctx, &r);
}

static nrl_status linear_deferred(nrl_ctx *ctx, nrl_tape_node *node)
{
    return linear_param_grads(ctx, nrl_tape_attributes(node), nrl_tape_saved(node, 0), nrl_tape_saved(node, 1),
                              nrl_tape_saved(node, 2));
}

static bool is_trained(const nrl_param *p)
{
    return p && p->trained;
}

static nrl_status linear_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const linear_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *x = nrl_tape_saved(node, 0), *u = nrl_tape_saved(node, 1), *dy = nrl_tape_grad(node, 0);
    if (nrl_tape_wants(node, 0)) NRL_TRY(linear_input_grad(ctx, node, 0, at->weight, 1));
    if (at->up && nrl_tape_wants(node, 1)) NRL_TRY(linear_input_grad(ctx, node, 1, at->up, at->scale));
    tape *later = tape_later(ctx, nrl_tape_input(node, 0));
    if (!later) return linear_param_grads(ctx, at, x, u, dy);
    nrl_tape_record r = {.name = "linear, gradients of parameters",
                         .saved = {x, u, dy},
                         .attributes = at,
                         .attributes_size = sizeof *at,
                         .backward = linear_deferred};
    if (is_trained(at->weight) || is_trained(at->bias) || is_trained(at->up)) tape_defer(ctx, later, &r);
    return NRL_OK;
}

/* y = x W^T + b + scale u up^T; u and up may be NULL. Without `adds`, b is not added here but later; its gradient is
 * computed here in both cases. */
static nrl_status linear_product(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_param *b, bool adds, nrl_tensor *u,
                                 nrl_param *up, double scale, nrl_tensor **y)
{
    nrl_gemm_args g = {.size = sizeof g,
                       .transpose_b = true,
                       .overwrite = true,
                       .a = tensor_mat(x),
                       .alpha = 1,
                       .fp8_a = rounding(ctx, w, OPERAND_INPUT),
                       .fp8_b = rounding(ctx, w, OPERAND_WEIGHT)};
    if (b && adds) NRL_TRY(param_work(b, &g.bias));
    NRL_TRY(tensor_with_columns(ctx, ctx->settings.compute, x, w->dims[0], y));
    g.c = tensor_mat(*y);
    NRL_TRY(gemm_weight(ctx, &g, w));
    if (u) {
        nrl_gemm_args more = {
            .size = sizeof more, .transpose_b = true, .a = tensor_mat(u), .c = tensor_mat(*y), .alpha = scale};
        NRL_TRY(gemm_weight(ctx, &more, up));
    }
    linear_attributes at = {w, b, u ? up : NULL, scale};
    nrl_tape_record r = {.name = "linear",
                         .inputs = {x, u},
                         .outputs = {*y},
                         .saved = {w->trained ? x : NULL, u},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = linear_backward};
    NRL_TRY(tape_push(ctx, &r, w->trained || (b && b->trained)));
    tape_reads_later(ctx, *y);
    return NRL_OK;
}

static nrl_status linear(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_param *b, bool adds, nrl_tensor **y)
{
    if (w->n_dims != 2 || x->cols != w->dims[1])
        return nrl_fail(NRL_ERR_BUG, "linear: x is %s, weight '%s' is %s", tensor_shape(x).text, w->name,
                        dims_shape(w->n_dims, w->dims).text);
    if (b && (b->n_dims != 1 || b->dims[0] != w->dims[0]))
        return nrl_fail(NRL_ERR_BUG, "linear: weight '%s' is %s, bias '%s' is %s", w->name,
                        dims_shape(w->n_dims, w->dims).text, b->name, dims_shape(b->n_dims, b->dims).text);
    if (ctx->settings.adapters_off || !w->adapter) return linear_product(ctx, x, w, b, adds, NULL, NULL, 0, y);
    nrl_adapter_site site = *w->adapter;
    site.bias = b;
    site.adds = adds;
    return site.table->forward(site.self, site.module, ctx, &site, x, y);
}

/* ---- what an adapter calls ---- */

nrl_param *nrl_adapter_param(const nrl_adapter_site *site, int32_t i)
{
    NRL_ASSERT(i, <, site->n);
    return site->params[i];
}

nrl_param *nrl_adapter_weight(const nrl_adapter_site *site)
{
    return site->weight;
}

nrl_status nrl_adapter_dropout(nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x, double p, nrl_tensor **y)
{
    const nrl_param *w = site->weight;
    int64_t inputs = w->dims[1];
    return dropout_share(ctx, x, p, w->first[1] / inputs, w->parts[0].dims[1] / inputs, y);
}

nrl_status nrl_adapter_product(nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x, nrl_tensor *u, nrl_param *b,
                               double scale, nrl_tensor **y)
{
    if (u && (b->n_dims != 2 || b->dims[0] != site->weight->dims[0] || b->dims[1] != u->cols))
        return nrl_fail(NRL_ERR_BUG, "adapter of '%s': u is %s, which does not fit '%s' %s", site->weight->name,
                        tensor_shape(u).text, b->name, dims_shape(b->n_dims, b->dims).text);
    return linear_product(ctx, x, site->weight, site->bias, site->adds, u, b, scale, y);
}

nrl_status nrl_adapter_weight_product(nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x, nrl_tensor **y)
{
    return linear_product(ctx, x, site->weight, NULL, false, NULL, NULL, 0, y);
}

static nrl_status linear_add_bias(nrl_ctx *ctx, const nrl_param *b, nrl_tensor *y)
{
    nrl_tensor *rows;
    NRL_TRY(tensor_expand(ctx, nrl_param_tensor(b, NRL_SLOT_WEIGHT), y, &rows));
    return tensor_accumulate(ctx, rows, y);
}

nrl_status nrl_adapter_add_bias(nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *y)
{
    return site->bias && site->adds ? linear_add_bias(ctx, site->bias, y) : NRL_OK;
}

/* ---- the operations ---- */

nrl_status nrl_op_linear(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_param *b, nrl_tensor **y)
{
    if (w->tp == NRL_TP_ROW && !w->of_adapter && tp_region_is_answered(ctx) && param_is_sharded(w))
        return nrl_fail(NRL_ERR_PLUGIN,
                        "linear: '%s' is sharded along its inputs, so each rank has a part of the product; expected "
                        "nrl_op_row_parallel_linear",
                        w->name);
    return linear(ctx, x, w, b, true, y);
}

nrl_status nrl_op_row_parallel_linear(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_param *b, nrl_tensor **y)
{
    if (!tp_region_is_answered(ctx) || !param_is_sharded(w)) return linear(ctx, x, w, b, true, y);
    NRL_TRY(linear(ctx, x, w, b, false, y));
    NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_ROW_OUT, *y, y));
    return b ? linear_add_bias(ctx, b, *y) : NRL_OK;
}

nrl_status nrl_op_partial_linear(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_tensor **y)
{
    return linear(ctx, x, w, NULL, false, y);
}

/* ---- c[R,C] = op(a)[R,K] op(b)[K,C] ---- */

typedef struct {
    bool transpose_a, transpose_b;
} matmul_attributes;

static nrl_status matmul_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const matmul_attributes *at = nrl_tape_attributes(node);
    nrl_mat dc = tensor_mat(nrl_tape_grad(node, 0));
    nrl_mat a = tensor_mat(nrl_tape_saved(node, 0)), b = tensor_mat(nrl_tape_saved(node, 1));
    bool ta = at->transpose_a, tb = at->transpose_b, overwrite;
    nrl_tensor *d;
    if (nrl_tape_wants(node, 0)) { /* dC op(b)^T, or its transpose op(b) dC^T if a is transposed */
        NRL_TRY(tape_grad_target(ctx, node, 0, &d, &overwrite));
        if (ta)
            NRL_TRY(gemm(ctx, b, tb, dc, true, tensor_mat(d), overwrite));
        else
            NRL_TRY(gemm(ctx, dc, false, b, !tb, tensor_mat(d), overwrite));
        if (overwrite) NRL_TRY(nrl_tape_give(ctx, node, 0, d));
    }
    if (!nrl_tape_wants(node, 1)) return NRL_OK;
    NRL_TRY(tape_grad_target(ctx, node, 1, &d, &overwrite)); /* op(a)^T dC, or dC^T op(a) */
    if (tb)
        NRL_TRY(gemm(ctx, dc, true, a, ta, tensor_mat(d), overwrite));
    else
        NRL_TRY(gemm(ctx, a, !ta, dc, false, tensor_mat(d), overwrite));
    return overwrite ? nrl_tape_give(ctx, node, 1, d) : NRL_OK;
}

nrl_status nrl_op_matmul(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b, bool transpose_a, bool transpose_b, nrl_tensor **c)
{
    int64_t rows = transpose_a ? a->cols : a->rows, ka = transpose_a ? a->rows : a->cols;
    int64_t cols = transpose_b ? b->rows : b->cols, kb = transpose_b ? b->cols : b->rows;
    if (ka != kb || a->dtype != b->dtype)
        return nrl_fail(NRL_ERR_BUG, "matmul: a is %s of %s%s, b is %s of %s%s", tensor_shape(a).text,
                        nrl_dtype_name(a->dtype), transpose_a ? " transposed" : "", tensor_shape(b).text,
                        nrl_dtype_name(b->dtype), transpose_b ? " transposed" : "");
    NRL_TRY(tensor_matrix(ctx, a->dtype, rows, cols, c));
    NRL_TRY(gemm(ctx, tensor_mat(a), transpose_a, tensor_mat(b), transpose_b, tensor_mat(*c), true));
    matmul_attributes at = {transpose_a, transpose_b};
    nrl_tape_record r = {.name = "matmul",
                         .inputs = {a, b},
                         .outputs = {*c},
                         .saved = {a, b},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = matmul_backward};
    return tape_push(ctx, &r, false);
}
