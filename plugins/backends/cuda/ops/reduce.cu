/*
 * reduce.cu - sums, maxima and log-sum-exp over columns, rows or everything; the sum of squares.
 *
 * Over columns, a row belongs to one warp or one block. Over rows, and over everything, blocks store
 * partial results in scratch memory and a second kernel joins them in order: the same bits each time,
 * without atomics.
 */
#include "each.h"
#include "rows.h"

__device__ static inline void store_value(const nrl_reduce_args &a, int64_t i, part p)
{
    double value = part_value(a.op, p);
    if (!a.overwrite) value = part_add_to(a.op, vector_load(a.y, i), value);
    vector_store(a.y, i, (float)value);
}

/* ---- over columns ---- */

__global__ void reduce_columns_kernel(nrl_reduce_args a)
{
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; row < a.x.rows; row += step) {
        part p = part_start();
        for (int64_t col = threadIdx.x * PACK; col < a.x.cols; col += blockDim.x * PACK) {
            int n = a.x.cols - col < PACK ? (int)(a.x.cols - col) : PACK;
            p = part_join(a.op, p, part_of_pack(a.op, mat_load(a.x, row, col, n), n));
        }
        p = row_join(p, part_joiner{a.op});
        if (threadIdx.x == 0) store_value(a, row, p);
    }
}

static nrl_status reduce_columns(cuda *self, void *stream, const nrl_reduce_args *a)
{
    row_shape s = row_shape_of(a->x.cols);
    CUDA_LAUNCH(reduce_columns_kernel, row_blocks(self, a->x.rows, s), dim3(s.threads, s.side), 0, stream, *a);
    return cuda_launched(self, "reduce");
}

/* ---- over rows: a block processes STRIPE columns and one of several ranges of rows ---- */

enum { STRIPE = 32, STRIPE_ROWS = 8, RANGE_ROWS = 256, MAX_RANGES = 64 };

/* parts [ranges, cols] */
__global__ void reduce_rows_kernel(nrl_reduce_args a, int64_t range_rows, part *parts)
{
    __shared__ part side[STRIPE_ROWS][STRIPE];
    int64_t col = (int64_t)blockIdx.x * STRIPE + threadIdx.x;
    int64_t first = blockIdx.y * range_rows, last = first + range_rows;
    part p = part_start();
    if (last > a.x.rows) last = a.x.rows;
    for (int64_t row = first + threadIdx.y; row < last && col < a.x.cols; row += STRIPE_ROWS)
        p = part_join(a.op, p, part_of(a.op, scalar_load(a.x.data, a.x.dtype, row * a.x.stride + col)));
    side[threadIdx.y][threadIdx.x] = p;
    __syncthreads();
    if (threadIdx.y != 0 || col >= a.x.cols) return;
    for (int i = 1; i < STRIPE_ROWS; i++)
        p = part_join(a.op, p, side[i][threadIdx.x]);
    parts[blockIdx.y * a.x.cols + col] = p;
}

/* A column for each thread, in small blocks, because a few thousand columns are to occupy all multiprocessors. */
__global__ void join_rows_kernel(nrl_reduce_args a, const part *parts, int64_t ranges)
{
    const int64_t col = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    part p = part_start();
    if (col >= a.x.cols) return;
    for (int64_t r = 0; r < ranges; r++)
        p = part_join(a.op, p, parts[r * a.x.cols + col]);
    store_value(a, col, p);
}

static nrl_status reduce_rows(cuda *self, void *stream, const nrl_reduce_args *a)
{
    int64_t cols = a->x.cols, range_rows = RANGE_ROWS;
    if (a->x.rows > RANGE_ROWS * MAX_RANGES) range_rows = (a->x.rows + MAX_RANGES - 1) / MAX_RANGES;
    int64_t ranges = a->x.rows > 0 ? (a->x.rows + range_rows - 1) / range_rows : 0;
    void *parts;
    NRL_TRY(cuda_scratch(self, stream, (size_t)(ranges * cols) * sizeof(part), &parts));
    if (ranges > 0 && cols > 0) {
        dim3 blocks((unsigned)((cols + STRIPE - 1) / STRIPE), (unsigned)ranges);
        CUDA_LAUNCH(reduce_rows_kernel, blocks, dim3(STRIPE, STRIPE_ROWS), 0, stream, *a, range_rows, (part *)parts);
        NRL_TRY(cuda_launched(self, "reduce"));
    }
    if (cols <= 0) return NRL_OK;
    CUDA_LAUNCH(join_rows_kernel, (unsigned)((cols + STRIPE - 1) / STRIPE), STRIPE, 0, stream, *a, (const part *)parts,
                ranges);
    return cuda_launched(self, "reduce");
}

