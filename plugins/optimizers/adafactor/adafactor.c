/*
 * adafactor.c - Adafactor (Shazeer and Stern 2018) with the options and the formulas of torch.optim.Adafactor. The
 * running mean of squared gradients of a matrix [R,C] is kept as means of its rows [R] and of its columns [C].
 *   w = step^beta2_decay;  rate = max(eps2, rms(param)) min(lr, 1 / sqrt(step));  param -= lr weight_decay param
 *   row += w (mean_C(g^2) - row);  col += w (mean_R(g^2) - col);  v = row col / max(mean(row), eps1)
 *   u = g / sqrt(max(v, eps1^2));  param -= rate u / max(1, rms(u) / d)
 * Parameters that are not matrices have v whole. Means over the whole parameter need all of it: granularity MATRIX.
 */
#include "../common/vector.h"
#include <float.h>
#include <math.h>

typedef struct {
    double weight_decay, beta2_decay, eps1, eps2, d;
} adafactor_options;

static const nrl_option adafactor_rows[] = {
    NRL_OPT_F64(adafactor_options, weight_decay, "0.0", 0, 1e3,
                "weight decay of matrices: each step subtracts lr times this share of the weight; not for norms and "
                "biases"),
    NRL_OPT_F64(adafactor_options, beta2_decay, "-0.8", -10, 0,
                "the weight of a new squared gradient is the step number to this power"),
    NRL_OPT_F64(adafactor_options, eps1, "0", 0, 1,
                "lower limit of the mean of squared gradients; 0: the spacing of fp32 at 1, 1.2e-7, as in PyTorch"),
    NRL_OPT_F64(adafactor_options, eps2, "1e-3", 0, 1,
                "lower limit of the root mean square of a parameter, which scales its updates"),
    NRL_OPT_F64(adafactor_options, d, "1.0", 1e-6, 1e6,
                "clips an update to this root mean square before it is multiplied by the learning rate"),
};

static bool is_factored(const nrl_part *part)
{
    return part->n_dims == 2;
}

static nrl_status adafactor_declare(void *self, nrl_declaration *a)
{
    (void)self;
    a->granularity = NRL_OPTIMIZER_MATRIX;
    a->n_states = is_factored(a->part) ? 2 : 1;
    a->states[0] = (nrl_state){.name = "variance", .dtype = NRL_DTYPE_F32, .shape = NRL_STATE_ELEMENT};
    for (int i = 0; is_factored(a->part) && i < 2; i++)
        a->states[i] = (nrl_state){.name = i ? "col_var" : "row_var",
                                   .dtype = NRL_DTYPE_F32,
                                   .shape = NRL_STATE_OWN,
                                   .n_dims = 1,
                                   .dims = {a->part->dims[i]}};
    return NRL_OK;
}

/* state += w (factor x - state); *y: the state */
static nrl_status move_state(nrl_ctx *ctx, nrl_tensor *state, double w, double factor, nrl_tensor *x, nrl_tensor **y)
{
    NRL_TRY(vector_mix(ctx, 1 - w, state, w * factor, x, y));
    return nrl_tensor_copy(ctx, *y, state);
}

/* *v [R,C] from g [R,C]; updates row_var and col_var. */
static nrl_status factored_variance(nrl_ctx *ctx, nrl_slice *s, nrl_tensor *g, double w, double eps1, nrl_tensor **v)
{
    const int64_t rows = vector_part(s)->dims[0], cols = vector_part(s)->dims[1];
    nrl_tensor *square, *row, *col, *mean;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, g, 0, 0, &square));
    NRL_TRY(nrl_op_sum_columns(ctx, square, &row));
    NRL_TRY(nrl_op_sum_rows(ctx, square, &col));
    NRL_TRY(move_state(ctx, s->states[0], w, 1.0 / (double)cols, row, &row));
    NRL_TRY(move_state(ctx, s->states[1], w, 1.0 / (double)rows, col, &col));
    NRL_TRY(nrl_op_mean(ctx, row, &mean));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_CLAMP, mean, eps1, INFINITY, &mean));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_DIV, row, mean, &row));
    NRL_TRY(nrl_op_reshape(ctx, row, 2, (const int64_t[]){rows, 1}, &row));
    NRL_TRY(nrl_op_reshape(ctx, col, 2, (const int64_t[]){1, cols}, &col));
    return nrl_op_matmul(ctx, row, col, false, false, v);
}

