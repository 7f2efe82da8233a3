/*
 * flash_backward.cu - gradients of attention from the saved log-sum-exp, with tensor cores (Dao 2023),
 * in two passes without atomics, so that sums are always added in the same order.
 *
 * With P = exp(S - lse), S capped if there is a cap, dP = dY V^T: dS = P (dP - delta), dV = P^T dY, dK = dS^T Q scale,
 * dQ = dS K scale. Each pass recomputes S and dP. The first pass owns tiles of keys and iterates over the queries that
 * see them. It computes S^T and dP^T, so that P^T and dS^T are in registers in the layout of left operands; all query
 * heads of a kv head belong to one block. The second pass owns tiles of queries. For heads wider than 128, dK and dV
 * are split over two blocks because of registers, and a block has two warps because of shared memory. In both passes
 * the tiles that a block iterates over have two places (one for the widest heads): the next ones arrive during the
 * products of these.
 */
#include "flash_mma.h"

/* In powers of two; INFINITY for a query that sees no key, so that its P is 0. */
__device__ __forceinline__ float lse_of(int head, int64_t row, const flash_params &p)
{
    float lse = p.lse[head * p.lse_stride + row];
    return lse == -INFINITY ? INFINITY : lse * LOG2_E;
}

template <int D> constexpr int warps_of = D <= 128 ? 4 : 2;
template <int D> constexpr int threads_of = 32 * warps_of<D>;
template <int D> constexpr int rows_of = D <= 64 ? 2 : 1; /* R */
template <int D> constexpr int own_rows = 16 * rows_of<D> *warps_of<D>;
template <int D> constexpr int tile_rows = 32; /* of the other side */
template <int D> constexpr int places_of = D <= 128 ? 2 : 1;
template <int D> constexpr int chunk_of = D <= 128 ? D : 128;
template <int D> constexpr bool rotates = D == 64 || D == 96 || D == 128; /* flash_rotates */

/* Rotates rows r < n of the warp's, of whole heads from row `row` on, back by the angles of their positions. */
template <int D, int R>
__device__ __forceinline__ void rotate_back(float (&d)[R][D / 8][4], int64_t row, int n, const flash_params &p)
{
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            if (row_of(i, e) >= n) continue;
            const int64_t angles = (row + row_of(i, e)) * (D / 2);
#pragma unroll
            for (int j = 0; j < D / 16; j++) {
                float &x = d[i][j][e], &y = d[i][j + D / 16][e];
                const float cosine = p.cos[angles + column_of(j, e)], sine = p.sin[angles + column_of(j, e)], was = x;
                x = x * cosine + y * sine;
                y = y * cosine - was * sine;
            }
        }
}

/* ---- dK and dV ---- */

/* A tile of queries that see a tile of keys: n rows from `row` on, as `head` sees them; ahead: see flash_rows_of. */
typedef struct {
    int row, n, head, ahead;
} query_tile;

/* Walks over all tiles of queries that see a tile of keys: segments, query heads of a kv head, tiles. */
typedef struct {
    flash_range range; /* of the segment's queries */
    int segment, end, owner, head, first, q_begin;
    int ahead; /* of a tile that begins at the segment's first query */
} query_walk;

/* Enters the next segment whose queries see the keys, if there is one. */
__device__ __forceinline__ void walk_segments(query_walk &w, int first_key, int n_keys, const flash_params &p)
{
    for (; w.segment < w.end; w.segment++) {
        flash_segment seg = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, w.segment);
        int32_t shift;
        if (!flash_looks_at(&seg, p.prefix, w.segment, w.owner, &shift)) continue;
        w.range = flash_queries_of(&seg, p.window, shift + first_key, n_keys);
        w.q_begin = seg.q_begin;
        w.ahead = shift + first_key - seg.q_position;
        if (w.range.begin < w.range.end) break;
    }
    w.first = w.range.begin;
}

/* The tile at which the walk is, which goes on to the next; n is 0 after the last. */
template <int N>
__device__ __forceinline__ query_tile walk_on(query_walk &w, int first_key, int n_keys, const flash_params &p)
{
    query_tile t = {0, 0, 0, 0};
    if (w.segment >= w.end) return t;
    t.row = w.q_begin + w.first;
    t.n = flash_min(N, w.range.end - w.first);
    t.head = w.head;
    t.ahead = w.ahead - w.first;
    w.first += N;
    if (w.first < w.range.end) return t;
    w.first = w.range.begin;
    const int group = p.n_heads / p.n_kv_heads;
    if (++w.head < ((int)blockIdx.y + 1) * group) return t;
    w.head -= group;
    w.segment++;
    walk_segments(w, first_key, n_keys, p);
    return t;
}