/* ---- over everything ---- */

enum { TOTAL_THREADS = 256, MAX_PARTS = 512 };

/* parts [blocks] */
__global__ void total_kernel(nrl_mat x, uint32_t op, int64_t per_row, part *parts)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    part p = part_start();
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < x.rows * per_row; i += step) {
        int64_t row = i / per_row, col = (i - row * per_row) * PACK;
        int n = x.cols - col < PACK ? (int)(x.cols - col) : PACK;
        p = part_join(op, p, part_of_pack(op, mat_load(x, row, col, n), n));
    }
    p = row_join(p, part_joiner{op});
    if (threadIdx.x == 0) parts[blockIdx.x] = p;
}

__device__ static inline part join_parts(uint32_t op, const part *parts, int n)
{
    part p = part_start();
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        p = part_join(op, p, parts[i]);
    return row_join(p, part_joiner{op});
}

__global__ void join_total_kernel(nrl_reduce_args a, const part *parts, int n)
{
    part p = join_parts(a.op, parts, n);
    if (threadIdx.x == 0) store_value(a, 0, p);
}

__global__ void join_square_kernel(double *out, bool overwrite, const part *parts, int n)
{
    part p = join_parts(PART_SQUARE_SUM, parts, n);
    if (threadIdx.x == 0) *out = overwrite ? p.sum : *out + p.sum;
}

/* The number of parts, which depends only on the shape. */
static int total_blocks(const nrl_mat &x)
{
    int64_t per_row = (x.cols + PACK - 1) / PACK;
    int64_t blocks = (x.rows * per_row + TOTAL_THREADS - 1) / TOTAL_THREADS;
    return blocks < 1 ? 1 : blocks < MAX_PARTS ? (int)blocks : MAX_PARTS;
}

static nrl_status make_parts(cuda *self, void *stream, const nrl_mat *whole, uint32_t op, part **parts, int *n)
{
    nrl_mat x = *whole;
    void *memory;
    flatten(&x);
    *n = total_blocks(x);
    NRL_TRY(cuda_scratch(self, stream, (size_t)*n * sizeof(part), &memory));
    *parts = (part *)memory;
    CUDA_LAUNCH(total_kernel, (unsigned)*n, TOTAL_THREADS, 0, stream, x, op, (x.cols + PACK - 1) / PACK, *parts);
    return cuda_launched(self, "reduce");
}

static nrl_status reduce_all(cuda *self, void *stream, const nrl_reduce_args *a)
{
    part *parts;
    int n;
    NRL_TRY(make_parts(self, stream, &a->x, a->op, &parts, &n));
    CUDA_LAUNCH(join_total_kernel, 1, TOTAL_THREADS, 0, stream, *a, (const part *)parts, n);
    return cuda_launched(self, "reduce");
}

nrl_status cuda_op_reduce(cuda *self, void *stream, const nrl_reduce_args *a)
{
    if (a->op == NRL_REDUCTION_NONE || a->op > NRL_REDUCTION_LOG_SUM_EXP)
        return nrl_fail(NRL_ERR_PLUGIN, "backend 'cuda' has no reduction number %u", a->op);
    NRL_TRY(need_compute("reduce", a->x, a->y));
    switch (a->axis) {
    case NRL_AXIS_ALL:
        return reduce_all(self, stream, a);
    case NRL_AXIS_ROWS:
        return reduce_rows(self, stream, a);
    case NRL_AXIS_COLUMNS:
        return a->x.rows > 0 ? reduce_columns(self, stream, a) : NRL_OK;
    default:
        return nrl_fail(NRL_ERR_PLUGIN, "backend 'cuda' has no reduction axis %u", a->axis);
    }
}

