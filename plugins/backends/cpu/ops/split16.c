/*
 * split16.c - f32 values to their halves and back; the encoding is in nrl/param.h.
 */
#include "split16.h"

static void split16_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_split16_args *a = args;
    float *wide = mat_at(&a->wide, row, col, 4);
    uint16_t *high = mat_at(&a->high, row, col, 2);
    uint16_t *low = a->low.data ? mat_at(&a->low, row, col, 2) : NULL;
    if (a->join && low)
        span_join(high, low, wide, n);
    else if (low)
        span_split(wide, high, low, n);
    else
        span_round(wide, high, n);
}

OP(split16)
{
    nrl_split16_args k = *a;
    if (k.wide.dtype != NRL_DTYPE_F32 || k.high.dtype != NRL_DTYPE_BF16 || (k.join && !k.low.data))
        return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no op 'split16' between %s and %s%s",
                        nrl_dtype_name(k.wide.dtype), nrl_dtype_name(k.high.dtype), k.low.data ? "" : " alone");
    flatten((nrl_mat *[]){&k.wide, &k.high, &k.low}, 3);
    each_span(instance, k.wide.rows, k.wide.cols, split16_span, &k);
    return NRL_OK;
}
