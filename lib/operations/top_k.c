/*
 * top_k.c - the largest values of each row.
 */
#include "kernel.h"
#include <math.h>
#include <string.h>

static bool is_larger(float x, float y)
{
    return x > y || (isnan(x) && !isnan(y));
}

/* Insertion into a list of k: rows are as long as a model has experts. */
static void top_k_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_kernel_args *a = arg;
    const int64_t k = a->outputs[0].cols;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = kernel_row(&a->inputs[0], r);
        float *value = kernel_row(&a->outputs[0], r);
        int32_t *index = (int32_t *)a->outputs[1].data + r * a->outputs[1].stride;
        int64_t n = 0;
        for (int64_t c = 0; c < a->inputs[0].cols; c++) {
            if (n == k && !is_larger(x[c], value[k - 1])) continue;
            int64_t at = n < k ? n++ : k - 1;
            for (; at > 0 && is_larger(x[c], value[at - 1]); at--) {
                value[at] = value[at - 1];
                index[at] = index[at - 1];
            }
            value[at] = x[c];
            index[at] = (int32_t)c;
        }
    }
}

static nrl_status top_k_forward(const nrl_kernel_args *a)
{
    enum { GRAIN = 64 };
    nrl_host_split(a->ctx, a->inputs[0].rows, GRAIN, top_k_rows, (void *)a);
    return NRL_OK;
}

static nrl_status top_k_backward(const nrl_kernel_args *a)
{
    const nrl_mat *dx = &a->input_grads[0], *dy = &a->output_grads[0];
    for (int64_t r = 0; r < dx->rows; r++) {
        const int32_t *index = (const int32_t *)a->outputs[1].data + r * a->outputs[1].stride;
        memset(kernel_row(dx, r), 0, (size_t)dx->cols * sizeof(float));
        for (int64_t i = 0; dy->data && i < dy->cols; i++)
            kernel_row(dx, r)[index[i]] = kernel_row(dy, r)[i];
    }
    return NRL_OK;
}

static const nrl_kernel kernels[] = {{"cpu", top_k_forward, top_k_backward}, {NULL, NULL, NULL}};
static const nrl_custom_op top_k = {
    .size = sizeof top_k, .kernel_size = sizeof *kernels, .name = "nrl.top_k", .kernels = kernels, .saved_outputs = 2};

nrl_status nrl_op_top_k(nrl_ctx *ctx, nrl_tensor *x, int64_t k, nrl_tensor **values, nrl_tensor **indices)
{
    nrl_tensor *wide, *out[2];
    const nrl_mat m = nrl_tensor_mat(x);
    if (k < 1 || k > m.cols)
        return nrl_fail(NRL_ERR_BUG, "top_k: k is %lld, expected 1 to %lld columns", (long long)k, (long long)m.cols);
    NRL_TRY(kernel_f32(ctx, x, &wide));
    NRL_TRY(kernel_matrix(ctx, NRL_DTYPE_F32, m.rows, k, &out[0]));
    NRL_TRY(kernel_matrix(ctx, NRL_DTYPE_I32, m.rows, k, &out[1]));
    NRL_TRY(nrl_op_custom(ctx, &top_k, &wide, 1, out, 2, NULL, 0));
    *values = out[0];
    *indices = out[1];
    return kernel_back(ctx, x, values);
}
