/*
 * test_run.c - kto in a run: neither the packing of samples, nor sharing of prompts, nor the source
 * of the reference log-probs changes anything; training on a real file works.
 */
#include "support/run.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { STEPS = 12, SAMPLES = 40 };
/* f32 sums in another order; the losses are near 0.5. */
static const double SAME = 1e-5;

static test_place place;
static const char *rows, *model_dir;

/* Pre-tokenized samples of random tokens with labels: prompts and answers of 2 to 17 tokens. */
static const char *labelled_rows(void)
{
    const char *path = arena_printf(&place.memory, "%s/rows.jsonl", place.folder);
    FILE *f = fopen(path, "w");
    unsigned seed = 7;
    assert_non_null(f);
    for (int i = 0; i < SAMPLES; i++) {
        int ids[40], prompt = 2 + i * 7 % 16, n = prompt + 2 + i * 5 % 16;
        fputs("{\"input_ids\": [", f);
        for (int t = 0; t < n; t++) {
            seed = seed * 1103515245u + 12345u;
            ids[t] = 3 + (int)((seed >> 16) % 80);
            fprintf(f, "%s%d", t ? "," : "", ids[t]);
        }
        fputs("], \"labels\": [", f);
        for (int t = 0; t < n; t++)
            fprintf(f, "%s%d", t ? "," : "", t < prompt ? -100 : ids[t]);
        fprintf(f, "], \"label\": %s}\n", i % 3 ? "true" : "false");
    }
    assert_int_equal(fclose(f), 0);
    return path;
}

static run *open_run(const char *out, const char *const *overrides)
{
    const char *yaml = arena_printf(&place.memory,
                                    "model: {path: %s}\n"
                                    "data: {train: %s, max_length: 60}\n"
                                    "train: {steps: %d, global_batch: 8, micro_batch_tokens: 1024, seed: 3}\n"
                                    "algorithm: {name: kto, kl_group: 4, desirable_weight: 0.8}\n"
                                    "optimizer: {name: adamw, lr: 1.0e-3}\n"
                                    "schedule: constant\n"
                                    "checkpoint: {every: 0}\n"
                                    "loggers: []\n"
                                    "out: %s/%s\n",
                                    model_dir, rows, STEPS, place.folder, out);
    run *r = NULL;
    if (test_run_open(&place, yaml, overrides, &r) != NRL_OK) fail_msg("%s", nrl_error_text());
    return r;
}

typedef struct {
    double loss[STEPS], norm[STEPS], margin[STEPS], kl[STEPS];
} curve;

/* A value of this step, NaN where there is none. */
static double value_of(const nrl_run_event *e, const char *name)
{
    for (size_t i = 0; i < e->n_values; i++)
        if (!strcmp(e->values[i].name, name)) return e->values[i].value;
    return NAN;
}