static nrl_status whole_variance(nrl_ctx *ctx, nrl_slice *s, nrl_tensor *g, double w, nrl_tensor **v)
{
    nrl_tensor *square;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, g, 0, 0, &square));
    return move_state(ctx, s->states[0], w, 1, square, v);
}

/* *y [1] = max(least, sqrt(mean(x^2)) * factor) */
static nrl_status root_mean_square(nrl_ctx *ctx, nrl_tensor *x, double factor, double least, nrl_tensor **y)
{
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, x, 0, 0, y));
    NRL_TRY(nrl_op_mean(ctx, *y, y));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQRT, *y, 0, 0, y));
    NRL_TRY(vector_scale(ctx, factor, *y, y));
    return nrl_op_unary(ctx, NRL_UNARY_CLAMP, *y, least, INFINITY, y);
}

/* *u = g / sqrt(max(v, eps1^2)), of g's n elements */
static nrl_status direction(const adafactor_options *o, nrl_ctx *ctx, nrl_slice *s, const nrl_step_params *step,
                            nrl_tensor **u)
{
    const double w = pow((double)step->step, o->beta2_decay), eps1 = o->eps1 > 0 ? o->eps1 : (double)FLT_EPSILON;
    nrl_tensor *g, *v;
    NRL_TRY(vector_scale(ctx, step->grad_scale, s->grad, &g));
    NRL_TRY(nrl_op_reshape(ctx, g, vector_part(s)->n_dims, vector_part(s)->dims, &g));
    if (is_factored(vector_part(s)))
        NRL_TRY(factored_variance(ctx, s, g, w, eps1, &v));
    else
        NRL_TRY(whole_variance(ctx, s, g, w, &v));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_CLAMP, v, eps1 * eps1, INFINITY, &v));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQRT, v, 0, 0, &v));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_DIV, g, v, u));
    return nrl_op_reshape(ctx, *u, 1, &s->n, u);
}

static nrl_status adafactor_slice(const adafactor_options *o, nrl_ctx *ctx, nrl_slice *s, const nrl_step_params *step)
{
    const double rate = fmin(step->lr, 1 / sqrt((double)step->step));
    const double decay = s->decay ? 1 - step->lr * o->weight_decay : 1;
    nrl_tensor *u, *size, *clip, *w;
    NRL_TRY(direction(o, ctx, s, step, &u));
    NRL_TRY(root_mean_square(ctx, s->master, 1, o->eps2, &size));
    NRL_TRY(root_mean_square(ctx, u, 1 / o->d, 1, &clip));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_DIV, size, clip, &size));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, u, size, &u));
    NRL_TRY(vector_mix(ctx, decay, s->master, -rate, u, &w));
    return vector_store(ctx, s, w);
}

static nrl_status adafactor_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                                   const nrl_step_params *step)
{
    for (int64_t i = 0; i < n_slices; i++)
        NRL_TRY(adafactor_slice(self, ctx, nrl_slice_at(slices, i, step), step));
    return NRL_OK;
}

static const nrl_optimizer adafactor = {
    NRL_PLUGIN(NRL_KIND_OPTIMIZER, nrl_optimizer, adafactor_options, adafactor_rows, "adafactor", "0.1",
               "Adafactor: second moments of matrices by rows and columns"),
    .granularity = NRL_OPTIMIZER_MATRIX,
    .declare = adafactor_declare,
    .update = adafactor_update,
};
NRL_EXPORT(adafactor)
