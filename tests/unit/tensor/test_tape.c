/*
 * test_tape.c - scopes and counts, the tensors that a tape keeps and their lifetime, foreign nodes,
 * and messages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/context.h"
#include "tensor/internal.h"
#include <math.h>
#include <string.h>

static void ok(nrl_status st)
{
    if (st) fail_msg("%s", nrl_error_text());
}

static size_t live_bytes(void)
{
    ctx_memory m;
    ctx_memory_use(the_ctx, &m);
    return m.live_bytes;
}

static nrl_tensor *vector(int n, double first)
{
    float values[64];
    nrl_tensor *t;
    for (int i = 0; i < n; i++)
        values[i] = (float)(first + i);
    ok(nrl_tensor_from_host(the_ctx, NRL_DTYPE_F32, 1, (int64_t[]){n}, values, &t));
    return t;
}

static double value_at(const nrl_tensor *t, int i)
{
    double values[64];
    ok(nrl_tensor_fetch(the_ctx, t, values, nrl_tensor_numel(t)));
    return values[i];
}

static nrl_tensor *unary(nrl_unary op, nrl_tensor *x)
{
    nrl_tensor *y;
    ok(nrl_op_unary(the_ctx, op, x, 0, 0, &y));
    return y;
}

static void scopes_nest_and_release_what_nobody_holds(void **state)
{
    size_t before = live_bytes();
    (void)state;
    ctx_trim(the_ctx);
    ctx_scope_begin(the_ctx);
    nrl_tensor *outer = vector(5, 0);
    size_t with_outer = live_bytes();
    assert_true(with_outer > before);
    ctx_scope_begin(the_ctx);
    nrl_tensor *kept = tensor_retain(vector(40, 7));
    vector(60, 0);
    ctx_scope_end(the_ctx);
    assert_int_equal(live_bytes(), with_outer + 192); /* 40 floats in a block of 64-byte steps */
    assert_true(value_at(kept, 39) == 46);
    tensor_release(the_ctx, kept);
    assert_int_equal(live_bytes(), with_outer);
    assert_true(value_at(outer, 4) == 4);
    ctx_scope_end(the_ctx);
    assert_int_equal(live_bytes(), before);
    tensor_release(the_ctx, NULL);
}

static void views_keep_their_memory_alive(void **state)
{
    size_t before = live_bytes();
    nrl_tensor *view;
    (void)state;
    ctx_scope_begin(the_ctx);
    ok(tensor_flat_view(the_ctx, vector(10, 0), 3, 4, &view));
    assert_int_equal(tensor_flat_view(the_ctx, vector(10, 0), 8, 4, &(nrl_tensor *){NULL}), NRL_ERR_BUG);
    ctx_scope_end(the_ctx);
    assert_true(live_bytes() > before);
    assert_true(value_at(view, 0) == 3 && nrl_tensor_numel(view) == 4);
    tensor_release(the_ctx, view);
    assert_int_equal(live_bytes(), before);
}

/* y = exp(exp(x)): what the tape saved goes node by node, all of it by the end. */
static void a_tape_keeps_what_it_saved_and_releases_everything(void **state)
{
    size_t before = live_bytes();
    tape *t = tape_create();
    nrl_tensor *dx;
    (void)state;
    ctx_trim(the_ctx); /* so that blocks have their own sizes */
    ctx_scope_begin(the_ctx);
    nrl_tensor *x = vector(1, 0.5), *y;
    tensor_set_leaf(x);
    tensor_retain(x);
    ctx_tape_begin(the_ctx, t);
    y = tensor_retain(unary(NRL_UNARY_EXP, unary(NRL_UNARY_EXP, x)));
    ctx_tape_end(the_ctx);
    assert_true(nrl_tensor_has_grad(y));
    ctx_scope_end(the_ctx);
    assert_int_equal(live_bytes(), before + 3 * 64); /* x, exp x, y */
    ctx_scope_begin(the_ctx);
    nrl_tensor *seed = vector(1, 1);
    ok(tape_backward(the_ctx, t, &y, &seed, 1, &x, &dx, 1));
    assert_true(fabs(value_at(dx, 0) - exp(0.5) * exp(exp(0.5))) < 1e-5);
    tensor_release(the_ctx, dx);
    ctx_scope_end(the_ctx);
    assert_int_equal(live_bytes(), before + 2 * 64); /* x and y, which are ours */
    tensor_release(the_ctx, x);
    tensor_release(the_ctx, y);
    assert_int_equal(live_bytes(), before);
    tape_destroy(the_ctx, t);
}

