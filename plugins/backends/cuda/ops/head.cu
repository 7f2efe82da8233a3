/*
 * head.cu - log-probabilities of targets from a chunk of logits, and the gradient that overwrites
 * them.
 *
 * One block per row. Forward reads a row once: each of 512 threads keeps sums with a running maximum
 * over its packs of eight columns and writes back transformed logits if they changed; then the block
 * joins the sums in a fixed order. The sums are in f32, also of logits in bf16. Backward is elementwise; a block reads
 * only the logits that it overwrites.
 */
#include "math_head.h"
#include "pack.h"

enum { HEAD_THREADS = 512, SLOPE_THREADS = 256 };

static bool are_logits(uint32_t dtype)
{
    return dtype == NRL_DTYPE_F32 || dtype == NRL_DTYPE_BF16;
}

static float or_one(double x)
{
    return x == 0 ? 1.0f : (float)x;
}

__device__ __forceinline__ head_sums join_lanes(head_sums s)
{
    for (int mask = 16; mask > 0; mask >>= 1) {
        head_sums other;
        other.max = __shfl_xor_sync(0xffffffffu, s.max, mask);
        other.sum = __shfl_xor_sync(0xffffffffu, s.sum, mask);
        other.weighted = __shfl_xor_sync(0xffffffffu, s.weighted, mask);
        other.square = __shfl_xor_sync(0xffffffffu, s.square, mask);
        other.argmax = __shfl_xor_sync(0xffffffffu, s.argmax, mask);
        s = head_join(s, other);
    }
    return s;
}

__device__ __forceinline__ void write_results(const nrl_head_args &a, int64_t row, const head_sums &s)
{
    double log_sum = head_log_sum(&s);
    int32_t target = a.target ? a.target[row] : -1;
    bool has_target = target >= 0 && target < a.logits.cols;
    float z = has_target ? scalar_load(a.logits.data, a.logits.dtype, row * a.logits.stride + target) : 0;
    if (a.lse) a.lse[row] = (float)(s.max + log_sum);
    if (a.logp) a.logp[row] = has_target ? (float)((double)z - s.max - log_sum) : 0;
    if (a.entropy) a.entropy[row] = (float)(log_sum - (double)s.weighted / s.sum);
    if (a.log_sum_p2) a.log_sum_p2[row] = (float)(log((double)s.square) - 2 * log_sum);
    if (a.argmax) a.argmax[row] = s.argmax;
}

__global__ void __launch_bounds__(HEAD_THREADS) head_kernel(nrl_head_args a, float cap, float scale)
{
    CUDA_SHARED(head_sums, joined); /* [HEAD_THREADS / 32] */
    int64_t row = blockIdx.x, cols = a.logits.cols, begin = row * a.logits.stride;
    bool changes = cap != 0 || scale != 1;
    head_sums s = head_nothing();
    for (int64_t c = threadIdx.x * PACK; c < cols; c += HEAD_THREADS * PACK) {
        int n = cols - c < PACK ? (int)(cols - c) : PACK;
        pack z = pack_load(a.logits.data, a.logits.dtype, begin + c, n);
        for (int k = 0; k < PACK; k++) {
            if (changes) z.v[k] = head_transform(z.v[k], cap, scale);
            if (changes && a.logits.dtype == NRL_DTYPE_BF16) z.v[k] = bf16_widen(bf16_round(z.v[k]));
            if (k < n) head_add(&s, z.v[k], (int32_t)(c + k));
        }
        if (changes) pack_store(a.logits.data, a.logits.dtype, begin + c, n, z);
    }
    s = join_lanes(s);
    if (threadIdx.x % 32 == 0) joined[threadIdx.x / 32] = s;
    __syncthreads(); /* the target's logit is written, too */
    if (threadIdx.x >= 32) return;
    s = threadIdx.x < HEAD_THREADS / 32 ? joined[threadIdx.x] : head_nothing();
    s = join_lanes(s);
    if (threadIdx.x == 0) write_results(a, row, s);
}

