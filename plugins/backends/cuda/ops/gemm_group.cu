/*
 * gemm_group.cu - products that do not depend on each other in one launch: c = alpha op(a) op(b) (+ c) in 16 bits with
 * f32 sums, for the experts of a mixture, each of which has too few tiles to fill a GPU.
 *
 * A block computes a tile of one product, 128 x 256, the largest that registers hold, so that the L2 cache has the
 * fewest bytes to deliver. Its 8 warps compute 64 x 64 each: for a depth of 16, 8 loads of fragments serve 32 tensor
 * core products. The block walks along the depth in steps of 32, with four places in shared memory: the next three
 * steps arrive during the products of this one. Blocks find their product in a table in the kernel's arguments. No sum
 * is divided among blocks, so results repeat.
 *
 * What this kernel does not compute, what the matrix library computes faster, and a product without others go to
 * gemm.c.
 *
 * Legend: M rows and N columns of c, K depth.
 */
#include "gemm.h"
#include "mma.h"
#include <stdlib.h>

enum { ROWS = 128, COLS = 256, DEPTH = 32, PLACES = 4 }; /* of a tile, and of its steps */
enum { PART = 64, WARPS = ROWS / PART * (COLS / PART), THREADS = 32 * WARPS };
enum { A_STEP = ROWS * DEPTH, STEP = A_STEP + COLS * DEPTH, SHARED_BYTES = PLACES * STEP * 2 };
static_assert((int)SHARED_BYTES <= LEAST_SHARED, "a block fits every GPU");

enum { MOST_STRIDE = INT32_MAX / COLS }; /* distances within a tile are 32-bit numbers */

/* Output, gradient of the input and gradient of the weight of y = x W^T. */
enum group_layout { A_BT, A_B, AT_B, LAYOUTS };

enum { GROUPS = 64 }; /* their table fits into the 4 KiB of a kernel's arguments */

struct gemm_group {
    const void *a, *b;
    void *c;
    int32_t m, n, k, a_stride, b_stride, c_stride;
    uint32_t end; /* the first tile after those of this product */
    bool overwrite;
};

struct gemm_groups {
    uint32_t n;
    float alpha;
    bool is_wide; /* c is f32 */
    gemm_group of[GROUPS];
};
static_assert(sizeof(gemm_groups) <= 4096, "a kernel has 4 KiB of arguments");

/* ---- operands ---- */

/* Place of a number in a tile with rows of WIDTH. Rows swap their chunks of 16 bytes, so that eight neighbouring chunks
 * of memory, and the same chunk of eight rows, are in different banks. */
template <int WIDTH> __device__ __forceinline__ int place_in_tile(int row, int col)
{
    static_assert(WIDTH == 32 || WIDTH % 64 == 0, "rows of 4 or a multiple of 8 chunks");
    int swap = WIDTH == 32 ? row >> 1 & 3 : row & 7;
    return row * WIDTH + ((col >> 3 ^ swap) << 3) + (col & 7);
}

/* Reads the SIZE rows or columns of c that a tile has from an operand, step by step along the depth. IS_DEEP: rows of
 * memory are the depth. Chunks of a thread are APART rows apart, in memory and in the tile. */
template <typename T, bool IS_DEEP, int SIZE> struct group_reader {
    static constexpr int WIDTH = IS_DEEP ? SIZE : DEPTH, CHUNKS = SIZE * DEPTH / 8 / THREADS;
    static constexpr int APART = THREADS * 8 / WIDTH;
    const T *data;
    int stride, first, end, depth; /* rows or columns [first, end) of c, of which the tile may have fewer */
    bool vectors;                  /* all rows can be read 16 bytes at a time */
    const T *next;                 /* the thread's first chunk of the next step */
    int left, place;               /* numbers or rows of the depth from there to its end; its place in a tile */
    int offset[CHUNKS];            /* of the thread's chunks from the first */

    __device__ __forceinline__ group_reader(const void *operand, int row_stride, int begin, int n, int k)
        : data((const T *)operand), stride(row_stride), first(begin), end(n), depth(k)
    {
        const int row = (int)threadIdx.x / (WIDTH / 8), col = (int)threadIdx.x % (WIDTH / 8) * 8;
        vectors = ((uintptr_t)data & 15) == 0 && stride % 8 == 0 && (IS_DEEP ? end : depth) % 8 == 0;
        left = depth - (IS_DEEP ? row : col);
        place = place_in_tile<WIDTH>(row, col);
        /* Beyond the end the last one is read again, for elements of c that are not stored. */
        const int from = IS_DEEP && first + col > end - 8 ? end - 8 : first + (IS_DEEP ? col : 0);
        next = IS_DEEP ? data + (int64_t)row * stride + from : data + (int64_t)from * stride + col;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            const int down = row + i * APART;
            offset[i] = (IS_DEEP ? i * APART : down < end - first ? down : end - first - 1) * stride;
        }
    }

    /* Copies step s to a tile, with zeros beyond the depth. Asynchronous: the caller commits and waits. */
    __device__ __forceinline__ void load(T *tile, int s)
    {
        if (!vectors) {
            load_numbers(tile, s * DEPTH);
            return;
        }
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            copy_16(tile + place + i * APART * WIDTH, next + offset[i], left > (IS_DEEP ? i * APART : 0) ? 16 : 0);
        next += DEPTH * (IS_DEEP ? (int64_t)stride : 1);
        left -= DEPTH;
    }

    __device__ __forceinline__ void load_numbers(T *tile, int step) const
    {
        for (int i = threadIdx.x; i < SIZE * DEPTH; i += THREADS) {
            int row = i / WIDTH, col = i % WIDTH, k = step + (IS_DEEP ? row : col), r = first + (IS_DEEP ? col : row);
            T *to = tile + place_in_tile<WIDTH>(row, col);
            if (r < end && k < depth)
                *to = data[IS_DEEP ? (int64_t)k * stride + r : (int64_t)r * stride + k];
            else
                store(to, 0.0f);
        }
    }
};

