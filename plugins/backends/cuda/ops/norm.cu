/*
 * norm.cu - RMS and layer normalisation, with the residual sum in the same pass over memory.
 */
#include "each.h"
#include "math_norm.h"
#include "norm_rows.h"

/* x + residual, rounded to the dtype of sum, because the backward reads the sum from there. */
__device__ static inline pack norm_input(const nrl_norm_args &a, norm_item at, int64_t c, int n)
{
    pack x = mat_load(a.x, at.row, at.col + c, n);
    if (!a.residual.data) return x;
    pack r = mat_load(a.residual, at.row, at.col + c, n);
    for (int k = 0; k < PACK; k++)
        x.v[k] += r.v[k];
    if (!a.sum.data) return x;
    mat_store(a.sum, at.row, at.col + c, n, x);
    if (a.sum.dtype == NRL_DTYPE_F32) return x;
    for (int k = 0; k < PACK; k++)
        x.v[k] = a.sum.dtype == NRL_DTYPE_BF16 ? bf16_widen(bf16_round(x.v[k])) : f16_widen(f16_round(x.v[k]));
    return x;
}

/* Reads what norm_input computed before: sum may be the same memory as x. */
__device__ static inline pack norm_again(const nrl_norm_args &a, norm_item at, int64_t c, int n)
{
    if (a.residual.data && a.sum.data) return mat_load(a.sum, at.row, at.col + c, n);
    return norm_input(a, at, c, n);
}

template <int KEEP> __global__ void norm_kernel(nrl_norm_args a, int64_t groups, int turns)
{
    int64_t width = a.weight.cols, items = a.x.rows * groups;
    int64_t step = (int64_t)gridDim.x * blockDim.y, stride = blockDim.x * PACK;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; i < items; i += step) {
        norm_item at = norm_item_of(i, groups, width);
        pack kept[KEEP ? KEEP : 1];
        float sum = 0, square = 0, mean = 0;
#pragma unroll
        for (int t = 0; t < (KEEP ? KEEP : turns); t++) {
            int64_t c = threadIdx.x * PACK + t * stride;
            if (c >= width) break;
            int n = norm_count(width, c);
            kept[KEEP ? t : 0] = norm_input(a, at, c, n);
            for (int k = 0; k < PACK; k++) { /* zeros beyond n */
                float x = kept[KEEP ? t : 0].v[k];
                sum += x;
                square += x * x;
            }
        }
        if (!a.rms) {
            mean = row_join(sum, add_join()) / (float)width;
            square = 0;
#pragma unroll
            for (int t = 0; t < (KEEP ? KEEP : turns); t++) {
                int64_t c = threadIdx.x * PACK + t * stride;
                if (c >= width) break;
                int n = norm_count(width, c);
                pack x = KEEP ? kept[KEEP ? t : 0] : norm_again(a, at, c, n);
                for (int k = 0; k < PACK; k++)
                    square += k < n ? (x.v[k] - mean) * (x.v[k] - mean) : 0;
            }
        }
        float rstd = math_rstd(row_join(square, add_join()), width, a.eps);
#pragma unroll
        for (int t = 0; t < (KEEP ? KEEP : turns); t++) {
            int64_t c = threadIdx.x * PACK + t * stride;
            if (c >= width) break;
            int n = norm_count(width, c);
            pack x = KEEP ? kept[KEEP ? t : 0] : norm_again(a, at, c, n);
            pack w = mat_load(a.weight, 0, c, n), b = {};
            if (a.bias.data) b = mat_load(a.bias, 0, c, n);
            for (int k = 0; k < PACK; k++)
                x.v[k] = math_norm(x.v[k], mean, rstd, w.v[k], b.v[k]);
            mat_store(a.y, at.row, at.col + c, n, x);
        }
        if (threadIdx.x != 0) continue;
        if (a.rstd.data) vector_store(a.rstd, at.number, rstd);
        if (a.mean.data) vector_store(a.mean, at.number, mean);
    }
}

nrl_status cuda_op_norm(cuda *self, void *stream, const nrl_norm_args *given)
{
    nrl_norm_args a = *given;
    NRL_TRY(norm_check_groups(a.x.cols, a.weight.cols));
    NRL_TRY(need_compute("norm", a.x, a.residual, a.sum, a.weight, a.bias, a.y));
    if (a.x.rows <= 0) return NRL_OK;
    norm_as_vector(&a.rstd);
    norm_as_vector(&a.mean);
    int64_t groups = a.x.cols / a.weight.cols;
    row_shape s = row_shape_of(a.weight.cols);
    int turns = norm_turns(a.weight.cols, s.threads);
    auto kernel = NORM_CHOOSE(norm_kernel, turns);
    CUDA_LAUNCH(kernel, row_blocks(self, a.x.rows * groups, s), dim3(s.threads, s.side), 0, stream, a, groups, turns);
    return cuda_launched(self, "norm");
}
