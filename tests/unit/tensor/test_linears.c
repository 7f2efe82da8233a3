/*
 * test_linears.c - several products of one input as one: gradients compared with central differences, and the number of
 * products, for parameters that lie next to each other or do not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/context.h"
#include "support/gradient.h"
#include "tensor/device/backend_call.h"
#include "tensor/ops/rope.h"

static nrl_status (*product)(void *self, nrl_stream *stream, const nrl_gemm_args *a);
static nrl_status (*rotation)(void *self, nrl_stream *stream, const nrl_rope_args *a);
static int n_products, n_rotations;

static nrl_status count_rotation(void *self, nrl_stream *stream, const nrl_rope_args *a)
{
    n_rotations++;
    return rotation(self, stream, a);
}

static nrl_status count_product(void *self, nrl_stream *stream, const nrl_gemm_args *a)
{
    n_products++;
    return product(self, stream, a);
}

static int open_joining(void **state)
{
    if (open_context(state)) return -1;
    the_device.table.joins_linears = true;
    product = the_device.ops.gemm;
    the_device.ops.gemm = count_product;
    rotation = the_device.ops.rope;
    the_device.ops.rope = count_rotation;
    return 0;
}

/* p: n weights, then their biases, if the case has them. */
static nrl_status linears(const gradient_case *c, int n, uint32_t apart, nrl_tensor *x, nrl_param **p, nrl_tensor **y)
{
    nrl_tensor **each[NRL_LINEARS_MOST] = {&y[0], &y[1], &y[2]};
    return nrl_op_linears(the_ctx, x, n, p, c->n_params > n ? p + n : NULL, apart, each);
}

static nrl_status build_gated(const gradient_case *c, nrl_ctx *own, nrl_tensor **x, nrl_param **p, nrl_tensor **y)
{
    nrl_tensor *m[3];
    NRL_TRY(linears(c, 2, (uint32_t)c->number[0], x[0], p, m));
    return nrl_op_swiglu(own, m[0], m[1], y);
}

/* Each result is read twice: the first gradient is written in place, the second is added. */
static nrl_status build_rotated(const gradient_case *c, nrl_ctx *own, nrl_tensor **x, nrl_param **p, nrl_tensor **y)
{
    static const double inv_freq[] = {1.0, 0.37};
    nrl_rope rope = {inv_freq, 2, 1.3};
    nrl_tensor *m[3], *q, *qk, *kv, *sum;
    NRL_TRY(linears(c, 3, (uint32_t)c->number[0], x[0], p, m));
    NRL_TRY(nrl_op_rope(own, m[0], 1, &rope, &q));
    NRL_TRY(nrl_op_binary(own, NRL_BINARY_MUL, q, m[1], &qk));
    NRL_TRY(nrl_op_binary(own, NRL_BINARY_MUL, m[1], m[2], &kv));
    NRL_TRY(nrl_op_binary(own, NRL_BINARY_ADD, qk, kv, &sum));
    return nrl_op_binary(own, NRL_BINARY_MUL, sum, m[0], y);
}

/* q and k, next to each other, are rotated in place by one call, and so are their gradients. */
static nrl_status build_attention(const gradient_case *c, nrl_ctx *own, nrl_tensor **x, nrl_param **p, nrl_tensor **y)
{
    static const double inv_freq[] = {1.0, 0.37};
    const nrl_rope rope = {inv_freq, 2, 1.3};
    const nrl_attention_spec spec = {.n_heads = 2, .n_kv_heads = 1, .head_dim = 4, .scale = 0.7};
    nrl_tensor *m[3];
    NRL_TRY(linears(c, 3, (uint32_t)c->number[0], x[0], p, m));
    return nrl_op_rotary_attention(own, m[0], m[1], m[2], &spec, 0, &rope, y);
}

/* The second result has no gradient, and the first is both operands of one operation. */
static nrl_status build_partly_used(const gradient_case *c, nrl_ctx *own, nrl_tensor **x, nrl_param **p, nrl_tensor **y)
{
    nrl_tensor *m[3];
    NRL_TRY(linears(c, 2, 0, x[0], p, m));
    return nrl_op_swiglu(own, m[0], m[0], y);
}

static const gradient_case cases[] = {
    {"gated", 1, 2, {SHAPE(5, 7)}, {SHAPE(4, 7), SHAPE(4, 7)}, .build = build_gated},
    {"with biases", 1, 4, {SHAPE(5, 7)}, {SHAPE(3, 7), SHAPE(3, 7), SHAPE(3), SHAPE(3)}, .build = build_gated},
    {"apart", 1, 2, {SHAPE(5, 7)}, {SHAPE(4, 7), SHAPE(4, 7)}, .build = build_gated, .number = {2}},
    {"3 dimensions", 1, 2, {SHAPE(2, 3, 5)}, {SHAPE(4, 5), SHAPE(4, 5)}, .build = build_gated},
    {"rotated", 1, 3, {SHAPE(8, 3)}, {SHAPE(4, 3), SHAPE(4, 3), SHAPE(4, 3)}, .build = build_rotated, .batch = 1},
    {"apart, rotated", 1, 3, {SHAPE(8, 3)}, {SHAPE(4, 3), SHAPE(4, 3), SHAPE(4, 3)}, build_rotated, 1, {4}, {0}},
    {"attention", 1, 3, {SHAPE(8, 3)}, {SHAPE(8, 3), SHAPE(4, 3), SHAPE(4, 3)}, .build = build_attention, .batch = 1},
    {"partly used", 1, 2, {SHAPE(3, 5)}, {SHAPE(4, 5), SHAPE(4, 5)}, .build = build_partly_used},
};