nrl_status cuda_op_head(cuda *self, void *stream, const nrl_head_args *a)
{
    if (!are_logits(a->logits.dtype)) return cuda_no_dtype("head", a->logits.dtype);
    if (a->logits.rows <= 0 || a->logits.cols <= 0) return NRL_OK;
    int bytes = HEAD_THREADS / 32 * (int)sizeof(head_sums);
    CUDA_LAUNCH(head_kernel, (unsigned)a->logits.rows, HEAD_THREADS, bytes, stream, *a, (float)a->soft_cap,
                or_one(a->inverse_temperature));
    return cuda_launched(self, "head");
}

/* ---- gradient ---- */

__global__ void __launch_bounds__(SLOPE_THREADS) head_grad_kernel(nrl_head_grad_args a, float cap, float scale)
{
    int64_t row = blockIdx.y, cols = a.logits.cols;
    int64_t c = ((int64_t)blockIdx.x * SLOPE_THREADS + threadIdx.x) * PACK;
    if (c >= cols) return;
    int n = cols - c < PACK ? (int)(cols - c) : PACK;
    int32_t target = a.target ? a.target[row] : -1;
    float dlogp = a.dlogp && target != -1 ? a.dlogp[row] : 0, lse = a.lse[row];
    float dentropy = a.dentropy ? a.dentropy[row] : 0, entropy = a.dentropy ? a.entropy[row] : 0;
    float dlse = a.dlse ? a.dlse[row] : 0;
    pack z = pack_load(a.logits.data, a.logits.dtype, row * a.logits.stride + c, n);
    for (int k = 0; k < PACK; k++) {
        float d = head_slope(z.v[k], lse, dlogp - dlse, dentropy, entropy, cap, scale);
        z.v[k] = c + k == target ? d + head_target_slope(z.v[k], dlogp, cap, scale) : d;
    }
    pack_store(a.dlogits.data, a.dlogits.dtype, row * a.dlogits.stride + c, n, z);
}

static const int64_t ROWS_MOST = 65535; /* limit of a grid's second dimension */

static nrl_head_grad_args rows_of(const nrl_head_grad_args *a, int64_t begin, int64_t n)
{
    nrl_head_grad_args part = *a;
    part.logits.data = element_at(a->logits.data, a->logits.dtype, begin * a->logits.stride);
    part.dlogits.data = element_at(a->dlogits.data, a->dlogits.dtype, begin * a->dlogits.stride);
    part.logits.rows = part.dlogits.rows = n;
    part.target = a->target ? a->target + begin : NULL;
    part.lse = a->lse + begin;
    part.entropy = a->entropy ? a->entropy + begin : NULL;
    part.dlogp = a->dlogp ? a->dlogp + begin : NULL;
    part.dentropy = a->dentropy ? a->dentropy + begin : NULL;
    part.dlse = a->dlse ? a->dlse + begin : NULL;
    return part;
}

nrl_status cuda_op_head_grad(cuda *self, void *stream, const nrl_head_grad_args *a)
{
    int64_t rows = a->logits.rows, cols = a->logits.cols;
    if (!are_logits(a->logits.dtype)) return cuda_no_dtype("head_grad", a->logits.dtype);
    if (!is_compute_dtype(a->dlogits.dtype)) return cuda_no_dtype("head_grad", a->dlogits.dtype);
    if (a->dentropy && !a->entropy) return nrl_fail(NRL_ERR_BUG, "head_grad with dentropy but without entropy");
    if (cols <= 0) return NRL_OK;
    unsigned across = (unsigned)((cols + SLOPE_THREADS * PACK - 1) / (SLOPE_THREADS * PACK));
    for (int64_t begin = 0; begin < rows; begin += ROWS_MOST) {
        int64_t n = rows - begin < ROWS_MOST ? rows - begin : ROWS_MOST;
        CUDA_LAUNCH(head_grad_kernel, dim3(across, (unsigned)n), SLOPE_THREADS, 0, stream, rows_of(a, begin, n),
                    (float)a->soft_cap, or_one(a->inverse_temperature));
        NRL_TRY(cuda_launched(self, "head_grad"));
    }
    return NRL_OK;
}
