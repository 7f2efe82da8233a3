/*
 * fp8.cu - operands of products rounded to 8 bits, as nrl_gemm_fp8 of nrl/backend.h defines it.
 *
 * The matrix library wants the elements that a sum is made of next to each other, so an operand that has them in its
 * columns is transposed on the way. Rows are filled up with zeros to whole blocks of 16 bytes.
 */
#include "fp8.h"
#include "kernel.h"
#include "scalar.h"

enum { TILE = 32, TILE_ROWS = 8 }; /* 256 threads round a tile in four iterations */
enum { BLOCK = NRL_FP8_BLOCK, BLOCK_TILES = (BLOCK / TILE) * (BLOCK / TILE) };

/* Of e4m3 and e5m2, by nrl_fp8. */
struct fp8_format {
    float largest, least_normal, to_units; /* adding to_units rounds a number below least_normal */
    uint32_t half_unit;                    /* of the last fraction bit, less 1, among the bits of an f32 */
    int fraction, exponent, bias;          /* bits of the fraction; the exponent of `largest`; of the code */
};

BOTH fp8_format fp8_format_of(uint32_t format)
{
    if (format == NRL_FP8_E5M2) return {57344, 0x1p-14f, 0x1p7f, (1u << 20) - 1, 2, 15, 15};
    return {448, 0x1p-6f, 0x1p14f, (1u << 19) - 1, 3, 8, 7};
}

/* The largest power of two from 2^-62 to 2^62 for which nothing is beyond the largest number. A fraction above 1.75
 * carries into the exponent. */
BOTH float fp8_scale(const fp8_format &f, uint32_t magnitude)
{
    int exponent = f.exponent + 127 - (int)((magnitude + 0x1FFFFFu) >> 23);
    exponent = exponent < -62 ? -62 : exponent > 62 ? 62 : exponent;
    return float_of_bits((uint32_t)(127 + exponent) << 23);
}

/* q as f32: x scale rounded to nearest, ties to even; NaN of what is not finite. */
BOTH float fp8_round(const fp8_format &f, float x, float scale)
{
    const uint32_t magnitude = bits_of_float(x) & 0x7FFFFFFFu;
    const float scaled = float_of_bits(magnitude) * scale;
    const float y = scaled < f.largest ? scaled : f.largest;
    const int drop = 23 - f.fraction;
    const uint32_t u = bits_of_float(y);
    const float normal = float_of_bits((u + f.half_unit + (u >> drop & 1)) >> drop << drop);
    const float small = (y + f.to_units) - f.to_units;
    const uint32_t q = bits_of_float(y < f.least_normal ? small : normal) | (bits_of_float(x) & 0x80000000u);
    return float_of_bits(magnitude >= 0x7F800000u ? 0x7FC00000u : q);
}

/* The code of q, a number of the format. */
BOTH uint8_t fp8_code(const fp8_format &f, float q)
{
    const uint32_t u = bits_of_float(q), magnitude = u & 0x7FFFFFFFu;
    const uint32_t normal = (magnitude >> (23 - f.fraction)) - (uint32_t)((127 - f.bias) << f.fraction);
    const uint32_t small = (uint32_t)(float_of_bits(magnitude) * (float)(1 << f.fraction) / f.least_normal);
    const uint32_t code = float_of_bits(magnitude) < f.least_normal ? small : normal;
    return (uint8_t)(u >> 24 & 0x80u) | (uint8_t)(magnitude > 0x7F800000u ? 0x7Fu : code);
}

/* The largest of a warp's threads. */
__device__ static uint32_t fp8_warp_most(uint32_t most)
{
    for (int mask = 16; mask > 0; mask >>= 1) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, most, mask);
        most = other > most ? other : most;
    }
    return most;
}

/* Joins the largest bits of a warp's threads with *at. */
__device__ static void fp8_join(uint32_t *at, uint32_t most)
{
    most = fp8_warp_most(most);
    if (threadIdx.x % 32 == 0 && most) atomicMax(at, most);
}

BOTH uint32_t fp8_larger(uint32_t most, float x)
{
    const uint32_t u = bits_of_float(x) & 0x7FFFFFFFu;
    return u > most ? u : most;
}

