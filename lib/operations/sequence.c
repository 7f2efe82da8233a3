/*
 * sequence.c - operations along the tokens of a segment: linear recurrence and short convolution.
 */
#include "kernel.h"
#include <stdlib.h>

/* ---- scan ---- */

/* Calls body for each segment, for those that continue a shared prompt after (or, backward, before) all others. */
typedef void (*segment_body)(const nrl_kernel_args *a, int32_t s, int64_t begin, int64_t end);

static void each_segment(const nrl_kernel_args *a, bool continued_first, segment_body body, int64_t begin, int64_t end)
{
    for (int turn = 0; turn < 2; turn++)
        for (int32_t s = 0; s < a->packing->n_segments; s++)
            if ((a->packing->host_prefix[s] >= 0) == (continued_first ? !turn : turn)) body(a, s, begin, end);
}

/* The last row of the shared prompt of s, or -1. */
static int64_t row_before(const nrl_packing *p, int32_t s)
{
    int32_t prefix = p->host_prefix[s];
    return prefix >= 0 ? p->host_cu_seqlens[prefix + 1] - 1 : -1;
}

static void scan_segment(const nrl_kernel_args *k, int32_t s, int64_t begin, int64_t end)
{
    int64_t before = row_before(k->packing, s);
    for (int64_t t = k->packing->host_cu_seqlens[s]; t < k->packing->host_cu_seqlens[s + 1]; t++) {
        const float *a = kernel_row(&k->inputs[0], t), *b = kernel_row(&k->inputs[1], t);
        const float *last = before >= 0 ? kernel_row(&k->outputs[0], before) : NULL;
        float *h = kernel_row(&k->outputs[0], t);
        for (int64_t c = begin; c < end; c++)
            h[c] = (last ? a[c] * last[c] : 0) + b[c];
        before = t;
    }
}

static void scan_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    each_segment(arg, false, scan_segment, begin, end);
}

/* g[t] = dh[t] + a[t+1] g[t+1] is db, and da[t] = g[t] h[t-1]. Temporary g is in k->outputs[1]; segments that continue
 * a prompt have added to its last row. */
static void unscan_segment(const nrl_kernel_args *k, int32_t s, int64_t begin, int64_t end)
{
    const int32_t *cu = k->packing->host_cu_seqlens;
    for (int64_t t = cu[s + 1] - 1; t >= cu[s]; t--) {
        int64_t before = t > cu[s] ? t - 1 : row_before(k->packing, s);
        const float *a = kernel_row(&k->inputs[0], t), *dh = kernel_row(&k->output_grads[0], t);
        float *g = kernel_row(&k->outputs[1], t);
        for (int64_t c = begin; c < end; c++)
            g[c] += dh[c];
        for (int64_t c = begin; c < end && before >= 0; c++)
            kernel_row(&k->outputs[1], before)[c] += a[c] * g[c];
        for (int64_t c = begin; c < end && k->input_grads[0].data; c++)
            kernel_row(&k->input_grads[0], t)[c] = before >= 0 ? g[c] * kernel_row(&k->outputs[0], before)[c] : 0;
        for (int64_t c = begin; c < end && k->input_grads[1].data; c++)
            kernel_row(&k->input_grads[1], t)[c] = g[c];
    }
}

static void unscan_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    each_segment(arg, true, unscan_segment, begin, end);
}

enum { GRAIN = 16 }; /* columns: a line of the cache */

static nrl_status scan_forward(const nrl_kernel_args *a)
{
    nrl_host_split(a->ctx, a->inputs[0].cols, GRAIN, scan_columns, (void *)a);
    return NRL_OK;
}

static nrl_status scan_backward(const nrl_kernel_args *a)
{
    nrl_kernel_args with_g = *a;
    nrl_tensor *g;
    NRL_TRY(kernel_matrix(a->ctx, NRL_DTYPE_F32, a->inputs[0].rows, a->inputs[0].cols, &g));
    NRL_TRY(nrl_tensor_fill(a->ctx, g, 0));
    with_g.outputs[1] = nrl_tensor_mat(g);
    nrl_host_split(a->ctx, a->inputs[0].cols, GRAIN, unscan_columns, &with_g);
    return NRL_OK;
}

