/*
 * test_gradients.c - the gradient of every operation against central differences, at odd shapes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/gradient.h"

static device the_device;
static nrl_ctx *ctx;

static int open_context(void **state)
{
    (void)state;
    if (!test_device_open(&the_device)) exit(77);
    return ctx_create(&the_device, &ctx) ? -1 : 0;
}

static int close_context(void **state)
{
    (void)state;
    ctx_destroy(ctx);
    device_close(&the_device);
    return 0;
}

static void check(const gradient_case *c)
{
    ctx_memory before, after;
    double worst = 0;
    ctx_memory_use(ctx, &before);
    nrl_status st = gradient_check(ctx, c, &worst);
    if (st) fail_msg("%s", nrl_error_text());
    ctx_memory_use(ctx, &after);
    assert_int_equal(after.live_bytes, before.live_bytes);
}

#define BUILD(name)                                                                                \
    static nrl_status name(const gradient_case *c, nrl_ctx *x_ctx, nrl_tensor **x, nrl_param **p,  \
                           nrl_tensor **y)

/* ---- products ---- */

BUILD(build_linear)
{
    return nrl_op_linear(x_ctx, x[0], p[0], c->n_params > 1 ? p[1] : NULL, y);
}

static void linear_has_the_right_gradients(void **state)
{
    (void)state;
    check(&(gradient_case){"linear", 1, 1, {SHAPE(5, 7)}, {SHAPE(3, 7)}, .build = build_linear});
    check(&(gradient_case){"linear with bias", 1, 2, {SHAPE(5, 7)}, {SHAPE(3, 7), SHAPE(3)}, .build = build_linear});
    check(&(gradient_case){"linear of one row", 1, 2, {SHAPE(1, 3)}, {SHAPE(17, 3), SHAPE(17)}, .build = build_linear});
    check(&(gradient_case){"linear of 3 dimensions", 1, 1, {SHAPE(2, 3, 5)}, {SHAPE(4, 5)}, .build = build_linear});
}

/* x is used three times: the second and third product add to its gradient in place. */
BUILD(build_three_linears)
{
    nrl_tensor *a, *b, *ab;
    (void)c;
    NRL_TRY(nrl_op_linear(x_ctx, x[0], p[0], NULL, &a));
    NRL_TRY(nrl_op_linear(x_ctx, x[0], p[1], NULL, &b));
    NRL_TRY(nrl_op_binary(x_ctx, NRL_BINARY_MUL, a, b, &ab));
    NRL_TRY(nrl_op_linear(x_ctx, x[0], p[0], NULL, &a)); /* and p[0] twice */
    return nrl_op_binary(x_ctx, NRL_BINARY_ADD, ab, a, y);
}

static void tensors_and_parameters_used_twice_add_up(void **state)
{
    (void)state;
    check(&(gradient_case){
        "three linears", 1, 2, {SHAPE(3, 4)}, {SHAPE(5, 4), SHAPE(5, 4)}, .build = build_three_linears});
}

BUILD(build_matmul)
{
    (void)p;
    return nrl_op_matmul(x_ctx, x[0], x[1], c->number[0], c->number[1], y);
}

static void matmul_has_the_right_gradients_in_all_orders(void **state)
{
    (void)state;
    check(&(gradient_case){"matmul", 2, 0, {SHAPE(3, 5), SHAPE(5, 4)}, .build = build_matmul});
    check(&(gradient_case){
        "matmul T.", 2, 0, {SHAPE(5, 3), SHAPE(5, 4)}, .build = build_matmul, .number = {1, 0}});
    check(&(gradient_case){
        "matmul .T", 2, 0, {SHAPE(3, 5), SHAPE(4, 5)}, .build = build_matmul, .number = {0, 1}});
    check(&(gradient_case){
        "matmul TT", 2, 0, {SHAPE(5, 3), SHAPE(4, 5)}, .build = build_matmul, .number = {1, 1}});
}

/* ---- a batch of segments of 3, 1 and 4 tokens ---- */