/* The largest of |x|, if the scale is not given. */
__global__ void fp8_magnitude_kernel(nrl_mat x, const float *given, uint32_t *magnitude)
{
    uint32_t most = 0;
    if (given && *given != 0) return;
    for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x)
        for (int64_t col = threadIdx.x; col < x.cols; col += blockDim.x)
            most = fp8_larger(most, scalar_load(x.data, x.dtype, row * x.stride + col));
    fp8_join(magnitude, most);
}

/* Stores value / scale, rounded: its code, or in other dtypes the rounded value itself. */
__device__ static void fp8_store(const nrl_mat &y, int64_t at, fp8_format f, float value, float scale)
{
    const float q = fp8_round(f, value, scale);
    if (y.dtype == NRL_DTYPE_U8)
        ((uint8_t *)y.data)[at] = fp8_code(f, q);
    else
        scalar_store(y.data, y.dtype, at, q * (1 / scale));
}

__global__ void fp8_round_kernel(nrl_mat x, nrl_mat y, bool transpose, nrl_gemm_fp8 how, cuda_fp8_scales *own)
{
    __shared__ float tile[TILE][TILE + 1];
    const fp8_format f = fp8_format_of(how.format);
    const float scale = how.scale && *how.scale != 0 ? *how.scale : fp8_scale(f, own->magnitude);
    const int64_t across = (y.stride + TILE - 1) / TILE, tiles = (y.rows + TILE - 1) / TILE * across;
    const int lane = threadIdx.x % TILE, first = threadIdx.x / TILE;
    uint32_t most = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) own->inverse = 1 / scale;
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int64_t row0 = t / across * TILE, col0 = t % across * TILE;
        for (int k = first; k < TILE && transpose; k += TILE_ROWS)
            if (col0 + k < x.rows && row0 + lane < x.cols)
                tile[lane][k] = scalar_load(x.data, x.dtype, (col0 + k) * x.stride + row0 + lane);
        if (transpose) __syncthreads();
        for (int k = first; k < TILE; k += TILE_ROWS) {
            const int64_t row = row0 + k, col = col0 + lane, at = row * y.stride + col;
            if (row >= y.rows || col >= y.stride) continue;
            float value = 0;
            if (col < y.cols) value = transpose ? tile[k][lane] : scalar_load(x.data, x.dtype, row * x.stride + col);
            most = fp8_larger(most, value);
            fp8_store(y, at, f, value, scale);
        }
        if (transpose) __syncthreads();
    }
    if (how.amax) fp8_join((uint32_t *)how.amax, most);
}

/* Values of y[row0.., col0..], TILE x TILE, row k and column lane at tile[k][lane], and 0 outside. All threads of the
 * block call it; it waits until they have read the values of the last call, and until those of this one are there. */
__device__ static void fp8_load_tile(const nrl_mat &x, const nrl_mat &y, bool transpose, int64_t row0, int64_t col0,
                                     float (*tile)[TILE + 1])
{
    const int lane = threadIdx.x % TILE;
    __syncthreads();
    for (int k = threadIdx.x / TILE; k < TILE; k += TILE_ROWS) {
        const int64_t row = transpose ? row0 + lane : row0 + k, col = transpose ? col0 + k : col0 + lane;
        float value = 0;
        if (row < y.rows && col < y.cols)
            value = scalar_load(x.data, x.dtype, transpose ? col * x.stride + row : row * x.stride + col);
        if (transpose)
            tile[lane][k] = value;
        else
            tile[k][lane] = value;
    }
    __syncthreads();
}

