/*
 * test_beside.c - the kernels of a backend for the operations of nrl/operations.h beside those of the CPU: results and
 * gradients at sizes that are not multiples of a block, over packed segments and shared prompts, and the same bits each
 * time. The backend is the emulated cuda backend, or that of $NRL_TEST_BACKEND.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/gradient.h"
#include "tensor/ops/rope.h"
#include <nrl/operations.h>

/* f32 sums of up to 300 terms of size one in another order, and exponentials of such sums. */
#define TOLERANCE 1e-5

enum { CPU, OTHER, SEGMENTS = 7 };
static device devices[2];
static nrl_ctx *ctxs[2];

/* Two prompts, of which the second is continued twice. Long segments end at, before and after the ends of a scan's
 * tiles of 64 rows; short ones those of the 32 rows that a step of attention takes. */
static const int32_t prompts[SEGMENTS] = {-1, 0, -1, -1, 3, 3, -1};
static const int32_t lengths[2][SEGMENTS] = {{70, 1, 64, 65, 2, 129, 10}, {35, 1, 32, 33, 2, 40, 5}};
enum { LONG_TOKENS = 70 + 1 + 64 + 65 + 2 + 129 + 10, SHORT_TOKENS = 35 + 1 + 32 + 33 + 2 + 40 + 5 };

static nrl_batch *packed(bool is_short, bool shared)
{
    const int32_t *length = lengths[is_short];
    nrl_batch *b = batch_new(is_short ? SHORT_TOKENS : LONG_TOKENS, 1, SEGMENTS);
    b->n_examples = SEGMENTS;
    if (shared) b->prefix = memcpy(arena_alloc(&b->memory, sizeof prompts), prompts, sizeof prompts);
    b->row_weight[0] = 1;
    for (int32_t s = 0; s < SEGMENTS; s++) {
        const int32_t before = shared && prompts[s] >= 0 ? length[prompts[s]] : 0;
        b->cu_seqlens[s + 1] = b->cu_seqlens[s] + length[s];
        b->segment_example[s] = b->segment_sample[s] = s;
        for (int32_t i = 0; i < length[s]; i++)
            b->positions[b->cu_seqlens[s] + i] = before + i;
    }
    return b;
}

static int open_both(void **state)
{
    const char *given = getenv("NRL_TEST_BACKEND");
    char path[4096];
    (void)state;
    snprintf(path, sizeof path, "%s", given ? given : getenv("NRL_TEST_BUILD"));
    if (!given) strncat(path, "/tests/emulated/backends/cuda.so", sizeof path - strlen(path) - 1);
    unsetenv("NRL_TEST_BACKEND");
    if (!test_device_open(&devices[CPU])) exit(77);
    setenv("NRL_TEST_BACKEND", path, 1);
    if (!test_device_open(&devices[OTHER])) exit(77);
    for (int k = 0; k < 2; k++)
        if (ctx_create(&devices[k], &ctxs[k])) return -1;
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        rope_forget(ctxs[k]);
        ctx_destroy(ctxs[k]);
        device_close(&devices[k]);
    }
    return 0;
}

/* ---- the cases ---- */

#define BUILD(name)                                                                                                    \
    static nrl_status name(const gradient_case *c, nrl_ctx *ctx, nrl_tensor **x, nrl_param **p, nrl_tensor **y)

/* Inputs whose bits are set in the case's first number have no gradient. */
static nrl_status detach(const gradient_case *c, nrl_ctx *ctx, nrl_tensor **x)
{
    for (int i = 0; i < c->n_inputs; i++)
        if (c->number[0] >> i & 1) NRL_TRY(nrl_op_detach(ctx, x[i], &x[i]));
    return NRL_OK;
}

BUILD(build_top_k)
{
    nrl_tensor *indices;
    (void)p;
    return nrl_op_top_k(ctx, x[0], c->number[1], y, &indices);
}

BUILD(build_swiglu)
{
    (void)c, (void)p;
    return nrl_op_clamped_swiglu(ctx, x[0], 1.702, 0.5, y);
}

