/*
 * norm_grad.cu - backward of RMS and layer normalisation in one pass over memory.
 *
 * Each row of threads processes many items and sums dweight = sum of dy h and dbias = sum of dy for
 * its own columns, in registers; at the end it stores them as one row of `partial`. A second kernel
 * joins these rows in order, in double. So no two threads add to the same value.
 */
#include "each.h"
#include "math_norm.h"
#include "norm_rows.h"

typedef struct {
    pack w, b;
} norm_sums;

/* partial [rows of threads, 2, width] f32: dweight, dbias */
__device__ static inline void store_sums(float *partial, int64_t width, int64_t c, int n, const norm_sums &s)
{
    pack_store(partial, NRL_DTYPE_F32, c, n, s.w);
    pack_store(partial, NRL_DTYPE_F32, width + c, n, s.b);
}

__device__ static inline norm_sums load_sums(const float *partial, int64_t width, int64_t c, int n)
{
    norm_sums s = {pack_load(partial, NRL_DTYPE_F32, c, n), pack_load(partial, NRL_DTYPE_F32, width + c, n)};
    return s;
}

template <int KEEP>
__global__ void __launch_bounds__(ROW_THREADS)
    norm_grad_kernel(nrl_norm_grad_args a, int64_t groups, int turns, float *partial)
{
    int64_t width = a.weight.cols, items = a.x.rows * groups;
    int64_t step = (int64_t)gridDim.x * blockDim.y, stride = blockDim.x * PACK;
    int64_t first = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    norm_sums sums[KEEP ? KEEP : 1] = {};
    if (partial) partial += first * 2 * width;
    for (int64_t i = first; i < items; i += step) {
        norm_item at = norm_item_of(i, groups, width);
        float rstd = vector_load(a.rstd, i), mean = a.rms ? 0 : vector_load(a.mean, i);
        pack kept_x[KEEP ? KEEP : 1], kept_dy[KEEP ? KEEP : 1], early = {};
        float sum_g = 0, sum_gh = 0;
#pragma unroll
        for (int t = 0; t < (KEEP ? KEEP : turns); t++) {
            int64_t c = threadIdx.x * PACK + t * stride;
            if (c >= width) break;
            int n = norm_count(width, c), at_t = KEEP ? t : 0;
            pack x = mat_load(a.x, at.row, at.col + c, n);
            pack dy = mat_load(a.dy, at.row, at.col + c, n), w = mat_load(a.weight, 0, c, n);
            if (KEEP == 1 && a.dsum.data) /* arrives while the row is joined; two packs would spill registers */
                early = mat_load(a.dsum, at.row, at.col + c, n);
            if (!KEEP && partial && i != first) sums[0] = load_sums(partial, width, c, n);
            if (!KEEP && i == first) sums[0] = norm_sums{};
            for (int k = 0; k < PACK; k++) { /* beyond n, dy and w are zero */
                float g = dy.v[k] * w.v[k], h = (x.v[k] - mean) * rstd;
                sum_g += g;
                sum_gh += g * h;
                sums[at_t].w.v[k] += dy.v[k] * h;
                sums[at_t].b.v[k] += dy.v[k];
            }
            if (!KEEP && partial) store_sums(partial, width, c, n, sums[0]);
            kept_x[at_t] = x;
            kept_dy[at_t] = dy;
        }
        if (!a.dx.data) continue;
        float mean_gh = row_join(sum_gh, add_join()) / (float)width;
        float mean_g = a.rms ? 0 : row_join(sum_g, add_join()) / (float)width;
#pragma unroll
        for (int t = 0; t < (KEEP ? KEEP : turns); t++) {
            int64_t c = threadIdx.x * PACK + t * stride;
            if (c >= width) break;
            int n = norm_count(width, c);
            pack x = KEEP ? kept_x[KEEP ? t : 0] : mat_load(a.x, at.row, at.col + c, n);
            pack dy = KEEP ? kept_dy[KEEP ? t : 0] : mat_load(a.dy, at.row, at.col + c, n);
            pack w = mat_load(a.weight, 0, c, n), dsum = {};
            if (KEEP == 1) dsum = early;
            if (KEEP != 1 && a.dsum.data) dsum = mat_load(a.dsum, at.row, at.col + c, n);
            for (int k = 0; k < PACK; k++)
                x.v[k] = math_norm_grad(x.v[k], mean, rstd, dy.v[k] * w.v[k], mean_g, mean_gh) + dsum.v[k];
            mat_store(a.dx, at.row, at.col + c, n, x);
        }
    }
#pragma unroll
    for (int t = 0; t < KEEP; t++) {
        int64_t c = threadIdx.x * PACK + t * stride;
        if (partial && c < width) store_sums(partial, width, c, norm_count(width, c), sums[t]);
    }
}

