/*
 * copy.cu - y = alpha x (+ y) between any two dtypes, with x optionally transposed.
 */
#include "each.h"

/* Between f32, bf16 and f16. */
struct convert_body {
    nrl_mat x, y;
    float alpha;
    bool accumulate;
    __device__ void operator()(place p) const
    {
        pack v = mat_load(x, p.row, p.col, p.n);
        if (alpha != 1.0f)
            for (int k = 0; k < PACK; k++)
                v.v[k] *= alpha;
        if (accumulate) {
            pack old = mat_load(y, p.row, p.col, p.n);
            for (int k = 0; k < PACK; k++)
                v.v[k] += old.v[k];
        }
        mat_store(y, p.row, p.col, p.n, v);
    }
};

/* With another dtype on either side, through double. */
struct any_body {
    nrl_mat x, y;
    double alpha;
    bool accumulate, transpose;
    __device__ void operator()(place p) const
    {
        for (int64_t col = p.col; col < p.col + p.n; col++) {
            int64_t from = transpose ? col * x.stride + p.row : p.row * x.stride + col;
            int64_t to = p.row * y.stride + col;
            double old = accumulate ? scalar_load_any(y.data, y.dtype, to) : 0;
            double value = alpha * scalar_load_any(x.data, x.dtype, from) + old;
            scalar_store_any(y.data, y.dtype, to, value);
        }
    }
};

/* Copies bits unchanged, with `cols` in bytes; a pack is eight bytes. */
struct bytes_body {
    char *y;
    const char *x;
    int64_t y_stride, x_stride;
    __device__ void operator()(place p) const
    {
        char *to = y + p.row * y_stride + p.col;
        const char *from = x + p.row * x_stride + p.col;
        if (p.n == PACK && (((uintptr_t)to | (uintptr_t)from) & 7) == 0) {
            *(uint64_t *)to = *(const uint64_t *)from;
            return;
        }
        for (int k = 0; k < p.n; k++)
            to[k] = from[k];
    }
};

static nrl_status copy_bytes(cuda *self, void *stream, const nrl_mat &x, const nrl_mat &y)
{
    int64_t size = (int64_t)nrl_dtype_size((nrl_dtype)y.dtype);
    if (y.rows == 1) {
        int code = self->driver->copy(y.data, x.data, (size_t)(y.cols * size), CUDA_ON_DEVICE, stream);
        return cuda_check(self->driver, code, "copy");
    }
    bytes_body body = {(char *)y.data, (const char *)x.data, y.stride * size, x.stride * size};
    return each_pack(self, stream, "copy", y.rows, y.cols * size, body);
}

/* ---- transposed: tiles go through shared memory, so that reads and writes are both along rows ---- */

enum { TILE = 32, TILE_ROWS = 8 }; /* 256 threads move a tile in four iterations */

/* x [cols, rows] to y [rows, cols]; the odd row length avoids bank conflicts. */
__global__ void transpose_kernel(nrl_mat x, nrl_mat y, float alpha, bool accumulate)
{
    __shared__ float tile[TILE][TILE + 1];
    int64_t tiles_across = (y.cols + TILE - 1) / TILE;
    int64_t tiles = (y.rows + TILE - 1) / TILE * tiles_across;
    int lane = threadIdx.x % TILE, first = threadIdx.x / TILE;
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        int64_t row0 = t / tiles_across * TILE, col0 = t % tiles_across * TILE;
        for (int k = first; k < TILE; k += TILE_ROWS)
            if (col0 + k < x.rows && row0 + lane < x.cols)
                tile[k][lane] = scalar_load(x.data, x.dtype, (col0 + k) * x.stride + row0 + lane);
        __syncthreads();
        for (int k = first; k < TILE; k += TILE_ROWS) {
            if (row0 + k >= y.rows || col0 + lane >= y.cols) continue;
            int64_t at = (row0 + k) * y.stride + col0 + lane;
            float value = alpha * tile[lane][k];
            if (accumulate) value += scalar_load(y.data, y.dtype, at);
            scalar_store(y.data, y.dtype, at, value);
        }
        __syncthreads();
    }
}

static nrl_status transpose(cuda *self, void *stream, const nrl_copy_args *a)
{
    int64_t tiles = (a->y.rows + TILE - 1) / TILE * ((a->y.cols + TILE - 1) / TILE);
    if (tiles == 0) return NRL_OK;
    CUDA_LAUNCH(transpose_kernel, cuda_blocks(self, tiles), TILE * TILE_ROWS, 0, stream, a->x, a->y, (float)a->alpha,
                a->accumulate);
    return cuda_launched(self, "copy");
}

nrl_status cuda_op_copy(cuda *self, void *stream, const nrl_copy_args *a)
{
    nrl_mat x = a->x, y = a->y;
    if (y.rows <= 0 || y.cols <= 0) return NRL_OK;
    bool compute = is_compute_dtype(x.dtype) && is_compute_dtype(y.dtype);
    if (a->transpose && compute) return transpose(self, stream, a);
    if (!a->transpose) flatten(&x, &y);
    if (x.dtype == y.dtype && a->alpha == 1 && !a->accumulate && !a->transpose) return copy_bytes(self, stream, x, y);
    if (compute) {
        convert_body body = {x, y, (float)a->alpha, a->accumulate};
        return each_pack(self, stream, "copy", y.rows, y.cols, body);
    }
    any_body body = {x, y, a->alpha, a->accumulate, a->transpose};
    return each_pack(self, stream, "copy", y.rows, y.cols, body);
}
