/*
 * op_cases.h - every operation with a gradient, at odd shapes: the list that is compared with
 * central differences (test_gradients.c) and with PyTorch (test_reference.c, where the names are
 * those of functions in make_reference.py).
 */
#ifndef SUPPORT_OP_CASES_H
#define SUPPORT_OP_CASES_H
#include "support/gradient.h"

#define BUILD(name)                                                                                                    \
    static nrl_status name(const gradient_case *c, nrl_ctx *ctx, nrl_tensor **x, nrl_param **p, nrl_tensor **y)

BUILD(build_linear)
{
    return nrl_op_linear(ctx, x[0], p[0], c->n_params > 1 ? p[1] : NULL, y);
}

/* x is used three times: later products add to its gradient in place. p[0] is used twice. */
BUILD(build_three_linears)
{
    nrl_tensor *a, *b, *ab;
    (void)c;
    NRL_TRY(nrl_op_linear(ctx, x[0], p[0], NULL, &a));
    NRL_TRY(nrl_op_linear(ctx, x[0], p[1], NULL, &b));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, a, b, &ab));
    NRL_TRY(nrl_op_linear(ctx, x[0], p[0], NULL, &a));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, ab, a, y);
}

BUILD(build_matmul)
{
    (void)p;
    return nrl_op_matmul(ctx, x[0], x[1], c->number[0], c->number[1], y);
}

BUILD(build_embedding)
{
    (void)x;
    return c->number[0] ? nrl_op_position_embedding(ctx, p[0], y) : nrl_op_embedding(ctx, p[0], y);
}

static const double inv_freq[] = {1.0, 0.37, 0.05};

BUILD(build_rope)
{
    nrl_rope rope = {inv_freq, c->number[1], 1.3};
    (void)p;
    return nrl_op_rope(ctx, x[0], c->number[0], &rope, y);
}

BUILD(build_attention)
{
    nrl_attention_spec spec = {.n_heads = c->number[0],
                               .n_kv_heads = c->number[1],
                               .head_dim = c->number[2],
                               .window = c->number[3],
                               .scale = 0.7};
    (void)p;
    if (c->number[5]) {
        const nrl_rope rope = {inv_freq, c->number[5], 1.3};
        return nrl_op_rotary_attention(ctx, x[0], x[1], x[2], &spec, 0, &rope, y);
    }
    if (c->n_inputs > 3) return nrl_op_sink_attention(ctx, x[0], x[1], x[2], &spec, x[3], y);
    if (c->number[4]) return nrl_op_capped_attention(ctx, x[0], x[1], x[2], &spec, (double)c->number[4] / 10, y);
    return nrl_op_attention(ctx, x[0], x[1], x[2], &spec, y);
}

BUILD(build_norm)
{
    nrl_tensor *sum, *z;
    switch (c->number[0]) {
    case 0:
        return nrl_op_rms_norm(ctx, x[0], p[0], 1e-5, y);
    case 1:
        return nrl_op_layer_norm(ctx, x[0], p[0], p[1], 1e-5, y);
    case 2:
        NRL_TRY(nrl_op_add_rms_norm(ctx, x[0], x[1], p[0], 1e-5, &sum, &z));
        break;
    case 3:
        return nrl_op_rms_norm_offset(ctx, x[0], p[0], 1, 1e-5, y);
    case 4:
        NRL_TRY(nrl_op_add_rms_norm_offset(ctx, x[0], x[1], p[0], 1, 1e-5, &sum, &z));
        break;
    default:
        NRL_TRY(nrl_op_add_layer_norm(ctx, x[0], x[1], p[0], p[1], 1e-5, &sum, &z));
        break;
    }
    return nrl_op_binary(ctx, NRL_BINARY_MUL, sum, z, y); /* both results are used */
}

/* The residual stream: x also reaches the output past the norm, and the backward of the norm
 * includes that gradient. */
BUILD(build_residual)
{
    nrl_tensor *n, *l, *s;
    (void)c;
    NRL_TRY(nrl_op_rms_norm(ctx, x[0], p[0], 1e-5, &n));
    NRL_TRY(nrl_op_linear(ctx, n, p[1], NULL, &l));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, x[0], l, &s));
    return nrl_op_binary(ctx, NRL_BINARY_MUL, s, x[0], y);
}