/* ---- joining the partial rows: a block has eight columns ---- */

enum { JOIN_THREADS = 128 };

__global__ void norm_join_kernel(nrl_mat out, bool overwrite, const float *partial, int64_t rows, int64_t width)
{
    int64_t c = (int64_t)blockIdx.x * PACK;
    int n = norm_count(width, c);
    double sum[PACK] = {};
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
        pack p = pack_load(partial, NRL_DTYPE_F32, r * 2 * width + c, n);
        for (int k = 0; k < PACK; k++)
            sum[k] += p.v[k];
    }
    for (int k = 0; k < PACK; k++) {
        double total = row_join(sum[k], add_join());
        if (threadIdx.x != 0 || k >= n) continue;
        if (!overwrite) total += vector_load(out, c + k);
        vector_store(out, c + k, (float)total);
    }
}

static nrl_status join(cuda *self, void *stream, const nrl_mat &out, bool overwrite, const float *partial, int64_t rows,
                       int64_t width)
{
    if (!out.data) return NRL_OK;
    unsigned blocks = (unsigned)((width + PACK - 1) / PACK);
    CUDA_LAUNCH(norm_join_kernel, blocks, JOIN_THREADS, 0, stream, out, overwrite, partial, rows, width);
    return cuda_launched(self, "norm_grad");
}

enum { ITEMS_EACH = 4 }; /* minimum per row of threads: partial rows cost memory and time */

nrl_status cuda_op_norm_grad(cuda *self, void *stream, const nrl_norm_grad_args *given)
{
    nrl_norm_grad_args a = *given;
    int64_t width = a.weight.cols;
    NRL_TRY(norm_check_groups(a.x.cols, width));
    NRL_TRY(need_compute("norm_grad", a.x, a.weight, a.dy, a.dsum, a.dx));
    norm_as_vector(&a.rstd);
    norm_as_vector(&a.mean);
    int64_t groups = a.x.cols / width, items = a.x.rows * groups;
    row_shape s = row_shape_of(width);
    int64_t wanted = (items + s.side * ITEMS_EACH - 1) / (s.side * ITEMS_EACH);
    int64_t most = (int64_t)self->properties.multiprocessors * (2048 / (s.threads * s.side)) / 2;
    int64_t blocks = wanted < 1 ? 1 : wanted < most ? wanted : most;
    int64_t rows = blocks * s.side < items ? blocks * s.side : items; /* rows of threads that store a partial row */
    void *memory = NULL;
    if (a.dweight.data || a.dbias.data)
        NRL_TRY(cuda_scratch(self, stream, (size_t)(blocks * s.side * 2 * width) * sizeof(float), &memory));
    float *partial = (float *)memory;
    if (items > 0) {
        int turns = norm_turns(width, s.threads);
        auto kernel = NORM_CHOOSE(norm_grad_kernel, turns);
        CUDA_LAUNCH(kernel, (unsigned)blocks, dim3(s.threads, s.side), 0, stream, a, groups, turns, partial);
        NRL_TRY(cuda_launched(self, "norm_grad"));
    }
    NRL_TRY(join(self, stream, a.dweight, a.overwrite_weight, partial, rows, width));
    return join(self, stream, a.dbias, a.overwrite_bias, partial + width, rows, width);
}