static void a_tape_dropped_before_its_backward_leaves_nothing(void **state)
{
    size_t before = live_bytes();
    tape *t = tape_create();
    (void)state;
    ctx_scope_begin(the_ctx);
    nrl_tensor *x = vector(3, 1);
    tensor_set_leaf(x);
    ctx_tape_begin(the_ctx, t);
    unary(NRL_UNARY_LOG, unary(NRL_UNARY_EXP, x));
    ctx_tape_end(the_ctx);
    ctx_scope_end(the_ctx);
    assert_true(live_bytes() > before);
    tape_destroy(the_ctx, t);
    assert_int_equal(live_bytes(), before);
}

static void nothing_is_recorded_without_a_tape_or_a_gradient(void **state)
{
    tape *t = tape_create();
    (void)state;
    ctx_scope_begin(the_ctx);
    nrl_tensor *x = vector(3, 1), *constant = vector(3, 1), *cut;
    tensor_set_leaf(x);
    assert_false(nrl_tensor_has_grad(unary(NRL_UNARY_EXP, x)));
    ctx_tape_begin(the_ctx, t);
    assert_false(nrl_tensor_has_grad(unary(NRL_UNARY_EXP, constant)));
    ctx_tape_begin(the_ctx, NULL);
    assert_false(nrl_tensor_has_grad(unary(NRL_UNARY_EXP, x)));
    ctx_tape_end(the_ctx);
    assert_true(nrl_tensor_has_grad(unary(NRL_UNARY_EXP, x)));
    ok(nrl_op_detach(the_ctx, x, &cut));
    assert_false(nrl_tensor_has_grad(cut));
    assert_false(nrl_tensor_has_grad(unary(NRL_UNARY_EXP, cut)));
    ctx_tape_end(the_ctx);
    ctx_scope_end(the_ctx);
    tape_destroy(the_ctx, t);
}

/* Two outputs, one without a gradient; an input that nothing reaches; one output given twice. */
static void gradients_of_several_outputs_meet(void **state)
{
    size_t before = live_bytes();
    tape *t = tape_create();
    nrl_tensor *d[2];
    (void)state;
    ctx_scope_begin(the_ctx);
    nrl_tensor *x[2] = {vector(2, 3), vector(2, 5)}, *seed = vector(2, 1);
    tensor_set_leaf(x[0]);
    tensor_set_leaf(x[1]);
    ctx_tape_begin(the_ctx, t);
    nrl_tensor *square = unary(NRL_UNARY_SQUARE, x[0]), *unused = unary(NRL_UNARY_EXP, x[1]);
    ctx_tape_end(the_ctx);
    nrl_tensor *outputs[] = {square, unused, square}, *grads[] = {seed, NULL, seed};
    ok(tape_backward(the_ctx, t, outputs, grads, 3, x, d, 2));
    assert_true(value_at(d[0], 0) == 12 && value_at(d[0], 1) == 32); /* 2 x (seed + seed) */
    assert_null(d[1]);
    assert_true(value_at(seed, 0) == 1); /* the caller's gradient is not added to */
    tensor_release(the_ctx, d[0]);
    ctx_scope_end(the_ctx);
    tape_destroy(the_ctx, t);
    assert_int_equal(live_bytes(), before);
}

/* ---- a node from outside: y = x^3, saving x ---- */

static nrl_status cube_backward(nrl_ctx *c, nrl_tape_node *node)
{
    const double *factor = nrl_tape_attributes(node);
    nrl_tensor *square, *d;
    assert_true(nrl_tape_wants(node, 0));
    assert_false(nrl_tape_wants(node, 1));
    assert_null(nrl_tape_input(node, 2));
    NRL_TRY(nrl_op_unary(c, NRL_UNARY_SQUARE, nrl_tape_saved(node, 0), 0, 0, &square));
    NRL_TRY(nrl_op_unary(c, NRL_UNARY_AFFINE, square, *factor, 0, &square));
    NRL_TRY(nrl_op_binary(c, NRL_BINARY_MUL, square, nrl_tape_grad(node, 0), &d));
    NRL_TRY(nrl_tape_give(c, node, 1, d)); /* not wanted: ignored */
    return nrl_tape_give(c, node, 0, d);
}

