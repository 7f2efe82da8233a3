/*
 * op_linears.c - several linear operations of one input x [R,K], M_i outputs each. Where the backend asks for it and
 * the weights lie next to each other, they are one product with a matrix [M,K], M the sum of all M_i; else each is a
 * linear of its own.
 *
 * A backward joins what lies next to each other then: a strategy may hold gradients in another order than weights.
 */
#include "tensor/tape/tape.h"
#include <string.h>

typedef struct {
    int n;
    nrl_param *weights[NRL_LINEARS_MOST], *biases[NRL_LINEARS_MOST]; /* biases[0] NULL = none */
} linears_attributes;

/* Whether b begins where a ends; of gradients, both to be overwritten or neither. */
static bool is_next(const nrl_param *a, const nrl_param *b, nrl_slot slot)
{
    const nrl_tensor *s = a->slots[slot], *t = b->slots[slot];
    if (!s || !t || !s->data || s->dtype != t->dtype || !tensor_is_contiguous(s) || !tensor_is_contiguous(t))
        return false;
    if (slot == NRL_SLOT_GRAD && (a->trained != b->trained || a->grad_is_empty != b->grad_is_empty)) return false;
    return (const char *)s->data + (size_t)s->numel * nrl_dtype_size(s->dtype) == t->data;
}

/* Where the run of neighbours that begins with parameter i ends. */
static int run_end(nrl_param *const *list, int n, int i, nrl_slot slot)
{
    while (++i < n && is_next(list[i - 1], list[i], slot))
        continue;
    return i;
}

static int64_t outputs_of(nrl_param *const *list, int begin, int end)
{
    int64_t n = 0;
    for (int i = begin; i < end; i++)
        n += list[i]->dims[0];
    return n;
}

/* Columns of a gradient, as results i to end - 1 have them. */
static nrl_mat columns(const linears_attributes *at, const nrl_tensor *t, int i, int end)
{
    nrl_mat m = tensor_mat(t);
    m.data = (char *)m.data + (size_t)outputs_of(at->weights, 0, i) * nrl_dtype_size(t->dtype);
    m.cols = outputs_of(at->weights, i, end);
    return m;
}

/* dX[R,K] += dY[R,M] W[M,K] */
static nrl_status input_grad(nrl_ctx *ctx, nrl_tape_node *node, const linears_attributes *at, const nrl_tensor *dy)
{
    for (int i = 0, end; i < at->n; i = end) {
        nrl_gemm_args g = {.size = sizeof g, .alpha = 1};
        nrl_tensor *dx;
        end = run_end(at->weights, at->n, i, NRL_SLOT_WEIGHT);
        NRL_TRY(tape_grad_target(ctx, node, 0, &dx, &g.overwrite));
        NRL_TRY(param_work(at->weights[i], &g.b));
        g.b.rows = outputs_of(at->weights, i, end);
        g.a = columns(at, dy, i, end);
        g.c = tensor_mat(dx);
        NRL_TRY(backend_gemm(ctx, &g));
        if (g.overwrite) NRL_TRY(nrl_tape_give(ctx, node, 0, dx));
    }
    return NRL_OK;
}

/* The gradients of parameters i to end - 1 as one matrix. */
static nrl_status joined_grad(nrl_param *const *list, int i, int end, nrl_mat *mat, bool *overwrite)
{
    NRL_TRY(param_grad(list[i], mat, overwrite));
    for (int k = i + 1; k < end; k++) {
        nrl_mat next;
        NRL_TRY(param_grad(list[k], &next, overwrite));
        mat->rows += next.rows;
    }
    return NRL_OK;
}

/* dW[M,K] += dY[R,M]^T X[R,K], db[M] += the sums of the columns of dY; x as saved by the forward. */
static nrl_status param_grads(nrl_ctx *ctx, const linears_attributes *at, const nrl_tensor *x, const nrl_tensor *dy)
{
    for (int i = 0, end; i < at->n; i = end) {
        nrl_gemm_args g = {.size = sizeof g, .transpose_a = true, .alpha = 1};
        end = run_end(at->weights, at->n, i, NRL_SLOT_GRAD);
        NRL_TRY(joined_grad(at->weights, i, end, &g.c, &g.overwrite));
        if (!g.c.data) continue;
        g.a = columns(at, dy, i, end);
        g.b = tensor_mat(x);
        NRL_TRY(backend_gemm(ctx, &g));
    }
    for (int i = 0, end; i < at->n && at->biases[0]; i = end) {
        nrl_reduce_args r = {.size = sizeof r, .op = NRL_REDUCTION_SUM, .axis = NRL_AXIS_ROWS};
        end = run_end(at->biases, at->n, i, NRL_SLOT_GRAD);
        NRL_TRY(joined_grad(at->biases, i, end, &r.y, &r.overwrite));
        if (!r.y.data) continue;
        r.y = (nrl_mat){r.y.data, r.y.dtype, 0, 1, outputs_of(at->biases, i, end), outputs_of(at->biases, i, end)};
        r.x = columns(at, dy, i, end);
        NRL_TRY(backend_reduce(ctx, &r));
    }
    return NRL_OK;
}

