/*
 * flash_mma.h - shared by the flash kernels: tiles of 16-bit rows in shared memory, and their products
 * with tensor cores.
 *
 * A tile is [rows, D] with D the head width rounded up to a template's width, with zeros beyond the
 * true width. Rows are D + 8 values apart, so that eight rows of an 8 x 8 matrix are in different
 * banks. Each warp owns 16 R rows of the left operand: with R = 2 the fragments of the right operand, which come
 * through shared memory, serve twice as many products. Accumulators are laid out as in mma.h.
 */
#ifndef CUDA_OPS_FLASH_MMA_H
#define CUDA_OPS_FLASH_MMA_H
#include "flash.h"
#include "flash_cap.h"
#include "flash_tile.h"
#include "mma.h"

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

/* What a product of q and k is multiplied by before exp2, if cap_products leaves it as it is. */
__device__ __forceinline__ float flash_factor(const flash_params &p)
{
    return p.soft_cap > 0 || p.scale <= 0 ? 1 : p.scale * LOG2_E;
}

template <int D> struct flash_tile {
    static constexpr int pitch = D + 8; /* distance of rows */
    static constexpr int bytes(int rows)
    {
        return rows * pitch * 2;
    }
};

/* Copies rows [row, row + n) of one head to a tile of ROWS rows, by a block of THREADS; the rest is zero. Asynchronous:
 * the caller commits and waits. */
template <typename T, int D, int ROWS, int THREADS>
__device__ __forceinline__ void load_tile(T *tile, const flash_matrix &m, int64_t row, int head, int n,
                                          const flash_params &p)
{
    constexpr int CHUNKS = ROWS * (D / 8);
    const T *from = (const T *)m.data + row * m.stride + (int64_t)head * p.head_dim;
    if (p.vectors) {
#pragma unroll
        for (int i = 0; i < (CHUNKS + THREADS - 1) / THREADS; i++) {
            int c = i * THREADS + (int)threadIdx.x, r = c / (D / 8), col = c % (D / 8) * 8;
            bool is_there = r < n && col < p.head_dim;
            if (CHUNKS % THREADS != 0 && c >= CHUNKS) break;
            copy_16(tile + r * flash_tile<D>::pitch + col, is_there ? from + r * m.stride + col : (const T *)m.data,
                    is_there ? 16 : 0);
        }
        return;
    }
    for (int c = threadIdx.x; c < CHUNKS; c += THREADS) {
        int r = c / (D / 8), col = c % (D / 8) * 8;
        T *to = tile + r * flash_tile<D>::pitch + col;
        for (int i = 0; i < 8; i++)
            if (r < n && col + i < p.head_dim)
                to[i] = from[r * m.stride + col + i];
            else
                store(to + i, 0.0f);
    }
}

/* The left operand of a product over columns [k, k + 16) of the warp's rows, of which `a` is the first. */
template <typename T, int D, int R> __device__ __forceinline__ void load_left(uint32_t (&left)[R][4], const T *a, int k)
{
    constexpr int pitch = flash_tile<D>::pitch;
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < R; i++)
        load_matrices(left[i], a + (16 * i + (lane & 15)) * pitch + (lane >> 4) * 8 + k);
}

/* The part of multiply_rows over columns [k, k + 16). */
template <typename T, int D, int N, int R>
__device__ __forceinline__ void multiply_columns(float (&c)[R][N / 8][4], const uint32_t (&left)[R][4], const T *b,
                                                 int k)
{
    constexpr int pitch = flash_tile<D>::pitch;
    int lane = threadIdx.x & 31;
    const T *b_at = b + ((lane & 7) + (lane >> 4) * 8) * pitch + ((lane >> 3) & 1) * 8 + k;
#pragma unroll
    for (int j = 0; j < N / 16; j++) {
        uint32_t right[4];
        load_matrices(right, b_at + j * 16 * pitch);
#pragma unroll
        for (int i = 0; i < R; i++) {
            multiply_add<T>(c[i][2 * j], left[i], right[0], right[1]);
            multiply_add<T>(c[i][2 * j + 1], left[i], right[2], right[3]);
        }
    }
}