static void a_node_recorded_from_outside_is_walked(void **state)
{
    tape *t = tape_create();
    double attributes[32] = {3}; /* larger than a node holds inside itself */
    nrl_tensor *dx;
    (void)state;
    ctx_scope_begin(the_ctx);
    nrl_tensor *x = vector(2, 2), *constant = vector(2, 0), *y = vector(2, 0), *seed = vector(2, 1);
    tensor_set_leaf(x);
    nrl_tape_record r = {.size = sizeof r,
                         .name = "cube",
                         .inputs = {x, constant},
                         .outputs = {y},
                         .saved = {x},
                         .attributes = attributes,
                         .attributes_size = sizeof attributes,
                         .backward = cube_backward};
    ok(nrl_tape_push(the_ctx, &r)); /* no tape: nothing happens */
    assert_false(nrl_tensor_has_grad(y));
    ctx_tape_begin(the_ctx, t);
    ok(nrl_tape_push(the_ctx, &r));
    ctx_tape_end(the_ctx);
    attributes[0] = 0;
    ok(tape_backward(the_ctx, t, &y, &seed, 1, &x, &dx, 1));
    assert_true(value_at(dx, 0) == 12 && value_at(dx, 1) == 54);
    tensor_release(the_ctx, dx);
    r.size = sizeof r + 8;
    assert_int_equal(nrl_tape_push(the_ctx, &r), NRL_ERR_PLUGIN);
    ctx_scope_end(the_ctx);
    tape_destroy(the_ctx, t);
}

static nrl_status failing_backward(nrl_ctx *c, nrl_tape_node *node)
{
    return nrl_tape_give(c, node, 0, vector(3, 0)); /* the input has 2 elements */
}

static void a_failing_backward_is_named_and_leaves_nothing(void **state)
{
    size_t before = live_bytes();
    tape *t = tape_create();
    nrl_tensor *dx = NULL;
    (void)state;
    ctx_scope_begin(the_ctx);
    nrl_tensor *x = vector(2, 2), *seed = vector(2, 1), *y = vector(2, 0);
    tensor_set_leaf(x);
    ctx_tape_begin(the_ctx, t);
    ok(nrl_tape_push(the_ctx, &(nrl_tape_record){.size = sizeof(nrl_tape_record),
                                                 .name = "wrong",
                                                 .inputs = {unary(NRL_UNARY_EXP, x)},
                                                 .outputs = {y},
                                                 .backward = failing_backward}));
    ctx_tape_end(the_ctx);
    assert_int_equal(tape_backward(the_ctx, t, &y, &seed, 1, &x, &dx, 1), NRL_ERR_BUG);
    assert_string_equal(nrl_error_text(), "backward of wrong: gradient [3] of f32 does not fit its tensor [2] of f32");
    assert_null(dx);
    ctx_scope_end(the_ctx);
    tape_destroy(the_ctx, t);
    assert_int_equal(live_bytes(), before);
}

/* ---- exchanges in the background of a backward ---- */

enum { PART = 2, WHOLE = 2 * PART, WIDTH = 3, OUTPUTS = 5 };

/* A region that gathers the same rows twice, as if from two ranks. What is exchanged arrives no earlier than `wait`. */
typedef struct {
    nrl_param weight[2];
    nrl_part parts[2];
    nrl_tensor *values[2], *grads[2];
    nrl_tensor *from[2], *to[2]; /* of the gather that is under way, and of the sum */
    char events[64];
    bool fails; /* the products of the backward */
} exchange;
static exchange the_exchange;

static void event(const char *name)
{
    strncat(the_exchange.events, name, sizeof the_exchange.events - strlen(the_exchange.events) - 1);
}

static nrl_status move(bool back, nrl_tensor *x, nrl_tensor *y)
{
    float from[WHOLE * WIDTH], to[WHOLE * WIDTH];
    NRL_TRY(tensor_read(the_ctx, x, from));
    for (int i = 0; i < WHOLE * WIDTH; i++)
        to[i] = back ? from[i] + from[(i + PART * WIDTH) % (WHOLE * WIDTH)] : from[i % (PART * WIDTH)];
    return tensor_write(the_ctx, y, to);
}

