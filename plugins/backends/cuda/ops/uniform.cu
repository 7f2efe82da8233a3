/*
 * uniform.cu - random numbers of tokens: nrl.uniform of nrl/operations.h, with the bits of every other backend.
 */
#include "custom_ops.h"
#include "each.h"
#include "math_random.h"

struct uniform_body {
    nrl_mat y;
    uint64_t key;
    const uint64_t *rows;
    __device__ void operator()(place at) const
    {
        uint64_t first = rows[at.row] + (uint64_t)at.col;
        pack v;
        for (int k = 0; k < PACK; k++)
            v.v[k] = math_unit(math_splitmix(key ^ math_splitmix(first + (uint64_t)k)));
        mat_store(y, at.row, at.col, at.n, v);
    }
};

nrl_status cuda_custom_uniform(cuda *self, void *stream, const nrl_kernel_args *a)
{
    const nrl_uniform_attributes *at = (const nrl_uniform_attributes *)a->attributes;
    uniform_body body = {a->outputs[0], at->key, at->rows};
    return each_pack(self, stream, "nrl.uniform", body.y.rows, body.y.cols, body);
}
