/*
 * flash_mma.h - shared by the flash kernels: tiles of 16-bit rows in shared memory, and their products
 * with tensor cores.
 *
 * A tile is [rows, D] with D the head width rounded up to a template's width, with zeros beyond the
 * true width. Rows are D + 8 values apart, so that eight rows of an 8 x 8 matrix are in different
 * banks. Each warp owns 16 rows of the left operand. Accumulators c[C/8][4] are a 16 x C matrix: lane
 * l holds in c[j] rows l/4 (c[j][0..1]) and l/4 + 8 (c[j][2..3]), columns 8 j + 2 (l%4) and + 1.
 */
#ifndef CUDA_OPS_FLASH_MMA_H
#define CUDA_OPS_FLASH_MMA_H
#include "flash.h"
#include "flash_cap.h"
#include "flash_tile.h"
#include "warp.h"

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

/* A product of q and k as a score in powers of two; scale = p.scale log2 e. */
__device__ __forceinline__ float flash_score(float product, float scale, const flash_params &p)
{
    return p.soft_cap > 0 ? LOG2_E * flash_capped(p.scale * product, p) : scale * product;
}

template <int D> struct flash_tile {
    static constexpr int pitch = D + 8; /* distance of rows */
    static constexpr int bytes(int rows)
    {
        return rows * pitch * 2;
    }
};

/* Copies rows [row, row + n) of one head to a tile of ROWS rows; the rest is zero. Asynchronous: the
 * caller commits and waits. */
template <typename T, int D, int ROWS>
__device__ __forceinline__ void load_tile(T *tile, const flash_matrix &m, int64_t row, int head, int n,
                                          const flash_params &p)
{
    const T *from = (const T *)m.data + row * m.stride + (int64_t)head * p.head_dim;
    for (int c = threadIdx.x; c < ROWS * (D / 8); c += blockDim.x) {
        int r = c / (D / 8), col = c % (D / 8) * 8;
        T *to = tile + r * flash_tile<D>::pitch + col;
        const T *x = from + r * m.stride + col;
        if (p.vectors) {
            bool is_there = r < n && col < p.head_dim;
            copy_16(to, is_there ? x : (const T *)m.data, is_there ? 16 : 0);
            continue;
        }
        for (int i = 0; i < 8; i++)
            if (r < n && col + i < p.head_dim)
                to[i] = x[i];
            else
                store(to + i, 0.0f);
    }
}

/* c[16,N] += a[16,D] b[N,D]^T: rows [a_row, a_row + 16) of one tile, the first N of another. */
template <typename T, int D, int N>
__device__ __forceinline__ void multiply_rows(float (&c)[N / 8][4], const T *a, int a_row, const T *b)
{
    constexpr int pitch = flash_tile<D>::pitch;
    int lane = threadIdx.x & 31;
    const T *a_at = a + (a_row + (lane & 15)) * pitch + (lane >> 4) * 8;
    const T *b_at = b + ((lane & 7) + (lane >> 4) * 8) * pitch + ((lane >> 3) & 1) * 8;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t left[4], right[4];
        load_matrices(left, a_at + k);
#pragma unroll
        for (int j = 0; j < N / 16; j++) {
            load_matrices(right, b_at + j * 16 * pitch + k);
            multiply_add<T>(c[2 * j], left, right[0], right[1]);
            multiply_add<T>(c[2 * j + 1], left, right[2], right[3]);
        }
    }
}

/* c[16,C] += p[16,K] b[K,C]: accumulators, rounded to T, times columns [col, col + C) of a tile. */
template <typename T, int D, int K, int C>
__device__ __forceinline__ void multiply_values(float (&c)[C / 8][4], const float (&p)[K / 8][4], const T *b, int col)
{
    constexpr int pitch = flash_tile<D>::pitch;
    int lane = threadIdx.x & 31;
    const T *b_at = b + ((lane & 7) + ((lane >> 3) & 1) * 8) * pitch + col + (lane >> 4) * 8;
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
        uint32_t left[4] = {pack2<T>(p[2 * k][0], p[2 * k][1]), pack2<T>(p[2 * k][2], p[2 * k][3]),
                            pack2<T>(p[2 * k + 1][0], p[2 * k + 1][1]), pack2<T>(p[2 * k + 1][2], p[2 * k + 1][3])};
        uint32_t right[4];
#pragma unroll
        for (int j = 0; j < C / 16; j++) {
            load_matrices_transposed(right, b_at + k * 16 * pitch + j * 16);
            multiply_add<T>(c[2 * j], left, right[0], right[1]);
            multiply_add<T>(c[2 * j + 1], left, right[2], right[3]);
        }
    }
}

template <int N> __device__ __forceinline__ void clear(float (&c)[N][4])
{
#pragma unroll
    for (int j = 0; j < N; j++)
        for (int e = 0; e < 4; e++)
            c[j][e] = 0;
}

/* Row and column of element e of c[j] in the warp's 16 rows. */
__device__ __forceinline__ int row_of(int e)
{
    return (int)((threadIdx.x & 31) >> 2) + (e >> 1) * 8;
}
__device__ __forceinline__ int column_of(int j, int e)
{
    return j * 8 + (int)(threadIdx.x & 3) * 2 + (e & 1);
}

/* Maximum over the four lanes that share a row. */
__device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, shuffle_xor(x, 1));
    return fmaxf(x, shuffle_xor(x, 2));
}
__device__ __forceinline__ float quad_sum(float x)
{
    x += shuffle_xor(x, 1);
    return x + shuffle_xor(x, 2);
}

/* Stores rows r < n of the warp's 16, times factor[0] (rows 0-7) and factor[1] (rows 8-15), from row `row`
 * on and from column `col` of the head on. */
template <typename T, int C>
__device__ __forceinline__ void store_rows(const float (&c)[C / 8][4], const flash_matrix &m, int64_t row, int head,
                                           int col, int n, const float (&factor)[2], const flash_params &p)
{
    T *to = (T *)m.data + row * m.stride + (int64_t)head * p.head_dim;
#pragma unroll
    for (int j = 0; j < C / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            int r = row_of(e), k = col + column_of(j, e);
            T *at = to + r * m.stride + k;
            float x = c[j][e] * factor[e >> 1], y = c[j][e + 1] * factor[e >> 1];
            if (r >= n || k >= p.head_dim) continue;
            if (p.vectors) {
                *(uint32_t *)at = pack2<T>(x, y);
            } else {
                store(at, x);
                if (k + 1 < p.head_dim) store(at + 1, y);
            }
        }
}

/* Selects the template for a head width. */
#define FLASH_WIDTHS(width, CALL)                                                                                      \
    ((width) <= 64    ? CALL(64)                                                                                       \
     : (width) <= 80  ? CALL(80)                                                                                       \
     : (width) <= 96  ? CALL(96)                                                                                       \
     : (width) <= 128 ? CALL(128)                                                                                      \
                      : CALL(256))

#endif
