/*
 * test_encodings.c - updates of slices that are not f32: split masters and bf16 gradients, by an
 * optimizer that supports them, by one that gets f32 copies, and of a plain master: bit-identical
 * results.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "optim/clip.h"
#include "optim/slices.h"
#include "support/backend.h"
#include "tensor/split16.h"
#include <math.h>

static nrl_status square_sum(nrl_ctx *ctx, const nrl_slice *slices, int64_t n, const bool *counts, double *sum)
{
    nrl_tensor *sums;
    NRL_TRY(clip_queue(ctx, slices, n, &sums));
    return clip_add(ctx, sums, counts, sum);
}

enum { N = 4099, STEPS = 50 };

static device d;
static nrl_ctx *ctx;

static void ok(nrl_status st)
{
    if (st != NRL_OK) fail_msg("%s", nrl_error_text());
}

static nrl_tensor *tensor(nrl_dtype dtype)
{
    const int64_t n = N;
    nrl_tensor *t;
    ok(tensor_persistent(ctx, dtype, 1, &n, dtype != NRL_DTYPE_U16, &t));
    return t;
}

static nrl_status adamw(void *self, nrl_ctx *c, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    static const nrl_adamw numbers = {sizeof numbers, 0.9, 0.95, 1e-8, 0.1};
    (void)self;
    for (int64_t i = 0; i < n; i++)
        NRL_TRY(nrl_slice_adamw(c, nrl_slice_at(slices, i, step), &numbers, step));
    return NRL_OK;
}

static const nrl_optimizer knows = {.update = adamw, .n_states = 2, .encoded = true};
static const nrl_optimizer knows_f32 = {.update = adamw, .n_states = 2};

/* A parameter of N elements, and everything an update of it needs. */
typedef struct {
    nrl_param param;
    nrl_part part;
    nrl_slice slice;
    nrl_tensor *master; /* f32; halves are in slice.work and slice.low */
} subject;

static void subject_open(subject *s, bool split, nrl_dtype gradient)
{
    static float start[N];
    uint64_t random = 11;
    const int64_t n = N;
    for (int i = 0; i < N; i++)
        start[i] = (float)test_uniform(&random);
    param_init(&s->param, &s->part, "w", 1, &n);
    s->master = tensor(NRL_DTYPE_F32);
    s->slice = (nrl_slice){.param = &s->param,
                           .n = N,
                           .decay = true,
                           .work = tensor(NRL_DTYPE_BF16),
                           .master = split ? NULL : s->master,
                           .low = split ? tensor(NRL_DTYPE_U16) : NULL,
                           .states = {tensor(NRL_DTYPE_F32), tensor(NRL_DTYPE_F32)},
                           .grad = tensor(gradient)};
    ok(tensor_write(ctx, s->master, start));
    if (split) ok(split16_split(ctx, s->master, s->slice.work, s->slice.low));
}