/* What the thread stores of a tile's sums: lse in powers of two, then delta. Beyond its rows INFINITY, so that P is 0,
 * and 0. */
template <int N> __device__ __forceinline__ float sum_of(const query_tile &t, const flash_params &p)
{
    int i = (int)threadIdx.x % N;
    if (threadIdx.x < N) return i < t.n ? lse_of(t.head, t.row + i, p) : INFINITY;
    return i < t.n && threadIdx.x < 2 * N ? p.delta[t.head * p.n_rows + t.row + i] : 0;
}

/* s = products of keys and queries becomes P^T, dp = dP^T becomes dS^T; the warp's rows are keys from `row` of n on. */
template <int N, int R>
__device__ __forceinline__ void slopes_of_keys(float (&s)[R][N / 8][4], float (&dp)[R][N / 8][4], const float *sums,
                                               const query_tile &t, int row, int n_keys, const flash_params &p)
{
    const float factor = flash_factor(p);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float delta = sums[N + column_of(j, e)];
#pragma unroll
            for (int i = 0; i < R; i++) {
                dp[i][j][e] -= delta;
                dp[i][j][e + 2] -= delta;
            }
        }
    cap_products<R, N / 8>(s, dp, p);
    if (t.ahead + n_keys - 1 > 0 ||
        (p.window > 0 && t.ahead <= t.n - 1 - p.window)) { /* not all queries see all keys */
        flash_range seen[2 * R];
#pragma unroll
        for (int r = 0; r < 2 * R; r++)
            seen[r] = flash_rows_of(t.ahead, p.window, row + row_of(r / 2, r % 2 * 2), t.n);
        keep_columns<R, N / 8>(s, seen);
    }
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float lse = sums[column_of(j, e)];
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int half = e; half < 4; half += 2) {
                    s[i][j][half] = fast_exp2(s[i][j][half] * factor - lse);
                    dp[i][j][half] *= s[i][j][half];
                }
        }
}

template <typename T, int D> __global__ void __launch_bounds__(threads_of<D>) flash_keys_kernel(const flash_params p)
{
    constexpr int R = rows_of<D>, OWN = own_rows<D>, N = tile_rows<D>, C = chunk_of<D>, THREADS = threads_of<D>;
    constexpr int PLACES = places_of<D>, pitch = flash_tile<D>::pitch;
    CUDA_SHARED(char, shared);
    T *k = (T *)shared, *v = k + OWN * pitch, *tiles = v + OWN * pitch; /* of q and dy, in each place */
    float *all_sums = (float *)(tiles + PLACES * 2 * N * pitch); /* lse and delta of the queries, in each place */
    flash_place place = flash_place_of(p.cu_k, p.n_segments, OWN, blockIdx.x);
    flash_segment own = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, place.segment);
    flash_range rows = flash_rows_there(place.first, OWN, own.own_skipped, own.n_own);
    if (rows.begin >= rows.end) return;
    const int kv_head = blockIdx.y, col = blockIdx.z * C;
    const int n_keys = rows.end - rows.begin, warp_row = (int)(threadIdx.x >> 5) * 16 * R;
    const int64_t key_row = own.own_begin + rows.begin;
    float dk[R][C / 8][4], dv[R][C / 8][4];
    clear(dk);
    clear(dv);
    load_tile<T, D, OWN, THREADS>(k, p.k, key_row, kv_head, n_keys, p);
    load_tile<T, D, OWN, THREADS>(v, p.v, key_row, kv_head, n_keys, p);
    query_walk walk = {};
    walk.owner = place.segment;
    walk.segment = p.prefix ? 0 : place.segment;
    walk.end = p.prefix ? p.n_segments : place.segment + 1;
    walk.head = kv_head * (p.n_heads / p.n_kv_heads);
    walk_segments(walk, rows.begin, n_keys, p);
    query_tile next = walk_on<N>(walk, rows.begin, n_keys, p);
    int turn = 0;
    if (PLACES == 2) {
        load_tile<T, D, N, THREADS>(tiles, p.q, next.row, next.head, next.n, p);
        load_tile<T, D, N, THREADS>(tiles + N * pitch, p.dy, next.row, next.head, next.n, p);
        if (threadIdx.x < 2 * N) all_sums[threadIdx.x] = sum_of<N>(next, p);
    }
    copies_commit();
    while (next.n > 0) {
        T *q = tiles + turn * 2 * N * pitch, *dy = q + N * pitch;
        float *sums = all_sums + turn * 2 * N;
        const query_tile t = next;
        if (PLACES == 1) {
            __syncthreads(); /* no thread still reads the previous tile */
            load_tile<T, D, N, THREADS>(q, p.q, t.row, t.head, t.n, p);
            load_tile<T, D, N, THREADS>(dy, p.dy, t.row, t.head, t.n, p);
            if (threadIdx.x < 2 * N) sums[threadIdx.x] = sum_of<N>(t, p);
            copies_commit();
        }
        copies_wait<0>();
        __syncthreads(); /* this tile has arrived, and with two places no thread still reads the previous one */
        next = walk_on<N>(walk, rows.begin, n_keys, p);
        float next_sum = 0;
        if (PLACES == 2 && next.n > 0) {
            turn ^= 1;
            load_tile<T, D, N, THREADS>(tiles + turn * 2 * N * pitch, p.q, next.row, next.head, next.n, p);
            load_tile<T, D, N, THREADS>(tiles + turn * 2 * N * pitch + N * pitch, p.dy, next.row, next.head, next.n, p);
            next_sum = sum_of<N>(next, p);
            copies_commit();
        }
        if (warp_row < n_keys && warp_row + t.ahead < t.n) { /* a query sees one of the warp's keys */
            float s[R][N / 8][4], dp[R][N / 8][4];
            clear(s);
            clear(dp);
            multiply_rows<T, D, N, R>(s, k + warp_row * pitch, q);
            multiply_rows<T, D, N, R>(dp, v + warp_row * pitch, dy);
            slopes_of_keys<N, R>(s, dp, sums, t, warp_row, n_keys, p);
            multiply_values<T, D, N, C, R>(dv, s, dy, col);
            multiply_values<T, D, N, C, R>(dk, dp, q, col);
        }
        if (PLACES == 2 && next.n > 0 && threadIdx.x < 2 * N) all_sums[turn * 2 * N + threadIdx.x] = next_sum;
    }
    copies_wait<0>();
    float one[2 * R], scale[2 * R];
