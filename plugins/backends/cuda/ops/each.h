/*
 * each.h - kernels that process every pack of a matrix: a body is a struct of operands with void
 * operator()(place p) const.
 */
#ifndef CUDA_OPS_EACH_H
#define CUDA_OPS_EACH_H
#include "pack.h"

typedef struct {
    int64_t row, col;
    int n; /* elements: PACK, or fewer at the end of a row */
} place;

enum { EACH_THREADS = 256 }; /* full occupancy with up to 32 registers, half with 64 */

template <typename Body>
__global__ void __launch_bounds__(EACH_THREADS) each_pack_kernel(int64_t rows, int64_t cols, int64_t per_row, Body body)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * per_row; i += step) {
        place p;
        p.row = rows == 1 ? 0 : i / per_row;
        p.col = (i - p.row * per_row) * PACK;
        p.n = cols - p.col < PACK ? (int)(cols - p.col) : PACK;
        body(p);
    }
}

template <typename Body>
nrl_status each_pack(cuda *self, void *stream, const char *op, int64_t rows, int64_t cols, const Body &body)
{
    if (rows <= 0 || cols <= 0) return NRL_OK;
    int64_t per_row = (cols + PACK - 1) / PACK;
    unsigned blocks = cuda_blocks(self, (rows * per_row + EACH_THREADS - 1) / EACH_THREADS);
    CUDA_LAUNCH(each_pack_kernel<Body>, blocks, EACH_THREADS, 0, stream, rows, cols, per_row, body);
    return cuda_launched(self, op);
}

/* Turns matrices of one shape into a single row each if none has gaps between rows. */
template <typename... Mats> void flatten(Mats *...mats)
{
    nrl_mat *all[] = {mats...};
    for (nrl_mat *m : all)
        if (m->data && m->stride != m->cols && m->rows != 1) return;
    for (nrl_mat *m : all) {
        if (!m->data) continue;
        m->cols *= m->rows;
        m->rows = 1;
        m->stride = m->cols;
    }
}

/* Checks that all matrices that are present have a dtype that kernels compute on. */
template <typename... Mats> nrl_status need_compute(const char *op, const Mats &...mats)
{
    const nrl_mat *all[] = {&mats...};
    for (const nrl_mat *m : all)
        if (m->data && !is_compute_dtype(m->dtype)) return cuda_no_dtype(op, m->dtype);
    return NRL_OK;
}

#endif
