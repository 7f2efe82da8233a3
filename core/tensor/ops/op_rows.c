/*
 * op_rows.c - views of rows and columns, and moving rows by index. The elements of a vector [n] are rows, here and in
 * gather and segment sums.
 */
#include "tensor/tape/tape.h"

/* ---- views ---- */

typedef struct {
    int64_t offset; /* elements from the start of x to the start of the view */
} slice_attributes;

static nrl_status reshape_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *x = nrl_tape_input(node, 0), *dy = nrl_tape_grad(node, 0);
    return nrl_tape_give(ctx, node, 0, tensor_view(ctx, dy, 0, x->n_dims, x->dims, x->cols));
}

nrl_status nrl_op_reshape(nrl_ctx *ctx, nrl_tensor *x, int n_dims, const int64_t *dims, nrl_tensor **y)
{
    int64_t numel;
    NRL_TRY(dims_numel(n_dims, dims, &numel));
    if (numel != x->numel || !tensor_is_contiguous(x))
        return nrl_fail(NRL_ERR_BUG, "reshape: x is %s%s, expected the elements of %s", tensor_shape(x).text,
                        tensor_is_contiguous(x) ? "" : " (a slice of columns)", dims_shape(n_dims, dims).text);
    *y = tensor_view(ctx, x, 0, n_dims, dims, dims[n_dims - 1]);
    nrl_tape_record r = {.name = "reshape", .inputs = {x}, .outputs = {*y}, .backward = reshape_backward};
    return tape_push(ctx, &r, false);
}

/* Adds dy to its range of x's gradient; slices of one tensor share one gradient. */
static nrl_status slice_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const slice_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *dy = nrl_tape_grad(node, 0), *dx;
    bool overwrite;
    NRL_TRY(tape_grad_target(ctx, node, 0, &dx, &overwrite));
    if (overwrite) NRL_TRY(tensor_fill(ctx, dx, 0));
    if (!dy->numel) return overwrite ? nrl_tape_give(ctx, node, 0, dx) : NRL_OK;
    nrl_mat place = tensor_mat(dx);
    /* at->offset includes the stride of x; the rows of a gradient are contiguous. */
    nrl_tensor *x = nrl_tape_input(node, 0);
    int64_t row = at->offset / x->stride, col = at->offset % x->stride;
    place.data = (char *)place.data + (size_t)(row * dx->stride + col) * nrl_dtype_size(dx->dtype);
    place.rows = dy->rows;
    place.cols = dy->cols;
    nrl_copy_args c = {.size = sizeof c, .accumulate = true, .x = tensor_mat(dy), .y = place, .alpha = 1};
    NRL_TRY(backend_copy(ctx, &c));
    return overwrite ? nrl_tape_give(ctx, node, 0, dx) : NRL_OK;
}

static nrl_status slice(nrl_ctx *ctx, nrl_tensor *x, int64_t offset, int n_dims, const int64_t *dims, nrl_tensor **y)
{
    *y = tensor_view(ctx, x, offset, n_dims, dims, n_dims > 1 ? x->stride : dims[0]);
    slice_attributes at = {offset};
    nrl_tape_record r = {.name = "slice",
                         .inputs = {x},
                         .outputs = {*y},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = slice_backward};
    return tape_push(ctx, &r, false);
}

static nrl_status check_range(const char *what, const nrl_tensor *x, int64_t begin, int64_t end, int64_t n)
{
    if (begin >= 0 && begin <= end && end <= n) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "%s: [%lld,%lld) is not a range of x %s", what, (long long)begin, (long long)end,
                    tensor_shape(x).text);
}

nrl_status nrl_op_slice_columns(nrl_ctx *ctx, nrl_tensor *x, int64_t begin, int64_t end, nrl_tensor **y)
{
    NRL_TRY(check_range("slice of columns", x, begin, end, x->cols));
    int64_t dims[NRL_MAX_DIMS];
    for (int i = 0; i < x->n_dims; i++)
        dims[i] = x->dims[i];
    dims[x->n_dims - 1] = end - begin;
    return slice(ctx, x, begin, x->n_dims, dims, y);
}

