/*
 * What must not change what is learned: how a global batch is cut into micro-batches, whether samples
 * are packed, whether activations are computed again, and a stop in the middle.
 */
#include "support/run.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { STEPS = 50, FEW = 12 };
/* f32 sums in another order; the losses are near 4.5. */
static const double SPLIT_TOLERANCE = 1e-5;

static test_place place;
static const char *rows, *eval_rows, *model_dir;

static const char *yaml_text(int steps, const char *out)
{
    return arena_printf(&place.memory,
                        "model: {path: %s}\n"
                        "data: {train: %s, eval: %s, max_length: 60}\n"
                        "train: {steps: %d, global_batch: 8, micro_batch_tokens: 512, seed: 3}\n"
                        "optimizer: {name: adamw, lr: 1.0e-3, weight_decay: 0.1}\n"
                        "schedule: {name: cosine, warmup_steps: 3}\n"
                        "checkpoint: {every: 5, keep: 0, keep_best: 0}\n"
                        "eval: {every: 5}\n"
                        "loggers: [jsonl]\n"
                        "out: %s/%s\n",
                        model_dir, rows, eval_rows, steps, place.folder, out);
}

static run *open_run(int steps, const char *out, const char *const *overrides)
{
    run *r = NULL;
    nrl_status st = test_run_open(&place, yaml_text(steps, out), overrides, &r);
    if (st != NRL_OK) fail_msg("%s", nrl_error_text());
    return r;
}