BUILD(build_scan)
{
    nrl_tensor *in[] = {x[0], x[1]};
    (void)p;
    NRL_TRY(detach(c, ctx, in));
    return nrl_op_scan(ctx, in[0], in[1], y);
}

BUILD(build_attention)
{
    static double slopes[8];
    nrl_tensor *in[] = {x[0], x[1], x[2], c->n_inputs > 3 ? x[3] : NULL};
    nrl_biased_attention spec = {.size = sizeof spec,
                                 .attention = {.n_heads = c->number[2],
                                               .n_kv_heads = c->number[3],
                                               .head_dim = c->inputs[0].dims[1] / c->number[2],
                                               .window = c->number[1],
                                               .scale = 0.3},
                                 .slopes = c->number[4] ? slopes : NULL};
    (void)p;
    NRL_TRY(detach(c, ctx, in));
    spec.sinks = in[3];
    nrl_op_alibi_slopes(c->number[2], slopes);
    return nrl_op_biased_attention(ctx, in[0], in[1], in[2], &spec, y);
}

BUILD(build_conv1d)
{
    (void)c, (void)p;
    return nrl_op_conv1d(ctx, x[0], x[1], x[2], y);
}

BUILD(build_columns)
{
    nrl_tensor *parts[2];
    (void)c, (void)p;
    NRL_TRY(nrl_op_split_columns(ctx, x[0], (int64_t[]){5, 8}, 2, parts));
    return nrl_op_concat_columns(ctx, (nrl_tensor *[]){parts[1], x[1], parts[0]}, 3, y);
}

BUILD(build_rope)
{
    static const double inv_freq[] = {1.0, 0.37, 0.05};
    static const nrl_rope rope = {inv_freq, 3, 1.3};
    (void)c, (void)p;
    return nrl_op_rope_interleaved(ctx, x[0], 2, &rope, y);
}

#define ROWS(cols) SHAPE(LONG_TOKENS, cols)
#define SHORT(cols) SHAPE(SHORT_TOKENS, cols)
/* clang-format off */
static const gradient_case cases[] = {
    {"top_k: two of 8", 1, 0, {SHAPE(37, 8)}, .build = build_top_k, .number = {0, 2}},
    {"top_k: 8 of 128", 1, 0, {SHAPE(70, 128)}, .build = build_top_k, .number = {0, 8}},
    {"top_k: 40 of 333", 1, 0, {SHAPE(3, 333)}, .build = build_top_k, .number = {0, 40}},
    {"top_k: all", 1, 0, {SHAPE(9, 5)}, .build = build_top_k, .number = {0, 5}},
    {"clamped swiglu", 1, 0, {SHAPE(37, 2 * 13)}, .build = build_swiglu},
    {"scan: one column", 2, 0, {ROWS(1), ROWS(1)}, .build = build_scan, .batch = 1},
    {"scan: segments", 2, 0, {ROWS(45), ROWS(45)}, .build = build_scan, .batch = 1},
    {"scan: prompts", 2, 0, {ROWS(33), ROWS(33)}, .build = build_scan, .batch = 2},
    {"scan: factors near one", 2, 0, {RANGE(1, 0.01, LONG_TOKENS, 7), ROWS(7)}, .build = build_scan, .batch = 2},
    {"scan: a has no gradient", 2, 0, {ROWS(3), ROWS(3)}, .build = build_scan, .batch = 2, .number = {1}},
    {"scan: b has no gradient", 2, 0, {ROWS(3), ROWS(3)}, .build = build_scan, .batch = 2, .number = {2}},
    {"attention: sinks", 4, 0, {SHORT(2 * 64), SHORT(64), SHORT(64), SHAPE(2)}, .build = build_attention, .batch = 1,
     .number = {0, 0, 2, 1, 0}},
    {"attention: slopes", 3, 0, {SHORT(6 * 5), SHORT(3 * 5), SHORT(3 * 5)}, .build = build_attention, .batch = 2,
     .number = {0, 0, 6, 3, 1}},
    {"attention: both in a window", 4, 0, {SHORT(2 * 40), SHORT(2 * 40), SHORT(2 * 40), SHAPE(2)}, .build = build_attention,
     .batch = 2, .number = {0, 37, 2, 2, 1}},
    {"attention: neither", 3, 0, {SHORT(2 * 8), SHORT(8), SHORT(8)}, .build = build_attention, .batch = 2,
     .number = {0, 0, 2, 1, 0}},
    {"attention: q and sinks have no gradient", 4, 0, {SHORT(2 * 8), SHORT(8), SHORT(8), SHAPE(2)}, .build = build_attention,
     .batch = 2, .number = {1 | 8, 0, 2, 1, 1}},
    {"attention: k and v have no gradient", 4, 0, {SHORT(2 * 8), SHORT(8), SHORT(8), SHAPE(2)}, .build = build_attention,
     .batch = 2, .number = {2 | 4, 0, 2, 1, 1}},
    {"conv1d", 3, 0, {ROWS(21), SHAPE(21, 4), SHAPE(21)}, .build = build_conv1d, .batch = 2},
    {"columns", 2, 0, {SHAPE(50, 13), SHAPE(50, 4)}, .build = build_columns},
    {"rope: interleaved", 1, 0, {ROWS(2 * 7)}, .build = build_rope, .batch = 2},
};
/* clang-format on */

