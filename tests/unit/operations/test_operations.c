/*
 * test_operations.c - the operations of nrl/operations.h: gradients are those of central differences, and results and
 * gradients those of PyTorch in float64, which make_operations.py wrote to tests/data/operations.json.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "support/gradient.h"
#include "tensor/ops/rope.h"
#include <nrl/operations.h>

/* A few dozen roundings of f32 (6e-8 each) on values of size one. */
#define REFERENCE_TOLERANCE 2e-6

static device the_device;
static nrl_ctx *ctx;
static arena memory;
static const nrl_node *reference;

static int open_all(void **state)
{
    const char *source = getenv("NRL_TEST_SOURCE");
    char path[4096];
    nrl_node *root;
    (void)state;
    if (!test_device_open(&the_device)) exit(77);
    snprintf(path, sizeof path, "%s/tests/data/operations.json", source ? source : ".");
    if (json_read_file(&memory, path, 1 << 20, &root)) {
        printf("%s\n", nrl_error_text());
        return -1;
    }
    reference = root;
    return ctx_create(&the_device, &ctx) ? -1 : 0;
}

static int close_all(void **state)
{
    (void)state;
    rope_forget(ctx);
    ctx_destroy(ctx);
    device_close(&the_device);
    arena_free(&memory);
    return 0;
}

/* ---- the cases ---- */

#define BUILD(name)                                                                                                    \
    static nrl_status name(const gradient_case *c, nrl_ctx *ctx_, nrl_tensor **x, nrl_param **p, nrl_tensor **y)

BUILD(build_top_k)
{
    nrl_tensor *indices;
    (void)p;
    return nrl_op_top_k(ctx_, x[0], c->number[0], y, &indices);
}

/* Inputs are in [-1, 1], so some are bounded. */
BUILD(build_swiglu)
{
    (void)c, (void)p;
    return nrl_op_clamped_swiglu(ctx_, x[0], 1.702, 0.5, y);
}

BUILD(build_concat)
{
    (void)c, (void)p;
    return nrl_op_concat_columns(ctx_, (nrl_tensor *[]){x[0], x[1], x[0]}, 3, y);
}

BUILD(build_split)
{
    nrl_tensor *parts[4];
    (void)c, (void)p;
    NRL_TRY(nrl_op_split_columns(ctx_, x[0], (int64_t[]){2, 3, 3, 1}, 4, parts));
    return nrl_op_binary(ctx_, NRL_BINARY_MUL, parts[1], parts[2], y);
}

BUILD(build_rope)
{
    static const double inv_freq[] = {1.0, 0.37, 0.05};
    nrl_rope rope = {inv_freq, c->number[0], 1.3};
    (void)p;
    return nrl_op_rope_interleaved(ctx_, x[0], 2, &rope, y);
}

BUILD(build_scan)
{
    (void)c, (void)p;
    return nrl_op_scan(ctx_, x[0], x[1], y);
}

BUILD(build_conv1d)
{
    (void)c, (void)p;
    return nrl_op_conv1d(ctx_, x[0], x[1], x[2], y);
}

BUILD(build_attention)
{
    static double slopes[4];
    nrl_biased_attention spec = {
        .size = sizeof spec,
        .attention = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 3, .window = c->number[1], .scale = 0.7},
        .slopes = c->number[0] ? slopes : NULL,
        .sinks = c->n_inputs > 3 ? x[3] : NULL};
    (void)p;
    nrl_op_alibi_slopes(4, slopes);
    return nrl_op_biased_attention(ctx_, x[0], x[1], x[2], &spec, y);
}

#define QKV SHAPE(8, 12), SHAPE(8, 6), SHAPE(8, 6)
/* clang-format off */
static const gradient_case cases[] = {
    {"top_k: values", 1, 0, {SHAPE(5, 6)}, .build = build_top_k, .number = {3}},
    {"swiglu: clamped", 1, 0, {SHAPE(5, 8)}, .build = build_swiglu},
    {"columns: concat", 2, 0, {SHAPE(3, 2), SHAPE(3, 4)}, .build = build_concat},
    {"columns: split", 1, 0, {SHAPE(4, 9)}, .build = build_split},
    {"rope: interleaved", 1, 0, {SHAPE(8, 12)}, .build = build_rope, .batch = 1, .number = {3}},
    {"rope: interleaved, a part", 1, 0, {SHAPE(8, 12)}, .build = build_rope, .batch = 1, .number = {2}},
    {"scan: segments", 2, 0, {SHAPE(8, 5), SHAPE(8, 5)}, .build = build_scan, .batch = 1},
    {"scan: a shared prompt", 2, 0, {SHAPE(8, 5), SHAPE(8, 5)}, .build = build_scan, .batch = 2},
    {"conv1d: segments", 3, 0, {SHAPE(8, 5), SHAPE(5, 3), SHAPE(5)}, .build = build_conv1d, .batch = 1},
    {"conv1d: a shared prompt", 3, 0, {SHAPE(8, 5), SHAPE(5, 3), SHAPE(5)}, .build = build_conv1d, .batch = 2},
    {"attention: alibi", 3, 0, {QKV}, .build = build_attention, .batch = 1, .number = {1}},
    {"attention: sinks", 4, 0, {QKV, SHAPE(4)}, .build = build_attention, .batch = 1},
    {"attention: both in a window", 4, 0, {QKV, SHAPE(4)}, .build = build_attention, .batch = 1, .number = {1, 2}},
    {"attention: both with a shared prompt", 4, 0, {QKV, SHAPE(4)}, .build = build_attention, .batch = 2, .number = {1}},
};
/* clang-format on */
enum { N_CASES = sizeof cases / sizeof *cases };

