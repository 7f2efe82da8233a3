/*
 * flash_forward.cu - attention of 16-bit values with tensor cores; scores are never stored (Dao 2023).
 *
 * A block has 4 warps and 128 queries of one head, 32 per warp (64 and 16 for the widest heads); it iterates over tiles
 * of the keys that any of its queries sees, with a running maximum and sum. The tiles of keys and values have two
 * places: the next ones arrive during the products of these. Scores are products until exp2 takes them, with the scale
 * and log2 e in the factor of its multiply-add. Tiles that all queries see, most of them, have no mask.
 */
#include "flash_mma.h"

enum { WARPS = 4, THREADS = 32 * WARPS };

template <int D> constexpr int forward_rows = D <= 128 ? 2 : 1; /* R */
template <int D> constexpr int forward_keys = D <= 64 ? 64 : 32;
template <int D> constexpr bool keeps_queries = D <= 64; /* in registers, for all tiles */

/* The running state of a warp's rows: results, and by lane the maximum of the products of each row, and the lane's part
 * of its sum. */
template <int D> struct forward_state {
    static constexpr int R = forward_rows<D>;
    float out[R][D / 8][4], max[2 * R], sum[2 * R];
};

/* s becomes exp2((s - new maximum) factor); sums and results are rescaled by the change of the maximum. */
template <int KEYS, int D, int R>
__device__ __forceinline__ void softmax_tile(float (&s)[R][KEYS / 8][4], forward_state<D> &state, float factor)
{
#pragma unroll
    for (int r = 0; r < 2 * R; r++) {
        const int i = r / 2, low = r % 2 * 2;
        float top = state.max[r], total = 0;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
            top = fmaxf(top, fmaxf(s[i][j][low], s[i][j][low + 1]));
        top = quad_max(top);
        float base = top == -INFINITY ? 0 : top * factor, shift = fast_exp2(state.max[r] * factor - base);
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int e = low; e < low + 2; e++) {
                s[i][j][e] = fast_exp2(s[i][j][e] * factor - base);
                total += s[i][j][e];
            }
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            state.out[i][j][low] *= shift;
            state.out[i][j][low + 1] *= shift;
        }
        state.sum[r] = state.sum[r] * shift + total;
        state.max[r] = top;
    }
}

/* Stores results and log-sum-exps of the warp's rows, of which `left` are there, from row `row` of the batch on. */
template <typename T, int D>
__device__ __forceinline__ void finish(const forward_state<D> &state, int64_t row, int left, int head, float factor,
                                       const flash_params &p)
{
    constexpr int R = forward_rows<D>;
    float inverse[2 * R];
#pragma unroll
    for (int r = 0; r < 2 * R; r++) {
        float total = quad_sum(state.sum[r]), top = state.max[r] == -INFINITY ? -INFINITY : state.max[r] * factor;
        float kept = 1;
        if (p.sinks) {
            float sink = p.sinks[head] * LOG2_E, before = top;
            top = fmaxf(top, sink);
            kept = exp2f(before - top);
            total = total * kept + exp2f(sink - top);
        }
        inverse[r] = total == 0 ? 0 : kept / total;
        int at = row_of(r / 2, r % 2 * 2);
        if (p.lse && at < left && (threadIdx.x & 3) == 0)
            p.lse[head * p.lse_stride + row + at] = total == 0 ? -INFINITY : (top + log2f(total)) * LN_2;
    }
    store_rows<T, D, R>(state.out, p.y, row, head, 0, left, inverse, p);
}

template <typename T, int D> __global__ void __launch_bounds__(THREADS) flash_forward_kernel(const flash_params p)
{
    constexpr int R = forward_rows<D>, QUERIES = 16 * R * WARPS, KEYS = forward_keys<D>, pitch = flash_tile<D>::pitch;
    CUDA_SHARED(char, shared);
    T *q = (T *)shared, *tiles = q + QUERIES * pitch; /* two times keys and values */
    /* Late tiles see the most keys, so they start first. */
    flash_place place = flash_place_of(p.cu_q, p.n_segments, QUERIES, gridDim.x - 1 - blockIdx.x);
    flash_segment seg = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, place.segment);
    flash_range rows = flash_rows_there(place.first, QUERIES, seg.q_skipped, seg.n_queries);
    int first = rows.begin, n = rows.end - first, head = blockIdx.y, kv_head = head / (p.n_heads / p.n_kv_heads);
    if (n <= 0) return;
    const int warp_row = (int)(threadIdx.x >> 5) * 16 * R, warp_last = flash_min(n, warp_row + 16 * R) - 1;
    const float factor = flash_factor(p);
    flash_range range = flash_keys_of(&seg, p.window, first, n);
    forward_state<D> state;
    clear(state.out);