static nrl_status exchange_answer(void *user, nrl_ctx *own, uint32_t tp_region, bool back, nrl_tensor *x,
                                  nrl_tensor **y)
{
    (void)user, (void)tp_region;
    if (*y == x) NRL_TRY(nrl_tensor_new(own, NRL_DTYPE_F32, 2, (int64_t[]){back ? PART : WHOLE, WIDTH}, y));
    return move(back, x, *y);
}

static nrl_status exchange_begin(void *user, nrl_ctx *own, uint32_t tp_region, bool back, nrl_tensor *x, nrl_tensor **y,
                                 nrl_work **work)
{
    exchange *e = user;
    (void)own, (void)tp_region;
    assert_true(*y != x);
    event(back ? "sum " : "gather ");
    if (back) assert_true(nrl_param_grad_is_empty(&e->weight[0]) && nrl_param_grad_is_empty(&e->weight[1]));
    e->from[back] = x;
    e->to[back] = *y;
    *work = (nrl_work *)&e->to[back];
    return NRL_OK;
}

static nrl_status exchange_wait(nrl_work **work, nrl_ctx *own)
{
    exchange *e = &the_exchange;
    const bool back = *work == (nrl_work *)&e->to[1];
    (void)own;
    event(back ? "summed " : "gathered ");
    if (back) assert_false(nrl_param_grad_is_empty(&e->weight[0]) || nrl_param_grad_is_empty(&e->weight[1]));
    *work = NULL;
    return move(back, e->from[back], e->to[back]);
}

static nrl_status exchange_backward(nrl_ctx *own, nrl_tape_node *node)
{
    nrl_tensor *y;
    event("reads ");
    if (the_exchange.fails) return nrl_fail(NRL_ERR_BUG, "no gradient");
    NRL_TRY(nrl_op_binary(own, NRL_BINARY_MUL, nrl_tape_grad(node, 0), nrl_tape_saved(node, 0), &y));
    return nrl_tape_give(own, node, 0, y);
}

/* Half of x^2, by a node that reads x in its backward. */
static nrl_status half_square(nrl_tensor *x, nrl_tensor **y)
{
    NRL_TRY(nrl_op_unary(the_ctx, NRL_UNARY_SQUARE, x, 0, 0, y));
    NRL_TRY(nrl_op_detach(the_ctx, *y, y));
    NRL_TRY(nrl_op_unary(the_ctx, NRL_UNARY_AFFINE, *y, 0.5, 0, y));
    const nrl_tape_record r = {
        .size = sizeof r, .inputs = {x}, .outputs = {*y}, .saved = {x}, .backward = exchange_backward};
    return nrl_tape_push(the_ctx, &r);
}

/* Two products of gathered rows, between them a node that reads them if `reads`; gradients of input and weights. */
static nrl_status run_exchange(bool overlaps, bool reads, double *got)
{
    exchange *e = &the_exchange;
    const ctx_tp_regions regions = {exchange_answer, overlaps ? exchange_begin : NULL, exchange_wait, NULL, e};
    nrl_tensor *x, *h, *y[3], *sum, *seed = vector(1, 1), *dx = NULL;
    tape *t = tape_create();
    ok(nrl_op_reshape(the_ctx, vector(PART * WIDTH, -2), 2, (int64_t[]){PART, WIDTH}, &x));
    x->has_grad = true;
    e->events[0] = 0;
    ctx_settings_of(the_ctx)->tp_regions = regions;
    ctx_tape_begin(the_ctx, t);
    ctx_scope_begin(the_ctx); /* the backward has what the tape keeps */
    ok(nrl_op_tp_region(the_ctx, NRL_TP_REGION_COLUMN_IN, x, &h));
    ok(nrl_op_linear(the_ctx, h, &e->weight[0], NULL, &y[0]));
    if (reads) ok(half_square(h, &y[2]));
    ok(nrl_op_linear(the_ctx, h, &e->weight[1], NULL, &y[1]));
    ok(nrl_op_binary(the_ctx, NRL_BINARY_MUL, y[0], y[1], &y[0]));
    ok(nrl_op_sum(the_ctx, y[0], &sum));
    if (reads) {
        ok(nrl_op_sum(the_ctx, y[2], &y[2]));
        ok(nrl_op_binary(the_ctx, NRL_BINARY_ADD, sum, y[2], &sum));
    }
    tensor_retain(sum);
    ctx_scope_end(the_ctx);
    ctx_own(the_ctx, sum);
    ctx_tape_end(the_ctx);
    ctx_settings_of(the_ctx)->tp_regions = (ctx_tp_regions){0};
    for (int i = 0; i < 2; i++)
        nrl_param_set_grad_is_empty(&e->weight[i], true);
    nrl_status st = tape_backward(the_ctx, t, &sum, &seed, 1, &x, &dx, 1);
    if (st == NRL_OK) ok(nrl_tensor_fetch(the_ctx, dx, got, PART * WIDTH));
    for (int i = 0; i < 2 && st == NRL_OK; i++)
        ok(nrl_tensor_fetch(the_ctx, e->grads[i], got + PART * WIDTH + i * OUTPUTS * WIDTH, OUTPUTS * WIDTH));
    tensor_release(the_ctx, dx);
    tape_destroy(the_ctx, t);
    return st;
}