static nrl_batch *small_batch(bool shared_prefix)
{
    static const int32_t cu[] = {0, 3, 4, 8}, tokens[] = {2, 0, 2, 4, 1, 1, 3, 0};
    static const int32_t row_token[] = {0, 1, 3, 4, 5, 6}, row_segment[] = {0, 0, 1, 2, 2, 2};
    nrl_batch *b = batch_new(8, 6, 3);
    b->n_blocks = 3;
    memcpy(b->cu_seqlens, cu, sizeof cu);
    memcpy(b->tokens, tokens, sizeof tokens);
    memcpy(b->row_token, row_token, sizeof row_token);
    memcpy(b->row_segment, row_segment, sizeof row_segment);
    if (shared_prefix) {
        b->prefix = arena_alloc(&b->memory, 3 * sizeof *b->prefix);
        b->prefix[0] = -1;
        b->prefix[1] = b->prefix[2] = 0;
    }
    for (int32_t s = 0; s < 3; s++) {
        b->segment_block[s] = s;
        for (int32_t i = cu[s]; i < cu[s + 1]; i++)
            b->positions[i] = i - cu[s] + (shared_prefix && s ? cu[1] : 0);
    }
    for (int i = 0; i < 6; i++) {
        b->row_target[i] = tokens[row_token[i] + 1 < 8 ? row_token[i] + 1 : 0];
        b->row_weight[i] = 1;
    }
    assert_int_equal(batch_check(b, 5), NRL_OK);
    return b;
}

BUILD(build_embedding)
{
    (void)x;
    return c->number[0] ? nrl_op_position_embedding(x_ctx, p[0], y) : nrl_op_embedding(x_ctx, p[0], y);
}

static void embedding_adds_rows_of_equal_tokens(void **state)
{
    (void)state;
    nrl_batch *b = small_batch(false);
    check(&(gradient_case){
        "embedding", 0, 1, .params = {SHAPE(5, 3)}, .build = build_embedding, .batch = b});
    check(&(gradient_case){"position embedding",
                           0,
                           1,
                           .params = {SHAPE(4, 3)},
                           .build = build_embedding,
                           .batch = b,
                           .number = {1}});
    batch_free(b);
}

static const double inv_freq[] = {1.0, 0.37, 0.05};

BUILD(build_rope)
{
    static nrl_rope rope;
    (void)p;
    rope = (nrl_rope){inv_freq, c->number[1], 1.3};
    return nrl_op_rope(x_ctx, x[0], c->number[0], &rope, y);
}

static void rope_has_the_right_gradients(void **state)
{
    (void)state;
    nrl_batch *b = small_batch(false);
    check(&(gradient_case){
        "rope", 1, 0, {SHAPE(8, 12)}, .build = build_rope, .batch = b, .number = {2, 3}});
    check(&(gradient_case){
        "rope of a part", 1, 0, {SHAPE(8, 14)}, .build = build_rope, .batch = b, .number = {2, 2}});
    batch_free(b);
}

BUILD(build_attention)
{
    nrl_attention_spec spec = {.n_heads = c->number[0],
                               .n_kv_heads = c->number[1],
                               .head_dim = c->number[2],
                               .window = c->number[3],
                               .scale = 0.7};
    (void)p;
    return nrl_op_attention(x_ctx, x[0], x[1], x[2], &spec, y);
}

static void attention_has_the_right_gradients(void **state)
{
    (void)state;
    nrl_batch *plain = small_batch(false), *shared = small_batch(true);
    gradient_case c = {"attention",
                       3,
                       0,
                       {SHAPE(8, 6), SHAPE(8, 6), SHAPE(8, 6)},
                       .build = build_attention,
                       .batch = plain,
                       .number = {2, 2, 3, 0}};
    check(&c);
    c.name = "attention with a window";
    c.number[3] = 2;
    check(&c);
    c.name = "attention after a shared prefix";
    c.batch = shared;
    c.number[3] = 0;
    check(&c);
    check(&(gradient_case){"grouped queries",
                           3,
                           0,
                           {SHAPE(8, 20), SHAPE(8, 10), SHAPE(8, 10)},
                           .build = build_attention,
                           .batch = shared,
                           .number = {4, 2, 5, 0}});
    batch_free(plain);
    batch_free(shared);
}

/* ---- norms and gates ---- */

BUILD(build_norm)
{
    nrl_tensor *sum, *z;
    switch (c->number[0]) {
    case 0: return nrl_op_rms_norm(x_ctx, x[0], p[0], 1e-5, y);
    case 1: return nrl_op_layer_norm(x_ctx, x[0], p[0], p[1], 1e-5, y);
    case 2: NRL_TRY(nrl_op_add_rms_norm(x_ctx, x[0], x[1], p[0], 1e-5, &sum, &z)); break;
    default: NRL_TRY(nrl_op_add_layer_norm(x_ctx, x[0], x[1], p[0], p[1], 1e-5, &sum, &z)); break;
    }
    return nrl_op_binary(x_ctx, NRL_BINARY_MUL, sum, z, y); /* both results flow on */
}

