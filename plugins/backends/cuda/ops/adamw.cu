/*
 * adamw.cu - the whole update in one pass over memory: 28 bytes read and written an element, 2 more
 * for the bf16 copy; the clip factor comes in as grad_scale.
 */
#include "each.h"
#include "math_adamw.h"

struct adamw_body {
    nrl_adamw_args a;
    adamw_step step;
    __device__ void operator()(place p) const
    {
        pack w = mat_load(a.master, p.row, p.col, p.n), g = mat_load(a.grad, p.row, p.col, p.n);
        pack m = mat_load(a.m, p.row, p.col, p.n), v = mat_load(a.v, p.row, p.col, p.n);
        for (int k = 0; k < PACK; k++)
            math_adamw(step, g.v[k], &w.v[k], &m.v[k], &v.v[k]);
        mat_store(a.master, p.row, p.col, p.n, w);
        mat_store(a.m, p.row, p.col, p.n, m);
        mat_store(a.v, p.row, p.col, p.n, v);
        if (a.work.data) mat_store(a.work, p.row, p.col, p.n, w);
    }
};

nrl_status cuda_op_adamw(cuda *self, void *stream, const nrl_adamw_args *a)
{
    adamw_body body = {*a, math_adamw_step(a)};
    nrl_adamw_args &k = body.a;
    if (k.master.dtype != NRL_DTYPE_F32) return cuda_no_dtype("adamw", k.master.dtype);
    NRL_TRY(need_compute("adamw", k.grad, k.m, k.v, k.work));
    flatten(&k.master, &k.grad, &k.m, &k.v, &k.work);
    return each_pack(self, stream, "adamw", k.master.rows, k.master.cols, body);
}
