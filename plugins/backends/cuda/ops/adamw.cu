/*
 * adamw.cu - the whole update in one pass over memory; the clip factor is passed as grad_scale. Bytes
 * read and written per element: f32 master and gradient 28, plus 2 for a bf16 copy; split16 master and
 * bf16 gradient 26. Masters get the same bits with every encoding.
 */
#include "math_adamw.h"
#include "split16.h"

struct adamw_body {
    nrl_adamw_args a;
    adamw_step step;
    bool rounds; /* the weight is bf16 */
    __device__ void operator()(place p) const
    {
        pack w = a.low.data ? split16_load(a.work, a.low, p) : mat_load(a.master, p.row, p.col, p.n);
        pack g = mat_load(a.grad, p.row, p.col, p.n);
        pack m = mat_load(a.m, p.row, p.col, p.n), v = mat_load(a.v, p.row, p.col, p.n);
        for (int k = 0; k < PACK; k++)
            math_adamw(step, g.v[k], &w.v[k], &m.v[k], &v.v[k]);
        mat_store(a.m, p.row, p.col, p.n, m);
        mat_store(a.v, p.row, p.col, p.n, v);
        if (!a.low.data) mat_store(a.master, p.row, p.col, p.n, w);
        if (rounds)
            split16_store(a.work, a.low, p, w);
        else if (a.work.data)
            mat_store(a.work, p.row, p.col, p.n, w);
    }
};

nrl_status cuda_op_adamw(cuda *self, void *stream, const nrl_adamw_args *a)
{
    bool rounds = a->work.data && a->work.dtype == NRL_DTYPE_BF16;
    adamw_body body = {*a, math_adamw_step(a), rounds};
    nrl_adamw_args &k = body.a;
    if (!k.low.data && k.master.dtype != NRL_DTYPE_F32) return cuda_no_dtype("adamw", k.master.dtype);
    if (k.low.data && !rounds) return cuda_no_dtype("adamw", k.work.dtype);
    NRL_TRY(need_compute("adamw", k.grad, k.m, k.v, k.work));
    flatten(&k.master, &k.grad, &k.m, &k.v, &k.work, &k.low);
    return each_pack(self, stream, "adamw", k.m.rows, k.m.cols, body);
}