static void norms_have_the_right_gradients(void **state)
{
    (void)state;
    check(&(gradient_case){"rms_norm", 1, 1, {SHAPE(3, 7)}, {SHAPE(7)}, .build = build_norm});
    check(&(gradient_case){"rms_norm of heads", 1, 1, {SHAPE(3, 10)}, {SHAPE(5)}, .build = build_norm});
    check(&(gradient_case){"layer_norm", 1, 2, {SHAPE(3, 7)}, {SHAPE(7), SHAPE(7)}, .build = build_norm, .number = {1}});
    check(&(gradient_case){
        "add_rms_norm", 2, 1, {SHAPE(3, 7), SHAPE(3, 7)}, {SHAPE(7)}, .build = build_norm, .number = {2}});
    check(&(gradient_case){"add_layer_norm",
                           2,
                           2,
                           {SHAPE(3, 7), SHAPE(3, 7)},
                           {SHAPE(7), SHAPE(7)},
                           .build = build_norm,
                           .number = {3}});
}

/* The residual stream: x reaches the output past the norm too, which the norm's pass takes in. */
BUILD(build_residual)
{
    nrl_tensor *n, *l, *l2;
    (void)c;
    NRL_TRY(nrl_op_rms_norm(x_ctx, x[0], p[0], 1e-5, &n));
    NRL_TRY(nrl_op_linear(x_ctx, n, p[1], NULL, &l));
    NRL_TRY(nrl_op_binary(x_ctx, NRL_BINARY_ADD, x[0], l, &l2));
    return nrl_op_binary(x_ctx, NRL_BINARY_MUL, l2, x[0], y);
}

static void a_residual_stream_has_the_right_gradients(void **state)
{
    (void)state;
    check(&(gradient_case){"residual", 1, 2, {SHAPE(3, 5)}, {SHAPE(5), SHAPE(5, 5)}, .build = build_residual});
}

BUILD(build_glu)
{
    (void)p;
    return c->number[0] ? nrl_op_geglu(x_ctx, x[0], x[1], y) : nrl_op_swiglu(x_ctx, x[0], x[1], y);
}

static void gated_activations_have_the_right_gradients(void **state)
{
    (void)state;
    gradient_case c = {"swiglu", 2, 0, {RANGE(0, 3, 3, 19), SHAPE(3, 19)}, .build = build_glu};
    check(&c);
    c.name = "geglu";
    c.number[0] = 1;
    check(&c);
}

/* ---- element by element ---- */

BUILD(build_unary)
{
    (void)p;
    return nrl_op_unary(x_ctx, (nrl_unary)c->number[0], x[0], c->real[0], c->real[1], y);
}

static void unary_operations_have_the_right_gradients(void **state)
{
    (void)state;
    for (int op = 1; op < NRL_UNARY_COUNT; op++) {
        char name[32];
        snprintf(name, sizeof name, "unary %d", op);
        bool positive = op == NRL_UNARY_LOG || op == NRL_UNARY_SQRT || op == NRL_UNARY_RECIPROCAL ||
                        op == NRL_UNARY_POW || op == NRL_UNARY_LOG1P;
        /* Corners (abs and relu at 0, clamp at its bounds) are no place for differences. */
        bool corner = op == NRL_UNARY_ABS || op == NRL_UNARY_RELU || op == NRL_UNARY_CLAMP;
        gradient_case c = {name, 1, 0, {RANGE(positive ? 2.0 : 0, 1, 3, 5)}, .build = build_unary,
                           .number = {op}, .real = {0.7, 0.2}};
        if (corner) c.inputs[0].offset = 1.5;
        if (op == NRL_UNARY_CLAMP) c.real[0] = -3, c.real[1] = 4;
        if (op == NRL_UNARY_POW) c.real[0] = 2.5;
        check(&c);
        c.inputs[0].offset = corner ? -1.5 : c.inputs[0].offset;
        if (corner) check(&c);
    }
}

BUILD(build_binary)
{
    (void)p;
    return nrl_op_binary(x_ctx, (nrl_binary)c->number[0], x[0], x[1], y);
}

static void binary_operations_broadcast_either_operand(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{3, 5}, {1, 5}, {3, 1}, {1, 1}};
    for (int op = 1; op < NRL_BINARY_GREATER; op++) {
        for (int i = 0; i < 7; i++) {
            char name[64];
            const int64_t *a = shapes[i < 4 ? 0 : i - 3], *b = shapes[i < 4 ? i : 0];
            snprintf(name, sizeof name, "binary %d of [%d,%d] [%d,%d]", op, (int)a[0], (int)a[1], (int)b[0],
                     (int)b[1]);
            check(&(gradient_case){name,
                                   2,
                                   0,
                                   {RANGE(0, 1, a[0], a[1]), RANGE(2.2, 1, b[0], b[1])},
                                   .build = build_binary,
                                   .number = {op}});
        }
    }
}