static void run_case(const gradient_case *c, int device_, gradient_run *g)
{
    gradient_case without = *c;
    without.batch = 0;
    rope_forget(ctxs[device_]);
    nrl_status st = gradient_open(g, ctxs[device_], &without);
    g->c = c;
    if (!st && c->batch)
        st = ctx_set_batch(ctxs[device_], g->batch = packed(c->inputs[0].dims[0] == SHORT_TOKENS, c->batch == 2));
    if (!st) st = gradient_backward(g, false);
    if (st) fail_msg("%s: %s", c->name, nrl_error_text());
}

static void compare(const char *name, const char *what, const double *values, const double *expected, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(values[i] - expected[i]) <= TOLERANCE * (1 + fabs(expected[i]))))
            fail_msg("%s: %s: [%lld] is %.9g, the CPU has %.9g", name, what, (long long)i, values[i], expected[i]);
}

static void results_and_gradients_are_those_of_the_cpu_and_repeat(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const gradient_case *c = &cases[i];
        gradient_run cpu, other, again;
        run_case(c, CPU, &cpu);
        run_case(c, OTHER, &other);
        run_case(c, OTHER, &again);
        assert_int_equal(other.n_output, cpu.n_output);
        compare(c->name, "the result", other.output, cpu.output, cpu.n_output);
        assert_memory_equal(other.output, again.output, (size_t)cpu.n_output * sizeof(double));
        for (int k = 0; k < c->n_inputs; k++) {
            compare(c->name, "a gradient", other.grads[k], cpu.grads[k], cpu.numel[k]);
            assert_memory_equal(other.grads[k], again.grads[k], (size_t)cpu.numel[k] * sizeof(double));
        }
        gradient_close(&cpu);
        gradient_close(&other);
        gradient_close(&again);
    }
}