/* ---- products ---- */

/* A warp's PART rows of the left operand, or columns of the right one, in a tile. */
template <typename T, bool IS_DEEP, bool IS_LEFT> struct group_part {
    static constexpr int WIDTH = !IS_DEEP ? DEPTH : IS_LEFT ? ROWS : COLS;
    int place; /* the lane's row of 8 numbers of the first fragments */

    __device__ __forceinline__ explicit group_part(int at)
    {
        int lane = threadIdx.x & 31, odd = (lane >> 3 & 1) * 8, upper = (lane >> 4) * 8;
        at += IS_LEFT ? odd : upper;
        int k = IS_LEFT ? upper : odd;
        place = IS_DEEP ? place_in_tile<WIDTH>(k + (lane & 7), at) : place_in_tile<WIDTH>(at + (lane & 7), k);
    }

    /* Rows or columns [at, at + 16) and depth [k, k + 16) as fragments for multiply_add: of the left to[0] and to[1]
     * have the same depth, of the right the same columns. Multiples of 16 along a row of the tile select a chunk before
     * it is swapped. */
    __device__ __forceinline__ void load(uint32_t (&to)[4], const T *tile, int at, int k) const
    {
        if (IS_DEEP)
            load_matrices_transposed(to, tile + (place ^ at) + k * WIDTH);
        else
            load_matrices(to, tile + (place ^ k) + at * WIDTH);
    }
};

/* c[PART,PART] += a[PART,DEPTH] b[DEPTH,PART] */
template <typename T, bool A_IS_DEEP, bool B_IS_DEEP>
__device__ __forceinline__ void multiply_step(float (&c)[PART / 16][PART / 8][4], const T *tile_a, const T *tile_b,
                                              const group_part<T, A_IS_DEEP, true> &a,
                                              const group_part<T, B_IS_DEEP, false> &b)
{
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
        uint32_t left[PART / 16][4], right[4];
#pragma unroll
        for (int i = 0; i < PART / 16; i++)
            a.load(left[i], tile_a, 16 * i, k);
#pragma unroll
        for (int j = 0; j < PART / 16; j++) {
            b.load(right, tile_b, 16 * j, k);
#pragma unroll
            for (int i = 0; i < PART / 16; i++) {
                multiply_add<T>(c[i][2 * j], left[i], right[0], right[1]);
                multiply_add<T>(c[i][2 * j + 1], left[i], right[2], right[3]);
            }
        }
    }
}

/* ---- results ---- */

struct alignas(8) f32_pair {
    float x, y;
};

__device__ __forceinline__ f32_pair load_pair(const float *at)
{
    return *(const f32_pair *)at;
}
template <typename T> __device__ __forceinline__ f32_pair load_pair(const T *at)
{
    uint32_t both = *(const uint32_t *)at;
    return {to_float(T{(uint16_t)both}), to_float(T{(uint16_t)(both >> 16)})};
}
__device__ __forceinline__ void store_pair(float *at, float x, float y)
{
    *(f32_pair *)at = {x, y};
}
template <typename T> __device__ __forceinline__ void store_pair(T *at, float x, float y)
{
    *(uint32_t *)at = pack2<T>(x, y);
}

