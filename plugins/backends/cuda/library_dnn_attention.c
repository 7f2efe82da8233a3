/*
 * library_dnn_attention.c - causal attention and its gradients as graphs of cuDNN.
 *
 * cuDNN finds its attention kernels by the form of the graph, so operations, their order and their
 * dtypes are those of NVIDIA's cudnn-frontend (CompositeSDPANode, CompositeSDPABackwardNode, its masks
 * and softmax for libraries before 9.21). Scores are f32 and never stored. The gradient of q is
 * written directly by its product: this is the frontend's deterministic form, at the cost of memory for
 * dS, B H T T 2 bytes. With `relaxed` the product is stored in f32 and converted, the frontend's other form: its
 * kernels add parts of dQ there by atomics, in B H T K 4 bytes, which cuDNN clears itself since 9.6.
 *
 * Legend: B batch, H heads, G kv heads, T longest sequence, K head width.
 */
#include "library_dnn.h"

typedef struct {
    dnn_graph *g;
    const dnn_problem *p;
    cudnnDataType_t type;                             /* of operands */
    dnn_tensor score, row, head;                      /* shapes only: [B,H,T,T], [B,H,T,1], [B,H,T,K] dense */
    dnn_tensor scale, lowest;                         /* by value */
    dnn_tensor lengths_q, lengths_k, *rows, *columns; /* the latter NULL if not ragged */
} attention;

static dnn_tensor stored(attention *a, int64_t identity, cudnnDataType_t type, const int64_t *dims,
                         const int64_t *strides)
{
    return dnn_tensor_make(a->g, identity, DNN_STORED, type, dims, strides, NULL);
}

static dnn_tensor by_value(attention *a, int64_t identity)
{
    static const int64_t one[DNN_RANK] = {1, 1, 1, 1};
    return dnn_tensor_make(a->g, identity, DNN_BY_VALUE, CUDNN_DATA_FLOAT, one, one, NULL);
}

static dnn_tensor vector(attention *a, int64_t identity, cudnnDataType_t type, int64_t n)
{
    const int64_t dims[DNN_RANK] = {n, 1, 1, 1}, strides[DNN_RANK] = {1, 1, 1, 1};
    return stored(a, identity, type, dims, strides);
}

/* [B, heads, T, K], or its transpose [B, heads, K, T]. */
static dnn_tensor operand(attention *a, dnn_operand which, int64_t heads, bool transposed)
{
    const dnn_problem *p = a->p;
    int64_t stride = p->strides[which];
    dnn_tensor offsets,
        t = {.dims = {p->batch, heads, p->length, p->width}, .strides = {p->length * stride, p->width, stride, 1}};
    if (transposed) t = dnn_transposed(t);
    if (p->ragged) offsets = vector(a, DNN_ID_OFFSETS + which, CUDNN_DATA_INT64, p->batch + 1);
    return dnn_tensor_make(a->g, DNN_ID_OPERANDS + which, DNN_STORED, a->type, t.dims, t.strides,
                           p->ragged ? &offsets : NULL);
}

static void begin(attention *a, dnn_graph *g, const dnn_problem *p)
{
    int64_t b = p->batch, h = p->heads, t = p->length, k = p->width;
    g->next_virtual = DNN_ID_VIRTUAL;
    a->g = g;
    a->p = p;
    a->type = p->dtype == NRL_DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    a->score = (dnn_tensor){.dims = {b, h, t, t}, .strides = {h * t * t, t * t, t, 1}};
    a->row = (dnn_tensor){.dims = {b, h, t, 1}, .strides = {h * t, t, 1, 1}};
    a->head = (dnn_tensor){.dims = {b, h, t, k}, .strides = {h * t * k, t * k, k, 1}};
    a->scale = by_value(a, DNN_ID_SCALE);
    a->lowest = by_value(a, DNN_ID_LOWEST);
    a->rows = a->columns = NULL;
    if (!p->ragged) return;
    a->lengths_q = vector(a, DNN_ID_LENGTHS_Q, CUDNN_DATA_INT32, b);
    a->lengths_k = vector(a, DNN_ID_LENGTHS_K, CUDNN_DATA_INT32, b);
    a->rows = &a->lengths_q;
    a->columns = &a->lengths_k;
}

/* ---- scores ---- */

static dnn_tensor place(attention *a, const dnn_tensor *s, int64_t axis, cudnnDataType_t math)
{
    dnn_tensor y = dnn_virtual(a->g, s, CUDNN_DATA_INT32);
    dnn_pointwise(a->g, CUDNN_POINTWISE_GEN_INDEX, math, s, NULL, NULL, &y, axis);
    return y;
}

