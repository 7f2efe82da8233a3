/*
 * op_work.c - the cost of operations, one line for each. Bytes are the minimum that any kernel must move: each operand
 * once, accumulated outputs twice. Small operands (a norm's weight, statistics) are omitted.
 */
#include "tensor/device/op_work.h"

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
    op_work op_work_##name(const nrl_##name##_args *a)                                                                 \
    {                                                                                                                  \
        return (op_work){0, (moved), {a->shape.rows, a->shape.cols, 0}};                                               \
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

op_work op_work_gemm(const nrl_gemm_args *a)
{
    int64_t inner = a->transpose_a ? a->a.rows : a->a.cols;
    return (op_work){2.0 * (double)a->c.rows * (double)a->c.cols * (double)inner,
                     B(a) + B(b) + result(&a->c, a->overwrite),
                     {a->c.rows, a->c.cols, inner}};
}

/* Pairs of a query and a visible key, times the multiply-adds of scores and weighted sum; 0 if the lengths are not
 * known on the host. */
op_work op_work_attention(const nrl_attention_args *a)
{
    double pairs = 0;
    bool known = a->host_cu_q && a->host_cu_k;
    for (uint32_t s = 0; known && s < a->n_segments; s++) {
        double q = a->host_cu_q[s + 1] - a->host_cu_q[s], k = a->host_cu_k[s + 1] - a->host_cu_k[s];
        int32_t p = a->host_prefix ? a->host_prefix[s] : -1;
        double before = p >= 0 ? a->host_cu_k[p + 1] - a->host_cu_k[p] : 0;
        double seen = before + k - (q - 1) / 2; /* mean over the queries */
        if (a->window > 0 && seen > (double)a->window) seen = (double)a->window;
        pairs += q * seen;
    }
    return (op_work){4.0 * pairs * (double)(a->n_heads * a->head_dim),
                     B(q) + B(k) + B(v) + B(y),
                     {a->q.rows, a->n_heads, a->head_dim}};
}

/* The scores again, dv, dp, dq and dk: five products, compared to two in the forward. */
op_work op_work_attention_grad(const nrl_attention_grad_args *a)
{
    op_work w = op_work_attention(&a->forward);
    w.flops *= 2.5;
    w.bytes *= 2;
    return w;
}
