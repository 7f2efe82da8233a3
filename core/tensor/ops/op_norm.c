/*
 * op_norm.c - rms and layer norm, alone or fused with the preceding residual addition.
 * Saves the input of the normalisation and one or two f32 per normalised row, from which y can be recomputed. The
 * weight has D columns; x [N, G*D] is normalised in groups of D columns. Each call adds the offset to the weight in
 * f32: this costs D additions, small compared to the N*D elements of y.
 */
#include "tensor/tape/tape.h"

typedef struct {
    nrl_param *weight, *bias;
    double offset, eps;
} norm_attributes;

typedef struct {
    const char *name;
    bool rms;
    nrl_tensor *x, *residual; /* residual NULL = none */
    nrl_param *weight, *bias; /* bias NULL for rms */
    double offset, eps;
    nrl_tensor **sum, **y;
} norm_call;

/* offset + w [1,D] for the kernel, in f32, so that a weight near 0 loses no precision when 1 is added. */
static nrl_status norm_weight(nrl_ctx *ctx, const nrl_param *w, double offset, nrl_mat *out)
{
    nrl_mat work;
    nrl_tensor *sum;
    NRL_TRY(param_work(w, &work));
    *out = work;
    if (offset == 0) return NRL_OK;
    NRL_TRY(tensor_matrix(ctx, NRL_DTYPE_F32, 1, w->numel, &sum));
    *out = tensor_mat(sum);
    NRL_TRY(backend_fill(ctx, &(nrl_fill_args){sizeof(nrl_fill_args), *out, offset}));
    nrl_copy_args add = {.size = sizeof add, .accumulate = true, .x = work, .y = *out, .alpha = 1};
    return backend_copy(ctx, &add);
}

/* Saved: 0 the input of the normalisation, 1 rstd, 2 mean (layer norm). Outputs: 0 y, 1 the sum.
 * The same pass computes dx of the norm and adds the gradients that x has from other uses. */
static nrl_status norm_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const norm_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *x = nrl_tape_saved(node, 0), *mean = nrl_tape_saved(node, 2), *dx = NULL;
    nrl_tensor *dy = nrl_tape_grad(node, 0), *dsum = nrl_tape_grad(node, 1);
    bool fused = nrl_tape_input(node, 1) != NULL;
    if (!dy) {
        NRL_TRY(nrl_tape_give(ctx, node, 0, dsum));
        return nrl_tape_give(ctx, node, 1, dsum);
    }
    nrl_norm_grad_args a = {.size = sizeof a,
                            .rms = !mean,
                            .x = tensor_mat(x),
                            .rstd = tensor_mat(nrl_tape_saved(node, 1)),
                            .dy = tensor_mat(dy)};
    if (mean) a.mean = tensor_mat(mean);
    bool wants = nrl_tape_wants(node, 0) || nrl_tape_wants(node, 1);
    if (wants && !fused) dsum = tape_take_grad(ctx, node, 0);
    if (dsum) a.dsum = tensor_mat(dsum);
    /* The gradient of the weight needs this pass even if x needs no gradient; dx is then discarded. */
    NRL_TRY(fused ? tensor_like(ctx, x, &dx) : tape_grad_room(ctx, node, 0, &dx));
    a.dx = tensor_mat(dx);
    NRL_TRY(norm_weight(ctx, at->weight, at->offset, &a.weight));
    NRL_TRY(param_grad(at->weight, &a.dweight, &a.overwrite_weight));
    NRL_TRY(param_grad(at->bias, &a.dbias, &a.overwrite_bias));
    NRL_TRY(backend_norm_grad(ctx, &a));
    NRL_TRY(nrl_tape_give(ctx, node, 0, dx));
    return nrl_tape_give(ctx, node, 1, dx);
}

/* Writes rstd and mean again, with equal values. */
static nrl_status norm_remake(nrl_ctx *ctx, nrl_tape_node *node, nrl_tensor *y)
{
    const norm_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *mean = nrl_tape_saved(node, 2);
    nrl_norm_args a = {.size = sizeof a,
                       .rms = !mean,
                       .x = tensor_mat(nrl_tape_saved(node, 0)),
                       .y = tensor_mat(y),
                       .rstd = tensor_mat(nrl_tape_saved(node, 1)),
                       .eps = at->eps};
    if (mean) a.mean = tensor_mat(mean);
    NRL_TRY(norm_weight(ctx, at->weight, at->offset, &a.weight));
    if (at->bias) NRL_TRY(param_work(at->bias, &a.bias));
    return backend_norm(ctx, &a);
}

