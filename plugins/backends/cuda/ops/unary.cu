/*
 * unary.cu - functions of one value and their gradients. The operation is selected inside the kernel:
 * all threads take the same branch, and memory is the bottleneck.
 */
#include "each.h"
#include "math_unary.h"

struct unary_body {
    nrl_unary_args a;
    __device__ void operator()(place p) const
    {
        pack v = mat_load(a.x, p.row, p.col, p.n);
        for (int k = 0; k < PACK; k++)
            v.v[k] = math_unary(a.op, v.v[k], a.alpha, a.beta);
        mat_store(a.y, p.row, p.col, p.n, v);
    }
};

/* The result is recomputed if it was not saved, or was saved rounded. */
struct unary_grad_body {
    nrl_unary_grad_args a;
    bool use_result, make_result;
    __device__ void operator()(place p) const
    {
        pack g = mat_load(a.dy, p.row, p.col, p.n);
        pack v = a.x.data ? mat_load(a.x, p.row, p.col, p.n) : g;
        pack f = use_result ? mat_load(a.y, p.row, p.col, p.n) : v;
        for (int k = 0; k < PACK; k++) {
            float result = make_result ? math_unary(a.op, v.v[k], a.alpha, a.beta) : f.v[k];
            g.v[k] = math_unary_grad(a.op, v.v[k], result, g.v[k], a.alpha, a.beta);
        }
        mat_store(a.dx, p.row, p.col, p.n, g);
    }
};

static nrl_status check_op(const char *name, uint32_t op)
{
    if (op > NRL_UNARY_NONE && op < NRL_UNARY_COUNT) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "backend 'cuda' has no op '%s' number %u", name, op);
}

nrl_status cuda_op_unary(cuda *self, void *stream, const nrl_unary_args *a)
{
    unary_body body = {*a};
    NRL_TRY(check_op("unary", a->op));
    NRL_TRY(need_compute("unary", a->x, a->y));
    flatten(&body.a.x, &body.a.y);
    return each_pack(self, stream, "unary", body.a.y.rows, body.a.y.cols, body);
}

nrl_status cuda_op_unary_grad(cuda *self, void *stream, const nrl_unary_grad_args *a)
{
    bool reads = math_unary_reads_result(a->op);
    bool saved = a->y.data && (a->y.dtype == NRL_DTYPE_F32 || !a->x.data);
    unary_grad_body body = {*a, reads && saved, reads && !saved};
    NRL_TRY(check_op("unary_grad", a->op));
    NRL_TRY(need_compute("unary_grad", a->x, a->y, a->dy, a->dx));
    flatten(&body.a.x, &body.a.y, &body.a.dy, &body.a.dx);
    return each_pack(self, stream, "unary_grad", body.a.dx.rows, body.a.dx.cols, body);
}
