/*
 * index.cu - rows selected by index, and gradients added back to them.
 *
 * Scatter is deterministic without sorting: a first kernel finds, for each row i of dy, the next row
 * with the same index (a chain in ascending order). In the second kernel, the thread at the head of a
 * chain adds up the whole chain in f32 and writes once. This takes N^2 / 2 comparisons of integers
 * from shared memory: for 16k tokens some 10^8, far less than the cost of the rows themselves. If
 * relaxed, f32 rows are added by atomics.
 */
#include "each.h"

/* ---- gather ---- */

struct gather_body {
    nrl_mat x, y;
    const int32_t *index;
    volatile int32_t *fault;
    __device__ void operator()(place p) const
    {
        int64_t row = index[p.row];
        if (row < -1 || row >= x.rows) {
            *fault = CUDA_FAULT_ROW_INDEX;
            row = -1;
        }
        pack v = {};
        if (row >= 0) v = mat_load(x, row, p.col, p.n);
        mat_store(y, p.row, p.col, p.n, v);
    }
};

nrl_status cuda_op_gather(cuda *self, void *stream, const nrl_gather_args *a)
{
    gather_body body = {a->x, a->y, a->index, self->fault};
    NRL_TRY(need_compute("gather", a->x, a->y));
    return each_pack(self, stream, "gather", a->y.rows, a->y.cols, body);
}

/* ---- scatter ---- */

enum { CHAIN_THREADS = 256 };

/* next[i]: the following row with i's index, -1 = none; follows[i]: there is an earlier one. Rows with an
 * index that is skipped follow nothing. */
__global__ void chain_kernel(const int32_t *index, int64_t n, int64_t rows, int32_t *next, int32_t *follows,
                             volatile int32_t *fault)
{
    __shared__ int32_t ahead[CHAIN_THREADS];
    int64_t first = (int64_t)blockIdx.x * CHAIN_THREADS, i = first + threadIdx.x;
    int32_t mine = i < n ? index[i] : -1, found = -1;
    if (mine < -1 || mine >= rows) {
        *fault = CUDA_FAULT_ROW_INDEX;
        mine = -1;
    }
    for (int64_t base = first; base < n; base += CHAIN_THREADS) {
        ahead[threadIdx.x] = base + threadIdx.x < n ? index[base + threadIdx.x] : -1;
        __syncthreads();
        for (int k = 0; k < CHAIN_THREADS && found < 0 && mine >= 0; k++)
            if (ahead[k] == mine && base + k > i) found = (int32_t)(base + k);
        __syncthreads();
    }
    if (i >= n) return;
    next[i] = found;
    if (found >= 0) follows[found] = 1; /* written by one thread only */
}

struct scatter_body {
    nrl_scatter_args a;
    const int32_t *next, *follows;
    __device__ void operator()(place p) const
    {
        int64_t to = a.index[p.row];
        if (to < 0 || to >= a.dx.rows || follows[p.row]) return;
        pack sum = mat_load(a.dx, to, p.col, p.n);
        for (int64_t i = p.row; i >= 0; i = next[i]) {
            pack dy = mat_load(a.dy, i, p.col, p.n);
            for (int k = 0; k < PACK; k++)
                sum.v[k] += dy.v[k];
        }
        mat_store(a.dx, to, p.col, p.n, sum);
    }
};

/* If the order of sums is free: no chains, whose rows would wait for each other if a token is frequent. */
struct scatter_any_body {
    nrl_scatter_args a;
    volatile int32_t *fault;
    __device__ void operator()(place p) const
    {
        int64_t to = a.index[p.row];
        if (to < -1 || to >= a.dx.rows) *fault = CUDA_FAULT_ROW_INDEX;
        if (to < 0 || to >= a.dx.rows) return;
        pack dy = mat_load(a.dy, p.row, p.col, p.n);
        float *at = (float *)a.dx.data + to * a.dx.stride + p.col;
        for (int k = 0; k < PACK; k++)
            if (k < p.n) atomicAdd(at + k, dy.v[k]);
    }
};

static nrl_status scatter_any(cuda *self, void *stream, const nrl_scatter_args *a)
{
    scatter_any_body body = {*a, self->fault};
    return each_pack(self, stream, "scatter", a->dy.rows, a->dy.cols, body);
}

nrl_status cuda_op_scatter(cuda *self, void *stream, const nrl_scatter_args *a)
{
    int64_t n = a->dy.rows;
    void *memory;
    NRL_TRY(need_compute("scatter", a->dy, a->dx));
    if (a->overwrite) {
        nrl_fill_args zero = {sizeof zero, a->dx, 0};
        NRL_TRY(cuda_op_fill(self, stream, &zero));
    }
    if (n <= 0) return NRL_OK;
    if (self->relaxed && a->dx.dtype == NRL_DTYPE_F32) return scatter_any(self, stream, a);
    NRL_TRY(cuda_scratch(self, stream, (size_t)n * 2 * sizeof(int32_t), &memory));
    int32_t *next = (int32_t *)memory, *follows = next + n;
    nrl_mat flags = {follows, NRL_DTYPE_I32, 0, 1, n, n};
    nrl_fill_args none = {sizeof none, flags, 0};
    NRL_TRY(cuda_op_fill(self, stream, &none));
    unsigned blocks = (unsigned)((n + CHAIN_THREADS - 1) / CHAIN_THREADS);
    CUDA_LAUNCH(chain_kernel, blocks, CHAIN_THREADS, 0, stream, a->index, n, a->dx.rows, next, follows, self->fault);
    NRL_TRY(cuda_launched(self, "scatter"));
    scatter_body body = {*a, next, follows};
    return each_pack(self, stream, "scatter", n, a->dy.cols, body);
}
