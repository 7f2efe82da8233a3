/*
 * attention_plain.cu - attention of f32 values without tensor cores, and delta for any type. Written
 * for correctness rather than speed: f32 runs are references.
 *
 * Forward and dQ use a warp per query of a head, dK and dV a warp per key of a kv head. Each step
 * computes 32 scores, one per lane, from a row in shared memory; then the lanes split the columns
 * (lane, lane + 32, ..) and exchange the scores by shuffles. No atomics. Scores may have ALiBi's slopes, and heads a
 * sink, which is a first score without a key.
 */
#include "flash.h"
#include "flash_cap.h"
#include "flash_tile.h"
#include "warp.h"

enum { WARPS = 4, COLUMNS = FLASH_MOST_WIDTH / 32 };

__device__ __forceinline__ const float *row_at(const flash_matrix &m, int64_t row, int head, int width)
{
    return (const float *)m.data + row * m.stride + (int64_t)head * width;
}

/* The row of a key by its number. */
__device__ __forceinline__ int64_t key_row(const flash_segment &g, int key)
{
    return key < g.n_prefix ? g.prefix_begin + key : g.own_begin + key - g.n_prefix;
}

/* Copies a row to this warp's part of shared memory. */
__device__ __forceinline__ void keep_row(float *to, const float *from, int width)
{
    for (int d = threadIdx.x & 31; d < width; d += 32)
        to[d] = from[d];
    __syncwarp();
}

__device__ __forceinline__ float dot(const float *a, const float *b, int width)
{
    float sum = 0;
    for (int d = 0; d < width; d++)
        sum += a[d] * b[d];
    return sum;
}

/* sum[c] += weight x[lane + 32 c] */
__device__ __forceinline__ void add_row(float (&sum)[COLUMNS], float weight, const float *x, int width)
{
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        int d = (int)(threadIdx.x & 31) + 32 * c;
        if (d < width) sum[c] += weight * x[d];
    }
}

__device__ __forceinline__ void store_row(const flash_matrix &m, int64_t row, int head, int width,
                                          const float (&sum)[COLUMNS], float factor)
{
    if (!m.data) return;
    float *to = (float *)m.data + row * m.stride + (int64_t)head * width;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        int d = (int)(threadIdx.x & 31) + 32 * c;
        if (d < width) to[d] = sum[c] * factor;
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

__global__ void plain_forward_kernel(const flash_params p)
{
    CUDA_SHARED(float, shared);
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, width = p.head_dim;
    float *q = shared + warp * FLASH_MOST_WIDTH;
    flash_place place = flash_place_of(p.cu_q, p.n_segments, 1, blockIdx.x * WARPS + warp);
    flash_segment seg = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, place.segment);
    int i = place.first - seg.q_skipped, head = blockIdx.y, kv_head = head / (p.n_heads / p.n_kv_heads);
    if (i < 0 || i >= seg.n_queries) return;
    int64_t row = seg.q_begin + i;
    float out[COLUMNS] = {0}, slope = slope_of(p, head);
    float max = p.sinks ? p.sinks[head] : -INFINITY, sum = p.sinks ? 1 : 0;
    keep_row(q, row_at(p.q, row, head, width), width);
    flash_range range = flash_keys_of(&seg, p.window, i, 1);
    for (int at = range.begin; at < range.end; at += 32) {
        int n = flash_min(32, range.end - at);
        float s = -INFINITY;
        if (lane < n)
            s = score_of(dot(q, row_at(p.k, key_row(seg, at + lane), kv_head, width), width), slope,
                         flash_last(&seg, i) - flash_position(&seg, at + lane), p);
        float top = fmaxf(max, warp_max(s)), base = top == -INFINITY ? 0 : top;
        float shift = expf(max - base), e = expf(s - base);
        sum = sum * shift + warp_sum(e);
        max = top;
        for (int c = 0; c < COLUMNS; c++)
            out[c] *= shift;
        for (int j = 0; j < n; j++)
            add_row(out, __shfl_sync(0xffffffffu, e, j), row_at(p.v, key_row(seg, at + j), kv_head, width), width);
    }
    store_row(p.y, row, head, width, out, sum == 0 ? 0 : 1 / sum);
    if (p.lse && lane == 0) p.lse[head * p.lse_stride + row] = sum == 0 ? -INFINITY : max + logf(sum);
}

