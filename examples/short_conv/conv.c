/*
 * conv.c - see conv.h. The kernels are for the backend "cpu"; a kernel for another backend is a row in `kernels` and
 * may come from another file, such as one that nvcc compiles.
 */
#include "conv.h"
#include <math.h>

enum { MAX_TAPS = 16 };

/* The row that is `k` tokens before row t of segment s, or -1. */
static int64_t row_before(const nrl_packing *p, int32_t s, int64_t t, int64_t k)
{
    int64_t at = t - k, before = p->host_cu_seqlens[s] - at;
    if (before <= 0) return at;
    s = p->host_prefix[s];
    if (s < 0) return -1;
    at = p->host_cu_seqlens[s + 1] - before;
    return at >= p->host_cu_seqlens[s] ? at : -1;
}

static float *row(const nrl_mat *m, int64_t i)
{
    return (float *)m->data + i * m->stride;
}

/* The sum before the activation. */
static float product(const nrl_kernel_args *a, int64_t c, const int64_t *rows)
{
    const float *w = row(&a->inputs[1], c);
    float sum = 0;
    for (int64_t k = 0; k < a->inputs[1].cols; k++)
        if (rows[k] >= 0) sum += w[k] * row(&a->inputs[0], rows[k])[c];
    return sum;
}

static void find_rows(const nrl_kernel_args *a, int64_t t, int64_t *rows)
{
    for (int64_t k = 0; k < a->inputs[1].cols; k++)
        rows[k] = row_before(a->packing, a->packing->host_segments[t], t, k);
}

static void forward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_kernel_args *a = arg;
    int64_t rows[MAX_TAPS];
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        find_rows(a, t, rows);
        for (int64_t c = 0; c < a->inputs[0].cols; c++) {
            float z = product(a, c, rows);
            row(&a->outputs[0], t)[c] = z / (1 + expf(-z));
        }
    }
}

static nrl_status forward(const nrl_kernel_args *a)
{
    enum { GRAIN = 16 };
    nrl_host_split(a->ctx, a->inputs[0].rows, GRAIN, forward_range, (void *)a);
    return NRL_OK;
}

/* Each range of channels adds to its own columns of dx and rows of dw, in the order of tokens. */
static void backward_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_kernel_args *a = arg;
    const nrl_mat *dx = &a->input_grads[0], *dw = &a->input_grads[1];
    int64_t rows[MAX_TAPS], n_taps = a->inputs[1].cols;
    (void)thread;
    for (int64_t t = 0; dx->data && t < dx->rows; t++)
        for (int64_t c = begin; c < end; c++)
            row(dx, t)[c] = 0;
    for (int64_t c = begin; dw->data && c < end; c++)
        for (int64_t k = 0; k < n_taps; k++)
            row(dw, c)[k] = 0;
    for (int64_t t = 0; t < a->inputs[0].rows; t++) {
        find_rows(a, t, rows);
        for (int64_t c = begin; c < end; c++) {
            float z = product(a, c, rows), s = 1 / (1 + expf(-z));
            float dz = row(&a->output_grads[0], t)[c] * s * (1 + z * (1 - s));
            for (int64_t k = 0; k < n_taps; k++) {
                if (rows[k] < 0) continue;
                if (dx->data) row(dx, rows[k])[c] += dz * row(&a->inputs[1], c)[k];
                if (dw->data) row(dw, c)[k] += dz * row(&a->inputs[0], rows[k])[c];
            }
        }
    }
}

static nrl_status backward(const nrl_kernel_args *a)
{
    enum { GRAIN = 8 };
    nrl_host_split(a->ctx, a->inputs[0].cols, GRAIN, backward_range, (void *)a);
    return NRL_OK;
}

static const nrl_kernel kernels[] = {{"cpu", forward, backward}, {NULL, NULL, NULL}};
static const nrl_custom_op conv = {.size = sizeof conv,
                                   .kernel_size = sizeof *kernels,
                                   .name = "short_conv.conv",
                                   .kernels = kernels,
                                   .saved_inputs = 1 | 2};

nrl_status short_conv(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor *w, nrl_tensor **y)
{
    int64_t dims[] = {nrl_tensor_mat(x).rows, nrl_tensor_dim(x, -1)};
    if (nrl_tensor_dtype(x) != NRL_DTYPE_F32 || nrl_tensor_dtype(w) != NRL_DTYPE_F32 ||
        nrl_tensor_dim(w, 0) != dims[1] || nrl_tensor_dim(w, 1) > MAX_TAPS)
        return nrl_fail(NRL_ERR_BUG, "short_conv: x has %lld columns of %s, w is [%lld,%lld] of %s", (long long)dims[1],
                        nrl_dtype_name(nrl_tensor_dtype(x)), (long long)nrl_tensor_dim(w, 0),
                        (long long)nrl_tensor_dim(w, 1), nrl_dtype_name(nrl_tensor_dtype(w)));
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 2, dims, y));
    return nrl_op_custom(ctx, &conv, (nrl_tensor *[]){x, w}, 2, y, 1, NULL, 0);
}
