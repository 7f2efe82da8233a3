/*
 * flash_forward.cu - attention of 16-bit values with tensor cores; scores are never stored (Dao 2023).
 *
 * A block has 4 warps and 64 queries of one head, 16 per warp; it iterates over tiles of the keys that
 * any of its queries sees, with a running maximum and sum. 64 keys per tile (32 for the widest heads)
 * keep scores and results in registers. Loads are asynchronous: values arrive during Q K^T, the next
 * keys during the softmax and P V. Scores are kept in powers of two, because exp2 is one instruction.
 */
#include "flash_mma.h"

enum { QUERIES = 64, WARPS = 4 };

template <int D> constexpr int forward_keys = D <= 128 ? 64 : 32;

/* Scales scores and replaces scores of unseen keys by -inf. */
template <int KEYS>
__device__ __forceinline__ void mask_scores(float (&s)[KEYS / 8][4], const flash_segment &seg, const flash_keys &keys,
                                            int first, int n, const flash_params &p)
{
    float scale = p.scale * LOG2_E;
    int row = first + (int)(threadIdx.x >> 5) * 16;
    bool full = keys.n == KEYS && flash_sees_all(&seg, p.window, first, n, &keys);
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int k = column_of(j, e);
            bool seen = full || (k < keys.n && flash_sees(&seg, p.window, row + row_of(e), keys.position + k));
            s[j][e] = seen ? flash_score(s[j][e], scale, p) : -INFINITY;
        }
}

/* s becomes exp2(s - new maximum); sum and out are rescaled by the change of the maximum. */
template <int KEYS, int D>
__device__ __forceinline__ void softmax_tile(float (&s)[KEYS / 8][4], float (&out)[D / 8][4], float (&max)[2],
                                             float (&sum)[2])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = max[r], total = 0;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
            top = fmaxf(top, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
        top = quad_max(top);
        float base = top == -INFINITY ? 0 : top, shift = exp2f(max[r] - base);
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++) {
                s[j][e] = exp2f(s[j][e] - base);
                total += s[j][e];
            }
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            out[j][2 * r] *= shift;
            out[j][2 * r + 1] *= shift;
        }
        sum[r] = sum[r] * shift + total;
        max[r] = top;
    }
}

template <typename T, int D>
__device__ __forceinline__ void finish(const float (&out)[D / 8][4], const float (&max)[2], const float (&sum)[2],
                                       const flash_segment &seg, int first, int n, int head, const flash_params &p)
{
    int warp_row = (int)(threadIdx.x >> 5) * 16, left = n - warp_row;
    int64_t row = seg.q_begin + first + warp_row;
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float total = quad_sum(sum[r]), top = max[r], kept = 1;
        if (p.sinks) {
            float sink = p.sinks[head] * LOG2_E;
            top = fmaxf(top, sink);
            kept = exp2f(max[r] - top);
            total = total * kept + exp2f(sink - top);
        }
        inverse[r] = total == 0 ? 0 : kept / total;
        int at = row_of(2 * r);
        if (p.lse && at < left && (threadIdx.x & 3) == 0)
            p.lse[head * p.lse_stride + row + at] = total == 0 ? -INFINITY : (top + log2f(total)) * LN_2;
    }
    store_rows<T, D>(out, p.y, row, head, 0, left, inverse, p);
}

template <typename T, int D> __global__ void __launch_bounds__(32 * WARPS) flash_forward_kernel(const flash_params p)
{
    constexpr int KEYS = forward_keys<D>;
    CUDA_SHARED(char, shared);
    T *q = (T *)shared, *k = q + QUERIES * flash_tile<D>::pitch, *v = k + KEYS * flash_tile<D>::pitch;
    /* Late tiles see the most keys, so they start first. */
    flash_place place = flash_place_of(p.cu_q, p.n_segments, QUERIES, gridDim.x - 1 - blockIdx.x);
    flash_segment seg = flash_segment_of(p.cu_q, p.cu_k, p.prefix, &p.part, place.segment);
    flash_range rows = flash_rows_there(place.first, QUERIES, seg.q_skipped, seg.n_queries);
    int first = rows.begin, n = rows.end - first, head = blockIdx.y, kv_head = head / (p.n_heads / p.n_kv_heads);
    if (n <= 0) return;
    flash_range range = flash_keys_of(&seg, p.window, first, n);
    float out[D / 8][4], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    clear(out);
    load_tile<T, D, QUERIES>(q, p.q, seg.q_begin + first, head, n, p);
    flash_keys keys = flash_keys_at(&seg, range.begin, range.end, KEYS);
    if (range.begin < range.end) load_tile<T, D, KEYS>(k, p.k, keys.row, kv_head, keys.n, p);
    copies_commit();
    for (int at = range.begin; at < range.end; at += keys.n) {
        keys = flash_keys_at(&seg, at, range.end, KEYS);
        copies_wait<0>();
        __syncthreads(); /* keys have arrived, and no thread still reads the previous values */
        load_tile<T, D, KEYS>(v, p.v, keys.row, kv_head, keys.n, p);
        copies_commit();
        float s[KEYS / 8][4];
        clear(s);
        multiply_rows<T, D, KEYS>(s, q, (int)(threadIdx.x >> 5) * 16, k);
        __syncthreads(); /* all threads have read the keys */
        if (at + keys.n < range.end) {
            flash_keys next = flash_keys_at(&seg, at + keys.n, range.end, KEYS);
            load_tile<T, D, KEYS>(k, p.k, next.row, kv_head, next.n, p);
        }
        copies_commit();
        mask_scores<KEYS>(s, seg, keys, first, n, p);
        softmax_tile<KEYS, D>(s, out, max, sum);
        copies_wait<1>();
        __syncthreads(); /* values have arrived */
        multiply_values<T, D, KEYS, D>(out, s, v, 0);
    }
    copies_wait<0>();
    finish<T, D>(out, max, sum, seg, first, n, head, p);
}

template <typename T, int D> static int launch(const flash_params *p, void *stream)
{
    int bytes = flash_tile<D>::bytes(QUERIES + 2 * forward_keys<D>);
    dim3 grid(flash_tile_count(p->n_counted, p->n_segments, QUERIES), p->n_heads);
    int error = allow_shared(flash_forward_kernel<T, D>, bytes);
    if (error) return error;
    CUDA_LAUNCH((flash_forward_kernel<T, D>), grid, 32 * WARPS, bytes, stream, *p);
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
