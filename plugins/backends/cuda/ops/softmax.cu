/*
 * softmax.cu - softmax and log_softmax over columns, and their gradients. A row is read twice; the
 * second read comes from a cache.
 */
#include "each.h"
#include "rows.h"

/* The log-sum-exp of a row as two floats, so that x - lse keeps full precision. */
typedef struct {
    float high, low;
} split;

BOTH split split_double(double x)
{
    split s = {(float)x, 0};
    if (x - x == 0) s.low = (float)(x - s.high);
    return s;
}

__global__ void softmax_kernel(nrl_softmax_args a)
{
    int64_t step = (int64_t)gridDim.x * blockDim.y, cols = a.x.cols;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; row < a.x.rows; row += step) {
        part p = part_start();
        for (int64_t col = threadIdx.x * PACK; col < cols; col += blockDim.x * PACK) {
            int n = cols - col < PACK ? (int)(cols - col) : PACK;
            part q = part_of_pack(NRL_REDUCTION_LOG_SUM_EXP, mat_load(a.x, row, col, n), n);
            p = part_join(NRL_REDUCTION_LOG_SUM_EXP, p, q);
        }
        p = row_join(p, part_joiner{NRL_REDUCTION_LOG_SUM_EXP});
        split lse = split_double(part_value(NRL_REDUCTION_LOG_SUM_EXP, p));
        for (int64_t col = threadIdx.x * PACK; col < cols; col += blockDim.x * PACK) {
            int n = cols - col < PACK ? (int)(cols - col) : PACK;
            pack v = mat_load(a.x, row, col, n);
            for (int k = 0; k < PACK; k++) {
                float shifted = (v.v[k] - lse.high) - lse.low;
                v.v[k] = a.log ? shifted : expf(shifted);
            }
            mat_store(a.y, row, col, n, v);
        }
    }
}

nrl_status cuda_op_softmax(cuda *self, void *stream, const nrl_softmax_args *a)
{
    NRL_TRY(need_compute("softmax", a->x, a->y));
    if (a->x.rows <= 0 || a->x.cols <= 0) return NRL_OK;
    row_shape s = row_shape_of(a->x.cols);
    CUDA_LAUNCH(softmax_kernel, row_blocks(self, a->x.rows, s), dim3(s.threads, s.side), 0, stream, *a);
    return cuda_launched(self, "softmax");
}

/* softmax: dx = y (dy - sum y dy); log_softmax: dx = dy - exp(y) sum dy. */
__global__ void softmax_grad_kernel(nrl_softmax_grad_args a)
{
    int64_t step = (int64_t)gridDim.x * blockDim.y, cols = a.y.cols;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; row < a.y.rows; row += step) {
        double sum = 0;
        for (int64_t col = threadIdx.x * PACK; col < cols; col += blockDim.x * PACK) {
            int n = cols - col < PACK ? (int)(cols - col) : PACK;
            pack y = mat_load(a.y, row, col, n), dy = mat_load(a.dy, row, col, n);
            float s = 0;
            for (int k = 0; k < PACK; k++) /* zeros beyond n */
                s += a.log ? dy.v[k] : y.v[k] * dy.v[k];
            sum += s;
        }
        float total = (float)row_join(sum, add_join());
        for (int64_t col = threadIdx.x * PACK; col < cols; col += blockDim.x * PACK) {
            int n = cols - col < PACK ? (int)(cols - col) : PACK;
            pack y = mat_load(a.y, row, col, n), dy = mat_load(a.dy, row, col, n);
            for (int k = 0; k < PACK; k++)
                y.v[k] = a.log ? dy.v[k] - expf(y.v[k]) * total : y.v[k] * (dy.v[k] - total);
            mat_store(a.dx, row, col, n, y);
        }
    }
}

nrl_status cuda_op_softmax_grad(cuda *self, void *stream, const nrl_softmax_grad_args *a)
{
    NRL_TRY(need_compute("softmax_grad", a->y, a->dy, a->dx));
    if (a->y.rows <= 0 || a->y.cols <= 0) return NRL_OK;
    row_shape s = row_shape_of(a->y.cols);
    CUDA_LAUNCH(softmax_grad_kernel, row_blocks(self, a->y.rows, s), dim3(s.threads, s.side), 0, stream, *a);
    return cuda_launched(self, "softmax_grad");
}
