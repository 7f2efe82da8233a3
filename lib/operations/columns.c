/*
 * columns.c - joining and splitting columns, and rotary positions of adjacent columns.
 */
#include "kernel.h"
#include <stdlib.h>

/* The gradient of each input is a slice of dy. */
static nrl_status concat_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *dy = nrl_tape_grad(node, 0), *slice;
    int64_t at = 0;
    for (int i = 0; i < NRL_TAPE_MAX_OPERANDS && nrl_tape_input(node, i); i++) {
        int64_t cols = nrl_tensor_dim(nrl_tape_input(node, i), -1);
        NRL_TRY(nrl_op_slice_columns(ctx, dy, at, at + cols, &slice));
        NRL_TRY(nrl_tape_give(ctx, node, i, slice));
        at += cols;
    }
    return NRL_OK;
}

nrl_status nrl_op_concat_columns(nrl_ctx *ctx, nrl_tensor *const *xs, int n, nrl_tensor **y)
{
    int64_t cols = 0, at = 0;
    nrl_tensor *joined;
    if (n < 1 || n > NRL_TAPE_MAX_OPERANDS)
        return nrl_fail(NRL_ERR_BUG, "concat of columns: %d tensors, expected 1 to %d", n, NRL_TAPE_MAX_OPERANDS);
    const int64_t rows = nrl_tensor_mat(xs[0]).rows;
    for (int i = 0; i < n; i++) {
        nrl_mat m = nrl_tensor_mat(xs[i]);
        if (m.rows != rows || nrl_tensor_dtype(xs[i]) != nrl_tensor_dtype(xs[0]))
            return nrl_fail(NRL_ERR_BUG, "concat of columns: tensor 0 has %lld rows of %s, tensor %d has %lld of %s",
                            (long long)rows, nrl_dtype_name(nrl_tensor_dtype(xs[0])), i, (long long)m.rows,
                            nrl_dtype_name(nrl_tensor_dtype(xs[i])));
        cols += m.cols;
    }
    NRL_TRY(kernel_matrix(ctx, nrl_tensor_dtype(xs[0]), rows, cols, &joined));
    nrl_tape_record r = {.size = sizeof r, .name = "concat_columns", .outputs = {joined}, .backward = concat_backward};
    for (int i = 0; i < n; i++) {
        nrl_tensor *to;
        int64_t end = at + nrl_tensor_dim(xs[i], -1);
        NRL_TRY(nrl_op_slice_columns(ctx, joined, at, end, &to));
        NRL_TRY(nrl_tensor_copy(ctx, xs[i], to));
        r.inputs[i] = xs[i];
        at = end;
    }
    *y = joined; /* only now: it may be one of xs */
    return nrl_tape_push(ctx, &r);
}

nrl_status nrl_op_split_columns(nrl_ctx *ctx, nrl_tensor *x, const int64_t *widths, int n, nrl_tensor **ys)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        NRL_TRY(nrl_op_slice_columns(ctx, x, at, at + widths[i], &ys[i]));
        at += widths[i];
    }
    if (at == nrl_tensor_dim(x, -1)) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "split of columns: the widths add up to %lld of %lld columns", (long long)at,
                    (long long)nrl_tensor_dim(x, -1));
}

/* A permutation of the columns of a head, exact as a product with ones and zeros, brings pairs to where nrl_op_rope
 * expects them; the second one brings them back. */
nrl_status nrl_op_rope_interleaved(nrl_ctx *ctx, nrl_tensor *x, int64_t n_heads, const nrl_rope *rope, nrl_tensor **y)
{
    const nrl_mat m = nrl_tensor_mat(x);
    const int64_t width = n_heads > 0 ? m.cols / n_heads : 0, half = rope->half;
    const int64_t heads[] = {m.rows * n_heads, width}, rows[] = {m.rows, m.cols}, square[] = {width, width};
    nrl_tensor *order;
    if (width < 1 || width * n_heads != m.cols || 2 * half > width)
        return nrl_fail(NRL_ERR_BUG, "interleaved rope: %lld columns, %lld heads, %lld pairs", (long long)m.cols,
                        (long long)n_heads, (long long)half);
    float *ones = calloc((size_t)(width * width), sizeof *ones);
    if (!ones) return nrl_fail(NRL_ERR_MEMORY, "out of memory");
    for (int64_t c = 0; c < width; c++)
        ones[c * width + (c >= 2 * half ? c : c / 2 + (c % 2 ? half : 0))] = 1;
    nrl_status st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, square, ones, &order);
    free(ones);
    NRL_TRY(st);
    NRL_TRY(nrl_op_cast(ctx, order, nrl_tensor_dtype(x), &order));
    NRL_TRY(nrl_op_concat_columns(ctx, &x, 1, &x)); /* contiguous, also for a slice */
    NRL_TRY(nrl_op_reshape(ctx, x, 2, heads, &x));
    NRL_TRY(nrl_op_matmul(ctx, x, order, false, false, &x));
    NRL_TRY(nrl_op_reshape(ctx, x, 2, rows, &x));
    NRL_TRY(nrl_op_rope(ctx, x, n_heads, rope, &x));
    NRL_TRY(nrl_op_reshape(ctx, x, 2, heads, &x));
    NRL_TRY(nrl_op_matmul(ctx, x, order, false, true, &x));
    return nrl_op_reshape(ctx, x, 2, rows, y);
}
