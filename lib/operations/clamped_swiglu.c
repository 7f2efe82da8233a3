/*
 * clamped_swiglu.c - the gate of gpt-oss's experts.
 *
 * Legend: g gate and u up, both clamped; s = sigmoid(alpha g); y = (u + 1) g s.
 */
#include "kernel.h"
#include <math.h>

typedef struct {
    float g, u, s;
} glu_parts;

static glu_parts parts_of(const nrl_clamped_swiglu_attributes *at, const float *pair)
{
    const float limit = (float)at->limit;
    const float g = fminf(pair[0], limit);
    return (glu_parts){g, fmaxf(-limit, fminf(pair[1], limit)), 1 / (1 + expf((float)-at->alpha * g))};
}

static void forward_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_kernel_args *a = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = kernel_row(&a->inputs[0], r);
        float *y = kernel_row(&a->outputs[0], r);
        for (int64_t c = 0; c < a->outputs[0].cols; c++) {
            const glu_parts p = parts_of(a->attributes, x + 2 * c);
            y[c] = (p.u + 1) * p.g * p.s;
        }
    }
}

/* On its bound a value still has a gradient, as of NRL_UNARY_CLAMP. */
static void backward_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_kernel_args *a = arg;
    const nrl_clamped_swiglu_attributes *at = a->attributes;
    const float alpha = (float)at->alpha, limit = (float)at->limit;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = kernel_row(&a->inputs[0], r), *dy = kernel_row(&a->output_grads[0], r);
        float *dx = kernel_row(&a->input_grads[0], r);
        for (int64_t c = 0; c < a->output_grads[0].cols; c++) {
            const glu_parts p = parts_of(at, x + 2 * c);
            const float slope = p.s + alpha * p.g * p.s * (1 - p.s);
            dx[2 * c] = x[2 * c] <= limit ? dy[c] * (p.u + 1) * slope : 0;
            dx[2 * c + 1] = fabsf(x[2 * c + 1]) <= limit ? dy[c] * p.g * p.s : 0;
        }
    }
}

enum { GRAIN = 4 };

static nrl_status glu_forward(const nrl_kernel_args *a)
{
    nrl_host_split(a->ctx, a->inputs[0].rows, GRAIN, forward_rows, (void *)a);
    return NRL_OK;
}

static nrl_status glu_backward(const nrl_kernel_args *a)
{
    nrl_host_split(a->ctx, a->inputs[0].rows, GRAIN, backward_rows, (void *)a);
    return NRL_OK;
}

static const nrl_kernel kernels[] = {{"cpu", glu_forward, glu_backward}, {NULL, NULL, NULL}};
static const nrl_custom_op glu = {.size = sizeof glu,
                                  .kernel_size = sizeof *kernels,
                                  .name = "nrl.clamped_swiglu",
                                  .kernels = kernels,
                                  .saved_inputs = 1};

nrl_status nrl_op_clamped_swiglu(nrl_ctx *ctx, nrl_tensor *x, double alpha, double limit, nrl_tensor **y)
{
    const nrl_mat m = nrl_tensor_mat(x);
    const nrl_clamped_swiglu_attributes at = {.size = sizeof at, .alpha = alpha, .limit = limit};
    nrl_tensor *wide, *out;
    if (m.cols % 2 || !(limit > 0))
        return nrl_fail(NRL_ERR_BUG,
                        "clamped swiglu: %lld columns and a limit of %g, expected pairs and a limit above 0",
                        (long long)m.cols, limit);
    NRL_TRY(kernel_f32(ctx, x, &wide));
    NRL_TRY(kernel_matrix(ctx, NRL_DTYPE_F32, m.rows, m.cols / 2, &out));
    NRL_TRY(nrl_op_custom(ctx, &glu, &wide, 1, &out, 1, &at, sizeof at));
    *y = out;
    return kernel_back(ctx, x, y);
}
