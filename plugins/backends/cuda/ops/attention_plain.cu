/*
 * attention_plain.cu - attention of f32 values without tensor cores, and delta for any type. Written
 * for correctness rather than speed: f32 runs are references.
 *
 * Forward and dQ use a warp per query of a head, dK and dV a warp per key of a kv head. Lanes have columns (lane, lane
 * + 32, ..), so that all rows are read in whole lines. A step makes the products with 32 rows, of which each lane gets
 * one, then exchanges the scores by shuffles for the weighted sum of rows. No atomics. Scores may have ALiBi's slopes,
 * and heads a sink, which is a first score without a key.
 */
#include "flash.h"
#include "flash_cap.h"
#include "flash_tile.h"
#include "warp.h"

enum { WARPS = 4 };

/* The columns of a lane: C of them, zero beyond the width. */
template <int C> struct columns {
    float v[C];
};

template <int C> __device__ __forceinline__ columns<C> load_row(const float *row, int width)
{
    columns<C> x;
#pragma unroll
    for (int c = 0; c < C; c++) {
        int d = (int)(threadIdx.x & 31) + 32 * c;
        x.v[c] = d < width ? row[d] : 0;
    }
    return x;
}

template <int C> __device__ __forceinline__ void add_row(columns<C> &sum, float weight, const float *row, int width)
{
    columns<C> x = load_row<C>(row, width);
#pragma unroll
    for (int c = 0; c < C; c++)
        sum.v[c] += weight * x.v[c];
}

__device__ __forceinline__ float *row_at(const flash_matrix &m, int64_t row, int head, int width)
{
    return (float *)m.data + row * m.stride + (int64_t)head * width;
}

template <int C>
__device__ __forceinline__ void store_row(const flash_matrix &m, int64_t row, int head, int width,
                                          const columns<C> &sum, float factor)
{
    if (!m.data) return;
#pragma unroll
    for (int c = 0; c < C; c++) {
        int d = (int)(threadIdx.x & 31) + 32 * c;
        if (d < width) row_at(m, row, head, width)[d] = sum.v[c] * factor;
    }
}

/* Lane l gets the product of x with row j + l % N of `rows`, summed over the N lanes that differ in their lowest bits
 * alone: lanes exchange the sums of half of the rows each. Rows beyond the last are read as the last. */
template <int N, int C>
__device__ __forceinline__ float products(const columns<C> &x, const float *rows, int64_t stride, int last, int width,
                                          int j = 0)
{
    if constexpr (N == 1) {
        columns<C> row = load_row<C>(rows + flash_min(j, last) * stride, width);
        float sum = 0;
#pragma unroll
        for (int c = 0; c < C; c++)
            sum += x.v[c] * row.v[c];
        return sum;
    } else {
        float low = products<N / 2>(x, rows, stride, last, width, j);
        float high = products<N / 2>(x, rows, stride, last, width, j + N / 2);
        bool upper = threadIdx.x & (N / 2);
        return (upper ? high : low) + shuffle_xor(upper ? low : high, N / 2);
    }
}

/* The score of a product and a key that is `distance` tokens before its query. */
__device__ __forceinline__ float score_of(float product, float slope, int distance, const flash_params &p)
{
    return flash_capped(p.scale * product, p) - slope * (float)distance;
}

__device__ __forceinline__ float slope_of(const flash_params &p, int head)
{
    return p.slopes ? (float)p.slopes[head] : 0;
}

template <int C> __global__ void plain_forward_kernel(const flash_params p)
{
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, width = p.head_dim;
    flash_place place = flash_place_of(p.cu_q, p.n_segments, 1, blockIdx.x * WARPS + warp);
    flash_segment seg = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, place.segment);
    int i = place.first - seg.q_skipped, head = blockIdx.y, kv_head = head / (p.n_heads / p.n_kv_heads);
    if (i < 0 || i >= seg.n_queries) return;
    int64_t row = seg.q_begin + i;
    float slope = slope_of(p, head), max = p.sinks ? p.sinks[head] : -INFINITY, sum = p.sinks ? 1 : 0;
    columns<C> q = load_row<C>(row_at(p.q, row, head, width), width), out = {};
    flash_range range = flash_keys_of(&seg, p.window, i, 1);
    for (int at = range.begin; at < range.end;) {
        flash_keys keys = flash_keys_at(&seg, at, range.end, 32);
        float s = products<32>(q, row_at(p.k, keys.row, kv_head, width), p.k.stride, keys.n - 1, width);
        s = lane < keys.n ? score_of(s, slope, flash_last(&seg, i) - keys.position - lane, p) : -INFINITY;
        float top = fmaxf(max, warp_max(s)), base = top == -INFINITY ? 0 : top;
        float shift = expf(max - base), e = expf(s - base);
        sum = sum * shift + warp_sum(e);
        max = top;
#pragma unroll
        for (int c = 0; c < C; c++)
            out.v[c] *= shift;
        for (int j = 0; j < keys.n; j++)
            add_row(out, __shfl_sync(0xffffffffu, e, j), row_at(p.v, keys.row + j, kv_head, width), width);
        at += keys.n;
    }
    store_row(p.y, row, head, width, out, sum == 0 ? 0 : 1 / sum);
    if (p.lse && lane == 0) p.lse[head * p.lse_stride + row] = sum == 0 ? -INFINITY : max + logf(sum);
}