nrl_status nrl_op_slice_rows(nrl_ctx *ctx, nrl_tensor *x, int64_t begin, int64_t end, nrl_tensor **y)
{
    if (x->n_dims == 1) return nrl_op_slice_columns(ctx, x, begin, end, y);
    NRL_TRY(check_range("slice of rows", x, begin, end, x->rows));
    return slice(ctx, x, begin * x->stride, 2, (int64_t[]){end - begin, x->cols}, y);
}

/* ---- copies ---- */

/* The gradient of each input is a view of its rows of dy. */
static nrl_status concat_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *dy = nrl_tape_grad(node, 0);
    int64_t offset = 0;
    for (int i = 0; i < NRL_TAPE_MAX_OPERANDS && nrl_tape_input(node, i); i++) {
        nrl_tensor *x = nrl_tape_input(node, i);
        NRL_TRY(nrl_tape_give(ctx, node, i, tensor_view(ctx, dy, offset, x->n_dims, x->dims, x->cols)));
        offset += x->numel;
    }
    return NRL_OK;
}

nrl_status nrl_op_concat_rows(nrl_ctx *ctx, nrl_tensor *const *xs, int n, nrl_tensor **y)
{
    if (n < 1 || n > NRL_TAPE_MAX_OPERANDS)
        return nrl_fail(NRL_ERR_BUG, "concat: %d tensors, expected 1 to %d", n, NRL_TAPE_MAX_OPERANDS);
    int64_t rows = 0, at = 0;
    nrl_tensor *joined;
    bool vectors = xs[0]->n_dims == 1;
    for (int i = 1; i < n; i++)
        if ((xs[i]->n_dims == 1) != vectors || (!vectors && xs[i]->cols != xs[0]->cols) || xs[i]->dtype != xs[0]->dtype)
            return nrl_fail(NRL_ERR_BUG, "concat: tensor 0 is %s of %s, but tensor %d is %s of %s",
                            tensor_shape(xs[0]).text, nrl_dtype_name(xs[0]->dtype), i + 1, tensor_shape(xs[i]).text,
                            nrl_dtype_name(xs[i]->dtype));
    for (int i = 0; i < n; i++)
        rows += vectors ? xs[i]->cols : xs[i]->rows;
    NRL_TRY(tensor_rows_like(ctx, xs[0], rows, &joined));
    nrl_tape_record r = {.name = "concat", .outputs = {joined}, .backward = concat_backward};
    for (int i = 0; i < n; i++) {
        nrl_copy_args c = {.size = sizeof c, .x = tensor_mat(xs[i]), .y = tensor_mat(xs[i]), .alpha = 1};
        c.y.data = (char *)joined->data + (size_t)at * nrl_dtype_size(joined->dtype);
        c.y.stride = xs[i]->cols;
        if (xs[i]->numel) NRL_TRY(backend_copy(ctx, &c));
        at += xs[i]->numel;
        r.inputs[i] = xs[i];
    }
    *y = joined; /* only now: it may be one of xs */
    return tape_push(ctx, &r, false);
}

static nrl_status transposed(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *y)
{
    nrl_copy_args c = {.size = sizeof c, .transpose = true, .x = tensor_mat(x), .y = tensor_mat(y), .alpha = 1};
    return x->numel ? backend_copy(ctx, &c) : NRL_OK;
}

static nrl_status transpose_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *dx;
    NRL_TRY(tensor_like(ctx, nrl_tape_input(node, 0), &dx));
    NRL_TRY(transposed(ctx, nrl_tape_grad(node, 0), dx));
    return nrl_tape_give(ctx, node, 0, dx);
}

nrl_status nrl_op_transpose(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    NRL_TRY(tensor_matrix(ctx, x->dtype, x->cols, x->rows, y));
    NRL_TRY(transposed(ctx, x, *y));
    nrl_tape_record r = {.name = "transpose", .inputs = {x}, .outputs = {*y}, .backward = transpose_backward};
    return tape_push(ctx, &r, false);
}