static void subject_close(subject *s)
{
    nrl_tensor *all[] = {s->master, s->slice.work, s->slice.low, s->slice.grad, s->slice.states[0], s->slice.states[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_release(ctx, all[i]);
}

/* STEPS updates; gradients are values of bf16, so that they are the same in either dtype. */
static void train(subject *s, const nrl_optimizer *optimizer)
{
    static float grad[N];
    uint64_t random = 12;
    nrl_tensor *wide = tensor(NRL_DTYPE_F32);
    for (int step = 1; step <= STEPS; step++) {
        nrl_step_params block = {sizeof block, step, 1e-2, 0.7, sizeof(nrl_slice), 0, 0};
        for (int i = 0; i < N; i++)
            grad[i] = (float)(round(test_uniform(&random) * 128) / 128);
        ok(tensor_write(ctx, wide, grad));
        ok(nrl_tensor_copy(ctx, wide, s->slice.grad));
        ctx_scope_begin(ctx);
        ok(slices_update(ctx, optimizer, NULL, &s->slice, &block));
        ctx_scope_end(ctx);
    }
    tensor_release(ctx, wide);
    if (s->slice.low) ok(split16_join(ctx, s->slice.work, s->slice.low, s->master));
}

static void assert_same(nrl_tensor *a, nrl_tensor *b)
{
    size_t bytes = (size_t)nrl_tensor_numel(a) * nrl_dtype_size(nrl_tensor_dtype(a));
    char *first = malloc(bytes), *second = malloc(bytes);
    ok(tensor_read(ctx, a, first));
    ok(tensor_read(ctx, b, second));
    assert_memory_equal(first, second, bytes);
    free(first);
    free(second);
}

static void updates_do_not_depend_on_the_encoding(void **state)
{
    subject plain;
    (void)state;
    subject_open(&plain, false, NRL_DTYPE_F32);
    train(&plain, &knows);
    for (int how = 1; how < 8; how++) {
        subject s;
        subject_open(&s, how & 1, how & 2 ? NRL_DTYPE_BF16 : NRL_DTYPE_F32);
        train(&s, how & 4 ? &knows_f32 : &knows);
        assert_same(plain.master, s.master);
        assert_same(plain.slice.work, s.slice.work);
        assert_same(plain.slice.states[0], s.slice.states[0]);
        assert_same(plain.slice.states[1], s.slice.states[1]);
        subject_close(&s);
    }
    subject_close(&plain);
}

static void halves_of_a_wrong_dtype_are_an_error(void **state)
{
    subject s;
    nrl_step_params block = {sizeof block, 1, 1e-2, 1, sizeof(nrl_slice), 0, 0};
    (void)state;
    subject_open(&s, true, NRL_DTYPE_BF16);
    nrl_tensor *high = s.slice.work;
    s.slice.work = s.master;
    assert_int_equal(adamw(NULL, ctx, &s.slice, 1, &block), NRL_ERR_BUG);
    assert_int_equal(split16_split(ctx, s.master, s.master, s.slice.low), NRL_ERR_BUG);
    s.slice.work = high;
    subject_close(&s);
}

static void the_norm_of_bf16_gradients_is_summed_in_double(void **state)
{
    subject s;
    double sum;
    (void)state;
    subject_open(&s, true, NRL_DTYPE_BF16);
    ok(nrl_tensor_fill(ctx, s.slice.grad, 1.0 + 0x1p-7));
    ok(square_sum(ctx, &s.slice, 1, NULL, &sum));
    assert_true(sum == N * (1.0 + 0x1p-7) * (1.0 + 0x1p-7));
    subject_close(&s);
}

/* Values go in and out as f32; what bf16 cannot hold is in the other half. */
static void exact_values_of_halves_are_f32(void **state)
{
    static float in[N], out[N];
    uint64_t random = 13;
    subject s;
    (void)state;
    subject_open(&s, true, NRL_DTYPE_F32);
    for (int i = 0; i < N; i++)
        in[i] = (float)test_uniform(&random) * ldexpf(1, i % 200 - 100);
    nrl_param_bind(&s.param, NRL_SLOT_WEIGHT, s.slice.work);
    nrl_param_bind(&s.param, NRL_SLOT_HI16, s.slice.work);
    nrl_param_bind(&s.param, NRL_SLOT_LO16, s.slice.low);
    assert_true(param_is_split(&s.param) && param_exact_numel(&s.param) == N);
    ok(param_exact_copy(ctx, &s.param, 0, N, NULL, in));
    ok(param_exact_copy(ctx, &s.param, 0, N, out, NULL));
    assert_memory_equal(in, out, sizeof in);
    ok(param_exact_copy(ctx, &s.param, 5, 7, NULL, in + 100)); /* a range alone */
    ok(param_exact_copy(ctx, &s.param, 0, N, out, NULL));
    assert_memory_equal(in + 100, out + 5, 7 * sizeof *in);
    assert_memory_equal(in + 12, out + 12, sizeof in - 12 * sizeof *in);
    subject_close(&s);
}

static int set_up(void **state)
{
    (void)state;
    if (!test_device_open(&d)) return 1;
    return ctx_create(&d, &ctx) != NRL_OK;
}

static int tear_down(void **state)
{
    (void)state;
    ctx_destroy(ctx);
    device_close(&d);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_do_not_depend_on_the_encoding),
        cmocka_unit_test(halves_of_a_wrong_dtype_are_an_error),
        cmocka_unit_test(the_norm_of_bf16_gradients_is_summed_in_double),
        cmocka_unit_test(exact_values_of_halves_are_f32),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