template <int C> __global__ void plain_queries_kernel(const flash_params p)
{
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, width = p.head_dim;
    flash_place place = flash_place_of(p.cu_q, p.n_segments, 1, blockIdx.x * WARPS + warp);
    flash_segment seg = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, place.segment);
    int i = place.first - seg.q_skipped, head = blockIdx.y, kv_head = head / (p.n_heads / p.n_kv_heads);
    if (i < 0 || i >= seg.n_queries) return;
    int64_t row = seg.q_begin + i;
    float lse = p.lse[head * p.lse_stride + row], delta = p.delta[head * p.n_rows + row], slope = slope_of(p, head);
    columns<C> q = load_row<C>(row_at(p.q, row, head, width), width), dq = {};
    columns<C> dy = load_row<C>(row_at(p.dy, row, head, width), width);
    flash_range range = flash_keys_of(&seg, p.window, i, 1);
    for (int at = range.begin; at < range.end;) {
        flash_keys keys = flash_keys_at(&seg, at, range.end, 32);
        float s = products<32>(q, row_at(p.k, keys.row, kv_head, width), p.k.stride, keys.n - 1, width);
        float dp = products<32>(dy, row_at(p.v, keys.row, kv_head, width), p.v.stride, keys.n - 1, width);
        s = score_of(s, slope, flash_last(&seg, i) - keys.position - lane, p);
        float ds = lane < keys.n ? expf(s - lse) * (dp - delta) * flash_cap_slope(s, p) : 0;
        for (int j = 0; j < keys.n; j++)
            add_row(dq, __shfl_sync(0xffffffffu, ds, j), row_at(p.k, keys.row + j, kv_head, width), width);
        at += keys.n;
    }
    store_row(p.dq, row, head, width, dq, p.scale);
}

/* Adds to dk and dv the contributions of those queries of one segment and head that see the key at `position`. */
template <int C>
__device__ __forceinline__ void add_queries(columns<C> &dk, columns<C> &dv, const columns<C> &k, const columns<C> &v,
                                            const flash_segment &seg, int position, int head, const flash_params &p)
{
    int lane = threadIdx.x & 31, width = p.head_dim;
    float slope = slope_of(p, head);
    flash_range range = flash_queries_of(&seg, p.window, position, 1);
    for (int first = range.begin; first < range.end; first += 32) {
        int n = flash_min(32, range.end - first);
        int64_t row = seg.q_begin + first, own = row + flash_min(lane, n - 1);
        const float *q = row_at(p.q, row, head, width), *dy = row_at(p.dy, row, head, width);
        float s = products<32>(k, q, p.q.stride, n - 1, width), dp = products<32>(v, dy, p.dy.stride, n - 1, width);
        s = score_of(s, slope, flash_last(&seg, first + lane) - position, p);
        float e = lane < n ? expf(s - p.lse[head * p.lse_stride + own]) : 0;
        float ds = e * (dp - p.delta[head * p.n_rows + own]) * flash_cap_slope(s, p);
        for (int j = 0; j < n; j++) {
            add_row(dv, __shfl_sync(0xffffffffu, e, j), dy + j * p.dy.stride, width);
            add_row(dk, __shfl_sync(0xffffffffu, ds, j), q + j * p.q.stride, width);
        }
    }
}

template <int C> __global__ void plain_keys_kernel(const flash_params p)
{
    int warp = threadIdx.x >> 5, width = p.head_dim, group = p.n_heads / p.n_kv_heads;
    flash_place place = flash_place_of(p.cu_k, p.n_segments, 1, blockIdx.x * WARPS + warp);
    int owner = place.segment, kv_head = blockIdx.y;
    flash_segment own = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, owner);
    int key = place.first - own.own_skipped;
    if (key < 0 || key >= own.n_own) return;
    int64_t row = own.own_begin + key;
    columns<C> k = load_row<C>(row_at(p.k, row, kv_head, width), width), dk = {};
    columns<C> v = load_row<C>(row_at(p.v, row, kv_head, width), width), dv = {};
    int s = p.prefix ? 0 : owner, end = p.prefix ? p.n_segments : owner + 1;
    for (; s < end; s++) {
        flash_segment seg = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, s);
        int32_t shift;
        if (!flash_looks_at(&seg, p.prefix, s, owner, &shift)) continue;
        for (int h = 0; h < group; h++)
            add_queries(dk, dv, k, v, seg, shift + key, kv_head * group + h, p);
    }
    store_row(p.dk, row, kv_head, width, dk, p.scale);
    store_row(p.dv, row, kv_head, width, dv, 1);
}