/* Stores the warp's part of a tile, from row `row` and column `col` of the product on. */
template <typename C>
__device__ __forceinline__ void store_part(const float (&c)[PART / 16][PART / 8][4], const gemm_group &p, float alpha,
                                           int row, int col)
{
    const bool pairs = (uintptr_t)p.c % (2 * sizeof(C)) == 0 && p.c_stride % 2 == 0;
#pragma unroll
    for (int i = 0; i < PART / 16; i++)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            const int r = row + row_of(i, e);
            C *to = (C *)p.c + (int64_t)r * p.c_stride;
#pragma unroll
            for (int j = 0; j < PART / 8; j++) {
                const int k = col + column_of(j, e);
                if (r >= p.m || k >= p.n) continue;
                float x = alpha * c[i][j][e], y = alpha * c[i][j][e + 1];
                if (pairs && k + 1 < p.n) {
                    f32_pair old = {0, 0};
                    if (!p.overwrite) old = load_pair(to + k);
                    store_pair(to + k, old.x + x, old.y + y);
                } else {
                    store(to + k, (p.overwrite ? 0 : to_float(to[k])) + x);
                    if (k + 1 < p.n) store(to + k + 1, (p.overwrite ? 0 : to_float(to[k + 1])) + y);
                }
            }
        }
}

/* ---- the kernel ---- */

template <typename T, int LAYOUT> __global__ void __launch_bounds__(THREADS) gemm_group_kernel(const gemm_groups t)
{
    constexpr bool A_IS_DEEP = LAYOUT == AT_B, B_IS_DEEP = LAYOUT != A_BT;
    CUDA_SHARED(char, shared);
    T *places = (T *)shared; /* of steps: a, then b */
    uint32_t g = 0;
    for (uint32_t half = GROUPS / 2; half > 0; half /= 2) /* tiles are in the order of products */
        if (g + half < t.n && blockIdx.x >= t.of[g + half - 1].end) g += half;
    const gemm_group &p = t.of[g];
    /* Tiles of one column of tiles are neighbours: its part of b, mostly the weight, is read from memory once. */
    const int tile = (int)(blockIdx.x - (g ? t.of[g - 1].end : 0)), down = (p.m + ROWS - 1) / ROWS;
    const int row = tile % down * ROWS, col = tile / down * COLS, steps = (p.k + DEPTH - 1) / DEPTH;
    group_reader<T, A_IS_DEEP, ROWS> a(p.a, p.a_stride, row, p.m, p.k);
    group_reader<T, B_IS_DEEP, COLS> b(p.b, p.b_stride, col, p.n, p.k);
    const int warp = (int)(threadIdx.x >> 5), across = ROWS / PART;
    const int warp_row = warp % across * PART, warp_col = warp / across * PART;
    const group_part<T, A_IS_DEEP, true> left(warp_row);
    const group_part<T, B_IS_DEEP, false> right(warp_col);
    const bool has_part = row + warp_row < p.m && col + warp_col < p.n;
    float c[PART / 16][PART / 8][4];
    clear(c);
    for (int s = 0; s < PLACES - 1; s++) {
        if (s < steps) {
            a.load(places + s * STEP, s);
            b.load(places + s * STEP + A_STEP, s);
        }
        copies_commit();
    }
    for (int s = 0; s < steps; s++) {
        const int ahead = s + PLACES - 1;
        const T *now = places + s % PLACES * STEP;
        T *later = places + ahead % PLACES * STEP;
        copies_wait<PLACES - 2>();
        __syncthreads(); /* this step has arrived, and no thread still reads the previous one */
        if (ahead < steps) {
            a.load(later, ahead);
            b.load(later + A_STEP, ahead);
        }
        copies_commit();
        if (has_part) multiply_step<T>(c, now, now + A_STEP, left, right);
    }
    if (t.is_wide)
        store_part<float>(c, p, t.alpha, row + warp_row, col + warp_col);
    else
        store_part<T>(c, p, t.alpha, row + warp_row, col + warp_col);
}

/* ---- launches ---- */

/* Products of one layout that wait for their launch, equal except for sizes, addresses and `overwrite`. */
struct group_queue {
    gemm_groups table;
    const nrl_gemm_args *first;
};

static int64_t tiles_of(int64_t m, int64_t n)
{
    return (m + ROWS - 1) / ROWS * ((n + COLS - 1) / COLS);
}

/* A product that keeps four fifths of the multiprocessors busy, over the turns that its tiles take, is left to the
 * library, whose kernels are then faster in spite of what idles: they use wgmma. */
