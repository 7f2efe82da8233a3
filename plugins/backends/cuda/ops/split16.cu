/*
 * split16.cu - f32 values to their halves and back; the encoding is in nrl/param.h.
 */
#include "split16.h"

struct split16_body {
    nrl_mat wide, high, low;
    bool join;
    __device__ void operator()(place p) const
    {
        if (join)
            mat_store(wide, p.row, p.col, p.n, split16_load(high, low, p));
        else
            split16_store(high, low, p, mat_load(wide, p.row, p.col, p.n));
    }
};

nrl_status cuda_op_split16(cuda *self, void *stream, const nrl_split16_args *a)
{
    split16_body body = {a->wide, a->high, a->low, a->join};
    if (a->wide.dtype != NRL_DTYPE_F32) return cuda_no_dtype("split16", a->wide.dtype);
    if (a->high.dtype != NRL_DTYPE_BF16) return cuda_no_dtype("split16", a->high.dtype);
    flatten(&body.wide, &body.high, &body.low);
    return each_pack(self, stream, "split16", body.wide.rows, body.wide.cols, body);
}