/* delta[h, i] = sum over K of dy y. */
template <typename T> __global__ void delta_kernel(const flash_params p)
{
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, head = blockIdx.y;
    int64_t row = (int64_t)blockIdx.x * WARPS + warp;
    if (row >= p.n_rows) return;
    const T *y = (const T *)p.y.data + row * p.y.stride + (int64_t)head * p.head_dim;
    const T *dy = (const T *)p.dy.data + row * p.dy.stride + (int64_t)head * p.head_dim;
    float sum = 0;
    for (int d = lane; d < p.head_dim; d += 32)
        sum += to_float(y[d]) * to_float(dy[d]);
    sum = warp_sum(sum);
    if (lane == 0) p.delta[head * p.n_rows + row] = sum;
}

/* y of p, of type T, and its lse become a share of the result for other keys. A warp has a query of a head. */
template <typename T>
__global__ void merge_kernel(const flash_params p, flash_matrix to, float *lse, int64_t lse_stride)
{
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, head = blockIdx.y;
    int64_t row = (int64_t)blockIdx.x * WARPS + warp;
    if (row >= p.n_rows) return;
    const T *y = (const T *)p.y.data + row * p.y.stride + (int64_t)head * p.head_dim;
    float *sum = (float *)to.data + row * to.stride + (int64_t)head * p.head_dim;
    float own = p.lse[head * p.lse_stride + row], other = lse[head * lse_stride + row];
    if (own == -INFINITY) return;
    float top = fmaxf(own, other), both = top + logf(expf(own - top) + expf(other - top));
    float before = expf(other - both), factor = expf(own - both);
    for (int d = lane; d < p.head_dim; d += 32)
        sum[d] = sum[d] * before + to_float(y[d]) * factor;
    __syncwarp(); /* all lanes have read the log-sum-exp */
    if (lane == 0) lse[head * lse_stride + row] = both;
}

static dim3 warps_for(int64_t rows, int32_t heads)
{
    return dim3((unsigned)((rows + WARPS - 1) / WARPS), heads);
}

/* Columns of a lane, as few as the width needs. */
#define PLAIN_LAUNCH(kernel, grid, p, stream)                                                                          \
    do {                                                                                                               \
        if ((p)->head_dim <= 64)                                                                                       \
            CUDA_LAUNCH(kernel<2>, grid, 32 * WARPS, 0, stream, *(p));                                                 \
        else if ((p)->head_dim <= 128)                                                                                 \
            CUDA_LAUNCH(kernel<4>, grid, 32 * WARPS, 0, stream, *(p));                                                 \
        else                                                                                                           \
            CUDA_LAUNCH(kernel<FLASH_MOST_WIDTH / 32>, grid, 32 * WARPS, 0, stream, *(p));                             \
    } while (0)

extern "C" void plain_forward(const flash_params *p, void *stream)
{
    dim3 queries = warps_for(flash_tile_count(p->n_counted, p->n_segments, 1), p->n_heads);
    PLAIN_LAUNCH(plain_forward_kernel, queries, p, stream);
}

extern "C" void plain_backward(const flash_params *p, void *stream)
{
    dim3 keys = warps_for(flash_tile_count(p->n_counted_keys, p->n_segments, 1), p->n_kv_heads);
    dim3 queries = warps_for(flash_tile_count(p->n_counted, p->n_segments, 1), p->n_heads);
    if (p->dk.data || p->dv.data) PLAIN_LAUNCH(plain_keys_kernel, keys, p, stream);
    if (p->dq.data) PLAIN_LAUNCH(plain_queries_kernel, queries, p, stream);
}

extern "C" void attention_delta(const flash_params *p, uint32_t dtype, void *stream)
{
    dim3 grid = warps_for(p->n_rows, p->n_heads);
    if (dtype == NRL_DTYPE_BF16)
        CUDA_LAUNCH(delta_kernel<bf16>, grid, 32 * WARPS, 0, stream, *p);
    else if (dtype == NRL_DTYPE_F16)
        CUDA_LAUNCH(delta_kernel<f16>, grid, 32 * WARPS, 0, stream, *p);
    else
        CUDA_LAUNCH(delta_kernel<float>, grid, 32 * WARPS, 0, stream, *p);
}

extern "C" void attention_merge(const flash_params *p, uint32_t dtype, const flash_matrix *y, float *lse,
                                int64_t lse_stride, void *stream)
{
    dim3 grid = warps_for(p->n_rows, p->n_heads);
    if (dtype == NRL_DTYPE_BF16)
        CUDA_LAUNCH(merge_kernel<bf16>, grid, 32 * WARPS, 0, stream, *p, *y, lse, lse_stride);
    else if (dtype == NRL_DTYPE_F16)
        CUDA_LAUNCH(merge_kernel<f16>, grid, 32 * WARPS, 0, stream, *p, *y, lse, lse_stride);
    else
        CUDA_LAUNCH(merge_kernel<float>, grid, 32 * WARPS, 0, stream, *p, *y, lse, lse_stride);
}
