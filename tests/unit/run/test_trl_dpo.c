/*
 * Recorded runs of TRL's DPOTrainer, step by step: loss, gradient norm, rewards and log-probs of
 * all 24 steps. Most are replayed from their token ids with the reference on-line; one goes the
 * whole way from its rows of text, with cached reference log-probs. Needs stories260K; skipped
 * where the shared data is absent.
 */
#include "base/json.h"
#include "run/replay.h"
#include "support/run.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { STEPS = 24, N_METRICS = 6, ACCURACIES = 3 /* of metrics[] */, GOLDEN_MAX = 64 << 20 };
/* Mean residuals, absolute for metrics. TRL's own drift between two attention kernels over a run is
 * 7e-5 in a single loss (robust), 1e-5 in the norm. */
static const double LOSS_RESIDUAL = 1e-5, NORM_RESIDUAL = 1e-3, METRIC_RESIDUAL = 1e-4;
static const double LOSS_STEP = 2e-4, NORM_STEP = 3e-4;
/* Four pairs of the data have equal answers. The margin of such a pair is zero but for rounding, so it counts as
 * ranked right or not by chance: a quarter of its step's four pairs, once in the run. */
static const double ACCURACY_RESIDUAL = 4 * 0.25 / STEPS + 1e-4;

typedef struct {
    const char *name, *schedule, *algorithm;
    bool from_text;
} recording;

static const recording recordings[] = {
    {"dpo_sigmoid", "constant", "{name: dpo, reference: online}", false},
    {"dpo_sigmoid_ga4", "constant", "{name: dpo, reference: online}", false},
    {"dpo_ipo", "cosine", "{name: dpo, loss: ipo, reference: online}", false},
    {"dpo_robust", "constant", "{name: dpo, loss: robust, label_smoothing: 0.1, reference: online}", false},
    {"dpo_precompute", "constant", "{name: dpo, reference: cached}", true},
};

static const char *const metrics[N_METRICS] = {"rewards/chosen",     "rewards/rejected", "rewards/margins",
                                               "rewards/accuracies", "logps/chosen",     "logps/rejected"};

static test_place place;

static run *open_run(const recording *rec)
{
    run *r = NULL;
    const char *yaml =
        arena_printf(&place.memory,
                     "model: {path: %s}\ndata: {train: %s, max_length: 256, overlong: truncate, shuffle: "
                     "false}\n"
                     "train: {steps: %d, global_batch: 4, micro_batch_tokens: 4096}\nalgorithm: %s\n"
                     "optimizer: {name: adamw, lr: 1e-4, weight_decay: 0}\nschedule: %s\n"
                     "checkpoint: {every: 0}\nloggers: []\nout: %s/%s\n",
                     shared_path_in(&place.memory, "data/models/stories260K/hf"),
                     shared_path_in(&place.memory, "golden/trl_runs/pref.jsonl"), STEPS, rec->algorithm, rec->schedule,
                     place.folder, rec->name);
    if (test_run_open(&place, yaml, NULL, &r) != NRL_OK) fail_msg("%s", nrl_error_text());
    return r;
}

/* ---- batches from token ids ---- */

static const nrl_node *row_of(const nrl_node *micro_batch, int64_t segment)
{
    return nrl_node_at(nrl_node_find(micro_batch, segment % 2 ? "rejected" : "chosen"), (size_t)(segment / 2));
}

static void fill_segment(nrl_batch *b, const nrl_node *row, int64_t s, int64_t *at, int64_t *scored)
{
    const nrl_node *ids = nrl_node_at(row, 0);
    const char *mask = nrl_node_string(nrl_node_at(row, 1), "");
    b->cu_seqlens[s] = (int32_t)*at;
    b->segment_example[s] = b->segment_sample[s] = (int32_t)(s / 2);
    b->segment_side[s] = (int32_t)(s % 2);
    for (size_t t = 0; t < nrl_node_size(ids); t++, ++*at) {
        b->tokens[*at] = (int32_t)nrl_node_int(nrl_node_at(ids, t), 0);
        b->positions[*at] = (int32_t)t;
        if (!t || mask[t] != '1') continue;
        b->row_token[*scored] = (int32_t)*at - 1;
        b->row_target[*scored] = b->tokens[*at];
        b->row_segment[*scored] = (int32_t)s;
        b->row_weight[(*scored)++] = 1;
    }
}