static void exchanges_end_after_the_products_that_do_not_need_them(void **state)
{
    enum { N = PART * WIDTH + 2 * OUTPUTS * WIDTH };
    exchange *e = &the_exchange;
    double plain[N], got[N];
    (void)state;
    size_t before = live_bytes();
    ctx_scope_begin(the_ctx);
    for (int i = 0; i < 2; i++) {
        param_init(&e->weight[i], &e->parts[i], "w", 2, (int64_t[]){OUTPUTS, WIDTH});
        ok(nrl_op_reshape(the_ctx, vector(OUTPUTS * WIDTH, i), 2, (int64_t[]){OUTPUTS, WIDTH}, &e->values[i]));
        ok(nrl_tensor_new(the_ctx, NRL_DTYPE_F32, 2, (int64_t[]){OUTPUTS, WIDTH}, &e->grads[i]));
        nrl_param_bind(&e->weight[i], NRL_SLOT_WEIGHT, e->values[i]);
        nrl_param_bind(&e->weight[i], NRL_SLOT_GRAD, e->grads[i]);
    }
    for (int reads = 0; reads < 2; reads++) {
        ok(run_exchange(false, reads, plain));
        ok(run_exchange(true, reads, got));
        assert_memory_equal(got, plain, sizeof got);
        /* A node that reads the rows waits for them; the products of the weights have their own turn. */
        assert_string_equal(e->events, reads ? "gather gathered reads sum summed " : "gather sum gathered summed ");
    }
    e->fails = true;
    assert_int_equal(run_exchange(true, true, got), NRL_ERR_BUG);
    assert_string_equal(e->events, "gather gathered reads ");
    e->fails = false;
    ctx_scope_end(the_ctx);
    assert_int_equal(live_bytes(), before);
}

/* ---- messages ---- */