static nrl_status norm(nrl_ctx *ctx, const norm_call *c)
{
    const nrl_param *w = c->weight, *b = c->bias;
    int64_t width = w->n_dims == 1 ? w->dims[0] : 0;
    if (width < 1 || c->x->cols % width)
        return nrl_fail(NRL_ERR_BUG, "%s: x is %s, weight '%s' is %s", c->name, tensor_shape(c->x).text, w->name,
                        dims_shape(w->n_dims, w->dims).text);
    if (b && (b->n_dims != 1 || b->dims[0] != width))
        return nrl_fail(NRL_ERR_BUG, "%s: weight '%s' is %s, bias '%s' is %s", c->name, w->name,
                        dims_shape(w->n_dims, w->dims).text, b->name, dims_shape(b->n_dims, b->dims).text);
    if (c->residual && (!tensor_same_matrix(c->x, c->residual) || c->x->dtype != c->residual->dtype))
        return nrl_fail(NRL_ERR_BUG, "%s: a is %s of %s, b is %s of %s", c->name, tensor_shape(c->x).text,
                        nrl_dtype_name(c->x->dtype), tensor_shape(c->residual).text,
                        nrl_dtype_name(c->residual->dtype));
    int64_t groups = c->x->cols / c->weight->dims[0];
    nrl_tensor *rstd, *mean = NULL, *normed = c->x;
    nrl_norm_args a = {.size = sizeof a, .rms = c->rms, .x = tensor_mat(c->x), .eps = c->eps};
    NRL_TRY(tensor_matrix(ctx, NRL_DTYPE_F32, c->x->rows, groups, &rstd));
    a.rstd = tensor_mat(rstd);
    if (!c->rms) {
        NRL_TRY(tensor_matrix(ctx, NRL_DTYPE_F32, c->x->rows, groups, &mean));
        a.mean = tensor_mat(mean);
    }
    if (c->residual) {
        NRL_TRY(tensor_like(ctx, c->x, c->sum));
        normed = *c->sum;
        a.residual = tensor_mat(c->residual);
        a.sum = tensor_mat(normed);
    }
    NRL_TRY(norm_weight(ctx, c->weight, c->offset, &a.weight));
    if (c->bias) NRL_TRY(param_work(c->bias, &a.bias));
    NRL_TRY(tensor_like(ctx, c->x, c->y));
    a.y = tensor_mat(*c->y);
    NRL_TRY(backend_norm(ctx, &a));
    norm_attributes at = {c->weight, c->bias, c->offset, c->eps};
    nrl_tape_record r = {.name = c->name,
                         .inputs = {c->x, c->residual},
                         .outputs = {*c->y, c->residual ? normed : NULL},
                         .saved = {normed, rstd, mean},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = norm_backward};
    NRL_TRY(tape_push(ctx, &r, c->weight->trained || (c->bias && c->bias->trained)));
    if (!ctx->settings.keeps_cheap) tape_can_remake(ctx, *c->y, norm_remake);
    return NRL_OK;
}

nrl_status nrl_op_rms_norm(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, double eps, nrl_tensor **y)
{
    return nrl_op_rms_norm_offset(ctx, x, w, 0, eps, y);
}

nrl_status nrl_op_rms_norm_offset(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, double offset, double eps, nrl_tensor **y)
{
    return norm(
        ctx, &(norm_call){.name = "rms_norm", .rms = true, .x = x, .weight = w, .offset = offset, .eps = eps, .y = y});
}

nrl_status nrl_op_add_rms_norm(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b, nrl_param *w, double eps, nrl_tensor **sum,
                               nrl_tensor **y)
{
    return nrl_op_add_rms_norm_offset(ctx, a, b, w, 0, eps, sum, y);
}

nrl_status nrl_op_add_rms_norm_offset(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b, nrl_param *w, double offset,
                                      double eps, nrl_tensor **sum, nrl_tensor **y)
{
    return norm(ctx, &(norm_call){.name = "add_rms_norm",
                                  .rms = true,
                                  .x = a,
                                  .residual = b,
                                  .weight = w,
                                  .offset = offset,
                                  .eps = eps,
                                  .sum = sum,
                                  .y = y});
}

nrl_status nrl_op_layer_norm(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_param *b, double eps, nrl_tensor **y)
{
    return norm(ctx, &(norm_call){.name = "layer_norm", .x = x, .weight = w, .bias = b, .eps = eps, .y = y});
}

nrl_status nrl_op_add_layer_norm(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b_in, nrl_param *w, nrl_param *b, double eps,
                                 nrl_tensor **sum, nrl_tensor **y)
{
    return norm(ctx, &(norm_call){.name = "add_layer_norm",
                                  .x = a,
                                  .residual = b_in,
                                  .weight = w,
                                  .bias = b,
                                  .eps = eps,
                                  .sum = sum,
                                  .y = y});
}