BUILD(build_same_twice)
{
    (void)p;
    return nrl_op_binary(x_ctx, (nrl_binary)c->number[0], x[0], x[0], y);
}

static void an_operand_on_both_sides_gets_both_gradients(void **state)
{
    (void)state;
    check(&(gradient_case){"x + x", 1, 0, {SHAPE(3, 5)}, .build = build_same_twice, .number = {NRL_BINARY_ADD}});
    check(&(gradient_case){"x x", 1, 0, {SHAPE(3, 5)}, .build = build_same_twice, .number = {NRL_BINARY_MUL}});
    check(&(gradient_case){"x - x", 1, 0, {SHAPE(3, 5)}, .build = build_same_twice, .number = {NRL_BINARY_SUB}});
}

BUILD(build_where)
{
    nrl_tensor *zero, *mask;
    (void)p;
    (void)c;
    NRL_TRY(nrl_op_unary(x_ctx, NRL_UNARY_AFFINE, x[2], 0, 0, &zero));
    NRL_TRY(nrl_op_binary(x_ctx, NRL_BINARY_GREATER, x[2], zero, &mask));
    return nrl_op_where(x_ctx, mask, x[0], x[1], y);
}

static void where_sends_gradients_to_the_chosen_side(void **state)
{
    (void)state;
    check(&(gradient_case){
        "where", 3, 0, {SHAPE(3, 5), SHAPE(3, 5), RANGE(0, 40, 3, 5)}, .build = build_where});
}

BUILD(build_cast)
{
    nrl_tensor *twice;
    (void)c;
    (void)p;
    NRL_TRY(nrl_op_cast(x_ctx, x[0], NRL_DTYPE_F32, &twice));
    return nrl_op_dropout(x_ctx, twice, 0.4, y);
}

static void dropout_keeps_its_mask_on_the_way_back(void **state)
{
    (void)state;
    ctx_set_random(ctx, 0);
    check(&(gradient_case){"dropout when off", 1, 0, {SHAPE(5, 7)}, .build = build_cast});
}

/* ---- reductions ---- */

BUILD(build_reduce)
{
    (void)p;
    switch (c->number[0]) {
    case 0: return nrl_op_sum(x_ctx, x[0], y);
    case 1: return nrl_op_mean(x_ctx, x[0], y);
    case 2: return nrl_op_sum_columns(x_ctx, x[0], y);
    case 3: return nrl_op_sum_rows(x_ctx, x[0], y);
    case 4: return nrl_op_max_columns(x_ctx, x[0], y);
    case 5: return nrl_op_log_sum_exp(x_ctx, x[0], y);
    case 6: return nrl_op_softmax(x_ctx, x[0], y);
    default: return nrl_op_log_softmax(x_ctx, x[0], y);
    }
}

static void reductions_have_the_right_gradients(void **state)
{
    (void)state;
    static const char *const names[] = {"sum", "mean", "sum_columns", "sum_rows", "max_columns", "log_sum_exp",
                                        "softmax", "log_softmax"};
    for (int i = 0; i < 8; i++)
        check(&(gradient_case){names[i], 1, 0, {RANGE(0, 2, 3, 7)}, .build = build_reduce, .number = {i}});
}

/* ---- rows and columns ---- */

BUILD(build_rows)
{
    static const int32_t index[] = {2, 0, -1, 2, 1}, segment[] = {0, 0, -1, 2};
    nrl_tensor *a, *b, *d;
    (void)p;
    switch (c->number[0]) {
    case 0: return nrl_op_reshape(x_ctx, x[0], 3, (int64_t[]){2, 3, 2}, y);
    case 1: return nrl_op_slice_rows(x_ctx, x[0], 1, 3, y);
    case 2: /* two slices of one tensor, of which one is sliced again */
        NRL_TRY(nrl_op_slice_columns(x_ctx, x[0], 0, 2, &a));
        NRL_TRY(nrl_op_slice_columns(x_ctx, x[0], 1, 3, &b));
        NRL_TRY(nrl_op_slice_columns(x_ctx, b, 1, 2, &d));
        NRL_TRY(nrl_op_binary(x_ctx, NRL_BINARY_MUL, a, b, &a));
        return nrl_op_binary(x_ctx, NRL_BINARY_MUL, a, d, y);
    case 3: return nrl_op_concat_rows(x_ctx, (nrl_tensor *[]){x[0], x[1], x[0]}, 3, y);
    case 4: return nrl_op_transpose(x_ctx, x[0], y);
    case 5: return nrl_op_gather_rows(x_ctx, x[0], index, 5, y);
    case 6: return nrl_op_segment_sum(x_ctx, x[0], segment, 4, 3, y);
    case 7: /* rows of a slice of columns */
        NRL_TRY(nrl_op_slice_columns(x_ctx, x[0], 1, 3, &a));
        NRL_TRY(nrl_op_slice_rows(x_ctx, a, 1, 3, &b));
        return nrl_op_unary(x_ctx, NRL_UNARY_SQUARE, b, 0, 0, y);
    default: return nrl_op_slice_rows(x_ctx, x[0], 1, 3, y);
    }
}

