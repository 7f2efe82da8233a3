/*
 * flash_backward.cu - gradients of attention from the saved log-sum-exp, with tensor cores (Dao 2023),
 * in two passes without atomics, so that sums are always added in the same order.
 *
 * With P = exp(S - lse), S capped if there is a cap, dP = dY V^T: dS = P (dP - delta), dV = P^T dY, dK = dS^T Q scale,
 * dQ = dS K scale. Each pass recomputes S and dP. The first pass owns tiles of keys and iterates over the queries that
 * see them. It computes S^T and dP^T, so that P^T and dS^T are in registers in the layout of left operands; all query
 * heads of a kv head belong to one block. The second pass owns tiles of queries. For heads wider than 128, dK and dV
 * are split over two blocks because of registers, and a block has two warps because of shared memory.
 */
#include "flash_mma.h"

template <int D> constexpr int warps_of = D <= 128 ? 4 : 2;
template <int D> constexpr int own_rows = 16 * warps_of<D>;
template <int D> constexpr int query_tile = D <= 64 ? 64 : 32; /* in the pass over keys */
template <int D> constexpr int key_tile = D <= 64 ? 64 : 32;   /* in the pass over queries */
template <int D> constexpr int chunk_of = D <= 128 ? D : 128;

/* ---- dK and dV ---- */

/* The working set of a block in the first pass. */
template <typename T> struct key_block {
    T *k, *v, *q, *dy;  /* tiles */
    float *lse, *delta; /* of the tile of queries */
};

/* Rows of p.lse and p.delta for queries [row, row + n); INFINITY beyond, so that P is zero. */
template <int N>
__device__ __forceinline__ void load_sums(float *lse, float *delta, int64_t row, int head, int n, const flash_params &p)
{
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
        lse[i] = i < n ? p.lse[head * p.lse_stride + row + i] * LOG2_E : INFINITY;
        delta[i] = i < n ? p.delta[head * p.n_rows + row + i] : 0;
    }
}

/* s = S^T becomes P^T, dp = dP^T becomes dS^T. */
template <int N>
__device__ __forceinline__ void slopes_of_keys(float (&s)[N / 8][4], float (&dp)[N / 8][4], const float *lse,
                                               const float *delta, const flash_segment &seg, const flash_keys &keys,
                                               int first, int n, const flash_params &p)
{
    float scale = p.scale * LOG2_E;
    int position = keys.position + (int)(threadIdx.x >> 5) * 16;
    bool full = flash_sees_all(&seg, p.window, first, n, &keys);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = column_of(j, e);
            bool seen = full || flash_sees(&seg, p.window, first + i, position + row_of(e));
            float score = flash_score(s[j][e], scale, p);
            s[j][e] = seen ? exp2f(score - lse[i]) : 0;
            dp[j][e] = s[j][e] * (dp[j][e] - delta[i]) * flash_cap_slope(score * LN_2, p);
        }
}

/* Adds to dk and dv the contributions of queries [range) of one segment and one head. */
template <typename T, int D>
__device__ __forceinline__ void add_queries(float (&dk)[chunk_of<D> / 8][4], float (&dv)[chunk_of<D> / 8][4],
                                            const key_block<T> &b, const flash_segment &seg, const flash_keys &keys,
                                            int head, int col, const flash_params &p)
{
    constexpr int N = query_tile<D>, C = chunk_of<D>;
    int warp_row = (int)(threadIdx.x >> 5) * 16;
    flash_range range = flash_queries_of(&seg, p.window, keys.position, keys.n);
    for (int first = range.begin; first < range.end; first += N) {
        int n = flash_min(N, range.end - first);
        int64_t row = seg.q_begin + first;
        __syncthreads(); /* all threads have finished with the previous tiles */
        load_tile<T, D, N>(b.q, p.q, row, head, n, p);
        load_tile<T, D, N>(b.dy, p.dy, row, head, n, p);
        copies_commit();
        load_sums<N>(b.lse, b.delta, row, head, n, p);
        copies_wait<0>();
        __syncthreads();
        float s[N / 8][4], dp[N / 8][4];
        clear(s);
        clear(dp);
        multiply_rows<T, D, N>(s, b.k, warp_row, b.q);
        multiply_rows<T, D, N>(dp, b.v, warp_row, b.dy);
        slopes_of_keys<N>(s, dp, b.lse, b.delta, seg, keys, first, n, p);
        multiply_values<T, D, N, C>(dv, s, b.dy, col);
        multiply_values<T, D, N, C>(dk, dp, b.q, col);
    }
}