/* Norms and gates of norms: the backward recomputes each from others that are also recomputed. */
BUILD(build_remade)
{
    nrl_tensor *n, *nn, *g, *l;
    (void)c;
    NRL_TRY(nrl_op_rms_norm(ctx, x[0], p[0], 1e-5, &n));
    NRL_TRY(nrl_op_layer_norm(ctx, n, p[0], p[1], 1e-5, &nn));
    NRL_TRY(nrl_op_swiglu(ctx, n, nn, &g));
    NRL_TRY(nrl_op_linear(ctx, g, p[2], NULL, &l));
    NRL_TRY(nrl_op_linear(ctx, nn, p[2], NULL, &nn));
    return nrl_op_binary(ctx, NRL_BINARY_MUL, l, nn, y);
}

BUILD(build_glu)
{
    (void)p;
    return c->number[0] ? nrl_op_geglu(ctx, x[0], x[1], y) : nrl_op_swiglu(ctx, x[0], x[1], y);
}

BUILD(build_unary)
{
    (void)p;
    return nrl_op_unary(ctx, (nrl_unary)c->number[0], x[0], c->real[0], c->real[1], y);
}

BUILD(build_binary)
{
    (void)p;
    return nrl_op_binary(ctx, (nrl_binary)c->number[0], x[0], x[c->n_inputs > 1], y);
}

BUILD(build_where)
{
    nrl_tensor *zero, *mask;
    (void)p;
    (void)c;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x[2], 0, 0, &zero));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_GREATER, x[2], zero, &mask));
    return nrl_op_where(ctx, mask, x[0], x[1], y);
}

BUILD(build_cast)
{
    (void)c;
    (void)p;
    return nrl_op_cast(ctx, x[0], NRL_DTYPE_F32, y);
}

BUILD(build_dropout)
{
    (void)p;
    ctx_set_random(ctx, (uint64_t)c->number[0]);
    nrl_status st = nrl_op_dropout(ctx, x[0], 0.4, y);
    ctx_set_random(ctx, 0);
    return st;
}

BUILD(build_reduce)
{
    static nrl_status (*const ops[])(nrl_ctx *, nrl_tensor *, nrl_tensor **) = {
        nrl_op_sum,         nrl_op_mean,        nrl_op_sum_columns, nrl_op_sum_rows,
        nrl_op_max_columns, nrl_op_log_sum_exp, nrl_op_softmax,     nrl_op_log_softmax};
    (void)p;
    return ops[c->number[0]](ctx, x[0], y);
}

BUILD(build_rows)
{
    static const int32_t index[] = {2, 0, -1, 2, 1}, segment[] = {0, 0, -1, 2};
    nrl_tensor *a, *b, *d;
    (void)p;
    switch (c->number[0]) {
    case 0:
        return nrl_op_reshape(ctx, x[0], 3, (int64_t[]){2, 3, 2}, y);
    case 1:
        return nrl_op_slice_rows(ctx, x[0], 1, 3, y);
    case 2: /* two slices of one tensor, one of which is sliced again */
        NRL_TRY(nrl_op_slice_columns(ctx, x[0], 0, 2, &a));
        NRL_TRY(nrl_op_slice_columns(ctx, x[0], 1, 3, &b));
        NRL_TRY(nrl_op_slice_columns(ctx, b, 1, 2, &d));
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, a, b, &a));
        return nrl_op_binary(ctx, NRL_BINARY_MUL, a, d, y);
    case 3:
        return nrl_op_concat_rows(ctx, (nrl_tensor *[]){x[0], x[1], x[0]}, 3, y);
    case 4:
        return nrl_op_transpose(ctx, x[0], y);
    case 5:
        return nrl_op_gather_rows(ctx, x[0], index, 5, y);
    case 6:
        return nrl_op_segment_sum(ctx, x[0], segment, 4, 3, y);
    default: /* rows of a slice of columns */
        NRL_TRY(nrl_op_slice_columns(ctx, x[0], 1, 3, &a));
        NRL_TRY(nrl_op_slice_rows(ctx, a, 1, 3, &b));
        return nrl_op_unary(ctx, NRL_UNARY_SQUARE, b, 0, 0, y);
    }
}