nrl_status cuda_op_square_sum(cuda *self, void *stream, const nrl_square_sum_args *a)
{
    part *parts;
    int n;
    NRL_TRY(need_compute("square_sum", a->x));
    NRL_TRY(make_parts(self, stream, &a->x, PART_SQUARE_SUM, &parts, &n));
    CUDA_LAUNCH(join_square_kernel, 1, TOTAL_THREADS, 0, stream, a->out, a->overwrite, (const part *)parts, n);
    return cuda_launched(self, "square_sum");
}

/* ---- the squares of several tensors ---- */

enum { SQUARE_TENSORS = 64 };

struct square_tensor {
    void *data;
    double *out;
    int64_t n;
    uint32_t first, blocks; /* as many as make_parts takes, so that the sum has the same bits */
};

struct square_table {
    uint32_t n, dtype;
    square_tensor of[SQUARE_TENSORS];
};
static_assert(sizeof(square_table) <= 4000, "a kernel has 4 KiB of arguments");

/* parts [blocks of all tensors] */
__global__ void square_table_kernel(square_table t, part *parts)
{
    uint32_t k = 0;
    for (uint32_t half = SQUARE_TENSORS / 2; half > 0; half /= 2) /* blocks are in the order of tensors */
        if (k + half < t.n && blockIdx.x >= t.of[k + half].first) k += half;
    const square_tensor &of = t.of[k];
    int64_t step = (int64_t)of.blocks * blockDim.x * PACK;
    part p = part_start();
    for (int64_t c = ((int64_t)(blockIdx.x - of.first) * blockDim.x + threadIdx.x) * PACK; c < of.n; c += step) {
        int n = of.n - c < PACK ? (int)(of.n - c) : PACK;
        p = part_join(PART_SQUARE_SUM, p, part_of_pack(PART_SQUARE_SUM, pack_load(of.data, t.dtype, c, n), n));
    }
    p = row_join(p, part_joiner{PART_SQUARE_SUM});
    if (threadIdx.x == 0) parts[blockIdx.x] = p;
}

/* A block for each tensor. */
__global__ void join_square_table_kernel(square_table t, const part *parts)
{
    const square_tensor &of = t.of[blockIdx.x];
    part p = join_parts(PART_SQUARE_SUM, parts + of.first, (int)of.blocks);
    if (threadIdx.x == 0) *of.out = p.sum;
}

static nrl_status launch_squares(cuda *self, void *stream, square_table *t)
{
    if (!t->n) return NRL_OK;
    uint32_t blocks = t->of[t->n - 1].first + t->of[t->n - 1].blocks;
    void *parts;
    NRL_TRY(cuda_scratch(self, stream, blocks * sizeof(part), &parts));
    CUDA_LAUNCH(square_table_kernel, blocks, TOTAL_THREADS, 0, stream, *t, (part *)parts);
    NRL_TRY(cuda_launched(self, "square_sum"));
    CUDA_LAUNCH(join_square_table_kernel, t->n, TOTAL_THREADS, 0, stream, *t, (const part *)parts);
    t->n = 0;
    return cuda_launched(self, "square_sum");
}

nrl_status cuda_square_sum_all(cuda *self, void *stream, const nrl_square_sum_args *calls, int64_t n)
{
    square_table t;
    t.n = 0;
    for (int64_t i = 0; i < n; i++) {
        nrl_mat x = calls[i].x;
        NRL_TRY(need_compute("square_sum", x));
        flatten(&x);
        if (x.rows != 1 || !calls[i].overwrite) {
            NRL_TRY(cuda_op_square_sum(self, stream, &calls[i]));
            continue;
        }
        if (t.n && (t.n == SQUARE_TENSORS || t.dtype != x.dtype)) NRL_TRY(launch_squares(self, stream, &t));
        t.dtype = x.dtype;
        uint32_t first = t.n ? t.of[t.n - 1].first + t.of[t.n - 1].blocks : 0;
        t.of[t.n++] = {x.data, calls[i].out, x.cols, first, (uint32_t)total_blocks(x)};
    }
    return launch_squares(self, stream, &t);
}
