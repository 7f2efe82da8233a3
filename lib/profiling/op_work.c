/*
 * op_work.c - the cost of operations, one line for each. Bytes are the minimum that any kernel must move: each operand
 * once, accumulated outputs twice. Small operands (a norm's weight, statistics) are omitted.
 */
#include "profiling/op_work.h"

static double bytes_of(const nrl_mat *m)
{
    if (!m->data) return 0;
    return (double)m->rows * (double)m->cols * (double)nrl_dtype_size((nrl_dtype)m->dtype);
}

/* Bytes of an output that is overwritten, or read and written. */
static double result(const nrl_mat *m, bool overwrite)
{
    return bytes_of(m) * (overwrite ? 1 : 2);
}

#define B(member) bytes_of(&a->member)
#define WEIGHT(name, shape, moved)                                                                                     \
    static op_work work_of_##name(const void *args, double flops)                                                      \
    {                                                                                                                  \
        const nrl_##name##_args *a = args;                                                                             \
        return (op_work){#name, flops, (moved), {a->shape.rows, a->shape.cols, 0}};                                    \
    }

WEIGHT(fill, y, B(y))
WEIGHT(copy, y, B(x) + result(&a->y, !a->accumulate))
WEIGHT(unary, y, B(x) + B(y))
WEIGHT(unary_grad, dy, B(x) + B(y) + B(dy) + B(dx))
WEIGHT(binary, y, B(a) + B(b) + B(y))
WEIGHT(binary_grad, dy, B(a) + B(b) + B(dy) + B(da) + B(db))
WEIGHT(where, y, B(mask) + B(a) + B(b) + B(y))
WEIGHT(reduce, x, B(x) + result(&a->y, a->overwrite))
WEIGHT(softmax, x, B(x) + B(y))
WEIGHT(softmax_grad, dy, B(y) + B(dy) + B(dx))
WEIGHT(gather, y, 2 * B(y))
WEIGHT(scatter, dy, 3 * B(dy) + (a->overwrite ? B(dx) : 0))
WEIGHT(norm, x, B(x) + B(residual) + B(sum) + B(y))
WEIGHT(norm_grad, x, B(x) + B(dy) + B(dsum) + B(dx))
WEIGHT(rope, x, B(x) + B(y))
WEIGHT(glu, y, B(gate) + B(up) + B(y))
WEIGHT(glu_grad, dy, B(gate) + B(up) + B(dy) + B(dgate) + B(dup))
WEIGHT(head, logits, B(logits))
WEIGHT(head_grad, logits, B(logits) + B(dlogits))
WEIGHT(adamw, grad, 2 * (B(master) + B(m) + B(v) + B(low)) + B(grad) + result(&a->work, !a->low.data))
WEIGHT(square_sum, x, B(x))
WEIGHT(dropout, y, B(x) + B(y))
WEIGHT(split16, wide, B(wide) + B(high) + B(low))
WEIGHT(quantize, x, B(x) + B(q) + B(scale))
WEIGHT(dequantize, x, B(x) + B(q) + B(scale) + B(nested))

static op_work work_of_gemm(const void *args, double flops)
{
    const nrl_gemm_args *a = args;
    return (op_work){"gemm",
                     flops,
                     B(a) + B(b) + result(&a->c, a->overwrite),
                     {a->c.rows, a->c.cols, a->transpose_a ? a->a.rows : a->a.cols}};
}

static op_work work_of_attention(const void *args, double flops)
{
    const nrl_attention_args *a = args;
    return (op_work){"attention", flops, B(q) + B(k) + B(v) + B(y), {a->q.rows, a->n_heads, a->head_dim}};
}

/* The scores again, dv, dp, dq and dk: five products, of which the counted FLOPs have four. */
static op_work work_of_attention_grad(const void *args, double flops)
{
    const nrl_attention_grad_args *a = args;
    op_work w = work_of_attention(a->forward, flops * 5 / 4);
    return (op_work){"attention_grad", w.flops, 2 * w.bytes, {w.dims[0], w.dims[1], w.dims[2]}};
}

op_work op_work_of(backend_op op, const void *args, double flops)
{
#define WORK_OF(name, args) work_of_##name,
    static op_work (*const work_of[])(const void *args, double flops) = {NRL_OPS(WORK_OF)};
#undef WORK_OF
    return work_of[op](args, flops);
}