/* Losses of the steps taken until the run is done or `most` steps are; returns how many. */
static int take_steps(run *r, int most, double *losses, double *norms)
{
    nrl_run_event e = {.size = sizeof e};
    bool done = false;
    int n = 0;
    while (n < most) {
        if (nrl_run_step(r, &e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
        if (done) break;
        losses[n] = e.loss;
        norms[n++] = e.grad_norm;
    }
    return n;
}

static void losses_of(const char *out, const char *const *overrides, int steps, double *losses, double *norms)
{
    run *r = open_run(steps, out, overrides);
    assert_int_equal(take_steps(r, steps, losses, norms), steps);
    nrl_run_close(r);
}

static double residual(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += fabs(a[i] - b[i]) / fmax(fabs(b[i]), 0.05);
    return sum / n;
}

static void eight_micro_batches_of_one_equal_one_of_eight(void **state)
{
    (void)state;
    static const char *const one[] = {"data.packing=false", "train.micro_batch=1", NULL};
    static const char *const eight[] = {"data.packing=false", "train.micro_batch=8", NULL};
    double a[STEPS], b[STEPS], an[STEPS], bn[STEPS];
    losses_of("one", one, STEPS, a, an);
    losses_of("eight", eight, STEPS, b, bn);
    print_message("mean loss residual %.2g, grad_norm %.2g\n", residual(a, b, STEPS), residual(an, bn, STEPS));
    assert_true(residual(a, b, STEPS) <= SPLIT_TOLERANCE);
    assert_true(a[STEPS - 1] < a[0]);
}

static void packed_equals_unpacked(void **state)
{
    (void)state;
    static const char *const unpacked[] = {"data.packing=false", "train.micro_batch=1", NULL};
    static const char *const packed[] = {"train.micro_batch_tokens=96", NULL};
    double a[FEW], b[FEW], an[FEW], bn[FEW];
    losses_of("unpacked", unpacked, FEW, a, an);
    losses_of("packed", packed, FEW, b, bn);
    assert_true(residual(a, b, FEW) <= SPLIT_TOLERANCE);
    assert_true(residual(an, bn, FEW) <= SPLIT_TOLERANCE);
}

static void computing_activations_again_changes_no_bit(void **state)
{
    (void)state;
    static const char *const ways[][2] = {{"train.activation_checkpointing=all", NULL},
                                          {"train.activation_checkpointing={every: 2}", NULL},
                                          {"train.activation_checkpointing={ratio: 0.5}", NULL},
                                          {"train.activation_checkpointing={layers: [1]}", NULL}};
    double a[FEW], b[FEW], an[FEW], bn[FEW];
    losses_of("none", NULL, FEW, a, an);
    for (int i = 0; i < 4; i++) {
        losses_of(arena_printf(&place.memory, "again%d", i), ways[i], FEW, b, bn);
        assert_memory_equal(a, b, sizeof a);
        assert_memory_equal(an, bn, sizeof an);
    }
}

static void hash_weights(run *r, uint64_t *hash)
{
    float values[256];
    storage_view view = {.ctx = r->session.ctx};
    *hash = 1469598103934665603u;
    for (int32_t i = 0; i < r->session.model->n_params; i++) {
        const nrl_param *p = r->session.model->params[i];
        for (int64_t at = 0; at < p->numel; at += 256) {
            int64_t n = p->numel - at < 256 ? p->numel - at : 256;
            if (storage_gather(&view, p, at, n, values) != NRL_OK) fail_msg("%s", nrl_error_text());
            for (size_t k = 0; k < (size_t)n * sizeof(float); k++)
                *hash = (*hash ^ ((unsigned char *)values)[k]) * 1099511628211u;
        }
    }
}

/* One run to the end; another stopped after `stop` steps, closed, and continued by a new one. */
static void check_resume(const char *name, const char *extra, int stop)
{
    const char *precision[] = {extra, NULL, NULL};
    const char *resumed[] = {"resume=auto", extra, NULL};
    double a[FEW], b[FEW], an[FEW], bn[FEW];
    uint64_t ha, hb;
    run *r = open_run(FEW, arena_printf(&place.memory, "%s-whole", name), extra ? precision : NULL);
    assert_int_equal(take_steps(r, FEW, a, an), FEW);
    hash_weights(r, &ha);
    nrl_run_close(r);
    const char *out = arena_printf(&place.memory, "%s-parts", name);
    r = open_run(FEW, out, extra ? precision : NULL);
    take_steps(r, stop, b, bn);
    nrl_run_close(r);
    r = open_run(FEW, out, resumed);
    int from = (int)nrl_run_steps_done(r); /* the newest save: 5 or 10 */
    assert_int_equal(from, stop / 5 * 5);
    take_steps(r, FEW, b + from, bn + from);
    hash_weights(r, &hb);
    nrl_run_close(r);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_equal(an, bn, sizeof an);
    assert_true(ha == hb);
}

static void a_resumed_run_is_the_uninterrupted_one_bit_for_bit(void **state)
{
    (void)state;
    check_resume("mid", NULL, 7);
    check_resume("boundary", NULL, 10);
    check_resume("bf16", "train.precision=bf16", 7);
    check_resume("micro", "train.micro_batch_tokens=96", 7);
}

static void bf16_follows_fp32(void **state)
{
    (void)state;
    static const char *const bf16[] = {"train.precision=bf16", NULL};
    double a[FEW], b[FEW], an[FEW], bn[FEW];
    losses_of("fp32", NULL, FEW, a, an);
    losses_of("bf16", bf16, FEW, b, bn);
    assert_true(residual(b, a, FEW) <= 1e-2);
}

/* Logits of a loss of pairs stay for the way back, or are made again. */
static void kept_logits_change_no_bit(void **state)
{
    (void)state;
    const char *train = arena_printf(&place.memory, "data.train=%s", test_pairs(&place, "pairs.jsonl", 24, 30, 96, 1));
    const char *eval = arena_printf(&place.memory, "data.eval=%s", test_pairs(&place, "few.jsonl", 6, 30, 96, 2));
    const char *overrides[] = {train, eval, "algorithm=dpo", "train.logits_mb=0", NULL, NULL};
    double made[FEW], kept[FEW], made_norms[FEW], kept_norms[FEW];
    for (int low = 0; low < 2; low++) {
        overrides[4] = low ? "train.precision=bf16" : NULL;
        overrides[3] = "train.logits_mb=0";
        losses_of(low ? "made-bf16" : "made", overrides, FEW, made, made_norms);
        overrides[3] = "train.logits_mb=64";
        losses_of(low ? "kept-bf16" : "kept", overrides, FEW, kept, kept_norms);
        assert_memory_equal(kept, made, sizeof made);
        assert_memory_equal(kept_norms, made_norms, sizeof made_norms);
    }
}

static int setup(void **state)
{
    (void)state;
    test_place_make(&place);
    rows = test_rows(&place, "train.jsonl", 40, 4, 60, 96, 1);
    eval_rows = test_rows(&place, "eval.jsonl", 6, 10, 60, 96, 2);
    model_dir = test_source(&place, "tests/data/models/llama");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_place_remove(&place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_micro_batches_of_one_equal_one_of_eight),
        cmocka_unit_test(packed_equals_unpacked),
        cmocka_unit_test(computing_activations_again_changes_no_bit),
        cmocka_unit_test(a_resumed_run_is_the_uninterrupted_one_bit_for_bit),
        cmocka_unit_test(bf16_follows_fp32),
        cmocka_unit_test(kept_logits_change_no_bit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