template <typename T, int D> __global__ void __launch_bounds__(32 * warps_of<D>) flash_keys_kernel(const flash_params p)
{
    constexpr int OWN = own_rows<D>, N = query_tile<D>, C = chunk_of<D>, pitch = flash_tile<D>::pitch;
    CUDA_SHARED(char, shared);
    key_block<T> b;
    b.k = (T *)shared;
    b.v = b.k + OWN * pitch;
    b.q = b.v + OWN * pitch;
    b.dy = b.q + N * pitch;
    b.lse = (float *)(b.dy + N * pitch);
    b.delta = b.lse + N;
    flash_place place = flash_place_of(p.cu_k, p.n_segments, OWN, blockIdx.x);
    int owner = place.segment;
    flash_segment own = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, owner);
    flash_range rows = flash_rows_there(place.first, OWN, own.own_skipped, own.n_own);
    if (rows.begin >= rows.end) return;
    int kv_head = blockIdx.y, col = blockIdx.z * C, group = p.n_heads / p.n_kv_heads;
    flash_keys keys = {own.own_begin + rows.begin, 0, rows.end - rows.begin};
    float dk[C / 8][4], dv[C / 8][4];
    clear(dk);
    clear(dv);
    load_tile<T, D, OWN>(b.k, p.k, keys.row, kv_head, keys.n, p);
    load_tile<T, D, OWN>(b.v, p.v, keys.row, kv_head, keys.n, p);
    copies_commit();
    int s = p.prefix ? 0 : owner, end = p.prefix ? p.n_segments : owner + 1;
    for (; s < end; s++) {
        flash_segment seg = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, s);
        int32_t shift;
        if (!flash_looks_at(&seg, p.prefix, s, owner, &shift)) continue;
        keys.position = shift + rows.begin;
        for (int h = 0; h < group; h++)
            add_queries<T, D>(dk, dv, b, seg, keys, kv_head * group + h, col, p);
    }
    copies_wait<0>();
    int warp_row = (int)(threadIdx.x >> 5) * 16;
    const float one[2] = {1, 1}, scale[2] = {p.scale, p.scale};
    store_rows<T, C>(dv, p.dv, keys.row + warp_row, kv_head, col, keys.n - warp_row, one, p);
    store_rows<T, C>(dk, p.dk, keys.row + warp_row, kv_head, col, keys.n - warp_row, scale, p);
}

/* ---- dQ ---- */

/* dp = dP becomes dS; lse in powers of two, and delta, of the lane's two rows. */
template <int N>
__device__ __forceinline__ void
slopes_of_queries(const float (&s)[N / 8][4], float (&dp)[N / 8][4], const float (&lse)[2], const float (&delta)[2],
                  const flash_segment &seg, const flash_keys &keys, int first, int n, const flash_params &p)
{
    float scale = p.scale * LOG2_E;
    int row = first + (int)(threadIdx.x >> 5) * 16;
    bool full = keys.n == N && flash_sees_all(&seg, p.window, first, n, &keys);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int k = column_of(j, e);
            bool seen = full || (k < keys.n && flash_sees(&seg, p.window, row + row_of(e), keys.position + k));
            float score = flash_score(s[j][e], scale, p);
            float prob = seen ? exp2f(score - lse[e >> 1]) : 0;
            dp[j][e] = prob * (dp[j][e] - delta[e >> 1]) * flash_cap_slope(score * LN_2, p);
        }
}