/* ---- by index ---- */

static nrl_status gather(nrl_ctx *ctx, const nrl_tensor *x, const nrl_tensor *index, nrl_tensor *y)
{
    nrl_gather_args a = {
        .size = sizeof a, .x = tensor_rows_mat(x), .y = tensor_rows_mat(y), .index = tensor_index(index)};
    return y->numel ? backend_gather(ctx, &a) : NRL_OK;
}

/* y = 0, then y[index[i]] += x[i] in order. */
static nrl_status scatter(nrl_ctx *ctx, const nrl_tensor *x, const nrl_tensor *index, nrl_tensor *y)
{
    nrl_scatter_args a = {.size = sizeof a,
                          .overwrite = true,
                          .dy = tensor_rows_mat(x),
                          .dx = tensor_rows_mat(y),
                          .index = tensor_index(index)};
    return x->numel ? backend_scatter(ctx, &a) : tensor_fill(ctx, y, 0);
}

static nrl_status gather_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *dx;
    NRL_TRY(tensor_like(ctx, nrl_tape_input(node, 0), &dx));
    NRL_TRY(scatter(ctx, nrl_tape_grad(node, 0), nrl_tape_saved(node, 0), dx));
    return nrl_tape_give(ctx, node, 0, dx);
}

static nrl_status segment_sum_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *dx;
    NRL_TRY(tensor_like(ctx, nrl_tape_input(node, 0), &dx));
    NRL_TRY(gather(ctx, nrl_tape_grad(node, 0), nrl_tape_saved(node, 0), dx));
    return nrl_tape_give(ctx, node, 0, dx);
}

/* Checks that every entry of an index is -1 or below n_rows, and copies the index to the device. */
static nrl_status device_index(nrl_ctx *ctx, const char *what, const int32_t *index, int64_t n, int64_t n_rows,
                               nrl_tensor **out)
{
    for (int64_t i = 0; i < n; i++)
        if (index[i] < -1 || index[i] >= n_rows)
            return nrl_fail(NRL_ERR_BUG, "%s: index[%lld] is %d, expected less than %lld rows", what, (long long)i,
                            index[i], (long long)n_rows);
    return tensor_of_host(ctx, NRL_DTYPE_I32, n, index, false, out);
}

nrl_status nrl_op_gather_rows(nrl_ctx *ctx, nrl_tensor *x, const int32_t *index, int64_t n, nrl_tensor **y)
{
    nrl_tensor *on_device = NULL;
    NRL_TRY(device_index(ctx, "gather", index, n, tensor_rows_mat(x).rows, &on_device));
    NRL_TRY(tensor_rows_like(ctx, x, n, y));
    NRL_TRY(gather(ctx, x, on_device, *y));
    nrl_tape_record r = {
        .name = "gather", .inputs = {x}, .outputs = {*y}, .saved = {on_device}, .backward = gather_backward};
    return tape_push(ctx, &r, false);
}

nrl_status nrl_op_segment_sum(nrl_ctx *ctx, nrl_tensor *x, const int32_t *segment, int64_t n, int64_t n_segments,
                              nrl_tensor **y)
{
    nrl_tensor *on_device = NULL;
    if (n != tensor_rows_mat(x).rows)
        return nrl_fail(NRL_ERR_BUG, "segment sum: x is %s, but there are %lld segment numbers; expected one per row",
                        tensor_shape(x).text, (long long)n);
    NRL_TRY(device_index(ctx, "segment sum", segment, n, n_segments, &on_device));
    NRL_TRY(tensor_rows_like(ctx, x, n_segments, y));
    NRL_TRY(scatter(ctx, x, on_device, *y));
    nrl_tape_record r = {
        .name = "segment_sum", .inputs = {x}, .outputs = {*y}, .saved = {on_device}, .backward = segment_sum_backward};
    return tape_push(ctx, &r, false);
}