#pragma unroll
    for (int r = 0; r < 2 * R; r++) {
        state.max[r] = -INFINITY;
        state.sum[r] = 0;
    }
    load_tile<T, D, QUERIES, THREADS>(q, p.q, seg.q_begin + first, head, n, p);
    flash_keys keys = {}, next = flash_keys_at(&seg, range.begin, range.end, KEYS);
    if (range.begin < range.end) {
        load_tile<T, D, KEYS, THREADS>(tiles, p.k, next.row, kv_head, next.n, p);
        load_tile<T, D, KEYS, THREADS>(tiles + KEYS * pitch, p.v, next.row, kv_head, next.n, p);
    }
    copies_commit();
    uint32_t fragments[keeps_queries<D> ? D / 16 : 1][R][4];
    int turn = 0;
    for (int at = range.begin; at < range.end; at += keys.n, turn ^= 1) {
        T *k = tiles + turn * 2 * KEYS * pitch, *v = k + KEYS * pitch, *other = tiles + (turn ^ 1) * 2 * KEYS * pitch;
        keys = next;
        copies_wait<0>();
        __syncthreads(); /* this tile has arrived, and no thread still reads the previous one */
        if (keeps_queries<D> && at == range.begin)
#pragma unroll
            for (int c = 0; c < D / 16; c++)
                load_left<T, D, R>(fragments[keeps_queries<D> ? c : 0], q + warp_row * pitch, 16 * c);
        if (at + keys.n < range.end) {
            next = flash_keys_at(&seg, at + keys.n, range.end, KEYS);
            load_tile<T, D, KEYS, THREADS>(other, p.k, next.row, kv_head, next.n, p);
            load_tile<T, D, KEYS, THREADS>(other + KEYS * pitch, p.v, next.row, kv_head, next.n, p);
        }
        copies_commit();
        if (keys.position > flash_last(&seg, first + warp_last) || warp_last < warp_row) continue; /* nothing is seen */
        float s[R][KEYS / 8][4];
        clear(s);
        if (keeps_queries<D>)
#pragma unroll
            for (int c = 0; c < D / 16; c++)
                multiply_columns<T, D, KEYS, R>(s, fragments[keeps_queries<D> ? c : 0], k, 16 * c);
        else
            multiply_rows<T, D, KEYS, R>(s, q + warp_row * pitch, k);
        cap_products<R, KEYS / 8>(s, NULL, p);
        if (keys.n < KEYS || !flash_sees_all(&seg, p.window, first, n, &keys)) {
            flash_range seen[2 * R];
#pragma unroll
            for (int r = 0; r < 2 * R; r++)
                seen[r] = flash_columns_of(&seg, p.window, first + warp_row + row_of(r / 2, r % 2 * 2), &keys);
            keep_columns<R, KEYS / 8>(s, seen);
        }
        softmax_tile<KEYS, D, R>(s, state, factor);
        multiply_values<T, D, KEYS, D, R>(state.out, s, v, 0);
    }
    copies_wait<0>();
    finish<T, D>(state, seg.q_begin + first + warp_row, n - warp_row, head, factor, p);
}

template <typename T, int D> static int launch(const flash_params *p, void *stream)
{
    constexpr int QUERIES = 16 * forward_rows<D> * WARPS;
    constexpr int bytes = flash_tile<D>::bytes(QUERIES + 4 * forward_keys<D>);
    static_assert(bytes <= LEAST_SHARED, "a block fits every GPU");
    dim3 grid(flash_tile_count(p->n_counted, p->n_segments, QUERIES), p->n_heads);
    int error = allow_shared(flash_forward_kernel<T, D>, bytes);
    if (error) return error;
    CUDA_LAUNCH((flash_forward_kernel<T, D>), grid, THREADS, bytes, stream, *p);
    return 0;
}

template <typename T> static int launch_width(const flash_params *p, void *stream)
{
#define FORWARD(D) launch<T, D>(p, stream)
    return FLASH_WIDTHS(p->head_dim, FORWARD);
#undef FORWARD
}

extern "C" int flash_forward(const flash_params *p, uint32_t dtype, void *stream)
{
    return dtype == NRL_DTYPE_BF16 ? launch_width<bf16>(p, stream) : launch_width<f16>(p, stream);
}