static void shapes_that_disagree_are_named(void **state)
{
    nrl_param w, b;
    nrl_part parts[2];
    nrl_tensor *x, *y;
    (void)state;
    ctx_scope_begin(the_ctx);
    ok(nrl_tensor_new(the_ctx, NRL_DTYPE_F32, 2, (int64_t[]){3, 5}, &x));
    param_init(&w, &parts[0], "a.b", 2, (int64_t[]){7, 4});
    param_init(&b, &parts[1], "a.bias", 1, (int64_t[]){6});
    assert_int_equal(nrl_op_linear(the_ctx, x, &w, NULL, &y), NRL_ERR_BUG);
    assert_string_equal(nrl_error_text(), "linear: x is [3,5], weight 'a.b' is [7,4]");
    w.dims[1] = 5;
    assert_int_equal(nrl_op_linear(the_ctx, x, &w, &b, &y), NRL_ERR_BUG);
    assert_string_equal(nrl_error_text(), "linear: weight 'a.b' is [7,5], bias 'a.bias' is [6]");
    assert_int_equal(nrl_op_linear(the_ctx, x, &w, NULL, &y), NRL_ERR_BUG);
    assert_string_equal(nrl_error_text(), "parameter 'a.b' has no storage in slot WEIGHT");
    assert_int_equal(nrl_op_rms_norm(the_ctx, x, &b, 1e-5, &y), NRL_ERR_BUG);
    assert_string_equal(nrl_error_text(), "rms_norm: x is [3,5], weight 'a.bias' is [6]");
    assert_int_equal(nrl_op_binary(the_ctx, NRL_BINARY_ADD, x, vector(4, 0), &y), NRL_ERR_BUG);
    assert_string_equal(nrl_error_text(), "binary: a is [3,5] of f32, b is [4] of f32");
    assert_int_equal(nrl_op_slice_rows(the_ctx, x, 1, 4, &y), NRL_ERR_BUG);
    assert_string_equal(nrl_error_text(), "slice of rows: [1,4) is not a range of x [3,5]");
    assert_int_equal(nrl_op_reshape(the_ctx, x, 2, (int64_t[]){4, 4}, &y), NRL_ERR_BUG);
    assert_int_equal(nrl_op_gather_rows(the_ctx, x, (int32_t[]){3}, 1, &y), NRL_ERR_BUG);
    assert_int_equal(nrl_op_embedding(the_ctx, &w, &y), NRL_ERR_BUG); /* there is no batch */
    assert_int_equal(nrl_tensor_new(the_ctx, NRL_DTYPE_F32, 2, (int64_t[]){INT64_MAX, 3}, &y), NRL_ERR_BUG);
    assert_int_equal(nrl_tensor_new(the_ctx, NRL_DTYPE_F32, 5, (int64_t[]){1, 1, 1, 1, 1}, &y), NRL_ERR_BUG);
    assert_int_equal(nrl_tensor_new(the_ctx, NRL_DTYPE_F32, 1, (int64_t[]){1ll << 52}, &y), NRL_ERR_MEMORY);
    ctx_scope_end(the_ctx);
}

static void assert_lacks(const char *ops)
{
    char text[128];
    snprintf(text, sizeof text, "backend '%s' has no op %s", the_device.table.plugin.name, ops);
    assert_string_equal(nrl_error_text(), text);
}

static void an_operation_that_the_backend_lacks_is_named(void **state)
{
    device poor = the_device;
    nrl_ctx *poor_ctx;
    nrl_tensor *x, *y;
    (void)state;
    poor.ops.softmax = NULL;
    ok(ctx_create(&poor, &poor_ctx));
    ok(nrl_tensor_new(poor_ctx, NRL_DTYPE_F32, 2, (int64_t[]){3, 5}, &x));
    assert_int_equal(nrl_op_softmax(poor_ctx, x, &y), NRL_ERR_PLUGIN);
    assert_lacks("'softmax'");
    ctx_destroy(poor_ctx);
}

/* ---- dropout, fetch ---- */