static dnn_tensor compare(attention *a, cudnnPointwiseMode_t mode, const dnn_tensor *x, const dnn_tensor *b)
{
    dnn_tensor y = dnn_virtual(a->g, x, CUDNN_DATA_BOOLEAN);
    dnn_pointwise(a->g, mode, CUDNN_DATA_BOOLEAN, x, b, NULL, &y, 0);
    return y;
}

/* s where `seen`, else -inf. */
static dnn_tensor keep(attention *a, const dnn_tensor *s, const dnn_tensor *seen)
{
    dnn_tensor y = dnn_virtual(a->g, s, CUDNN_DATA_FLOAT);
    dnn_pointwise(a->g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, s, &a->lowest, seen, &y, 0);
    return y;
}

static dnn_tensor mask_padding(attention *a, const dnn_tensor *s)
{
    dnn_tensor row = place(a, s, 2, CUDNN_DATA_INT32), column = place(a, s, 3, CUDNN_DATA_INT32);
    dnn_tensor in_row = compare(a, CUDNN_POINTWISE_CMP_LT, &row, &a->lengths_q);
    dnn_tensor in_column = compare(a, CUDNN_POINTWISE_CMP_LT, &column, &a->lengths_k);
    dnn_tensor in = compare(a, CUDNN_POINTWISE_LOGICAL_AND, &in_row, &in_column);
    return keep(a, s, &in);
}

static dnn_tensor mask_future(attention *a, const dnn_tensor *s)
{
    dnn_tensor row = place(a, s, 2, CUDNN_DATA_FLOAT), column = place(a, s, 3, CUDNN_DATA_FLOAT);
    dnn_tensor past = compare(a, CUDNN_POINTWISE_CMP_GE, &row, &column);
    return keep(a, s, &past);
}

static dnn_tensor mask(attention *a, const dnn_tensor *s)
{
    dnn_tensor in = a->p->ragged ? mask_padding(a, s) : *s;
    return mask_future(a, &in);
}

/* q k^T scale */
static dnn_tensor scaled_scores(attention *a, const dnn_tensor *q, const dnn_tensor *k_transposed)
{
    dnn_tensor s = dnn_virtual(a->g, &a->score, CUDNN_DATA_FLOAT);
    dnn_matmul(a->g, q, k_transposed, &s, a->rows, a->columns, NULL);
    return dnn_apply(a->g, CUDNN_POINTWISE_MUL, &s, &a->scale);
}

/* ---- forward ---- */

static dnn_tensor softmax(attention *a, const dnn_tensor *s)
{
    dnn_tensor max = dnn_virtual(a->g, &a->row, CUDNN_DATA_FLOAT);
    dnn_reduce(a->g, CUDNN_REDUCE_TENSOR_MAX, s, &max);
    dnn_tensor below = dnn_apply(a->g, CUDNN_POINTWISE_SUB, s, &max);
    dnn_tensor e = dnn_apply(a->g, CUDNN_POINTWISE_EXP, &below, NULL);
    dnn_tensor sum = dnn_virtual(a->g, &a->row, CUDNN_DATA_FLOAT);
    dnn_reduce(a->g, CUDNN_REDUCE_TENSOR_ADD, &e, &sum);
    dnn_tensor log = dnn_apply(a->g, CUDNN_POINTWISE_LOG, &sum, NULL);
    dnn_tensor stats = stored(a, DNN_ID_STATS, CUDNN_DATA_FLOAT, a->row.dims, a->row.strides);
    dnn_pointwise(a->g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, &max, &log, NULL, &stats, 0);
    dnn_tensor prob = dnn_virtual(a->g, s, a->type); /* the product needs operands of one type */
    dnn_pointwise(a->g, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, &e, &sum, NULL, &prob, 0);
    return prob;
}

void dnn_forward_graph(dnn_graph *g, const dnn_problem *p)
{
    attention a;
    begin(&a, g, p);
    dnn_tensor q = operand(&a, DNN_Q, p->heads, false), k = operand(&a, DNN_K, p->kv_heads, true);
    dnn_tensor v = operand(&a, DNN_V, p->kv_heads, false), y = operand(&a, DNN_Y, p->heads, false);
    dnn_tensor scaled = scaled_scores(&a, &q, &k), masked = mask(&a, &scaled);
    dnn_tensor prob = softmax(&a, &masked);
    dnn_matmul(g, &prob, &v, &y, a.rows, NULL, a.columns);
}

/* ---- backward ---- */