__global__ void plain_queries_kernel(const flash_params p)
{
    CUDA_SHARED(float, shared);
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, width = p.head_dim;
    float *q = shared + warp * 2 * FLASH_MOST_WIDTH, *dy = q + FLASH_MOST_WIDTH;
    flash_place place = flash_place_of(p.cu_q, p.n_segments, 1, blockIdx.x * WARPS + warp);
    flash_segment seg = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, place.segment);
    int i = place.first - seg.q_skipped, head = blockIdx.y, kv_head = head / (p.n_heads / p.n_kv_heads);
    if (i < 0 || i >= seg.n_queries) return;
    int64_t row = seg.q_begin + i;
    float lse = p.lse[head * p.lse_stride + row], delta = p.delta[head * p.n_rows + row], slope = slope_of(p, head);
    float dq[COLUMNS] = {0};
    keep_row(q, row_at(p.q, row, head, width), width);
    keep_row(dy, row_at(p.dy, row, head, width), width);
    flash_range range = flash_keys_of(&seg, p.window, i, 1);
    for (int at = range.begin; at < range.end; at += 32) {
        int n = flash_min(32, range.end - at);
        float ds = 0;
        if (lane < n) {
            int64_t key = key_row(seg, at + lane);
            float s = score_of(dot(q, row_at(p.k, key, kv_head, width), width), slope,
                               flash_last(&seg, i) - flash_position(&seg, at + lane), p);
            ds = expf(s - lse) * (dot(dy, row_at(p.v, key, kv_head, width), width) - delta) * flash_cap_slope(s, p);
        }
        for (int j = 0; j < n; j++)
            add_row(dq, __shfl_sync(0xffffffffu, ds, j), row_at(p.k, key_row(seg, at + j), kv_head, width), width);
    }
    store_row(p.dq, row, head, width, dq, p.scale);
}

/* Adds to dk and dv the contributions of those queries of one segment and head that see the key at `position`. */
__device__ __forceinline__ void add_queries(float (&dk)[COLUMNS], float (&dv)[COLUMNS], const float *k, const float *v,
                                            const flash_segment &seg, int position, int head, const flash_params &p)
{
    int lane = threadIdx.x & 31, width = p.head_dim;
    float slope = slope_of(p, head);
    flash_range range = flash_queries_of(&seg, p.window, position, 1);
    for (int first = range.begin; first < range.end; first += 32) {
        int n = flash_min(32, range.end - first);
        int64_t row = seg.q_begin + first;
        float e = 0, ds = 0;
        if (lane < n) {
            float s = score_of(dot(k, row_at(p.q, row + lane, head, width), width), slope,
                               flash_last(&seg, first + lane) - position, p);
            e = expf(s - p.lse[head * p.lse_stride + row + lane]);
            ds = e * (dot(v, row_at(p.dy, row + lane, head, width), width) - p.delta[head * p.n_rows + row + lane]) *
                 flash_cap_slope(s, p);
        }
        for (int j = 0; j < n; j++) {
            add_row(dv, __shfl_sync(0xffffffffu, e, j), row_at(p.dy, row + j, head, width), width);
            add_row(dk, __shfl_sync(0xffffffffu, ds, j), row_at(p.q, row + j, head, width), width);
        }
    }
}

__global__ void plain_keys_kernel(const flash_params p)
{
    CUDA_SHARED(float, shared);
    int warp = threadIdx.x >> 5, width = p.head_dim, group = p.n_heads / p.n_kv_heads;
    float *k = shared + warp * 2 * FLASH_MOST_WIDTH, *v = k + FLASH_MOST_WIDTH;
    flash_place place = flash_place_of(p.cu_k, p.n_segments, 1, blockIdx.x * WARPS + warp);
    int owner = place.segment, kv_head = blockIdx.y;
    flash_segment own = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, owner);
    int key = place.first - own.own_skipped;
    if (key < 0 || key >= own.n_own) return;
    int64_t row = own.own_begin + key;
    float dk[COLUMNS] = {0}, dv[COLUMNS] = {0};
    keep_row(k, row_at(p.k, row, kv_head, width), width);
    keep_row(v, row_at(p.v, row, kv_head, width), width);
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

extern "C" void plain_forward(const flash_params *p, void *stream)
{
    dim3 grid = warps_for(flash_tile_count(p->n_counted, p->n_segments, 1), p->n_heads);
    int bytes = WARPS * FLASH_MOST_WIDTH * (int)sizeof(float);
    CUDA_LAUNCH(plain_forward_kernel, grid, 32 * WARPS, bytes, stream, *p);
}

extern "C" void plain_backward(const flash_params *p, void *stream)
{
    dim3 keys = warps_for(flash_tile_count(p->n_counted_keys, p->n_segments, 1), p->n_kv_heads);
    dim3 queries = warps_for(flash_tile_count(p->n_counted, p->n_segments, 1), p->n_heads);
    int bytes = 2 * WARPS * FLASH_MOST_WIDTH * (int)sizeof(float);
    if (p->dk.data || p->dv.data) CUDA_LAUNCH(plain_keys_kernel, keys, 32 * WARPS, bytes, stream, *p);
    if (p->dq.data) CUDA_LAUNCH(plain_queries_kernel, queries, 32 * WARPS, bytes, stream, *p);
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
