/*
 * glu.cu - gated units, forward and backward in one pass over memory each.
 */
#include "each.h"
#include "math_glu.h"

struct glu_body {
    nrl_glu_args a;
    __device__ void operator()(place p) const
    {
        pack g = mat_load(a.gate, p.row, p.col, p.n), u = mat_load(a.up, p.row, p.col, p.n);
        for (int k = 0; k < PACK; k++)
            g.v[k] = math_glu(a.act, g.v[k], u.v[k]);
        mat_store(a.y, p.row, p.col, p.n, g);
    }
};

struct glu_grad_body {
    nrl_glu_grad_args a;
    __device__ void operator()(place p) const
    {
        pack g = mat_load(a.gate, p.row, p.col, p.n), u = mat_load(a.up, p.row, p.col, p.n);
        pack dy = mat_load(a.dy, p.row, p.col, p.n), dg, du;
        for (int k = 0; k < PACK; k++)
            math_glu_grad(a.act, g.v[k], u.v[k], dy.v[k], &dg.v[k], &du.v[k]);
        if (a.dgate.data) mat_store(a.dgate, p.row, p.col, p.n, dg);
        if (a.dup.data) mat_store(a.dup, p.row, p.col, p.n, du);
    }
};

static nrl_status check_act(const char *name, uint32_t act)
{
    if (act == NRL_UNARY_SILU || act == NRL_UNARY_GELU_TANH) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "backend 'cuda' has no op '%s' with act %u", name, act);
}

nrl_status cuda_op_glu(cuda *self, void *stream, const nrl_glu_args *a)
{
    glu_body body = {*a};
    NRL_TRY(check_act("glu", a->act));
    NRL_TRY(need_compute("glu", a->gate, a->up, a->y));
    flatten(&body.a.gate, &body.a.up, &body.a.y);
    return each_pack(self, stream, "glu", body.a.y.rows, body.a.y.cols, body);
}

nrl_status cuda_op_glu_grad(cuda *self, void *stream, const nrl_glu_grad_args *a)
{
    glu_grad_body body = {*a};
    nrl_glu_grad_args &k = body.a;
    NRL_TRY(check_act("glu_grad", a->act));
    NRL_TRY(need_compute("glu_grad", a->gate, a->up, a->dy, a->dgate, a->dup));
    flatten(&k.gate, &k.up, &k.dy, &k.dgate, &k.dup);
    return each_pack(self, stream, "glu_grad", k.dy.rows, k.dy.cols, body);
}