template <typename T, int D>
__global__ void __launch_bounds__(32 * warps_of<D>) flash_queries_kernel(const flash_params p)
{
    constexpr int OWN = own_rows<D>, N = key_tile<D>, pitch = flash_tile<D>::pitch;
    CUDA_SHARED(char, shared);
    T *q = (T *)shared, *dy = q + OWN * pitch, *k = dy + OWN * pitch, *v = k + N * pitch;
    flash_place place = flash_place_of(p.cu_q, p.n_segments, OWN, gridDim.x - 1 - blockIdx.x);
    flash_segment seg = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, place.segment);
    flash_range rows = flash_rows_there(place.first, OWN, seg.q_skipped, seg.n_queries);
    int first = rows.begin, n = rows.end - first, head = blockIdx.y, kv_head = head / (p.n_heads / p.n_kv_heads);
    if (n <= 0) return;
    int warp_row = (int)(threadIdx.x >> 5) * 16;
    int64_t row = seg.q_begin + first;
    float dq[D / 8][4], lse[2], delta[2];
    clear(dq);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int i = warp_row + row_of(2 * r);
        lse[r] = i < n ? p.lse[head * p.lse_stride + row + i] * LOG2_E : INFINITY;
        delta[r] = i < n ? p.delta[head * p.n_rows + row + i] : 0;
    }
    load_tile<T, D, OWN>(q, p.q, row, head, n, p);
    load_tile<T, D, OWN>(dy, p.dy, row, head, n, p);
    copies_commit();
    flash_range range = flash_keys_of(&seg, p.window, first, n);
    flash_keys keys;
    for (int at = range.begin; at < range.end; at += keys.n) {
        keys = flash_keys_at(&seg, at, range.end, N);
        __syncthreads(); /* all threads have finished with the previous keys */
        load_tile<T, D, N>(k, p.k, keys.row, kv_head, keys.n, p);
        load_tile<T, D, N>(v, p.v, keys.row, kv_head, keys.n, p);
        copies_commit();
        copies_wait<0>();
        __syncthreads();
        float s[N / 8][4], dp[N / 8][4];
        clear(s);
        clear(dp);
        multiply_rows<T, D, N>(s, q, warp_row, k);
        multiply_rows<T, D, N>(dp, dy, warp_row, v);
        slopes_of_queries<N>(s, dp, lse, delta, seg, keys, first, n, p);
        multiply_values<T, D, N, D>(dq, dp, k, 0);
    }
    copies_wait<0>();
    const float scale[2] = {p.scale, p.scale};
    store_rows<T, D>(dq, p.dq, row + warp_row, head, 0, n - warp_row, scale, p);
}

/* ---- launches ---- */

template <typename T, int D> static int launch_keys(const flash_params *p, void *stream)
{
    constexpr int N = query_tile<D>;
    int bytes = flash_tile<D>::bytes(2 * own_rows<D> + 2 * N) + 2 * N * (int)sizeof(float);
    dim3 grid(flash_tile_count(p->n_counted_keys, p->n_segments, own_rows<D>), p->n_kv_heads, D / chunk_of<D>);
    int error = allow_shared(flash_keys_kernel<T, D>, bytes);
    if (error) return error;
    CUDA_LAUNCH((flash_keys_kernel<T, D>), grid, 32 * warps_of<D>, bytes, stream, *p);
    return 0;
}

template <typename T, int D> static int launch_queries(const flash_params *p, void *stream)
{
    int bytes = flash_tile<D>::bytes(2 * own_rows<D> + 2 * key_tile<D>);
    dim3 grid(flash_tile_count(p->n_counted, p->n_segments, own_rows<D>), p->n_heads);
    int error = allow_shared(flash_queries_kernel<T, D>, bytes);
    if (error) return error;
    CUDA_LAUNCH((flash_queries_kernel<T, D>), grid, 32 * warps_of<D>, bytes, stream, *p);
    return 0;
}

template <typename T, int D> static int launch(const flash_params *p, void *stream)
{
    int error = launch_keys<T, D>(p, stream);
    return error ? error : launch_queries<T, D>(p, stream);
}

template <typename T> static int launch_width(const flash_params *p, void *stream)
{
#define BACKWARD(D) launch<T, D>(p, stream)
    return FLASH_WIDTHS(p->head_dim, BACKWARD);
#undef BACKWARD
}

extern "C" int flash_backward(const flash_params *p, uint32_t dtype, void *stream)
{
    return dtype == NRL_DTYPE_BF16 ? launch_width<bf16>(p, stream) : launch_width<f16>(p, stream);
}