static nrl_status linears_deferred(nrl_ctx *ctx, nrl_tape_node *node)
{
    return param_grads(ctx, nrl_tape_attributes(node), nrl_tape_saved(node, 0), nrl_tape_saved(node, 1));
}

static bool any_is_trained(nrl_param *const *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] && list[i]->trained) return true;
    return false;
}

static nrl_status linears_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const linears_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *x = nrl_tape_saved(node, 0), *dy;
    NRL_TRY(tape_joint_grad(ctx, node, at->n, &dy));
    if (nrl_tape_wants(node, 0)) NRL_TRY(input_grad(ctx, node, at, dy));
    tape *later = tape_later(ctx, nrl_tape_input(node, 0));
    if (!later) return param_grads(ctx, at, x, dy);
    nrl_tape_record r = {.name = "linears, gradients of parameters",
                         .saved = {x, dy},
                         .attributes = at,
                         .attributes_size = sizeof *at,
                         .backward = linears_deferred};
    if (any_is_trained(at->weights, at->n) || any_is_trained(at->biases, at->n)) tape_defer(ctx, later, &r);
    return NRL_OK;
}

/* Whether one product computes all results. Shapes that do not fit are left to nrl_op_linear, which reports them. */
static bool can_join(const nrl_ctx *ctx, const nrl_tensor *x, const linears_attributes *at)
{
    if (!ctx->device->table.joins_linears || ctx->fp8) return false; /* each weight of 8 bits has its own scales */
    for (int i = 0; i < at->n; i++) {
        const nrl_param *w = at->weights[i], *b = at->biases[i];
        if (w->n_dims != 2 || w->dims[1] != x->cols || w->tp == NRL_TP_ROW || w->packing) return false;
        if (w->adapter && !ctx->settings.adapters_off) return false;
        if (!b != !at->biases[0] || (b && (b->n_dims != 1 || b->dims[0] != w->dims[0]))) return false;
    }
    return run_end(at->weights, at->n, 0, NRL_SLOT_WEIGHT) == at->n &&
           (!at->biases[0] || run_end(at->biases, at->n, 0, NRL_SLOT_WEIGHT) == at->n);
}

nrl_status nrl_op_linears(nrl_ctx *ctx, nrl_tensor *x, int n, nrl_param *const *w, nrl_param *const *b, uint32_t apart,
                          nrl_tensor **const *y)
{
    linears_attributes at = {.n = n};
    if (n < 1 || n > NRL_LINEARS_MOST)
        return nrl_fail(NRL_ERR_BUG, "linears: %d weights, expected 1 to %d", n, NRL_LINEARS_MOST);
    for (int i = 0; i < n; i++) {
        at.weights[i] = w[i];
        at.biases[i] = b ? b[i] : NULL;
    }
    if (!can_join(ctx, x, &at)) {
        for (int i = 0; i < n; i++)
            NRL_TRY(nrl_op_linear(ctx, x, at.weights[i], at.biases[i], y[i]));
        return NRL_OK;
    }

    const int64_t cols = outputs_of(at.weights, 0, n);
    nrl_gemm_args g = {.size = sizeof g, .transpose_b = true, .overwrite = true, .a = tensor_mat(x), .alpha = 1};
    nrl_tensor *joint;
    NRL_TRY(tensor_with_columns(ctx, ctx->settings.compute, x, cols, &joint));
    NRL_TRY(param_work(at.weights[0], &g.b));
    g.b.rows = cols;
    if (at.biases[0]) NRL_TRY(param_work(at.biases[0], &g.bias));
    if (at.biases[0]) g.bias.cols = g.bias.stride = cols;
    g.c = tensor_mat(joint);
    NRL_TRY(backend_gemm(ctx, &g));

    nrl_tape_record r = {.name = "linears",
                         .inputs = {x},
                         .saved = {any_is_trained(at.weights, n) ? x : NULL},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = linears_backward};
    for (int i = 0; i < n; i++) {
        int64_t dims[NRL_MAX_DIMS];
        memcpy(dims, x->dims, sizeof dims);
        dims[x->n_dims - 1] = at.weights[i]->dims[0];
        nrl_tensor *view = tensor_view(ctx, joint, outputs_of(at.weights, 0, i), x->n_dims, dims, cols);
        *y[i] = view;
        if (apart >> i & 1) NRL_TRY(tensor_like(ctx, view, y[i]));
        if (apart >> i & 1) NRL_TRY(tensor_copy(ctx, view, *y[i]));
        r.outputs[i] = *y[i];
    }
    r.outputs[n] = joint;
    NRL_TRY(tape_push(ctx, &r, any_is_trained(at.weights, n) || any_is_trained(at.biases, n)));
    tape_reads_later(ctx, r.outputs[0]);
    tape_join(ctx, r.outputs, n);
    return NRL_OK;
}