/* [B,H,T,1]: sum over K of dy y. */
static dnn_tensor sums_of(attention *a, const dnn_tensor *dy, const dnn_tensor *y)
{
    dnn_tensor product = dnn_virtual(a->g, &a->head, CUDNN_DATA_FLOAT);
    dnn_pointwise(a->g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, dy, y, NULL, &product, 0);
    dnn_tensor sum = dnn_virtual(a->g, &a->row, CUDNN_DATA_FLOAT);
    dnn_reduce(a->g, CUDNN_REDUCE_TENSOR_ADD, &product, &sum);
    dnn_tensor one = by_value(a, DNN_ID_ONE); /* stands where the frontend has the dropout scale */
    dnn_tensor kept = stored(a, DNN_ID_SUMS, CUDNN_DATA_FLOAT, a->row.dims, a->row.strides);
    dnn_pointwise(a->g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, &sum, &one, NULL, &kept, 0);
    return kept;
}

/* to [B,G,T,K] = x^T by, with x [B,H,T,T]; sums over the heads that share a kv head. */
static void transposed_product(attention *a, const dnn_tensor *x, const dnn_tensor *by, dnn_operand to)
{
    const dnn_problem *p = a->p;
    dnn_tensor turned = dnn_transposed(a->score), gradient = operand(a, to, p->kv_heads, false);
    turned = dnn_virtual(a->g, &turned, a->type);
    dnn_reshape(a->g, x, &turned);
    if (p->heads == p->kv_heads) {
        dnn_matmul(a->g, &turned, by, &gradient, a->columns, NULL, a->rows);
        return;
    }
    dnn_tensor of_heads = dnn_virtual(a->g, &a->head, a->type);
    dnn_matmul(a->g, &turned, by, &of_heads, a->columns, NULL, a->rows);
    dnn_reduce(a->g, CUDNN_REDUCE_TENSOR_ADD, &of_heads, &gradient);
}

/* dS = P (dy v^T - sums) scale */
static dnn_tensor slopes(attention *a, const dnn_tensor *dy, const dnn_tensor *v_transposed, const dnn_tensor *sums,
                         const dnn_tensor *prob)
{
    dnn_tensor dp = dnn_virtual(a->g, &a->score, CUDNN_DATA_FLOAT);
    dnn_matmul(a->g, dy, v_transposed, &dp, a->rows, a->columns, NULL);
    dnn_tensor less = dnn_apply(a->g, CUDNN_POINTWISE_SUB, &dp, sums);
    dnn_tensor times = dnn_apply(a->g, CUDNN_POINTWISE_MUL, &less, prob);
    return dnn_apply(a->g, CUDNN_POINTWISE_MUL, &times, &a->scale);
}

static dnn_tensor k_again(attention *a, const dnn_tensor *k_transposed)
{
    dnn_tensor t = dnn_transposed(*k_transposed), offsets;
    if (a->p->ragged) offsets = vector(a, DNN_ID_OFFSETS + DNN_K, CUDNN_DATA_INT64, a->p->batch + 1);
    t = dnn_tensor_make(a->g, a->g->next_virtual++, DNN_VIRTUAL, a->type, t.dims, t.strides,
                        a->p->ragged ? &offsets : NULL);
    dnn_reshape(a->g, k_transposed, &t);
    return t;
}

void dnn_backward_graph(dnn_graph *g, const dnn_problem *p)
{
    attention a;
    begin(&a, g, p);
    dnn_tensor q = operand(&a, DNN_Q, p->heads, false), k = operand(&a, DNN_K, p->kv_heads, true);
    dnn_tensor v = operand(&a, DNN_V, p->kv_heads, true), y = operand(&a, DNN_Y, p->heads, false);
    dnn_tensor dy = operand(&a, DNN_DY, p->heads, false), dq = operand(&a, DNN_DQ, p->heads, false);
    dnn_tensor stats = stored(&a, DNN_ID_STATS, CUDNN_DATA_FLOAT, a.row.dims, a.row.strides);
    dnn_tensor sums = sums_of(&a, &dy, &y);
    dnn_tensor scaled = scaled_scores(&a, &q, &k);
    dnn_tensor below = dnn_apply(g, CUDNN_POINTWISE_SUB, &scaled, &stats), masked = mask(&a, &below);
    dnn_tensor prob = dnn_apply(g, CUDNN_POINTWISE_EXP, &masked, NULL);
    transposed_product(&a, &prob, &dy, DNN_DV);
    dnn_tensor ds = slopes(&a, &dy, &v, &sums, &prob);
    transposed_product(&a, &ds, &q, DNN_DK);
    dnn_tensor keys = k_again(&a, &k);
    if (!p->relaxed) {
        dnn_matmul(g, &ds, &keys, &dq, a.rows, NULL, a.columns);
        return;
    }
    dnn_tensor sum = stored(&a, DNN_ID_DQ_SUM, CUDNN_DATA_FLOAT, a.head.dims, a.head.strides);
    dnn_matmul(g, &ds, &keys, &sum, a.rows, NULL, a.columns);
    dnn_pointwise(g, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, &sum, NULL, NULL, &dq, 0);
}