/* A thread block rounds BLOCK x BLOCK elements, whose tiles it reads twice: for the scales, and to round them. */
__global__ void fp8_round_blocks_kernel(nrl_mat x, nrl_mat y, bool transpose, nrl_gemm_fp8 how, float *inverses)
{
    __shared__ float tile[TILE][TILE + 1];
    __shared__ uint32_t most[BLOCK];
    const fp8_format f = fp8_format_of(how.format);
    const bool is_tiles = how.blocks == NRL_FP8_TILES;
    const int64_t across = (y.stride + BLOCK - 1) / BLOCK, n_blocks = (y.rows + BLOCK - 1) / BLOCK * across;
    const int64_t depths = (y.cols + BLOCK - 1) / BLOCK;
    const int lane = threadIdx.x % TILE, first = threadIdx.x / TILE;
    for (int64_t b = blockIdx.x; b < n_blocks; b += gridDim.x) {
        const int64_t row0 = b / across * BLOCK, col0 = b % across * BLOCK;
        if (threadIdx.x < BLOCK) most[threadIdx.x] = 0;
        for (int t = 0; t < BLOCK_TILES; t++) {
            const int down = t / (BLOCK / TILE) * TILE, right = t % (BLOCK / TILE) * TILE;
            fp8_load_tile(x, y, transpose, row0 + down, col0 + right, tile);
            for (int k = first; k < TILE; k += TILE_ROWS) {
                const uint32_t largest = fp8_warp_most(fp8_larger(0, tile[k][lane]));
                if (lane == 0 && largest > most[down + k]) most[down + k] = largest; /* a row belongs to one warp */
            }
        }
        __syncthreads();
        if (is_tiles && threadIdx.x < 32) {
            uint32_t largest = 0;
            for (int i = lane; i < BLOCK; i += 32)
                largest = most[i] > largest ? most[i] : largest;
            largest = fp8_warp_most(largest);
            for (int i = lane; i < BLOCK; i += 32)
                most[i] = largest;
        }
        __syncthreads();
        if (threadIdx.x < BLOCK && col0 < y.cols) {
            const int64_t row = row0 + threadIdx.x, at = col0 / BLOCK;
            const float inverse = 1 / fp8_scale(f, most[threadIdx.x]);
            if (is_tiles && threadIdx.x == 0) inverses[row0 / BLOCK * ((depths + 3) / 4 * 4) + at] = inverse;
            if (!is_tiles && row < y.rows) inverses[at * y.rows + row] = inverse;
        }
        for (int t = 0; t < BLOCK_TILES; t++) {
            const int down = t / (BLOCK / TILE) * TILE, right = t % (BLOCK / TILE) * TILE;
            fp8_load_tile(x, y, transpose, row0 + down, col0 + right, tile);
            for (int k = first; k < TILE; k += TILE_ROWS) {
                const int64_t row = row0 + down + k, col = col0 + right + lane, at = row * y.stride + col;
                if (row < y.rows && col < y.stride) fp8_store(y, at, f, tile[k][lane], fp8_scale(f, most[down + k]));
            }
        }
        __syncthreads();
    }
}

int64_t cuda_fp8_block_scales(uint32_t blocks, int64_t n, int64_t depth)
{
    const int64_t depths = (depth + BLOCK - 1) / BLOCK;
    return blocks == NRL_FP8_TILES ? (n + BLOCK - 1) / BLOCK * ((depths + 3) / 4 * 4) : n * depths;
}

nrl_status cuda_fp8_round_blocks(cuda *self, void *stream, const nrl_gemm_fp8 *how, const nrl_mat *x, bool transpose,
                                 const nrl_mat *y, float *inverses)
{
    const int64_t n_blocks = (y->rows + BLOCK - 1) / BLOCK * ((y->stride + BLOCK - 1) / BLOCK);
    CUDA_LAUNCH(fp8_round_blocks_kernel, cuda_blocks(self, n_blocks), TILE * TILE_ROWS, 0, stream, *x, *y, transpose,
                *how, inverses);
    return cuda_launched(self, "gemm");
}

nrl_status cuda_fp8_round(cuda *self, void *stream, const nrl_gemm_fp8 *how, const nrl_mat *x, bool transpose,
                          const nrl_mat *y, cuda_fp8_scales *at)
{
    const int64_t tiles = (y->rows + TILE - 1) / TILE * ((y->stride + TILE - 1) / TILE);
    CUDA_LAUNCH(fp8_magnitude_kernel, cuda_blocks(self, x->rows), TILE * TILE_ROWS, 0, stream, *x, how->scale,
                &at->magnitude);
    NRL_TRY(cuda_launched(self, "gemm"));
    CUDA_LAUNCH(fp8_round_kernel, cuda_blocks(self, tiles), TILE * TILE_ROWS, 0, stream, *x, *y, transpose, *how, at);
    return cuda_launched(self, "gemm");
}