static void dropout_depends_on_its_key_and_place_alone(void **state)
{
    double first[1000], second[1000], other[1000], next[1000];
    float ones[1000];
    int dropped = 0;
    nrl_tensor *x, *y;
    (void)state;
    for (int i = 0; i < 1000; i++)
        ones[i] = 1;
    ctx_scope_begin(the_ctx);
    ok(nrl_tensor_from_host(the_ctx, NRL_DTYPE_F32, 2, (int64_t[]){10, 100}, ones, &x));
    ok(nrl_op_dropout(the_ctx, x, 0.25, &y));
    assert_ptr_equal(x, y); /* off */
    double *results[] = {first, next, second, other};
    for (int i = 0; i < 4; i++) {
        if (i != 1) ctx_set_random(the_ctx, i == 3 ? 8 : 7);
        ok(nrl_op_dropout(the_ctx, x, 0.25, &y));
        ok(nrl_tensor_fetch(the_ctx, y, results[i], 1000));
    }
    ctx_set_random(the_ctx, 0);
    assert_memory_equal(first, second, sizeof first); /* a recompute makes the same mask */
    assert_memory_not_equal(first, next, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
    for (int i = 0; i < 1000; i++) {
        assert_true(first[i] == 0 || fabs(first[i] - 1 / 0.75) < 1e-6);
        dropped += first[i] == 0;
    }
    assert_in_range(dropped, 200, 300);
    ctx_scope_end(the_ctx);
}

/* Two samples in either order: a token's mask goes with it. */
static void dropout_goes_with_a_token_however_it_is_packed(void **state)
{
    enum { LENGTH = 5, COLS = 40 };
    double got[2][2 * LENGTH * COLS];
    float ones[2 * LENGTH * COLS];
    nrl_tensor *x, *y;
    (void)state;
    for (int i = 0; i < 2 * LENGTH * COLS; i++)
        ones[i] = 1;
    for (int order = 0; order < 2; order++) {
        nrl_batch *b = batch_new(2 * LENGTH, 0, 2);
        for (int i = 0; i < 2 * LENGTH; i++)
            b->positions[i] = i % LENGTH;
        b->cu_seqlens[1] = LENGTH;
        b->cu_seqlens[2] = 2 * LENGTH;
        b->segment_sample[0] = order ? 9 : 4;
        b->segment_sample[1] = order ? 4 : 9;
        ok(ctx_set_batch(the_ctx, b));
        ctx_scope_begin(the_ctx);
        ctx_set_random(the_ctx, 5);
        ok(nrl_tensor_from_host(the_ctx, NRL_DTYPE_F32, 2, (int64_t[]){2 * LENGTH, COLS}, ones, &x));
        ok(nrl_op_dropout(the_ctx, x, 0.5, &y));
        ok(nrl_tensor_fetch(the_ctx, y, got[order], 2 * LENGTH * COLS));
        ctx_set_random(the_ctx, 0);
        ctx_scope_end(the_ctx);
        ok(ctx_set_batch(the_ctx, NULL));
        batch_free(b);
    }
    size_t half = LENGTH * COLS;
    assert_memory_equal(got[0], got[1] + half, half * sizeof(double));
    assert_memory_equal(got[0] + half, got[1], half * sizeof(double));
    assert_memory_not_equal(got[0], got[1], half * sizeof(double));
}

static void slices_of_columns_are_fetched_by_their_rows(void **state)
{
    double values[4];
    nrl_tensor *x, *y;
    (void)state;
    ctx_scope_begin(the_ctx);
    ok(nrl_tensor_from_host(the_ctx, NRL_DTYPE_F32, 2, (int64_t[]){2, 3}, (float[]){1, 2, 3, 4, 5, 6}, &x));
    ok(nrl_op_slice_columns(the_ctx, x, 1, 3, &y));
    ok(nrl_tensor_fetch(the_ctx, y, values, 4));
    assert_true(values[0] == 2 && values[1] == 3 && values[2] == 5 && values[3] == 6);
    assert_int_equal(nrl_tensor_fetch(the_ctx, y, values, 3), NRL_ERR_BUG);
    assert_int_equal(nrl_tensor_dim(y, -1), 2);
    assert_int_equal(nrl_tensor_dim(y, 0), 2);
    ok(nrl_op_cast(the_ctx, y, NRL_DTYPE_BF16, &y));
    ok(nrl_tensor_fetch(the_ctx, y, values, 4));
    assert_true(values[2] == 5);
    ctx_scope_end(the_ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scopes_nest_and_release_what_nobody_holds),
        cmocka_unit_test(views_keep_their_memory_alive),
        cmocka_unit_test(a_tape_keeps_what_it_saved_and_releases_everything),
        cmocka_unit_test(a_tape_dropped_before_its_backward_leaves_nothing),
        cmocka_unit_test(nothing_is_recorded_without_a_tape_or_a_gradient),
        cmocka_unit_test(gradients_of_several_outputs_meet),
        cmocka_unit_test(a_node_recorded_from_outside_is_walked),
        cmocka_unit_test(a_failing_backward_is_named_and_leaves_nothing),
        cmocka_unit_test(exchanges_end_after_the_products_that_do_not_need_them),
        cmocka_unit_test(shapes_that_disagree_are_named),
        cmocka_unit_test(an_operation_that_the_backend_lacks_is_named),
        cmocka_unit_test(dropout_depends_on_its_key_and_place_alone),
        cmocka_unit_test(dropout_goes_with_a_token_however_it_is_packed),
        cmocka_unit_test(slices_of_columns_are_fetched_by_their_rows),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