static void take_steps(run *r, int n, curve *c)
{
    nrl_run_event e = {.size = sizeof e};
    bool done = false;
    for (int i = 0; i < n; i++) {
        if (nrl_run_step(r, &e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
        assert_false(done);
        c->loss[i] = e.loss;
        c->norm[i] = e.grad_norm;
        c->margin[i] = value_of(&e, "rewards/margins");
        c->kl[i] = value_of(&e, "kl");
        double chosen = value_of(&e, "rewards/chosen"), rejected = value_of(&e, "rewards/rejected");
        assert_true(isnan(c->margin[i]) || c->margin[i] == chosen - rejected);
    }
}

static void curve_of(const char *out, const char *const *overrides, curve *c)
{
    run *r = open_run(out, overrides);
    take_steps(r, STEPS, c);
    nrl_run_close(r);
}

static double worst(const double *a, const double *b, double least)
{
    double most = 0;
    for (int i = 0; i < STEPS; i++)
        most = fmax(most, fabs(a[i] - b[i]) / fmax(fabs(b[i]), least));
    return most;
}

static void packing_sharing_and_caching_change_nothing(void **state)
{
    (void)state;
    static const char *const ways[][3] = {
        {"data.packing=false", "train.micro_batch=4", NULL},
        {"data.packing=false", "train.micro_batch=8", NULL},
        {"train.micro_batch_tokens=240", NULL, NULL},
        {"data.prefix_sharing=false", NULL, NULL},
        {"algorithm.reference=cached", NULL, NULL},
        {"algorithm.reference=cached", "data.prefix_sharing=false", NULL},
        {"train.activation_checkpointing=all", NULL, NULL},
    };
    curve whole, other;
    curve_of("whole", NULL, &whole);
    assert_true(whole.loss[STEPS - 1] < whole.loss[0]);
    assert_true(whole.kl[0] == 0 && whole.kl[STEPS - 1] > 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        curve_of(arena_printf(&place.memory, "way%zu", i), ways[i], &other);
        double loss = worst(other.loss, whole.loss, 0.05);
        double norm = worst(other.norm, whole.norm, 0.05);
        double kl = worst(other.kl, whole.kl, 1);
        print_message("%s: loss %.1e norm %.1e kl %.1e\n", ways[i][0], loss, norm, kl);
        assert_true(loss <= SAME && norm <= 10 * SAME && kl <= 10 * SAME);
    }
}

static void groups_are_part_of_the_loss(void **state)
{
    (void)state;
    static const char *const two[] = {"algorithm.kl_group=2", NULL};
    curve fours, twos;
    curve_of("fours", NULL, &fours);
    curve_of("twos", two, &twos);
    assert_true(worst(twos.loss, fours.loss, 0.05) > SAME);
}

static void without_a_kl_term_no_mismatched_answers_are_computed(void **state)
{
    (void)state;
    static const char *const apo[] = {"algorithm.loss=apo_zero_unpaired", "algorithm.kl_group=8",
                                      "algorithm.desirable_weight=1", NULL};
    curve c;
    run *r = open_run("apo", apo);
    assert_int_equal(dataset_info(r->session.train.set)->n_sides, 1);
    take_steps(r, STEPS, &c);
    nrl_run_close(r);
    assert_true(fabs(c.loss[0] - 0.5) <= SAME && c.loss[STEPS - 1] < c.loss[0]);
    assert_true(isnan(c.kl[0]));
}

static void real_preferences_are_learned(void **state)
{
    (void)state;
    const char *stories = shared_path_in(&place.memory, "data/models/stories260K/hf");
    const char *data = shared_path_in(&place.memory, "data/pref/lf_kto_en_demo.json");
    if (!stories || !data) skip();
    const char *const overrides[] = {arena_printf(&place.memory, "model.path=%s", stories),
                                     arena_printf(&place.memory, "data.train=%s", data),
                                     "data.template=plain",
                                     "data.max_length=256",
                                     "data.overlong=truncate",
                                     "train.global_batch=16",
                                     "train.micro_batch_tokens=4096",
                                     "algorithm.kl_group=8",
                                     "optimizer.lr=1e-4",
                                     "algorithm.desirable_weight=1",
                                     NULL};
    curve c;
    run *r = open_run("real", overrides);
    const dataset_report *info = dataset_info(r->session.train.set);
    print_message("%lld rows, %lld kept\n", (long long)info->rows, (long long)info->n_examples);
    assert_true(info->rows > 0 && info->rows == info->n_examples + info->untrainable);
    take_steps(r, STEPS, &c);
    nrl_run_close(r);
    double late = (c.margin[STEPS - 1] + c.margin[STEPS - 2] + c.margin[STEPS - 3]) / 3;
    print_message("loss %.4f to %.4f, margin to %.4f\n", c.loss[0], c.loss[STEPS - 1], late);
    assert_true(fabs(c.loss[0] - 0.5) <= 1e-6 && late > 0);
}

int main(void)
{
    test_place_make(&place);
    model_dir = test_source(&place, "tests/data/models/llama");
    rows = labelled_rows();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_sharing_and_caching_change_nothing),
        cmocka_unit_test(groups_are_part_of_the_loss),
        cmocka_unit_test(without_a_kl_term_no_mismatched_answers_are_computed),
        cmocka_unit_test(real_preferences_are_learned),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_place_remove(&place);
    return failed;
}