static void top_k_orders_what_is_equal_or_no_number_as_the_cpu(void **state)
{
    enum { ROWS_ = 5, COLS = 67, K = 66 };
    static float x[ROWS_ * COLS];
    double columns[2][ROWS_ * K], values[2][ROWS_ * K];
    uint64_t random = 3;
    (void)state;
    for (int i = 0; i < ROWS_ * COLS; i++) {
        const double u = test_uniform(&random);
        x[i] = u > 0.8 ? INFINITY : u < -0.8 ? -INFINITY : u > 0.6 ? NAN : u > 0.3 ? -0.0f : (float)round(u * 4);
    }
    for (int k = 0; k < 2; k++) {
        nrl_tensor *t, *largest, *indices;
        ctx_scope_begin(ctxs[k]);
        assert_int_equal(nrl_tensor_from_host(ctxs[k], NRL_DTYPE_F32, 2, (int64_t[]){ROWS_, COLS}, x, &t), NRL_OK);
        assert_int_equal(nrl_op_top_k(ctxs[k], t, K, &largest, &indices), NRL_OK);
        assert_int_equal(nrl_tensor_fetch(ctxs[k], indices, columns[k], ROWS_ * K), NRL_OK);
        assert_int_equal(nrl_tensor_fetch(ctxs[k], largest, values[k], ROWS_ * K), NRL_OK);
        ctx_scope_end(ctxs[k]);
    }
    assert_memory_equal(columns[OTHER], columns[CPU], sizeof *columns);
    for (int i = 0; i < ROWS_ * K; i++)
        assert_true(values[OTHER][i] == values[CPU][i] || (isnan(values[OTHER][i]) && isnan(values[CPU][i])));
}

static void random_numbers_have_the_bits_of_the_cpu(void **state)
{
    enum { COLS = 19 };
    static double got[2][LONG_TOKENS * COLS];
    (void)state;
    for (int k = 0; k < 2; k++) {
        nrl_batch *b = packed(false, true);
        nrl_tensor *y;
        ctx_scope_begin(ctxs[k]);
        assert_int_equal(ctx_set_batch(ctxs[k], b), NRL_OK);
        ctx_set_random(ctxs[k], 0x123456789abcdefu);
        assert_int_equal(nrl_op_uniform(ctxs[k], COLS, &y), NRL_OK);
        assert_int_equal(nrl_tensor_fetch(ctxs[k], y, got[k], LONG_TOKENS * COLS), NRL_OK);
        ctx_set_random(ctxs[k], 0);
        ctx_set_batch(ctxs[k], NULL);
        ctx_scope_end(ctxs[k]);
        batch_free(b);
    }
    assert_memory_equal(got[OTHER], got[CPU], sizeof *got);
}

/* In all cases the first token's factor is infinite, and that of a whole tile of zeros overflows. */
static void a_scan_of_infinite_factors_has_the_numbers_of_the_cpu(void **state)
{
    static float a[LONG_TOKENS], b[LONG_TOKENS];
    double got[2][LONG_TOKENS];
    (void)state;
    for (int i = 0; i < LONG_TOKENS; i++) {
        a[i] = 10;
        b[i] = i == LONG_TOKENS - 11; /* the last row of the longest segment */
    }
    a[0] = INFINITY;
    for (int k = 0; k < 2; k++) {
        nrl_batch *batch = packed(false, true);
        nrl_tensor *in[2], *h;
        ctx_scope_begin(ctxs[k]);
        assert_int_equal(ctx_set_batch(ctxs[k], batch), NRL_OK);
        assert_int_equal(nrl_tensor_from_host(ctxs[k], NRL_DTYPE_F32, 2, (int64_t[]){LONG_TOKENS, 1}, a, &in[0]),
                         NRL_OK);
        assert_int_equal(nrl_tensor_from_host(ctxs[k], NRL_DTYPE_F32, 2, (int64_t[]){LONG_TOKENS, 1}, b, &in[1]),
                         NRL_OK);
        assert_int_equal(nrl_op_scan(ctxs[k], in[0], in[1], &h), NRL_OK);
        assert_int_equal(nrl_tensor_fetch(ctxs[k], h, got[k], LONG_TOKENS), NRL_OK);
        ctx_set_batch(ctxs[k], NULL);
        ctx_scope_end(ctxs[k]);
        batch_free(batch);
    }
    assert_memory_equal(got[OTHER], got[CPU], sizeof *got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_and_gradients_are_those_of_the_cpu_and_repeat),
        cmocka_unit_test(top_k_orders_what_is_equal_or_no_number_as_the_cpu),
        cmocka_unit_test(random_numbers_have_the_bits_of_the_cpu),
        cmocka_unit_test(a_scan_of_infinite_factors_has_the_numbers_of_the_cpu),
    };
    return cmocka_run_group_tests(tests, open_both, close_both);
}
