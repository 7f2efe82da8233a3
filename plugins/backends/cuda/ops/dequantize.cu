/*
 * dequantize.cu - values of a weight that is stored in codes of 4 or 8 bits. A thread writes a pack: 4 or 8 bytes of
 * codes become 16 or 32 bytes. Tables and scales are read through the first-level cache.
 */
#include "each.h"

struct dequantize_body {
    nrl_mat x;
    const uint8_t *q;
    const void *scale;
    const float *code, *nested, *nested_code, *offset;
    int64_t block;
    bool four_bits, is_nested;

    __device__ float scale_of(int64_t i) const
    {
        if (!is_nested) return ((const float *)scale)[i];
        return nested_code[((const uint8_t *)scale)[i]] * nested[i / 256] + *offset;
    }

    __device__ void operator()(place p) const
    {
        pack v;
        int64_t last = -1;
        float factor = 0;
        for (int k = 0; k < PACK; k++) {
            int64_t i = p.col + (k < p.n ? k : 0);
            int index = four_bits ? (i % 2 ? q[i / 2] & 15 : q[i / 2] >> 4) : q[i];
            if (i / block != last) {
                last = i / block;
                factor = scale_of(last);
            }
            v.v[k] = code[index] * factor;
        }
        mat_store(x, 0, p.col, p.n, v);
    }
};

nrl_status cuda_op_dequantize(cuda *self, void *stream, const nrl_dequantize_args *a)
{
    dequantize_body body = {a->x,
                            (const uint8_t *)a->q.data,
                            a->scale.data,
                            (const float *)a->code.data,
                            (const float *)a->nested.data,
                            (const float *)a->nested_code.data,
                            (const float *)a->offset.data,
                            a->block,
                            a->code.cols == 16,
                            a->scale.dtype == NRL_DTYPE_U8};
    NRL_TRY(need_compute("dequantize", a->x));
    return each_pack(self, stream, "dequantize", 1, a->x.cols, body);
}