enum { N_CASES = sizeof cases / sizeof *cases };

/* Moves a slot of all parameters into one buffer: one after the other, or the last one first. */
static void move(gradient_run *g, nrl_slot slot, nrl_tensor **tensors, bool backwards)
{
    nrl_tensor *buffer;
    int64_t total = 0, at = 0;
    const int n = g->c->n_params;
    for (int i = 0; i < n; i++)
        total += nrl_param_numel(&g->params[i]);
    assert_int_equal(tensor_persistent(the_ctx, NRL_DTYPE_F32, 1, &total, true, &buffer), NRL_OK);
    for (int k = 0; k < n; k++) {
        const int i = backwards ? n - 1 - k : k;
        tensor_release(the_ctx, tensors[i]);
        assert_int_equal(tensor_flat_view(the_ctx, buffer, at, nrl_param_numel(&g->params[i]), &tensors[i]), NRL_OK);
        nrl_param_bind(&g->params[i], slot, tensors[i]);
        at += nrl_param_numel(&g->params[i]);
    }
    tensor_release(the_ctx, buffer);
}

/* Opens case c with weights that are neighbours, and gradients that are or lie the other way round. */
static void open_case(gradient_run *g, const gradient_case *c, bool backwards)
{
    assert_int_equal(gradient_open(g, the_ctx, c), NRL_OK);
    move(g, NRL_SLOT_WEIGHT, g->work, false);
    move(g, NRL_SLOT_GRAD, g->grad_acc, backwards);
    n_products = n_rotations = 0;
}

static int n_weights(const gradient_case *c)
{
    return c->n_params == 3 ? 3 : 2; /* else two, with or without biases */
}

static void check(const gradient_case *c, bool backwards)
{
    gradient_run g;
    ctx_memory before, after;
    double worst = 0;
    rope_forget(the_ctx);
    ctx_memory_use(the_ctx, &before);
    open_case(&g, c, backwards);
    nrl_status st = gradient_backward(&g, false);
    /* the product, that of dx, and that of dW or those of each */
    if (!st) assert_int_equal(n_products, backwards ? 2 + n_weights(c) : 3);
    if (!st && c->build == build_attention) assert_int_equal(n_rotations, 2);
    if (!st) st = gradient_check_split(&g);
    if (!st) st = gradient_compare(&g, &worst);
    if (st) fail_msg("%s: %s", c->name, nrl_error_text());
    gradient_close(&g);
    rope_forget(the_ctx);
    ctx_memory_use(the_ctx, &after);
    assert_int_equal(after.live_bytes, before.live_bytes);
}

static void neighbours_are_one_product_with_the_right_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++)
        check(&cases[i], false);
}

static void gradients_that_are_no_neighbours_have_a_product_each(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++)
        check(&cases[i], true);
}

/* Gradients of the same case by separate linears, with the second weight frozen or not. */
static void fetch_grads(const gradient_case *c, bool joins, bool frozen, double *out, int products)
{
    gradient_run g;
    the_device.table.joins_linears = joins;
    open_case(&g, c, false);
    g.params[1].trained = !frozen;
    g.params[0].grad_is_empty = false; /* of an earlier micro-batch */
    assert_int_equal(nrl_tensor_fill(the_ctx, g.grad_acc[0], 1), NRL_OK);
    assert_int_equal(gradient_backward(&g, false), NRL_OK);
    assert_int_equal(n_products, products);
    for (int i = 0; i < c->n_inputs + c->n_params; i++) {
        memcpy(out, g.grads[i], (size_t)g.numel[i] * sizeof *out);
        out += g.numel[i];
    }
    gradient_close(&g);
    the_device.table.joins_linears = true;
}

/* One weight is frozen, or has no gradient yet while the other has: the gradient of each is its own product. */
static void neighbours_that_differ_have_the_gradients_of_separate_products(void **state)
{
    double joined[256] = {0}, separate[256] = {0};
    (void)state;
    for (int i = 0; i < N_CASES; i++)
        for (int frozen = 0; frozen < 2; frozen++) {
            const int n = n_weights(&cases[i]), unused = cases[i].build == build_partly_used;
            const int alone = n == 3 && !frozen; /* the last two are neighbours that agree */
            fetch_grads(&cases[i], true, frozen, joined, 2 + n - frozen - alone);
            fetch_grads(&cases[i], false, frozen, separate, 3 * n - frozen - (unused ? 2 - frozen : 0));
            for (int k = 0; k < 256; k++)
                assert_true(fabs(joined[k] - separate[k]) <=
                            1e-5 * (1 + fabs(separate[k]))); /* sums in another order */
        }
}

static void more_weights_than_the_most_are_an_error(void **state)
{
    nrl_tensor *x = NULL;
    (void)state;
    assert_int_equal(nrl_op_linears(the_ctx, x, NRL_LINEARS_MOST + 1, NULL, NULL, 0, NULL), NRL_ERR_BUG);
    assert_int_equal(nrl_op_linears(the_ctx, x, 0, NULL, NULL, 0, NULL), NRL_ERR_BUG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_are_one_product_with_the_right_gradients),
        cmocka_unit_test(gradients_that_are_no_neighbours_have_a_product_each),
        cmocka_unit_test(neighbours_that_differ_have_the_gradients_of_separate_products),
        cmocka_unit_test(more_weights_than_the_most_are_an_error),
    };
    return cmocka_run_group_tests(tests, open_joining, close_context);
}