static nrl_batch *make_batch(const nrl_node *micro_batch)
{
    int64_t pairs = (int64_t)nrl_node_size(nrl_node_find(micro_batch, "chosen")), n = 0, p = 0, at = 0, scored = 0;
    for (int64_t s = 0; s < 2 * pairs; s++) {
        const char *mask = nrl_node_string(nrl_node_at(row_of(micro_batch, s), 1), "");
        n += (int64_t)strlen(mask);
        for (const char *c = mask + 1; *c; c++)
            p += *c == '1';
    }
    nrl_batch *b = batch_new(n, p, 2 * pairs);
    b->n_examples = pairs;
    for (int64_t s = 0; s < 2 * pairs; s++)
        fill_segment(b, row_of(micro_batch, s), s, &at, &scored);
    b->cu_seqlens[2 * pairs] = (int32_t)n;
    return b;
}

static void text_step(run *r, nrl_run_event *e)
{
    bool done;
    if (nrl_run_step(r, e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
    assert_false(done);
}

/* ---- residuals ---- */

typedef struct {
    double loss, norm, worst_loss, worst_norm, metric[N_METRICS]; /* means, but for the worst */
} residuals;

static double relative(double a, double b, double least)
{
    return fabs(a - b) / fmax(fabs(b), least);
}

static double value_of(const nrl_run_event *e, const char *name)
{
    for (size_t i = 0; i < e->n_values; i++)
        if (!strcmp(e->values[i].name, name)) return e->values[i].value;
    return NAN;
}

static void note(residuals *res, const nrl_run_event *e, const nrl_node *step)
{
    double loss = relative(e->loss, nrl_node_f64(nrl_node_find(step, "loss"), NAN), 0.05);
    double norm = relative(e->grad_norm, nrl_node_f64(nrl_node_find(step, "grad_norm"), NAN), 0.05);
    res->loss += loss / STEPS;
    res->norm += norm / STEPS;
    res->worst_loss = fmax(res->worst_loss, loss);
    res->worst_norm = fmax(res->worst_norm, norm);
    for (int i = 0; i < N_METRICS; i++) {
        double want = nrl_node_f64(nrl_node_find(step, metrics[i]), NAN);
        res->metric[i] += fabs(value_of(e, metrics[i]) - want) / STEPS;
    }
}

static void compare(const recording *rec)
{
    const char *path = shared_path_in(&place.memory, arena_printf(&place.memory, "golden/trl_runs/%s.json", rec->name));
    nrl_node *golden;
    residuals res = {0};
    if (!path) fail_msg("no recording of %s", rec->name);
    assert_int_equal(json_read_file(&place.memory, path, GOLDEN_MAX, &golden), NRL_OK);
    const nrl_node *steps = nrl_node_find(golden, "steps");
    run *r = open_run(rec);
    for (size_t i = 0; i < STEPS; i++) {
        const nrl_node *step = nrl_node_at(steps, i);
        nrl_run_event e = {.size = sizeof e};
        if (rec->from_text)
            text_step(r, &e);
        else
            replay_step(r, step, make_batch, &e);
        assert_true(fabs(e.lr - nrl_node_f64(nrl_node_find(step, "learning_rate"), NAN)) <= 1e-12);
        note(&res, &e, step);
    }
    nrl_run_close(r);
    print_message("%-16s loss %.1e (worst %.1e) grad_norm %.1e (worst %.1e) rewards %.1e %.1e margins %.1e "
                  "accuracies %.1e logps %.1e %.1e\n",
                  rec->name, res.loss, res.worst_loss, res.norm, res.worst_norm, res.metric[0], res.metric[1],
                  res.metric[2], res.metric[3], res.metric[4], res.metric[5]);
    assert_true(res.loss <= LOSS_RESIDUAL && res.norm <= NORM_RESIDUAL);
    assert_true(res.worst_loss <= LOSS_STEP && res.worst_norm <= NORM_STEP);
    for (int i = 0; i < N_METRICS; i++)
        assert_true(res.metric[i] <= (i == ACCURACIES ? ACCURACY_RESIDUAL : METRIC_RESIDUAL));
}

static void every_step_of_every_recording_is_reproduced(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recordings / sizeof *recordings; i++)
        compare(&recordings[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_step_of_every_recording_is_reproduced)};
    test_place_make(&place);
    bool present = shared_path_in(&place.memory, "data/models/stories260K/hf/config.json") &&
                   shared_path_in(&place.memory, "golden/trl_runs/pref.jsonl");
    if (!present) puts("skipped: no shared data");
    int failed = present ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
    test_place_remove(&place);
    return failed;
}