#pragma unroll
    for (int r = 0; r < 2 * R; r++) {
        one[r] = 1;
        scale[r] = p.scale;
    }
    store_rows<T, C, R>(dv, p.dv, key_row + warp_row, kv_head, col, n_keys - warp_row, one, p);
    if (rotates<D> && p.cos) rotate_back<C, R>(dk, key_row + warp_row, n_keys - warp_row, p);
    store_rows<T, C, R>(dk, p.dk, key_row + warp_row, kv_head, col, n_keys - warp_row, scale, p);
}

/* ---- dQ ---- */

/* s = products of queries and keys becomes P, dp = dP becomes dS; lse in powers of two, and delta, of the lane's rows.
 */
template <int N, int R>
__device__ __forceinline__ void slopes_of_queries(float (&s)[R][N / 8][4], float (&dp)[R][N / 8][4],
                                                  const float (&lse)[2 * R], const float (&delta)[2 * R],
                                                  const flash_segment &seg, const flash_keys &keys, int first, int n,
                                                  const flash_params &p)
{
    const float factor = flash_factor(p);
    const int row = first + (int)(threadIdx.x >> 5) * 16 * R;
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                dp[i][j][e] -= delta[2 * i + (e >> 1)];
    cap_products<R, N / 8>(s, dp, p);
    if (keys.n < N || !flash_sees_all(&seg, p.window, first, n, &keys)) {
        flash_range seen[2 * R];
#pragma unroll
        for (int r = 0; r < 2 * R; r++)
            seen[r] = flash_columns_of(&seg, p.window, row + row_of(r / 2, r % 2 * 2), &keys);
        keep_columns<R, N / 8>(s, seen);
    }
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                dp[i][j][e] *= fast_exp2(s[i][j][e] * factor - lse[2 * i + (e >> 1)]);
}

template <typename T, int D> __global__ void __launch_bounds__(threads_of<D>) flash_queries_kernel(const flash_params p)
{
    constexpr int R = rows_of<D>, OWN = own_rows<D>, N = tile_rows<D>, THREADS = threads_of<D>;
    constexpr int PLACES = places_of<D>, pitch = flash_tile<D>::pitch;
    CUDA_SHARED(char, shared);
    T *q = (T *)shared, *dy = q + OWN * pitch, *tiles = dy + OWN * pitch; /* of k and v, in each place */
    flash_place place = flash_place_of(p.cu_q, p.n_segments, OWN, gridDim.x - 1 - blockIdx.x);
    flash_segment seg = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, place.segment);
    flash_range rows = flash_rows_there(place.first, OWN, seg.q_skipped, seg.n_queries);
    int first = rows.begin, n = rows.end - first, head = blockIdx.y, kv_head = head / (p.n_heads / p.n_kv_heads);
    if (n <= 0) return;
    const int warp_row = (int)(threadIdx.x >> 5) * 16 * R, warp_last = flash_min(n, warp_row + 16 * R) - 1;
    const int64_t row = seg.q_begin + first;
    float dq[R][D / 8][4], lse[2 * R], delta[2 * R];
    clear(dq);
