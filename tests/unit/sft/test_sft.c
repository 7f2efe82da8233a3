/*
 * test_sft.c - the losses of the sft plugin compared with sums computed by hand, with their
 * gradients.
 */
#include "support/backend.h"
#include "support/options.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { P = 7 };
static const float logps[P] = {-0.5f, -1.25f, -3.0f, -0.01f, -2.0f, -7.5f, -0.75f};
static const float weights[P] = {1, 0, 1, 1, 0, 0.5f, 1}; /* two prompt rows */
static const int32_t segments[P] = {0, 0, 0, 1, 2, 2, 2};
#define TOLERANCE 2e-6 /* sums of seven f32 values */

typedef struct {
    arena memory;
    plugin_host *host;
    const nrl_algorithm *table;
    void *self;
    device device;
    nrl_ctx *ctx;
    nrl_batch *batch;
    double sum, weight, grad[P];
} fixture;

static nrl_status open_sft(fixture *f, const char *yaml)
{
    const void *table;
    NRL_TRY(test_options(f->host, &f->memory, NRL_KIND_ALGORITHM, "algorithm", "sft", yaml, &table, &f->self));
    f->table = table;
    return NRL_OK;
}

static nrl_batch *make_batch(void)
{
    nrl_batch *b = batch_new(10, P, 3);
    b->n_examples = 3;
    memcpy(b->row_weight, weights, sizeof weights);
    memcpy(b->row_segment, segments, sizeof segments);
    static const int32_t cu[] = {0, 4, 6, 10};
    memcpy(b->cu_seqlens, cu, sizeof cu);
    for (int32_t s = 0; s < 3; s++)
        b->segment_example[s] = s;
    return b;
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->host = test_host();
    f->batch = make_batch();
    *state = f;
    return test_device_open(&f->device) && ctx_create(&f->device, &f->ctx) == NRL_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ctx_set_batch(f->ctx, NULL);
    batch_free(f->batch);
    ctx_destroy(f->ctx);
    device_close(&f->device);
    plugin_host_destroy(f->host);
    arena_free(&f->memory);
    free(f);
    return 0;
}

/* One loss and its gradient with respect to log-probs. */
static void run_loss(fixture *f)
{
    int64_t p = P;
    nrl_tensor *column, *sums[NRL_MAX_TERMS] = {0}, *seed, *grad = NULL;
    float one = 1;
    tape *t = tape_create();
    assert_int_equal(ctx_set_batch(f->ctx, f->batch), NRL_OK);
    ctx_scope_begin(f->ctx);
    assert_int_equal(nrl_tensor_from_host(f->ctx, NRL_DTYPE_F32, 1, &p, logps, &column), NRL_OK);
    assert_int_equal(nrl_tensor_from_host(f->ctx, NRL_DTYPE_F32, 1, &(int64_t){1}, &one, &seed), NRL_OK);
    tensor_set_leaf(column);
    batch_set_column(f->batch, "logps", column);
    ctx_tape_begin(f->ctx, t);
    assert_int_equal(f->table->loss(f->self, f->ctx, f->batch, sums), NRL_OK);
    ctx_tape_end(f->ctx);
    assert_int_equal(tape_backward(f->ctx, t, sums, &seed, 1, &column, &grad, 1), NRL_OK);
    assert_int_equal(nrl_tensor_fetch(f->ctx, sums[0], &f->sum, 1), NRL_OK);
    assert_int_equal(nrl_tensor_fetch(f->ctx, grad, f->grad, P), NRL_OK);
    tensor_release(f->ctx, grad);
    tape_destroy(f->ctx, t);
    ctx_scope_end(f->ctx);
    f->table->weight(f->self, f->batch, &f->weight);
}

/* -sum_i w_i s_i logp_i with s = 1 or p_i; prompt rows count `prompt`. */
static void expect(const fixture *f, double prompt, bool dft, double weight)
{
    double sum = 0;
    for (int i = 0; i < P; i++) {
        double w = weights[i] > 0 ? (double)weights[i] : prompt, p = dft ? exp((double)logps[i]) : 1;
        sum -= w * p * (double)logps[i];
        if (!(fabs(f->grad[i] + w * p) <= TOLERANCE)) fail_msg("gradient %d: %g, expected %g", i, f->grad[i], -w * p);
    }
    if (!(fabs(f->sum - sum) <= TOLERANCE * fabs(sum))) fail_msg("loss %.9g, expected %.9g", f->sum, sum);
    assert_true(fabs(f->weight - weight) < 1e-12);
}

static void nll_is_a_sum_over_answer_tokens(void **state)
{
    fixture *f = *state;
    assert_int_equal(open_sft(f, "{}"), NRL_OK);
    run_loss(f);
    expect(f, 0, false, 4.5);
}

static void prompt_tokens_count_by_their_weight(void **state)
{
    fixture *f = *state;
    assert_int_equal(open_sft(f, "prompt_weight: 0.25"), NRL_OK);
    run_loss(f);
    expect(f, 0.25, false, 4.5 + 0.25 * 2);
}

static void dft_weighs_by_a_probability_without_gradient(void **state)
{
    fixture *f = *state;
    assert_int_equal(open_sft(f, "loss: dft"), NRL_OK);
    run_loss(f);
    expect(f, 0, true, 4.5);
}

static void a_mean_over_sequences_divides_by_those_with_answers(void **state)
{
    fixture *f = *state;
    assert_int_equal(open_sft(f, "reduce: sequence"), NRL_OK);
    run_loss(f);
    expect(f, 0, false, 3);
}

static bool asks_for(const fixture *f, const char *word)
{
    const char *const *n = f->table->instance_needs(f->self);
    while (*n && strcmp(*n, word))
        n++;
    return *n;
}

static void prompt_rows_are_asked_for_only_where_they_count(void **state)
{
    fixture *f = *state;
    assert_int_equal(open_sft(f, "{}"), NRL_OK);
    assert_true(asks_for(f, "logps"));
    assert_false(asks_for(f, "prompt_targets"));
    assert_int_equal(open_sft(f, "prompt_weight: 1"), NRL_OK);
    assert_true(asks_for(f, "prompt_targets"));
}

int main(void)
{
    device d;
    if (!test_device_open(&d)) return 77;
    device_close(&d);
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(nll_is_a_sum_over_answer_tokens),
        CASE(prompt_tokens_count_by_their_weight),
        CASE(dft_weighs_by_a_probability_without_gradient),
        CASE(a_mean_over_sequences_divides_by_those_with_answers),
        CASE(prompt_rows_are_asked_for_only_where_they_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