static bool fills_device(const cuda *self, const nrl_gemm_args *a)
{
    const int64_t width = self->properties.multiprocessors, tiles = tiles_of(a->c.rows, a->c.cols);
    const int64_t turns = (tiles + width - 1) / width;
    return 5 * tiles >= 4 * turns * width;
}

static int64_t depth_of(const nrl_gemm_args *a)
{
    return a->transpose_a ? a->a.rows : a->a.cols;
}

static bool has_kernel(const nrl_gemm_args *a)
{
    bool types = (a->a.dtype == NRL_DTYPE_BF16 || a->a.dtype == NRL_DTYPE_F16) && a->b.dtype == a->a.dtype &&
                 (a->c.dtype == a->a.dtype || a->c.dtype == NRL_DTYPE_F32);
    bool fits = depth_of(a) <= INT32_MAX - DEPTH && a->a.stride <= MOST_STRIDE && a->b.stride <= MOST_STRIDE &&
                a->c.stride <= MOST_STRIDE;
    return types && fits && !a->bias.data && !a->fp8_a.format && !a->fp8_b.format &&
           !(a->transpose_a && a->transpose_b);
}

static int deeper_first(const void *x, const void *y)
{
    return ((const gemm_group *)y)->k - ((const gemm_group *)x)->k;
}

typedef void (*group_kernel)(gemm_groups);

template <typename T> static group_kernel kernel_of(int layout)
{
    return layout == A_BT  ? gemm_group_kernel<T, A_BT>
           : layout == A_B ? gemm_group_kernel<T, A_B>
                           : gemm_group_kernel<T, AT_B>;
}

/* The tiles that take longest start first. */
static nrl_status launch_table(cuda *self, void *stream, gemm_groups *t, uint32_t dtype, int layout)
{
    uint32_t blocks = 0;
    qsort(t->of, t->n, sizeof *t->of, deeper_first);
    for (uint32_t i = 0; i < t->n; i++)
        t->of[i].end = blocks += (uint32_t)tiles_of(t->of[i].m, t->of[i].n);
    group_kernel kernel = dtype == NRL_DTYPE_BF16 ? kernel_of<bf16>(layout) : kernel_of<f16>(layout);
    NRL_TRY(cuda_check(self->driver, allow_shared(kernel, SHARED_BYTES), "gemm"));
    CUDA_LAUNCH(kernel, blocks, THREADS, SHARED_BYTES, stream, *t);
    return cuda_launched(self, "gemm");
}

static nrl_status launch_queue(cuda *self, void *stream, group_queue *q, int layout)
{
    const uint32_t n = q->table.n;
    if (n > 1) NRL_TRY(launch_table(self, stream, &q->table, q->first->a.dtype, layout));
    if (n == 1) NRL_TRY(cuda_op_gemm(self, stream, q->first));
    q->table.n = 0;
    return NRL_OK;
}

/* Whether one launch can compute both. */
static bool is_like(const nrl_gemm_args *x, const nrl_gemm_args *y)
{
    return x->a.dtype == y->a.dtype && x->c.dtype == y->c.dtype && x->alpha == y->alpha;
}

nrl_status cuda_gemm_all(cuda *self, void *stream, const nrl_gemm_args *calls, int64_t n)
{
    group_queue queues[LAYOUTS];
    for (int layout = 0; layout < LAYOUTS; layout++)
        queues[layout].table.n = 0;
    for (const nrl_gemm_args *x = calls; x < calls + n; x++) {
        NRL_TRY(cuda_gemm_check(x));
        if (x->c.rows == 0 || x->c.cols == 0) continue;
        if (!has_kernel(x) || fills_device(self, x)) {
            NRL_TRY(cuda_op_gemm(self, stream, x));
            continue;
        }
        const int layout = x->transpose_a ? AT_B : x->transpose_b ? A_BT : A_B;
        group_queue *q = &queues[layout];
        gemm_groups *t = &q->table;
        if (t->n == GROUPS || (t->n && !is_like(q->first, x))) NRL_TRY(launch_queue(self, stream, q, layout));
        if (!t->n) q->first = x;
        t->alpha = (float)x->alpha;
        t->is_wide = x->c.dtype == NRL_DTYPE_F32;
        t->of[t->n++] = {x->a.data,
                         x->b.data,
                         x->c.data,
                         (int32_t)x->c.rows,
                         (int32_t)x->c.cols,
                         (int32_t)depth_of(x),
                         (int32_t)x->a.stride,
                         (int32_t)x->b.stride,
                         (int32_t)x->c.stride,
                         0,
                         x->overwrite};
    }
    for (int layout = 0; layout < LAYOUTS; layout++)
        NRL_TRY(launch_queue(self, stream, &queues[layout], layout));
    return NRL_OK;
}
