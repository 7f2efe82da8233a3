/*
 * fp8.cu - operands of products rounded to 8 bits, as nrl_gemm_fp8 of nrl/backend.h defines it.
 *
 * The matrix library wants the elements that a sum is made of next to each other, so an operand that has them in its
 * columns is transposed on the way. Rows are filled up with zeros to whole blocks of 16 bytes.
 */
#include "fp8.h"
#include "pack.h"

enum { THREADS = 256, TILE = 64, ROW_PACKS = TILE / PACK };
enum { TILE_PACKS = TILE * ROW_PACKS / THREADS }; /* of a thread */
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

/* The codes of two numbers x scale, the first in the low byte. */
BOTH uint32_t fp8_codes(const fp8_format &f, float x0, float x1, float scale)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t codes; /* .satfinite makes the largest number of infinity */
    x0 = (bits_of_float(x0) & 0x7FFFFFFFu) >= 0x7F800000u ? float_of_bits(0x7FC00000u) : x0 * scale;
    x1 = (bits_of_float(x1) & 0x7FFFFFFFu) >= 0x7F800000u ? float_of_bits(0x7FC00000u) : x1 * scale;
    if (f.fraction == 2)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(x1), "f"(x0));
    else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(x1), "f"(x0));
    return codes;
#else
    return fp8_code(f, fp8_round(f, x0, scale)) | (uint32_t)fp8_code(f, fp8_round(f, x1, scale)) << 8;
#endif
}

/* The largest of `lanes` neighbouring threads of a warp. */
__device__ static uint32_t fp8_most(uint32_t most, int lanes)
{
    for (int mask = lanes / 2; mask > 0; mask >>= 1) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, most, mask);
        most = other > most ? other : most;
    }
    return most;
}

/* Joins the largest bits of a warp's threads with *at. */
__device__ static void fp8_join(uint32_t *at, uint32_t most)
{
    most = fp8_most(most, 32);
    if (threadIdx.x % 32 == 0 && most) atomicMax(at, most);
}

BOTH uint32_t fp8_largest(uint32_t most, const pack &p)
{
    for (int k = 0; k < PACK; k++) {
        const uint32_t u = bits_of_float(p.v[k]) & 0x7FFFFFFFu;
        most = u > most ? u : most;
    }
    return most;
}

/* The number of elements of a pack of x that exist. */
BOTH int fp8_count(const nrl_mat &x, int64_t row, int64_t col)
{
    return row >= x.rows || col >= x.cols ? 0 : x.cols - col < PACK ? (int)(x.cols - col) : (int)PACK;
}

/* Row and first column, in a tile, of the thread's pack t. */
__device__ static int fp8_row(int t)
{
    return (int)threadIdx.x / ROW_PACKS + t * (THREADS / ROW_PACKS);
}

__device__ static int fp8_col()
{
    return (int)threadIdx.x % ROW_PACKS * PACK;
}

/* The largest of |x|, if the scale is not given. */
__global__ void fp8_magnitude_kernel(nrl_mat x, const float *given, uint32_t *magnitude)
{
    uint32_t most = 0;
    if (given && *given != 0) return;
    for (int64_t row = blockIdx.x; row < x.rows; row += gridDim.x)
        for (int64_t col = threadIdx.x * PACK; col < x.cols; col += THREADS * PACK)
            most = fp8_largest(most, mat_load(x, row, col, fp8_count(x, row, col)));
    fp8_join(magnitude, most);
}

/* Loads the thread's packs of the tile of y at row0, col0: pack t has the columns from fp8_col() of row fp8_row(t), and
 * zeros outside y. All threads of the block call it. */
__device__ static void fp8_load(const nrl_mat &x, bool transpose, int64_t row0, int64_t col0, float (*tile)[TILE + 1],
                                pack (&p)[TILE_PACKS])
{
    const int64_t x_row0 = transpose ? col0 : row0, x_col = (transpose ? row0 : col0) + fp8_col();
#pragma unroll
    for (int t = 0; t < TILE_PACKS; t++) {
        const int64_t x_row = x_row0 + fp8_row(t);
        p[t] = mat_load(x, x_row, x_col, fp8_count(x, x_row, x_col));
    }
    if (!transpose) return;
    __syncthreads(); /* the tile of the last call has been read */
#pragma unroll
    for (int t = 0; t < TILE_PACKS; t++)
        for (int k = 0; k < PACK; k++)
            tile[fp8_col() + k][fp8_row(t)] = p[t].v[k];
    __syncthreads();
#pragma unroll
    for (int t = 0; t < TILE_PACKS; t++)
        for (int k = 0; k < PACK; k++)
            p[t].v[k] = tile[fp8_row(t)][fp8_col() + k];
}

/* Stores p x scale, rounded: the codes, or in other dtypes the rounded numbers / scale. */
__device__ static void fp8_store(const nrl_mat &y, int64_t row, int64_t col, const fp8_format &f, const pack &p,
                                 float scale)
{
    if (row >= y.rows || col >= y.stride) return;
    if (y.dtype == NRL_DTYPE_U8) {
        uint32_t codes[PACK / 4];
        for (int k = 0; k < PACK / 4; k++) {
            const float *v = p.v + 4 * k;
            codes[k] = fp8_codes(f, v[0], v[1], scale) | fp8_codes(f, v[2], v[3], scale) << 16;
        }
        *(uint64_t *)((uint8_t *)y.data + row * y.stride + col) = codes[0] | (uint64_t)codes[1] << 32;
        return;
    }
    pack rounded;
    for (int k = 0; k < PACK; k++)
        rounded.v[k] = fp8_round(f, p.v[k], scale) * (1 / scale);
    mat_store(y, row, col, PACK, rounded);
}