BUILD(build_head)
{
    head_tensors v;
    head_spec head = {p[0], c->n_params > 1 ? p[1] : NULL, c->real[0], c->real[1]};
    NRL_TRY(head_columns(ctx, &head, x[0], HEAD_LOGP | HEAD_ENTROPY, c->number[0] ? 0.8 : 1, &v));
    *y = v.logps;
    if (!c->number[0]) return NRL_OK;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, v.logps, 0, 0, &v.logps));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, v.logps, v.entropy, y));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, v.lse, 0, 0, &v.lse));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *y, v.lse, y);
}

/* clang-format off: a table */
#define ARGS(...) .number = {__VA_ARGS__}
#define REALS(...) .real = {__VA_ARGS__}
#define UNARY(name, op, middle, granularity, ...)                                                                      \
    {                                                                                                                  \
        "unary: " name, 1, 0, {RANGE(middle, granularity, 3, 5)}, .build = build_unary, ARGS(op), REALS(__VA_ARGS__)   \
    }
/* The second operand stays away from zero (division) and from the first operand (minimum, maximum). */
#define BINARY_SHAPES(name, op, ar, ac, br, bc)                                                                        \
    {                                                                                                                  \
        name " [" #ar "," #ac "] [" #br "," #bc "]", 2, 0, {SHAPE(ar, ac), RANGE(2.2, 1, br, bc)},                     \
            .build = build_binary, ARGS(op)                                                                            \
    }
#define BINARY(name, op)                                                                                               \
    BINARY_SHAPES(name, op, 3, 5, 3, 5), BINARY_SHAPES(name, op, 3, 5, 1, 5), BINARY_SHAPES(name, op, 3, 5, 3, 1),     \
        BINARY_SHAPES(name, op, 3, 5, 1, 1), BINARY_SHAPES(name, op, 1, 5, 3, 5), BINARY_SHAPES(name, op, 3, 1, 3, 5), \
        BINARY_SHAPES(name, op, 1, 1, 3, 5)
#define SAME(name, op)                                                                                                 \
    {                                                                                                                  \
        "same: " name, 1, 0, {SHAPE(3, 5)}, .build = build_binary, ARGS(op)                                            \
    }
#define REDUCE(name, k)                                                                                                \
    {                                                                                                                  \
        "reduce: " name, 1, 0, {RANGE(0, 2, 3, 7)}, .build = build_reduce, ARGS(k)                                     \
    }
#define ROWS(name, k)                                                                                                  \
    {                                                                                                                  \
        "rows: " name, 2, 0, {SHAPE(4, 3), SHAPE(2, 3)}, .build = build_rows, ARGS(k)                                  \
    }
#define VECTORS(name, k)                                                                                               \
    {                                                                                                                  \
        "vectors: " name, 2, 0, {SHAPE(4), SHAPE(2)}, .build = build_rows, ARGS(k)                                     \
    }