static const nrl_kernel kernels[] = {{"cpu", scan_forward, scan_backward}, {NULL, NULL, NULL}};
static const nrl_custom_op scan = {.size = sizeof scan,
                                   .kernel_size = sizeof *kernels,
                                   .name = "nrl.scan",
                                   .kernels = kernels,
                                   .saved_inputs = 1,
                                   .saved_outputs = 1};

nrl_status nrl_op_scan(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b, nrl_tensor **h)
{
    const nrl_mat ma = nrl_tensor_mat(a), mb = nrl_tensor_mat(b);
    const nrl_batch *batch = nrl_ctx_batch(ctx);
    nrl_tensor *in[2];
    nrl_packing packing;
    if (!batch || ma.rows != nrl_batch_n_tokens(batch) || ma.rows != mb.rows || ma.cols != mb.cols)
        return nrl_fail(NRL_ERR_BUG, "scan: a is [%lld,%lld], b is [%lld,%lld] for %lld tokens", (long long)ma.rows,
                        (long long)ma.cols, (long long)mb.rows, (long long)mb.cols,
                        batch ? (long long)nrl_batch_n_tokens(batch) : -1);
    NRL_TRY(nrl_ctx_packing(ctx, &packing)); /* refused while decoding */
    NRL_TRY(kernel_f32(ctx, a, &in[0]));
    NRL_TRY(kernel_f32(ctx, b, &in[1]));
    NRL_TRY(kernel_matrix(ctx, NRL_DTYPE_F32, ma.rows, ma.cols, h));
    NRL_TRY(nrl_op_custom(ctx, &scan, in, 2, h, 1, NULL, 0));
    return kernel_back(ctx, b, h);
}

/* ---- convolution ---- */

/* The row that is k tokens before row t in its segment or the prompt that it continues, or -1. */
static int32_t row_back(const nrl_packing *p, int32_t t, int32_t k)
{
    int32_t s = p->host_segments[t], at = t - k, over = p->host_cu_seqlens[s] - at;
    if (over <= 0) return at;
    s = p->host_prefix[s];
    if (s < 0) return -1;
    at = p->host_cu_seqlens[s + 1] - over;
    return at >= p->host_cu_seqlens[s] ? at : -1;
}

nrl_status nrl_op_conv1d(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor *w, nrl_tensor *bias, nrl_tensor **y)
{
    nrl_packing p;
    NRL_TRY(nrl_ctx_packing(ctx, &p));
    const int64_t n = nrl_tensor_mat(x).rows, cols = nrl_tensor_dim(x, -1), taps = nrl_tensor_dim(w, -1);
    const int64_t one_row[] = {1, cols};
    nrl_tensor *rows, *row, *shifted;
    if (n != p.n_tokens || nrl_tensor_dim(w, 0) != cols || (bias && nrl_tensor_numel(bias) != cols))
        return nrl_fail(NRL_ERR_BUG, "conv1d: x is [%lld,%lld], w has %lld channels, for %lld tokens", (long long)n,
                        (long long)cols, (long long)nrl_tensor_dim(w, 0), (long long)p.n_tokens);
    int32_t *index = malloc((size_t)(n + 1) * sizeof *index);
    if (!index) return nrl_fail(NRL_ERR_MEMORY, "out of memory");
    nrl_status st = nrl_op_transpose(ctx, w, &rows); /* [K,C] */
    for (int32_t k = 0; k < taps && st == NRL_OK; k++) {
        for (int32_t t = 0; t < n; t++)
            index[t] = row_back(&p, t, k);
        shifted = x;
        if (k) st = nrl_op_gather_rows(ctx, x, index, n, &shifted);
        if (st == NRL_OK) st = nrl_op_slice_rows(ctx, rows, taps - 1 - k, taps - k, &row);
        if (st == NRL_OK) st = nrl_op_binary(ctx, NRL_BINARY_MUL, shifted, row, &shifted);
        if (st == NRL_OK && k) st = nrl_op_binary(ctx, NRL_BINARY_ADD, *y, shifted, &shifted);
        *y = shifted;
    }
    free(index);
    NRL_TRY(st);
    if (!bias) return NRL_OK;
    NRL_TRY(nrl_op_reshape(ctx, bias, 2, one_row, &row));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *y, row, y);
}