__global__ void fp8_round_kernel(nrl_mat x, nrl_mat y, bool transpose, nrl_gemm_fp8 how, cuda_fp8_scales *own)
{
    __shared__ float tile[TILE][TILE + 1];
    const fp8_format f = fp8_format_of(how.format);
    const float scale = how.scale && *how.scale != 0 ? *how.scale : fp8_scale(f, own->magnitude);
    const int64_t across = (y.stride + TILE - 1) / TILE, tiles = (y.rows + TILE - 1) / TILE * across;
    uint32_t most = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) own->inverse = 1 / scale;
    for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
        const int64_t row0 = i / across * TILE, col0 = i % across * TILE;
        pack p[TILE_PACKS];
        fp8_load(x, transpose, row0, col0, tile, p);
#pragma unroll
        for (int t = 0; t < TILE_PACKS; t++) {
            most = fp8_largest(most, p[t]);
            fp8_store(y, row0 + fp8_row(t), col0 + fp8_col(), f, p[t], scale);
        }
    }
    if (how.amax) fp8_join((uint32_t *)how.amax, most);
}

/* A thread block rounds BLOCK x BLOCK elements, whose tiles it reads twice: for the scales, and to round them. */
__global__ void fp8_round_blocks_kernel(nrl_mat x, nrl_mat y, bool transpose, nrl_gemm_fp8 how, float *inverses)
{
    __shared__ float tile[TILE][TILE + 1];
    __shared__ uint32_t most[BLOCK]; /* of each row */
    const fp8_format f = fp8_format_of(how.format);
    const bool is_tiles = how.blocks == NRL_FP8_TILES;
    const int64_t across = (y.stride + BLOCK - 1) / BLOCK, n_blocks = (y.rows + BLOCK - 1) / BLOCK * across;
    const int64_t depths = (y.cols + BLOCK - 1) / BLOCK;
    for (int64_t b = blockIdx.x; b < n_blocks; b += gridDim.x) {
        const int64_t row0 = b / across * BLOCK, col0 = b % across * BLOCK;
        pack p[TILE_PACKS];
        if (threadIdx.x < BLOCK) most[threadIdx.x] = 0;
        __syncthreads();
        for (int i = 0; i < BLOCK_TILES; i++) {
            const int down = i / (BLOCK / TILE) * TILE, right = i % (BLOCK / TILE) * TILE;
            fp8_load(x, transpose, row0 + down, col0 + right, tile, p);
#pragma unroll
            for (int t = 0; t < TILE_PACKS; t++) {
                const uint32_t largest = fp8_most(fp8_largest(0, p[t]), ROW_PACKS);
                uint32_t *at = &most[down + fp8_row(t)];
                if (fp8_col() == 0 && largest > *at) *at = largest; /* a row belongs to one of the threads */
            }
        }
        __syncthreads();
        if (is_tiles && threadIdx.x < 32) {
            uint32_t largest = 0;
            for (int i = threadIdx.x; i < BLOCK; i += 32)
                largest = most[i] > largest ? most[i] : largest;
            largest = fp8_most(largest, 32);
            for (int i = threadIdx.x; i < BLOCK; i += 32)
                most[i] = largest;
        }
        __syncthreads();
        if (threadIdx.x < BLOCK && col0 < y.cols) {
            const int64_t row = row0 + threadIdx.x, at = col0 / BLOCK;
            const float inverse = 1 / fp8_scale(f, most[threadIdx.x]);
            if (is_tiles && threadIdx.x == 0) inverses[row0 / BLOCK * ((depths + 3) / 4 * 4) + at] = inverse;
            if (!is_tiles && row < y.rows) inverses[at * y.rows + row] = inverse;
        }
        for (int i = 0; i < BLOCK_TILES; i++) {
            const int down = i / (BLOCK / TILE) * TILE, right = i % (BLOCK / TILE) * TILE;
            fp8_load(x, transpose, row0 + down, col0 + right, tile, p);
#pragma unroll
            for (int t = 0; t < TILE_PACKS; t++) {
                const int row = down + fp8_row(t);
                fp8_store(y, row0 + row, col0 + right + fp8_col(), f, p[t], fp8_scale(f, most[row]));
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
    CUDA_LAUNCH(fp8_round_blocks_kernel, cuda_blocks(self, n_blocks), THREADS, 0, stream, *x, *y, transpose, *how,
                inverses);
    return cuda_launched(self, "gemm");
}

nrl_status cuda_fp8_round(cuda *self, void *stream, const nrl_gemm_fp8 *how, const nrl_mat *x, bool transpose,
                          const nrl_mat *y, cuda_fp8_scales *at)
{
    const int64_t tiles = (y->rows + TILE - 1) / TILE * ((y->stride + TILE - 1) / TILE);
    CUDA_LAUNCH(fp8_magnitude_kernel, cuda_blocks(self, x->rows), THREADS, 0, stream, *x, how->scale, &at->magnitude);
    NRL_TRY(cuda_launched(self, "gemm"));
    CUDA_LAUNCH(fp8_round_kernel, cuda_blocks(self, tiles), THREADS, 0, stream, *x, *y, transpose, *how, at);
    return cuda_launched(self, "gemm");
}