#pragma unroll
    for (int r = 0; r < 2 * R; r++) {
        int i = warp_row + row_of(r / 2, r % 2 * 2);
        lse[r] = i < n ? lse_of(head, row + i, p) : INFINITY;
        delta[r] = i < n ? p.delta[head * p.n_rows + row + i] : 0;
    }
    load_tile<T, D, OWN, THREADS>(q, p.q, row, head, n, p);
    load_tile<T, D, OWN, THREADS>(dy, p.dy, row, head, n, p);
    flash_range range = flash_keys_of(&seg, p.window, first, n);
    flash_keys keys = {}, next = flash_keys_at(&seg, range.begin, range.end, N);
    if (PLACES == 2 && range.begin < range.end) {
        load_tile<T, D, N, THREADS>(tiles, p.k, next.row, kv_head, next.n, p);
        load_tile<T, D, N, THREADS>(tiles + N * pitch, p.v, next.row, kv_head, next.n, p);
    }
    copies_commit();
    int turn = 0;
    for (int at = range.begin; at < range.end; at += keys.n) {
        T *k = tiles + turn * 2 * N * pitch, *v = k + N * pitch;
        keys = next;
        if (PLACES == 1) {
            __syncthreads(); /* no thread still reads the previous tile */
            load_tile<T, D, N, THREADS>(k, p.k, keys.row, kv_head, keys.n, p);
            load_tile<T, D, N, THREADS>(v, p.v, keys.row, kv_head, keys.n, p);
            copies_commit();
        }
        copies_wait<0>();
        __syncthreads(); /* this tile has arrived, and with two places no thread still reads the previous one */
        if (at + keys.n < range.end) next = flash_keys_at(&seg, at + keys.n, range.end, N);
        if (PLACES == 2 && at + keys.n < range.end) {
            turn ^= 1;
            load_tile<T, D, N, THREADS>(tiles + turn * 2 * N * pitch, p.k, next.row, kv_head, next.n, p);
            load_tile<T, D, N, THREADS>(tiles + turn * 2 * N * pitch + N * pitch, p.v, next.row, kv_head, next.n, p);
            copies_commit();
        }
        if (keys.position > flash_last(&seg, first + warp_last) || warp_last < warp_row) continue; /* nothing is seen */
        float s[R][N / 8][4], dp[R][N / 8][4];
        clear(s);
        clear(dp);
        multiply_rows<T, D, N, R>(s, q + warp_row * pitch, k);
        multiply_rows<T, D, N, R>(dp, dy + warp_row * pitch, v);
        slopes_of_queries<N, R>(s, dp, lse, delta, seg, keys, first, n, p);
        multiply_values<T, D, N, D, R>(dq, dp, k, 0);
    }
    copies_wait<0>();
    float scale[2 * R];
#pragma unroll
    for (int r = 0; r < 2 * R; r++)
        scale[r] = p.scale;
    if (rotates<D> && p.cos) rotate_back<D, R>(dq, row + warp_row, n - warp_row, p);
    store_rows<T, D, R>(dq, p.dq, row + warp_row, head, 0, n - warp_row, scale, p);
}

/* ---- launches ---- */

template <typename T, int D> static int launch_keys(const flash_params *p, void *stream)
{
    constexpr int others = places_of<D> * 2 * tile_rows<D>; /* rows of q and dy; as many sums */
    constexpr int bytes = flash_tile<D>::bytes(2 * own_rows<D> + others) + others * (int)sizeof(float);
    static_assert(bytes <= LEAST_SHARED, "a block fits every GPU");
    dim3 grid(flash_tile_count(p->n_counted_keys, p->n_segments, own_rows<D>), p->n_kv_heads, D / chunk_of<D>);
    int error = allow_shared(flash_keys_kernel<T, D>, bytes);
    if (error) return error;
    CUDA_LAUNCH((flash_keys_kernel<T, D>), grid, threads_of<D>, bytes, stream, *p);
    return 0;
}

template <typename T, int D> static int launch_queries(const flash_params *p, void *stream)
{
    constexpr int bytes = flash_tile<D>::bytes(2 * own_rows<D> + places_of<D> * 2 * tile_rows<D>);
    static_assert(bytes <= LEAST_SHARED, "a block fits every GPU");
    dim3 grid(flash_tile_count(p->n_counted, p->n_segments, own_rows<D>), p->n_heads);
    int error = allow_shared(flash_queries_kernel<T, D>, bytes);
    if (error) return error;
    CUDA_LAUNCH((flash_queries_kernel<T, D>), grid, threads_of<D>, bytes, stream, *p);
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
