/*
 * fill.cu - sets every element to one value.
 */
#include "each.h"

struct fill_body {
    nrl_mat y;
    double value;
    __device__ void operator()(place p) const
    {
        if (is_compute_dtype(y.dtype)) {
            pack v;
            for (int k = 0; k < PACK; k++)
                v.v[k] = (float)value;
            mat_store(y, p.row, p.col, p.n, v);
            return;
        }
        for (int k = 0; k < p.n; k++)
            scalar_store_any(y.data, y.dtype, p.row * y.stride + p.col + k, value);
    }
};

nrl_status cuda_op_fill(cuda *self, void *stream, const nrl_fill_args *a)
{
    fill_body body = {a->y, a->value};
    if (!nrl_dtype_size((nrl_dtype)a->y.dtype)) return cuda_no_dtype("fill", a->y.dtype);
    flatten(&body.y);
    return each_pack(self, stream, "fill", body.y.rows, body.y.cols, body);
}
