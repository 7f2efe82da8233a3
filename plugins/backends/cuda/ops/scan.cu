/*
 * scan.cu - h[t] = a[t] h[t-1] + b[t] along the segments of a batch, and its gradient: nrl.scan of nrl/operations.h.
 *
 * A row is the function h -> a h + b, and so are several rows after each other. Segments are divided into tiles of rows
 * (flash_tile.h numbers them). A first kernel composes the functions of the rows of each tile, a second one passes the
 * state from tile to tile, and a third one computes the rows of all tiles at the same time. Segments that continue a
 * shared prompt receive their first state after the prompts have theirs.
 *
 * The gradient is a recurrence from the last row to the first. What row t passes to the row before it is
 * c[t] = a[t] g[t] with g[t] = dh[t] + c[t+1], so c[t] = a[t] c[t+1] + a[t] dh[t]; then db[t] = g[t] and
 * da[t] = g[t] h[t-1]. A prompt receives the sum of what its continuations pass, in their order.
 *
 * A thread has one column of a tile; neighbours in a warp have neighbouring columns.
 * Legend: N rows, C columns, S segments, L tiles.
 */
#include "custom_ops.h"
#include "flash_tile.h"
#include "kernel.h"

/* Rows of a tile: 8,192 rows of 2,048 columns are 2^18 threads, and the second kernel has 128 steps. */
enum { TILE = 64, SIDE = 8, LANES = 32 };

struct scan_params {
    nrl_mat a, x, h; /* x: b, or dh in the gradient */
    nrl_mat da, db;
    const int32_t *cu, *prefix;     /* prefix NULL: there are no prompts */
    float *factor, *shift, *before; /* [L,C] the function of a tile; what it receives */
    float *passed;                  /* [S,C] what a continuation passes to its prompt */
    int32_t n_segments, n_tiles;
};

__device__ static inline int64_t first_tile(const scan_params &p, int32_t s)
{
    return p.cu[s] / TILE + s;
}

__device__ static inline int64_t tiles_of(const scan_params &p, int32_t s)
{
    return (p.cu[s + 1] - p.cu[s] + TILE - 1) / TILE;
}

/* The rows of a tile, begin >= end if it has none; `previous`: the row before the first, -1 = none. */
struct scan_rows {
    int64_t begin, end, previous;
};

__device__ static inline scan_rows rows_of(const scan_params &p, int32_t tile)
{
    flash_place place = flash_place_of(p.cu, p.n_segments, TILE, tile);
    int32_t begin = p.cu[place.segment] + place.first, end = p.cu[place.segment + 1];
    int32_t prompt = p.prefix && place.first == 0 ? p.prefix[place.segment] : -1;
    scan_rows r = {begin, flash_min(end, begin + TILE), begin - 1};
    if (place.first == 0) r.previous = prompt < 0 ? -1 : p.cu[prompt + 1] - 1;
    return r;
}

__device__ static inline float *at(const nrl_mat &m, int64_t row, int64_t col)
{
    return (float *)m.data + row * m.stride + col;
}

/* What a tile passes on. Its factor may be infinite where the state is 0. */
__device__ static inline float after_tile(const scan_params &p, int64_t i)
{
    return p.before[i] == 0 ? p.shift[i] : p.factor[i] * p.before[i] + p.shift[i];
}

template <bool GRAD> __global__ void scan_tiles_kernel(const scan_params p)
{
    int64_t col = (int64_t)blockIdx.x * LANES + threadIdx.x, n_cols = p.a.cols;
    if (col >= n_cols) return;
    for (int32_t tile = blockIdx.y * SIDE + threadIdx.y; tile < p.n_tiles; tile += gridDim.y * SIDE) {
        scan_rows r = rows_of(p, tile);
        float factor = 1, shift = 0;
#pragma unroll 8
        for (int64_t i = 0; i < r.end - r.begin; i++) {
            int64_t row = GRAD ? r.end - 1 - i : r.begin + i;
            float a = *at(p.a, row, col), x = *at(p.x, row, col);
            if (!GRAD && i == 0 && r.previous < 0) a = 0; /* nothing comes before it, not even times infinity */
            factor *= a;
            shift = GRAD ? a * (shift + x) : a * shift + x;
        }
        p.factor[tile * n_cols + col] = factor;
        p.shift[tile * n_cols + col] = shift;
    }
}

/* The prompts and what continues none, or what continues a prompt; all the same if there are no prompts. */
__global__ void scan_states_kernel(const scan_params p, bool continued)
{
    int64_t col = (int64_t)blockIdx.x * LANES + threadIdx.x, n_cols = p.a.cols;
    if (col >= n_cols) return;
    for (int32_t s = blockIdx.y * SIDE + threadIdx.y; s < p.n_segments; s += gridDim.y * SIDE) {
        int32_t prompt = p.prefix ? p.prefix[s] : -1;
        if ((prompt >= 0) != continued) continue;
        float h = 0;
        if (prompt >= 0) h = after_tile(p, (first_tile(p, prompt) + tiles_of(p, prompt) - 1) * n_cols + col);
        for (int64_t tile = first_tile(p, s), end = tile + tiles_of(p, s); tile < end; tile++) {
            p.before[tile * n_cols + col] = h;
            h = after_tile(p, tile * n_cols + col);
        }
    }
}