static void gradients_are_those_of_central_differences(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        ctx_memory before, after;
        double worst = 0;
        rope_forget(ctx); /* a device keeps its angles */
        ctx_memory_use(ctx, &before);
        if (gradient_check(ctx, &cases[i], &worst)) fail_msg("%s", nrl_error_text());
        rope_forget(ctx);
        ctx_memory_use(ctx, &after);
        assert_int_equal(after.live_bytes, before.live_bytes);
    }
}

static void compare(const char *name, const nrl_node *expected, const double *values, int64_t n)
{
    assert_int_equal(nrl_node_size(expected), n);
    for (int64_t i = 0; i < n; i++) {
        double e = nrl_node_f64(nrl_node_at(expected, (size_t)i), NAN);
        if (!(fabs(values[i] - e) <= REFERENCE_TOLERANCE * (1 + fabs(e))))
            fail_msg("%s: [%lld] is %.9g, PyTorch has %.9g", name, (long long)i, values[i], e);
    }
}

static void results_and_gradients_are_those_of_pytorch(void **state)
{
    (void)state;
    assert_int_equal(nrl_node_size(reference), N_CASES);
    for (int i = 0; i < N_CASES; i++) {
        const gradient_case *c = &cases[i];
        const nrl_node *expected = nrl_node_find(reference, c->name);
        gradient_run g;
        rope_forget(ctx); /* the cases have tables of their own at one address */
        nrl_status st = gradient_open(&g, ctx, c);
        if (!st) st = gradient_backward(&g, false);
        if (st) fail_msg("%s: %s", c->name, nrl_error_text());
        compare(c->name, nrl_node_find(expected, "output"), g.output, g.n_output);
        for (int k = 0; k < c->n_inputs; k++)
            compare(c->name, nrl_node_at(nrl_node_find(expected, "grads"), (size_t)k), g.grads[k], g.numel[k]);
        gradient_close(&g);
    }
}

static void top_k_names_the_columns_and_keeps_their_order_on_ties(void **state)
{
    const float x[] = {1, 3, 3, 2, -1, -5, -1, -2};
    const double want[] = {1, 2, 3, 0, 2, 3};
    double got[6];
    nrl_tensor *t, *values, *indices;
    (void)state;
    ctx_scope_begin(ctx);
    assert_int_equal(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, (int64_t[]){2, 4}, x, &t), NRL_OK);
    assert_int_equal(nrl_op_top_k(ctx, t, 3, &values, &indices), NRL_OK);
    assert_int_equal(nrl_tensor_fetch(ctx, indices, got, 6), NRL_OK);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(nrl_op_top_k(ctx, t, 5, &values, &indices), NRL_ERR_BUG);
    ctx_scope_end(ctx);
}

/* The numbers of a call, of the batch with segments 0, 1, 2 or of the second segment alone. */
static void uniform(uint64_t key, bool alone, double *out)
{
    nrl_batch *b = gradient_batch(false);
    nrl_tensor *y;
    for (int32_t s = 0; s < 3; s++)
        b->segment_sample[s] = s;
    if (alone) { /* the last segment, in front */
        b->cu_seqlens[0] = 0;
        b->cu_seqlens[1] = 4;
        b->n_segments = 1;
        b->n_tokens = 4;
        b->segment_sample[0] = 2;
        memmove(b->positions, b->positions + 4, 4 * sizeof *b->positions);
    }
    ctx_scope_begin(ctx);
    assert_int_equal(ctx_set_batch(ctx, b), NRL_OK);
    ctx_set_random(ctx, key);
    assert_int_equal(nrl_op_uniform(ctx, 3, &y), NRL_OK);
    if (!key) assert_null(y);
    if (key) assert_int_equal(nrl_tensor_fetch(ctx, y, out, nrl_tensor_numel(y)), NRL_OK);
    ctx_set_random(ctx, 0);
    ctx_set_batch(ctx, NULL);
    ctx_scope_end(ctx);
    batch_free(b);
}

static void random_numbers_depend_on_key_sample_and_position_alone(void **state)
{
    double once[24], again[24], other[24], alone[12];
    (void)state;
    uniform(7, false, once);
    uniform(7, false, again);
    uniform(9, false, other);
    uniform(7, true, alone);
    uniform(0, false, NULL);
    assert_memory_equal(once, again, sizeof once);
    assert_memory_not_equal(once, other, sizeof once);
    assert_memory_equal(once + 12, alone, sizeof alone);
    for (int i = 0; i < 24; i++)
        assert_true(once[i] >= 0 && once[i] < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_central_differences),
        cmocka_unit_test(results_and_gradients_are_those_of_pytorch),
        cmocka_unit_test(top_k_names_the_columns_and_keeps_their_order_on_ties),
        cmocka_unit_test(random_numbers_depend_on_key_sample_and_position_alone),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
