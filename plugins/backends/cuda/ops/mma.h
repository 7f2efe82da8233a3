/*
 * mma.h - accumulators of tensor core products: c[R][N][4] of a warp is a 16 R x 8 N matrix. Lane l holds in c[i][j]
 * rows 16 i + l/4 (c[i][j][0..1]) and 16 i + l/4 + 8 (c[i][j][2..3]), columns 8 j + 2 (l%4) and + 1.
 */
#ifndef CUDA_OPS_MMA_H
#define CUDA_OPS_MMA_H
#include "warp.h"

template <int R, int N> __device__ __forceinline__ void clear(float (&c)[R][N][4])
{
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                c[i][j][e] = 0;
}

/* Row and column of element e of c[i][j] in the warp's rows. */
__device__ __forceinline__ int row_of(int i, int e)
{
    return i * 16 + (int)((threadIdx.x & 31) >> 2) + (e >> 1) * 8;
}
__device__ __forceinline__ int column_of(int j, int e)
{
    return j * 8 + (int)(threadIdx.x & 3) * 2 + (e & 1);
}

#endif
