/*
 * adapter.c - the two products of an adapter, as parts of op_linear.c's node. R rows, K inputs, M outputs, r
 * the adapter's rank. The first is an ordinary linear operation with weight A, so that its backward adds to x
 * what comes back this way, and A's gradient is summed as any weight's.
 */
#include "tensor/adapter.h"
#include "tensor/tape.h"

nrl_status adapter_down(nrl_ctx *ctx, const adapter *l, nrl_tensor *x, nrl_tensor **u)
{
    int64_t inputs = l->a->dims[1];
    if (l->dropout > 0)
        NRL_TRY(dropout_share(ctx, x, l->dropout, l->a->first[1] / inputs, l->a->parts[0].dims[1] / inputs, &x));
    return nrl_op_linear(ctx, x, l->a, NULL, u);
}

nrl_status adapter_up(nrl_ctx *ctx, const adapter *l, const nrl_tensor *u, nrl_tensor *y)
{
    nrl_gemm_args g = {.size = sizeof g,
                       .transpose_b = true,
                       .a = tensor_mat(u),
                       .c = tensor_mat(y),
                       .alpha = l->scale,
                       .weight_key = l->b->key,
                       .weight_version = l->b->version};
    NRL_TRY(param_work(l->b, &g.b));
    return backend_gemm(ctx, &g);
}

/* dU[R,r] = scale dY[R,M] B[M,r] */
static nrl_status inner_grad(nrl_ctx *ctx, nrl_tape_node *node, int i, const adapter *l)
{
    nrl_gemm_args g = {.size = sizeof g,
                       .a = tensor_mat(nrl_tape_grad(node, 0)),
                       .alpha = l->scale,
                       .weight_key = l->b->key,
                       .weight_version = l->b->version};
    nrl_tensor *du;
    NRL_TRY(param_work(l->b, &g.b));
    NRL_TRY(tape_grad_target(ctx, node, i, &du, &g.fresh));
    g.c = tensor_mat(du);
    NRL_TRY(backend_gemm(ctx, &g));
    return g.fresh ? nrl_tape_give(ctx, node, i, du) : NRL_OK;
}

/* dB[M,r] += scale dY[R,M]^T U[R,r] */
nrl_status adapter_up_backward(nrl_ctx *ctx, nrl_tape_node *node, int i, const adapter *l)
{
    if (nrl_tape_wants(node, i)) NRL_TRY(inner_grad(ctx, node, i, l));
    nrl_gemm_args g = {.size = sizeof g,
                       .transpose_a = true,
                       .a = tensor_mat(nrl_tape_grad(node, 0)),
                       .b = tensor_mat(nrl_tape_saved(node, i)),
                       .alpha = l->scale};
    NRL_TRY(param_grad(l->b, &g.c, &g.fresh));
    return g.c.data ? backend_gemm(ctx, &g) : NRL_OK;
}