/* c[16 R,N] += a[16 R,D] b[N,D]^T: the warp's rows of one tile, the first N of another. */
template <typename T, int D, int N, int R>
__device__ __forceinline__ void multiply_rows(float (&c)[R][N / 8][4], const T *a, const T *b)
{
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t left[R][4];
        load_left<T, D, R>(left, a, k);
        multiply_columns<T, D, N, R>(c, left, b, k);
    }
}

/* c[16 R,C] += p[16 R,K] b[K,C]: accumulators, rounded to T, times columns [col, col + C) of a tile. */
template <typename T, int D, int K, int C, int R>
__device__ __forceinline__ void multiply_values(float (&c)[R][C / 8][4], const float (&p)[R][K / 8][4], const T *b,
                                                int col)
{
    constexpr int pitch = flash_tile<D>::pitch;
    int lane = threadIdx.x & 31;
    const T *b_at = b + ((lane & 7) + ((lane >> 3) & 1) * 8) * pitch + col + (lane >> 4) * 8;
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
        uint32_t left[R][4];
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float *at = &p[i][2 * k + (e >> 1)][e % 2 * 2];
                left[i][e] = pack2<T>(at[0], at[1]);
            }
#pragma unroll
        for (int j = 0; j < C / 16; j++) {
            uint32_t right[4];
            load_matrices_transposed(right, b_at + k * 16 * pitch + j * 16);
#pragma unroll
            for (int i = 0; i < R; i++) {
                multiply_add<T>(c[i][2 * j], left[i], right[0], right[1]);
                multiply_add<T>(c[i][2 * j + 1], left[i], right[2], right[3]);
            }
        }
    }
}

/* Products of q and k become scores in powers of two, if flash_factor alone does not make them such: capped ones, for
 * which dp is multiplied by the slope of the cap, too, and those of a scale that turns their order round. tanh from
 * exp2: with an absolute error of 2^-23, far below that of 16-bit operands, and without branches. */
template <int R, int N>
__device__ __forceinline__ void cap_products(float (&s)[R][N][4], float (*dp)[N][4], const flash_params &p)
{
    if (p.soft_cap <= 0 && p.scale > 0) return;
    float inner = p.soft_cap > 0 ? p.scale / p.soft_cap * 2 * LOG2_E : p.scale * LOG2_E, outer = p.soft_cap * LOG2_E;
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float score = s[i][j][e] * inner;
                if (p.soft_cap > 0) {
                    float t = 1 - 2 * fast_reciprocal(1 + fast_exp2(score));
                    score = outer * t;
                    if (dp) dp[i][j][e] *= 1 - t * t;
                }
                s[i][j][e] = score;
            }
}

/* Elements outside columns [begin, end) of row r of the lane, r = 2 i + (e >> 1), become -inf. */
template <int R, int N>
__device__ __forceinline__ void keep_columns(float (&s)[R][N][4], const flash_range (&kept)[2 * R])
{
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const flash_range &r = kept[2 * i + (e >> 1)];
                bool is_kept = (uint32_t)(column_of(j, e) - r.begin) < (uint32_t)(r.end - r.begin);
                s[i][j][e] = is_kept ? s[i][j][e] : -INFINITY;
            }
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

/* Stores rows r < n of the warp's, times their factor, from row `row` on and from column `col` of the head on. */
template <typename T, int C, int R>
__device__ __forceinline__ void store_rows(const float (&c)[R][C / 8][4], const flash_matrix &m, int64_t row, int head,
                                           int col, int n, const float (&factor)[2 * R], const flash_params &p)
{
    T *to = (T *)m.data + row * m.stride + (int64_t)head * p.head_dim;
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < C / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e += 2) {
                int r = row_of(i, e), k = col + column_of(j, e);
                T *at = to + r * m.stride + k;
                float f = factor[2 * i + (e >> 1)], x = c[i][j][e] * f, y = c[i][j][e + 1] * f;
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
