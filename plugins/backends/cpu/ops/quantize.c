/*
 * quantize.c - block-wise quantization by a table of 256 ascending numbers, and back; nrl/optimizer.h has the rule. A
 * block is one item of work: its largest |x| first, then a binary search for each element.
 */
#include "span.h"

enum { CODES = 256 };

/* The entry nearest to x, the lower one of two; entries at 0 or above are not for x < 0. */
static uint8_t nearest(const float *code, float x)
{
    int low = 0, high = CODES - 1;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (code[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    int best = x - code[low] <= code[high] - x ? low : high;
    return (uint8_t)(x < 0 && code[best] >= 0 && best > 0 ? best - 1 : best);
}

static void quantize_block(const nrl_quantize_args *a, int64_t block)
{
    int64_t begin = block * a->block, n = a->x.cols - begin < a->block ? a->x.cols - begin : a->block;
    const float *code = a->code.data;
    float *x = (float *)a->x.data + begin, *scale = (float *)a->scale.data + block, most = 0;
    uint8_t *q = (uint8_t *)a->q.data + begin;
    for (int64_t i = 0; i < n && a->inverse; i++)
        x[i] = code[q[i]] * *scale;
    if (a->inverse) return;
    for (int64_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    *scale = most;
    for (int64_t i = 0; i < n; i++)
        q[i] = most > 0 ? nearest(code, x[i] / most) : 0;
}

static void quantize_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        quantize_block(arg, i);
}

OP(quantize)
{
    nrl_quantize_args k = *a;
    cpu_split(instance, k.scale.cols, 16, quantize_blocks, &k);
    return NRL_OK;
}