static void moving_rows_and_columns_moves_gradients_back(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++) {
        char name[32];
        snprintf(name, sizeof name, "rows %d", i);
        check(&(gradient_case){
            name, 2, 0, {SHAPE(4, 3), SHAPE(2, 3)}, .build = build_rows, .number = {i}});
    }
    static const int of_vectors[] = {3, 5, 6, 8};
    for (int i = 0; i < 4; i++)
        check(&(gradient_case){
            "rows of vectors", 2, 0, {SHAPE(4), SHAPE(2)}, .build = build_rows, .number = {of_vectors[i]}});
}

/* ---- the head ---- */

BUILD(build_head)
{
    nrl_tensor *logps, *entropy;
    head_spec head = {p[0], c->n_params > 1 ? p[1] : NULL, c->real[0], c->real[1]};
    if (!c->number[0]) return head_columns(x_ctx, &head, x[0], HEAD_LOGP, 1, y, NULL, NULL);
    NRL_TRY(head_columns(x_ctx, &head, x[0], HEAD_LOGP | HEAD_ENTROPY, 0.8, &logps, &entropy, NULL));
    NRL_TRY(nrl_op_unary(x_ctx, NRL_UNARY_SQUARE, logps, 0, 0, &logps));
    return nrl_op_binary(x_ctx, NRL_BINARY_MUL, logps, entropy, y);
}

static void head_columns_have_the_right_gradients(void **state)
{
    (void)state;
    nrl_batch *b = small_batch(false), *shared = small_batch(true);
    gradient_case c = {"head", 1, 1, {SHAPE(8, 3)}, {SHAPE(5, 3)}, .build = build_head, .batch = b, .real = {1, 0}};
    check(&c);
    ctx_set_head_chunk(ctx, 4);
    check(&c);
    c.name = "head with bias, scale and soft cap";
    c.n_params = 2;
    c.params[1].n_dims = 1;
    c.params[1].dims[0] = 5;
    c.real[0] = 0.6;
    c.real[1] = 2.5;
    check(&c);
    c.name = "head with entropy and temperature";
    c.number[0] = 1;
    check(&c);
    c.name = "head of rows that share a token";
    shared->row_token[2] = shared->row_token[3] = 2; /* both continuations start after the prompt */
    c.batch = shared;
    check(&c);
    ctx_set_head_chunk(ctx, 0);
    batch_free(b);
    batch_free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_has_the_right_gradients),
        cmocka_unit_test(tensors_and_parameters_used_twice_add_up),
        cmocka_unit_test(matmul_has_the_right_gradients_in_all_orders),
        cmocka_unit_test(embedding_adds_rows_of_equal_tokens),
        cmocka_unit_test(rope_has_the_right_gradients),
        cmocka_unit_test(attention_has_the_right_gradients),
        cmocka_unit_test(norms_have_the_right_gradients),
        cmocka_unit_test(a_residual_stream_has_the_right_gradients),
        cmocka_unit_test(gated_activations_have_the_right_gradients),
        cmocka_unit_test(unary_operations_have_the_right_gradients),
        cmocka_unit_test(binary_operations_broadcast_either_operand),
        cmocka_unit_test(an_operand_on_both_sides_gets_both_gradients),
        cmocka_unit_test(where_sends_gradients_to_the_chosen_side),
        cmocka_unit_test(dropout_keeps_its_mask_on_the_way_back),
        cmocka_unit_test(reductions_have_the_right_gradients),
        cmocka_unit_test(moving_rows_and_columns_moves_gradients_back),
        cmocka_unit_test(head_columns_have_the_right_gradients),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