static const gradient_case op_cases[] = {
    {"linear: plain", 1, 1, {SHAPE(5, 7)}, {SHAPE(3, 7)}, .build = build_linear},
    {"linear: bias", 1, 2, {SHAPE(5, 7)}, {SHAPE(3, 7), SHAPE(3)}, .build = build_linear},
    {"linear: one row", 1, 2, {SHAPE(1, 3)}, {SHAPE(17, 3), SHAPE(17)}, .build = build_linear},
    {"linear: 3 dimensions", 1, 1, {SHAPE(2, 3, 5)}, {SHAPE(4, 5)}, .build = build_linear},
    {"shared: three linears", 1, 2, {SHAPE(3, 4)}, {SHAPE(5, 4), SHAPE(5, 4)}, .build = build_three_linears},
    {"shared: residual", 1, 2, {SHAPE(3, 5)}, {SHAPE(5), SHAPE(5, 5)}, .build = build_residual},
    {"matmul: ..", 2, 0, {SHAPE(3, 5), SHAPE(5, 4)}, .build = build_matmul, ARGS(0, 0)},
    {"matmul: T.", 2, 0, {SHAPE(5, 3), SHAPE(5, 4)}, .build = build_matmul, ARGS(1, 0)},
    {"matmul: .T", 2, 0, {SHAPE(3, 5), SHAPE(4, 5)}, .build = build_matmul, ARGS(0, 1)},
    {"matmul: TT", 2, 0, {SHAPE(5, 3), SHAPE(4, 5)}, .build = build_matmul, ARGS(1, 1)},
    {"embedding: tokens", 0, 1, .params = {SHAPE(5, 3)}, .build = build_embedding, .batch = 1},
    {"embedding: positions", 0, 1, .params = {SHAPE(4, 3)}, .build = build_embedding, .batch = 1, ARGS(1)},
    {"rope: whole heads", 1, 0, {SHAPE(8, 12)}, .build = build_rope, .batch = 1, ARGS(2, 3)},
    {"rope: a part of each head", 1, 0, {SHAPE(8, 14)}, .build = build_rope, .batch = 1, ARGS(2, 2)},
    {"attention: plain",
     3,
     0,
     {SHAPE(8, 6), SHAPE(8, 6), SHAPE(8, 6)},
     .build = build_attention,
     .batch = 1,
     ARGS(2, 2, 3, 0)},
    {"attention: window",
     3,
     0,
     {SHAPE(8, 6), SHAPE(8, 6), SHAPE(8, 6)},
     .build = build_attention,
     .batch = 1,
     ARGS(2, 2, 3, 2)},
    {"attention: shared prompt",
     3,
     0,
     {SHAPE(8, 6), SHAPE(8, 6), SHAPE(8, 6)},
     .build = build_attention,
     .batch = 2,
     ARGS(2, 2, 3, 0)},
    {"attention: grouped queries",
     3,
     0,
     {SHAPE(8, 20), SHAPE(8, 10), SHAPE(8, 10)},
     .build = build_attention,
     .batch = 2,
     ARGS(4, 2, 5, 0)},
    {"attention: capped scores",
     3,
     0,
     {SHAPE(8, 6), SHAPE(8, 6), SHAPE(8, 6)},
     .build = build_attention,
     .batch = 2,
     ARGS(2, 2, 3, 0, 4)},
    {"attention: sinks",
     4,
     0,
     {SHAPE(8, 20), SHAPE(8, 10), SHAPE(8, 10), SHAPE(4)},
     .build = build_attention,
     .batch = 2,
     ARGS(4, 2, 5, 2)},
    {"attention: rotated",
     3,
     0,
     {SHAPE(8, 20), SHAPE(8, 10), SHAPE(8, 10)},
     .build = build_attention,
     .batch = 1,
     ARGS(4, 2, 5, 0, 0, 2)},
    {"norm: rms", 1, 1, {SHAPE(3, 7)}, {SHAPE(7)}, .build = build_norm},
    {"norm: rms of heads", 1, 1, {SHAPE(3, 10)}, {SHAPE(5)}, .build = build_norm},
    {"norm: layer", 1, 2, {SHAPE(3, 7)}, {SHAPE(7), SHAPE(7)}, .build = build_norm, ARGS(1)},
    {"norm: add rms", 2, 1, {SHAPE(3, 7), SHAPE(3, 7)}, {SHAPE(7)}, .build = build_norm, ARGS(2)},
    {"norm: rms around 0", 1, 1, {SHAPE(3, 10)}, {SHAPE(5)}, .build = build_norm, ARGS(3)},
    {"norm: add rms around 0", 2, 1, {SHAPE(3, 7), SHAPE(3, 7)}, {SHAPE(7)}, .build = build_norm, ARGS(4)},
    {"norm: add layer", 2, 2, {SHAPE(3, 7), SHAPE(3, 7)}, {SHAPE(7), SHAPE(7)}, .build = build_norm, ARGS(5)},
    {"shared: norms of norms", 1, 3, {SHAPE(3, 5)}, {SHAPE(5), SHAPE(5), SHAPE(4, 5)}, .build = build_remade},
    {"glu: silu", 2, 0, {RANGE(0, 3, 3, 19), SHAPE(3, 19)}, .build = build_glu},
    {"glu: gelu tanh", 2, 0, {RANGE(0, 3, 3, 19), SHAPE(3, 19)}, .build = build_glu, ARGS(1)},
    UNARY("neg", NRL_UNARY_NEG, 0, 1, 0),
    UNARY("exp", NRL_UNARY_EXP, 0, 1, 0),
    UNARY("log", NRL_UNARY_LOG, 2, 1, 0),
    UNARY("sqrt", NRL_UNARY_SQRT, 2, 1, 0),
    UNARY("square", NRL_UNARY_SQUARE, 0, 1, 0),
    UNARY("reciprocal", NRL_UNARY_RECIPROCAL, 2, 1, 0),
    UNARY("abs", NRL_UNARY_ABS, 1.5, 1, 0),
    UNARY("abs below 0", NRL_UNARY_ABS, -1.5, 1, 0),
    UNARY("relu", NRL_UNARY_RELU, 1.5, 1, 0),
    UNARY("relu below 0", NRL_UNARY_RELU, -1.5, 1, 0),
    UNARY("sigmoid", NRL_UNARY_SIGMOID, 0, 3, 0),
    UNARY("log_sigmoid", NRL_UNARY_LOG_SIGMOID, 0, 3, 0),
    UNARY("softplus", NRL_UNARY_SOFTPLUS, 0, 3, 0),
    UNARY("tanh", NRL_UNARY_TANH, 0, 2, 0),
    UNARY("silu", NRL_UNARY_SILU, 0, 3, 0),
    UNARY("gelu", NRL_UNARY_GELU, 0, 3, 0),
    UNARY("gelu_tanh", NRL_UNARY_GELU_TANH, 0, 3, 0),
    UNARY("expm1", NRL_UNARY_EXPM1, 0, 1, 0),
    UNARY("log1p", NRL_UNARY_LOG1P, 2, 1, 0),
    UNARY("affine", NRL_UNARY_AFFINE, 0, 1, 0.7, 0.2),
    UNARY("clamp inside", NRL_UNARY_CLAMP, 1, 1, -3, 4),
    UNARY("clamp outside", NRL_UNARY_CLAMP, 9, 1, -3, 4),
    UNARY("pow", NRL_UNARY_POW, 2, 1, 2.5),
    UNARY("pow of a negative number", NRL_UNARY_POW, -2, 1, 3),
    BINARY("binary: add", NRL_BINARY_ADD),
    BINARY("binary: sub", NRL_BINARY_SUB),
    BINARY("binary: mul", NRL_BINARY_MUL),
    BINARY("binary: div", NRL_BINARY_DIV),
    BINARY("binary: min", NRL_BINARY_MIN),
    BINARY("binary: max", NRL_BINARY_MAX),
    SAME("add", NRL_BINARY_ADD),
    SAME("sub", NRL_BINARY_SUB),
    SAME("mul", NRL_BINARY_MUL),
    {"where: by sign", 3, 0, {SHAPE(3, 5), SHAPE(3, 5), RANGE(0, 40, 3, 5)}, .build = build_where},
    {"cast: f32", 1, 0, {SHAPE(3, 5)}, .build = build_cast},
    {"dropout: off", 1, 0, {SHAPE(5, 7)}, .build = build_dropout},
    {"dropout: on", 1, 0, {SHAPE(5, 7)}, .build = build_dropout, ARGS(9)},
    REDUCE("sum", 0),
    REDUCE("mean", 1),
    REDUCE("sum_columns", 2),
    REDUCE("sum_rows", 3),
    REDUCE("max_columns", 4),
    REDUCE("log_sum_exp", 5),
    REDUCE("softmax", 6),
    REDUCE("log_softmax", 7),
    ROWS("reshape", 0),
    ROWS("slice of rows", 1),
    ROWS("slices of slices", 2),
    ROWS("concat", 3),
    ROWS("transpose", 4),
    ROWS("gather", 5),
    ROWS("segment sum", 6),
    ROWS("rows of columns", 7),
    VECTORS("slice of rows", 1),
    VECTORS("concat", 3),
    VECTORS("gather", 5),
    VECTORS("segment sum", 6),
    {"head: plain", 1, 1, {SHAPE(8, 3)}, {SHAPE(5, 3)}, .build = build_head, .batch = 1, REALS(1, 0)},
    {"head: bias, scale and cap",
     1,
     2,
     {SHAPE(8, 3)},
     {SHAPE(5, 3), SHAPE(5)},
     .build = build_head,
     .batch = 1,
     REALS(0.6, 2.5)},
    {"head: entropy",
     1,
     2,
     {SHAPE(8, 3)},
     {SHAPE(5, 3), SHAPE(5)},
     .build = build_head,
     .batch = 1,
     ARGS(1),
     REALS(0.6, 2.5)},
    {"head: rows that share a token", 1, 1, {SHAPE(8, 3)}, {SHAPE(5, 3)}, .build = build_head, .batch = 2, REALS(1, 0)},
};
/* clang-format on */
enum { N_OP_CASES = sizeof op_cases / sizeof *op_cases };

#endif
