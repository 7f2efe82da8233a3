/*
 * quantize.cu - block-wise quantization by a table of 256 ascending numbers; nrl/optimizer.h has the rule. A warp per
 * block: its largest |x| first, then a binary search for each element, with the table in shared memory. Neighbouring
 * lanes take neighbouring elements, whatever the size of a block.
 */
#include "rows.h"

enum { CODES = 256, SIDE = 8 }; /* warps per thread block: a thread for each entry of the table */

/* The entry nearest to x, the lower one of two; entries at 0 or above are not for x < 0. */
__device__ static inline uint8_t code_of(const float *code, float x)
{
    int at = 0; /* the last entry not above x, or 0 */
    for (int bit = CODES / 2; bit > 0; bit /= 2)
        at += code[at + bit] <= x ? bit : 0;
    if (at + 1 < CODES && code[at + 1] - x < x - code[at]) at++;
    return (uint8_t)(x < 0 && at > 0 && code[at] >= 0 ? at - 1 : at);
}

struct larger {
    __device__ float operator()(float a, float b) const
    {
        return a > b ? a : b;
    }
};

__global__ void __launch_bounds__(CODES) quantize_kernel(const float *x, int64_t n, int64_t block, int64_t n_blocks,
                                                         const float *table, uint8_t *q, float *scale)
{
    __shared__ float code[CODES];
    code[threadIdx.y * WARP + threadIdx.x] = table[threadIdx.y * WARP + threadIdx.x];
    __syncthreads();
    int64_t step = (int64_t)gridDim.x * SIDE;
    for (int64_t b = (int64_t)blockIdx.x * SIDE + threadIdx.y; b < n_blocks; b += step) {
        int64_t begin = b * block + threadIdx.x, end = b * block + block < n ? b * block + block : n;
        float most = 0;
        for (int64_t i = begin; i < end; i += WARP)
            most = larger()(fabsf(x[i]), most);
        most = row_join(most, larger());
        if (threadIdx.x == 0) scale[b] = most;
        for (int64_t i = begin; i < end; i += WARP)
            q[i] = most > 0 ? code_of(code, x[i] / most) : 0;
    }
}

nrl_status cuda_op_quantize(cuda *self, void *stream, const nrl_quantize_args *a)
{
    if (a->inverse) {
        nrl_dequantize_args back = {};
        back.size = sizeof back;
        back.x = a->x;
        back.q = a->q;
        back.scale = a->scale;
        back.code = a->code;
        back.block = a->block;
        return cuda_op_dequantize(self, stream, &back);
    }
    int64_t n_blocks = a->scale.cols;
    if (n_blocks <= 0) return NRL_OK;
    unsigned grid = cuda_blocks(self, (n_blocks + SIDE - 1) / SIDE);
    CUDA_LAUNCH(quantize_kernel, grid, dim3(WARP, SIDE), 0, stream, (const float *)a->x.data, a->x.cols, a->block,
                n_blocks, (const float *)a->code.data, (uint8_t *)a->q.data, (float *)a->scale.data);
    return cuda_launched(self, "quantize");
}