__global__ void scan_grad_states_kernel(const scan_params p, bool continued)
{
    int64_t col = (int64_t)blockIdx.x * LANES + threadIdx.x, n_cols = p.a.cols;
    if (col >= n_cols) return;
    for (int32_t s = blockIdx.y * SIDE + threadIdx.y; s < p.n_segments; s += gridDim.y * SIDE) {
        float c = 0;
        if (((p.prefix ? p.prefix[s] : -1) >= 0) != continued) continue;
        for (int32_t other = 0; p.prefix && !continued && other < p.n_segments; other++)
            if (p.prefix[other] == s) c += p.passed[other * n_cols + col];
        for (int64_t first = first_tile(p, s), tile = first + tiles_of(p, s) - 1; tile >= first; tile--) {
            p.before[tile * n_cols + col] = c;
            c = after_tile(p, tile * n_cols + col);
        }
        if (continued) p.passed[s * n_cols + col] = c;
    }
}

__global__ void scan_rows_kernel(const scan_params p)
{
    int64_t col = (int64_t)blockIdx.x * LANES + threadIdx.x, n_cols = p.a.cols;
    if (col >= n_cols) return;
    for (int32_t tile = blockIdx.y * SIDE + threadIdx.y; tile < p.n_tiles; tile += gridDim.y * SIDE) {
        scan_rows r = rows_of(p, tile);
        if (r.begin >= r.end) continue;
        const float *__restrict__ a = at(p.a, r.begin, col), *__restrict__ b = at(p.x, r.begin, col);
        float *__restrict__ to = at(p.h, r.begin, col);
        float h = p.before[tile * n_cols + col];
#pragma unroll 8
        for (int64_t i = 0; i < r.end - r.begin; i++) {
            float carried = i == 0 && r.previous < 0 ? 0 : a[i * p.a.stride] * h;
            to[i * p.h.stride] = h = carried + b[i * p.x.stride];
        }
    }
}

__global__ void scan_grad_rows_kernel(const scan_params p)
{
    int64_t col = (int64_t)blockIdx.x * LANES + threadIdx.x, n_cols = p.a.cols;
    if (col >= n_cols) return;
    for (int32_t tile = blockIdx.y * SIDE + threadIdx.y; tile < p.n_tiles; tile += gridDim.y * SIDE) {
        scan_rows r = rows_of(p, tile);
        if (r.begin >= r.end) continue;
        float c = p.before[tile * n_cols + col];
#pragma unroll 8
        for (int64_t row = r.end - 1; row >= r.begin; row--) {
            int64_t previous = row > r.begin ? row - 1 : r.previous;
            float g = *at(p.x, row, col) + c;
            c = *at(p.a, row, col) * g;
            if (p.db.data) *at(p.db, row, col) = g;
            if (p.da.data) *at(p.da, row, col) = previous < 0 ? 0 : g * *at(p.h, previous, col);
        }
    }
}

static dim3 scan_blocks(const scan_params &p, int64_t n)
{
    int64_t rows = (n + SIDE - 1) / SIDE;
    return dim3((unsigned)((p.a.cols + LANES - 1) / LANES), (unsigned)(rows < 65535 ? rows : 65535));
}

static nrl_status scan_run(cuda *self, void *stream, const nrl_packing *packing, scan_params p, bool grad)
{
    const bool prompts = cuda_has_prompts(packing);
    const dim3 threads(LANES, SIDE);
    void *memory;
    if (p.a.rows <= 0 || p.a.cols <= 0) return NRL_OK;
    p.cu = packing->cu_seqlens;
    p.prefix = prompts ? packing->prefix : NULL;
    p.n_segments = packing->n_segments;
    p.n_tiles = flash_tile_count(p.a.rows, p.n_segments, TILE);
    const int64_t tiles = (int64_t)p.n_tiles * p.a.cols, passed = grad && prompts ? p.n_segments * p.a.cols : 0;
    NRL_TRY(cuda_scratch(self, stream, (size_t)(3 * tiles + passed) * sizeof(float), &memory));
    p.factor = (float *)memory;
    p.shift = p.factor + tiles;
    p.before = p.shift + tiles;
    p.passed = p.before + tiles;
    if (grad)
        CUDA_LAUNCH(scan_tiles_kernel<true>, scan_blocks(p, p.n_tiles), threads, 0, stream, p);
    else
        CUDA_LAUNCH(scan_tiles_kernel<false>, scan_blocks(p, p.n_tiles), threads, 0, stream, p);
    NRL_TRY(cuda_launched(self, "nrl.scan"));
    for (int turn = 0; turn < (prompts ? 2 : 1); turn++) {
        const bool continued = prompts && (grad ? !turn : turn);
        if (grad)
            CUDA_LAUNCH(scan_grad_states_kernel, scan_blocks(p, p.n_segments), threads, 0, stream, p, continued);
        else
            CUDA_LAUNCH(scan_states_kernel, scan_blocks(p, p.n_segments), threads, 0, stream, p, continued);
        NRL_TRY(cuda_launched(self, "nrl.scan"));
    }
    if (grad)
        CUDA_LAUNCH(scan_grad_rows_kernel, scan_blocks(p, p.n_tiles), threads, 0, stream, p);
    else
        CUDA_LAUNCH(scan_rows_kernel, scan_blocks(p, p.n_tiles), threads, 0, stream, p);
    return cuda_launched(self, "nrl.scan");
}

nrl_status cuda_custom_scan(cuda *self, void *stream, const nrl_kernel_args *a)
{
    scan_params p = {};
    p.a = a->inputs[0];
    p.x = a->inputs[1];
    p.h = a->outputs[0];
    return scan_run(self, stream, a->packing, p, false);
}

nrl_status cuda_custom_scan_grad(cuda *self, void *stream, const nrl_kernel_args *a)
{
    scan_params p = {};
    p.a = a->inputs[0];
    p.x = a->output_grads[0];
    p.h = a->outputs[0];
    p.da = a->input_grads[0];
    p.db = a->input_grads[1];
    return scan_run(self, stream, a->packing, p, true);
}
