/*
 * Recorded runs of TRL's SFTTrainer, replayed step by step from their token ids: loss and gradient norm
 * of all 24 steps. Needs stories260K; skipped where the shared data is absent.
 */
#include "base/json.h"
#include "run/replay.h"
#include "support/run.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { STEPS = 24, GOLDEN_MAX = 64 << 20 };
/* Mean residuals; per step 2e-4 (loss) and 3e-4 (norm) is what the recording allows. */
static const double LOSS_RESIDUAL = 1e-5, NORM_RESIDUAL = 1e-3, LOSS_STEP = 2e-4, NORM_STEP = 3e-4;

typedef struct {
    const char *name, *schedule, *algorithm;
    double lr, weight_decay;
} recording;

static const recording recordings[] = {
    {"sft_full", "constant", "{name: sft}", 1e-3, 0},
    {"sft_completion_ga4", "cosine", "{name: sft}", 1e-3, 0.1},
    {"sft_packed", "constant", "{name: sft}", 1e-3, 0},
    {"sft_dft", "linear", "{name: sft, loss: dft}", 5e-4, 0},
};

static test_place place;

static run *open_run(const recording *rec)
{
    run *r = NULL;
    const char *yaml = arena_printf(&place.memory,
                                    "model: {path: %s}\ndata: {train: %s, max_length: 512}\n"
                                    "train: {steps: %d, global_batch: 4}\nalgorithm: %s\n"
                                    "optimizer: {name: adamw, lr: %.17g, weight_decay: %.17g}\nschedule: %s\n"
                                    "checkpoint: {every: 0}\nloggers: []\nout: %s/%s\n",
                                    shared_path_in(&place.memory, "data/models/stories260K/hf"),
                                    test_rows(&place, "rows.jsonl", 8, 4, 20, 500, 1), STEPS, rec->algorithm, rec->lr,
                                    rec->weight_decay, rec->schedule, place.folder, rec->name);
    if (test_run_open(&place, yaml, NULL, &r) != NRL_OK) fail_msg("%s", nrl_error_text());
    return r;
}

/* Where a new document begins inside a row: its position restarts. */
static bool begins(const nrl_node *positions, size_t t)
{
    return t == 0 || (positions && nrl_node_int(nrl_node_at(positions, t), -1) == 0);
}

static void count(const nrl_node *micro_batch, int64_t *n, int64_t *p, int64_t *s)
{
    const nrl_node *rows = nrl_node_find(micro_batch, "rows"), *positions = nrl_node_find(micro_batch, "position_ids");
    *n = *p = *s = 0;
    for (size_t i = 0; i < nrl_node_size(rows); i++) {
        const nrl_node *row = nrl_node_at(rows, i), *ids = nrl_node_at(row, 0);
        const char *mask = nrl_node_string(nrl_node_at(row, 1), "");
        for (size_t t = 0; t < nrl_node_size(ids); t++) {
            *s += begins(positions, t);
            *p += mask[t] == '1' && !begins(positions, t);
        }
        *n += (int64_t)nrl_node_size(ids);
    }
}

static nrl_batch *make_batch(const nrl_node *micro_batch)
{
    const nrl_node *rows = nrl_node_find(micro_batch, "rows"), *positions = nrl_node_find(micro_batch, "position_ids");
    int64_t n, p, s, at = 0, row_at = 0, segment = -1;
    count(micro_batch, &n, &p, &s);
    nrl_batch *b = batch_new(n, p, s);
    b->n_examples = s;
    for (size_t i = 0; i < nrl_node_size(rows); i++) {
        const nrl_node *row = nrl_node_at(rows, i), *ids = nrl_node_at(row, 0);
        const char *mask = nrl_node_string(nrl_node_at(row, 1), "");
        for (size_t t = 0; t < nrl_node_size(ids); t++, at++) {
            if (begins(positions, t)) {
                b->cu_seqlens[++segment] = (int32_t)at;
                b->segment_example[segment] = (int32_t)segment;
            } else if (mask[t] == '1') {
                b->row_token[row_at] = (int32_t)at - 1;
                b->row_target[row_at] = (int32_t)nrl_node_int(nrl_node_at(ids, t), 0);
                b->row_segment[row_at] = (int32_t)segment;
                b->row_weight[row_at++] = 1;
            }
            b->tokens[at] = (int32_t)nrl_node_int(nrl_node_at(ids, t), 0);
            b->positions[at] = (int32_t)(at - b->cu_seqlens[segment]);
        }
    }
    b->cu_seqlens[s] = (int32_t)n;
    return b;
}

static double residual(double a, double b)
{
    return fabs(a - b) / fmax(fabs(b), 0.05);
}

static void replay(const recording *rec)
{
    const char *path = shared_path_in(&place.memory, arena_printf(&place.memory, "golden/trl_runs/%s.json", rec->name));
    nrl_node *golden;
    double loss = 0, norm = 0, worst_loss = 0, worst_norm = 0;
    if (!path) fail_msg("no recording of %s", rec->name);
    assert_int_equal(json_read_file(&place.memory, path, GOLDEN_MAX, &golden), NRL_OK);
    const nrl_node *steps = nrl_node_find(golden, "steps");
    run *r = open_run(rec);
    for (size_t i = 0; i < STEPS; i++) {
        const nrl_node *step = nrl_node_at(steps, i);
        nrl_run_event e = {.size = sizeof e};
        replay_step(r, step, make_batch, &e);
        double a = residual(e.loss, nrl_node_f64(nrl_node_find(step, "loss"), NAN));
        double b = residual(e.grad_norm, nrl_node_f64(nrl_node_find(step, "grad_norm"), NAN));
        assert_true(fabs(e.lr - nrl_node_f64(nrl_node_find(step, "learning_rate"), NAN)) <= 1e-12);
        loss += a / STEPS;
        norm += b / STEPS;
        worst_loss = fmax(worst_loss, a);
        worst_norm = fmax(worst_norm, b);
    }
    nrl_run_close(r);
    print_message("%-20s loss %.2g (worst %.2g), grad_norm %.2g (worst %.2g)\n", rec->name, loss, worst_loss, norm,
                  worst_norm);
    assert_true(loss <= LOSS_RESIDUAL && norm <= NORM_RESIDUAL);
    assert_true(worst_loss <= LOSS_STEP && worst_norm <= NORM_STEP);
}

static void every_step_of_every_recording_is_reproduced(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recordings / sizeof *recordings; i++)
        replay(&recordings[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_step_of_every_recording_is_reproduced)};
    test_place_make(&place);
    bool present = shared_path_in(&place.memory, "data/models/stories260K/hf/config.json");
    if (!present) puts("skipped: no shared data");
    int failed = present ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
    test_place_remove(&place);
    return failed;
}
