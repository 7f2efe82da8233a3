/*
 * rows.h - kernels that reduce rows: blockDim.x threads share a row (a warp, or a whole block), and a
 * block processes blockDim.y rows at the same time if a warp per row is enough.
 *
 * Sums are joined in an order that depends only on the shape: within a warp by a butterfly, which
 * gives all lanes the same bits, then over the warps in order.
 */
#ifndef CUDA_OPS_ROWS_H
#define CUDA_OPS_ROWS_H
#include "math_part.h"
#include "pack.h"

enum { WARP = 32, ROW_THREADS = 512, WARP_ROWS = 4 };
#define FULL_WARP 0xFFFFFFFFu

typedef struct {
    unsigned threads, side; /* threads per row; rows per block */
} row_shape;

/* A warp if each lane has at most two packs, else as many threads as there are packs. */
static inline row_shape row_shape_of(int64_t cols)
{
    int64_t packs = (cols + PACK - 1) / PACK;
    row_shape s = {WARP, WARP_ROWS};
    if (packs <= 2 * WARP) return s;
    s.side = 1;
    while (s.threads < packs && s.threads < ROW_THREADS)
        s.threads *= 2;
    return s;
}

static inline unsigned row_blocks(const cuda *self, int64_t rows, row_shape s)
{
    return cuda_blocks(self, (rows + s.side - 1) / s.side);
}

__device__ static inline float shuffle_xor(float v, int bits)
{
    return __shfl_xor_sync(FULL_WARP, v, bits);
}

__device__ static inline double shuffle_xor(double v, int bits)
{
    return __shfl_xor_sync(FULL_WARP, v, bits);
}

__device__ static inline part shuffle_xor(part p, int bits)
{
    p.sum = __shfl_xor_sync(FULL_WARP, p.sum, bits);
    p.max = __shfl_xor_sync(FULL_WARP, p.max, bits);
    return p;
}

struct add_join {
    template <typename T> __device__ T operator()(T a, T b) const
    {
        return a + b;
    }
};

struct part_joiner {
    uint32_t op;
    __device__ part operator()(part a, part b) const
    {
        return part_join(op, a, b);
    }
};

/* Joins the values of the threads of a row; all threads get the result. A block-wide call contains two
 * barriers, so all threads of the block must make it. */
template <typename T, typename Join> __device__ T row_join(T v, Join join)
{
    for (int bits = WARP / 2; bits > 0; bits /= 2)
        v = join(v, shuffle_xor(v, bits));
    if (blockDim.x == WARP) return v;
    __shared__ T of_warp[ROW_THREADS / WARP];
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = v;
    __syncthreads();
    v = of_warp[0];
    for (unsigned w = 1; w < blockDim.x / WARP; w++)
        v = join(v, of_warp[w]);
    __syncthreads();
    return v;
}

#endif
