/*
 * norm_rows.h - how norm.cu and norm_grad.cu distribute work: an item is one group of weight.cols
 * columns of one row. Threads keep KEEP packs of an item in registers; KEEP 0 reads them again (for
 * more than 8192 columns).
 */
#ifndef CUDA_OPS_NORM_ROWS_H
#define CUDA_OPS_NORM_ROWS_H
#include "rows.h"

typedef struct {
    int64_t row, col; /* first column */
    int64_t number;   /* index in mean and rstd */
} norm_item;

BOTH norm_item norm_item_of(int64_t number, int64_t groups, int64_t width)
{
    norm_item i = {number / groups, 0, number};
    i.col = (number - i.row * groups) * width;
    return i;
}

/* Number of packs of an item per thread. */
BOTH int norm_turns(int64_t width, unsigned threads)
{
    return (int)((width + (int64_t)PACK * threads - 1) / ((int64_t)PACK * threads));
}

/* Number of elements in the pack at column c. */
BOTH int norm_count(int64_t width, int64_t c)
{
    return width - c < PACK ? (int)(width - c) : PACK;
}

/* The kernel<KEEP> for this number of packs per thread. */
#define NORM_CHOOSE(kernel, turns) ((turns) <= 1 ? kernel<1> : (turns) <= 2 ? kernel<2> : kernel<0>)

static inline nrl_status norm_check_groups(int64_t cols, int64_t width)
{
    if (width > 0 && cols % width == 0) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "norm of %lld columns in groups of %lld", (long long)cols, (long long)width);
}

/* Views rstd or mean, rows * groups values in any layout, as one row. */
static inline void norm_as_vector(nrl_mat *m)
{
    if (!m->data || m->stride != m->cols) return;
    m->cols *= m->rows;
    m->rows = 1;
    m->stride = m->cols;
}

#endif
