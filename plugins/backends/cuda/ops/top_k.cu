/*
 * top_k.cu - the k largest values of each row and the gradient of choosing them: nrl.top_k of nrl/operations.h. A warp
 * per row.
 *
 * Each of k rounds finds the element that follows the previous one: the next smaller value, or an equal one further to
 * the right. Rows are as short as a router has experts, so all rounds but the first read them from the cache.
 */
#include "custom_ops.h"
#include "rows.h"
#include "scalar.h"

/* Larger for an element that comes earlier, and never 0: the bits of its value in the order of numbers, with NaN above
 * infinity and -0 equal to 0, then its distance from the right. */
__device__ static inline uint64_t rank_of(float x, uint32_t column)
{
    uint32_t bits = x != x ? 0x7FC00000u : bits_of_float(x + 0.0f);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~column;
}

__global__ void top_k_kernel(nrl_mat x, nrl_mat values, nrl_mat indices)
{
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; row < x.rows; row += step) {
        const float *from = (const float *)x.data + row * x.stride;
        uint64_t found = ~(uint64_t)0;
        for (int64_t i = 0; i < values.cols; i++) {
            uint64_t best = 0;
            for (int64_t col = threadIdx.x; col < x.cols; col += WARP) {
                uint64_t rank = rank_of(from[col], (uint32_t)col);
                if (rank < found && rank > best) best = rank;
            }
            for (int bits = WARP / 2; bits > 0; bits /= 2) {
                uint64_t other = __shfl_xor_sync(FULL_WARP, best, bits);
                if (other > best) best = other;
            }
            found = best;
            if (threadIdx.x != 0) continue;
            uint32_t col = ~(uint32_t)found;
            ((float *)values.data)[row * values.stride + i] = from[col];
            ((int32_t *)indices.data)[row * indices.stride + i] = (int32_t)col;
        }
    }
}

/* dx is zero except in the chosen columns. */
__global__ void top_k_grad_kernel(nrl_mat dy, nrl_mat indices, nrl_mat dx)
{
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; row < dx.rows; row += step) {
        float *to = (float *)dx.data + row * dx.stride;
        for (int64_t col = threadIdx.x; col < dx.cols; col += WARP)
            to[col] = 0;
        __syncwarp();
        for (int64_t i = threadIdx.x; dy.data && i < indices.cols; i += WARP)
            to[((const int32_t *)indices.data)[row * indices.stride + i]] =
                ((const float *)dy.data)[row * dy.stride + i];
    }
}

nrl_status cuda_custom_top_k(cuda *self, void *stream, const nrl_kernel_args *a)
{
    const row_shape s = {WARP, WARP_ROWS};
    if (a->inputs[0].rows <= 0) return NRL_OK;
    CUDA_LAUNCH(top_k_kernel, row_blocks(self, a->inputs[0].rows, s), dim3(s.threads, s.side), 0, stream, a->inputs[0],
                a->outputs[0], a->outputs[1]);
    return cuda_launched(self, "nrl.top_k");
}

nrl_status cuda_custom_top_k_grad(cuda *self, void *stream, const nrl_kernel_args *a)
{
    const row_shape s = {WARP, WARP_ROWS};
    const nrl_mat dx = a->input_grads[0];
    if (!dx.data || dx.rows <= 0) return NRL_OK;
    CUDA_LAUNCH(top_k_grad_kernel, row_blocks(self, dx.rows, s), dim3(s.threads, s.side), 0, stream, a->output_grads[0],
                a->outputs[1], dx);
    return cuda_launched(self, "nrl.top_k");
}
