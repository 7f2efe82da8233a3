/*
 * test_encodings.c - train.master and train.gradients: the memory of a run is that of its plan,
 * bf16 gradients are the rounded f32 ones, and training follows them; a resume is bit-identical.
 */
#include "support/run.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { STEPS = 50, FEW = 12 };
/* Gradients of 8 bits: mean distance of losses near 4.5 that fall by half. */
static const double BF16_GRADIENTS = 2e-3;

static test_place place;
static const char *rows, *model_dir;

static run *open_run(int steps, const char *out, const char *const *overrides)
{
    run *r = NULL;
    const char *yaml = arena_printf(&place.memory,
                                    "model: {path: %s}\n"
                                    "data: {train: %s, max_length: 60}\n"
                                    "train: {steps: %d, global_batch: 8, micro_batch_tokens: 512, precision: bf16}\n"
                                    "optimizer: {name: adamw, lr: 1.0e-3, weight_decay: 0.1}\n"
                                    "checkpoint: {every: 5, keep: 0, keep_best: 0}\n"
                                    "loggers: [jsonl]\n"
                                    "out: %s/%s\n",
                                    model_dir, rows, steps, place.folder, out);
    if (test_run_open(&place, yaml, overrides, &r) != NRL_OK) fail_msg("%s", nrl_error_text());
    return r;
}

static int take_steps(run *r, int most, double *losses)
{
    nrl_run_event e = {.size = sizeof e};
    bool done = false;
    int n = 0;
    while (n < most) {
        if (nrl_run_step(r, &e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
        if (done) break;
        losses[n++] = e.loss;
    }
    return n;
}

static void losses_of(const char *out, const char *const *overrides, int steps, double *losses)
{
    run *r = open_run(steps, out, overrides);
    assert_int_equal(take_steps(r, steps, losses), steps);
    nrl_run_close(r);
}

static double residual(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += fabs(a[i] - b[i]) / b[i];
    return sum / n;
}

#define SPLIT "train.master=split16"
#define LO16 "train.gradients=bf16"

static void a_run_holds_what_its_plan_says(void **state)
{
    static const char *const ways[][3] = {{NULL}, {SPLIT, NULL}, {LO16, NULL}, {SPLIT, LO16, NULL}};
    static const int64_t bytes[] = {18, 16, 16, 14}; /* a parameter */
    (void)state;
    for (int i = 0; i < 4; i++) {
        run *r = open_run(1, arena_printf(&place.memory, "held%d", i), ways[i]);
        const storage *s = &r->session.storage;
        int64_t planned = s->work_bytes + s->master_bytes + s->gradient_bytes + s->state_bytes;
        int64_t gaps = 64 * 8 * r->session.model->n_params + 64 * 64; /* slots begin at multiples of 64 bytes */
        ctx_memory used;
        ctx_memory_use(r->session.ctx, &used);
        assert_int_equal(planned - s->buffer_bytes, bytes[i] * model_n_params(r->session.model));
        assert_int_equal(s->buffer_bytes > 0, i >= 2);
        assert_true((int64_t)used.live_bytes >= planned && (int64_t)used.live_bytes <= planned + gaps);
        nrl_run_close(r);
    }
}

static double to_bf16(double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000; /* to nearest, ties to even */
    memcpy(&f, &u, sizeof f);
    return f;
}

/* One micro-batch, and no parameter that two units use: one rounding. */
static void gradients_of_one_micro_batch_are_the_f32_ones_rounded(void **state)
{
    static const char *const low[] = {LO16, NULL};
    double loss[2];
    (void)state;
    run *a = open_run(1, "wide", NULL), *b = open_run(1, "low", low);
    take_steps(a, 1, &loss[0]);
    take_steps(b, 1, &loss[1]);
    assert_true(loss[0] == loss[1]);
    for (int32_t i = 0; i < a->session.model->n_params; i++) {
        const nrl_param *p = a->session.model->params[i], *q = b->session.model->params[i];
        double *wide = malloc((size_t)p->numel * sizeof *wide), *got = malloc((size_t)p->numel * sizeof *got);
        assert_int_equal(nrl_tensor_dtype(q->slots[NRL_SLOT_GRAD_SHARD]), NRL_DTYPE_BF16);
        assert_int_equal(nrl_tensor_fetch(a->session.ctx, p->slots[NRL_SLOT_GRAD_SHARD], wide, p->numel), NRL_OK);
        assert_int_equal(nrl_tensor_fetch(b->session.ctx, q->slots[NRL_SLOT_GRAD_SHARD], got, q->numel), NRL_OK);
        for (int64_t k = 0; k < p->numel; k++)
            if (got[k] != to_bf16(wide[k])) fail_msg("%s [%lld]: %.9g of %.9g", p->name, (long long)k, got[k], wide[k]);
        free(wide);
        free(got);
    }
    nrl_run_close(a);
    nrl_run_close(b);
}

static void learning_follows_bf16_gradients(void **state)
{
    static const char *const one[] = {SPLIT, LO16, NULL};
    static const char *const several[] = {SPLIT, LO16, "train.micro_batch_tokens=96", NULL};
    static const char *const again[] = {SPLIT, LO16, "train.activation_checkpointing=all", NULL};
    double wide[STEPS], low[STEPS], recomputed[STEPS];
    (void)state;
    losses_of("follow-wide", NULL, STEPS, wide);
    losses_of("follow-one", one, STEPS, low);
    print_message("mean loss residual %.2g, ", residual(low, wide, STEPS));
    assert_true(residual(low, wide, STEPS) <= BF16_GRADIENTS);
    losses_of("follow-again", again, STEPS, recomputed);
    assert_memory_equal(low, recomputed, sizeof low);
    losses_of("follow-several", several, STEPS, low);
    print_message("of several micro-batches %.2g\n", residual(low, wide, STEPS));
    assert_true(residual(low, wide, STEPS) <= BF16_GRADIENTS);
}

static void a_resume_is_equal_to_the_bit(void **state)
{
    static const char *const options[] = {SPLIT, LO16, "train.micro_batch_tokens=96", NULL};
    static const char *const resumed[] = {SPLIT, LO16, "train.micro_batch_tokens=96", "resume=auto", NULL};
    double a[FEW], b[FEW];
    (void)state;
    losses_of("whole", options, FEW, a);
    run *r = open_run(FEW, "parts", options);
    take_steps(r, 7, b);
    nrl_run_close(r);
    r = open_run(FEW, "parts", resumed);
    assert_int_equal(nrl_run_steps_done(r), 5);
    assert_int_equal(take_steps(r, FEW, b + 5), FEW - 5);
    nrl_run_close(r);
    assert_memory_equal(a, b, sizeof a);
}

static int setup(void **state)
{
    (void)state;
    test_place_make(&place);
    rows = test_rows(&place, "train.jsonl", 40, 4, 60, 96, 1);
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
        cmocka_unit_test(a_run_holds_what_its_plan_says),
        cmocka_unit_test(gradients_of_one_micro_batch_are_the_f32_ones_rounded),
        cmocka_unit_test(learning_follows_bf16_gradients),
        cmocka_unit_test(a_resume_is_equal_to_the_bit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
