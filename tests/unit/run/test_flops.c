/*
 * test_flops.c - the operations that a step counts for its MFU, compared with a calculation by
 * hand.
 */
#include "support/run.h"
#include <nrl/profile.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* D width, F of the feed-forward, V vocabulary, K width of keys and values, L layers: tests/data/models/llama. */
enum { T = 24 }; /* tokens of a row */

static test_place place;
static int n_runs;

static int open_place(void **state)
{
    (void)state;
    test_place_make(&place);
    return 0;
}

static int close_place(void **state)
{
    (void)state;
    test_place_remove(&place);
    return 0;
}

/* `n` rows of T tokens, of which the last `answer` are trained. */
static const char *write_rows(const char *name, int n, int answer)
{
    char text[8192] = "";
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "{\"input_ids\": [");
        for (int t = 0; t < T; t++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", t ? ", " : "", 3 + (7 * t + i) % 90);
        at += (size_t)snprintf(text + at, sizeof text - at, "], \"labels\": [");
        for (int t = 0; t < T; t++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", t ? ", " : "",
                                   t < T - answer ? -100 : 3 + (7 * t + i) % 90);
        at += (size_t)snprintf(text + at, sizeof text - at, "]}\n");
    }
    return test_file(&place, name, text);
}

typedef struct {
    double flops, profiled; /* for the MFU; of the operations that a profile shows */
    /* of one token and all layers, forward: twice the elements of matrices; of one target position; of one pair of
     * tokens */
    double body, head, pair;
} counted;

static counted count(const char *rows, const char *const *overrides)
{
    run *r;
    nrl_run_event e = {.size = sizeof e};
    bool done;
    const char *yaml = arena_printf(&place.memory,
                                    "model: {path: %s}\n"
                                    "data: {train: %s, max_length: 64}\n"
                                    "train: {steps: 1, global_batch: 4, micro_batch_tokens: 128}\n"
                                    "optimizer: {name: adamw, lr: 1.0e-3}\n"
                                    "checkpoint: {every: 0, export: none}\n"
                                    "loggers: [jsonl]\n"
                                    "out: %s/out%d\n",
                                    test_source(&place, "tests/data/models/llama"), rows, place.folder, ++n_runs);
    if (test_run_open(&place, yaml, overrides, &r) != NRL_OK) fail_msg("%s", nrl_error_text());
    nrl_op_time *rows_of_profile;
    size_t n;
    nrl_run_profile(r, true);
    if (nrl_run_step(r, &e, &done) != NRL_OK || nrl_run_op_times(r, 0, &rows_of_profile, &n, NULL) != NRL_OK)
        fail_msg("%s", nrl_error_text());
    const model *m = r->session.model;
    counted c = {.flops = r->trainer.flops,
                 .head = 2.0 * (double)m->head.weight->whole,
                 .pair = 4.0 * (double)(m->info.n_layers * m->info.n_heads * m->info.head_dim)};
    for (int32_t i = 0; i < m->n_own; i++) {
        const nrl_param *p = m->params[i];
        bool table = p == m->units[0].uses[0] || p == m->head.weight;
        if (p->n_dims == 2 && !table) c.body += 2.0 * (double)p->whole;
    }
    for (size_t i = 0; i < n;
         i++) /* a profile shows the scores that attention's backward makes again: 5 products, not 4 */
        c.profiled += rows_of_profile[i].flops * (strcmp(rows_of_profile[i].name, "attention_grad") ? 1 : 0.8);
    free(rows_of_profile);
    nrl_run_close(r);
    return c;
}

/* Sums of at most a few hundred whole numbers below 2^53: exact. */
static void assert_flops(double found, double want)
{
    if (found != want) fail_msg("counted %.17g operations, expected %.17g", found, want);
}

static const double pairs = T * (T + 1) / 2.0; /* of one causal segment */

static void a_step_counts_every_product_three_times_and_the_head_for_scored_rows(void **state)
{
    (void)state;
    counted all = count(write_rows("all.jsonl", 4, T - 1), NULL);
    assert_flops(all.flops, 3 * 4 * (T * all.body + (T - 1) * all.head + pairs * all.pair));
    counted few = count(write_rows("few.jsonl", 4, 1), NULL);
    assert_flops(few.flops, 3 * 4 * (T * few.body + few.head + pairs * few.pair));
    const char *const unpacked[] = {"data.packing=false", "train.micro_batch=1", NULL};
    assert_flops(count(write_rows("few.jsonl", 4, 1), unpacked).flops, few.flops);
}

static void a_profile_shows_the_same_operations(void **state)
{
    (void)state;
    counted c = count(write_rows("few.jsonl", 4, 4), NULL);
    assert_flops(c.profiled, c.flops);
    const char *const adapters[] = {"lora={rank: 4}", NULL};
    c = count(write_rows("few.jsonl", 4, 4), adapters);
    assert_flops(c.profiled, c.flops);
}

static void what_is_computed_again_counts_once(void **state)
{
    (void)state;
    const char *rows = write_rows("few.jsonl", 4, 4);
    const char *const again[] = {"train.activation_checkpointing=all", NULL};
    assert_flops(count(rows, again).flops, count(rows, NULL).flops);
    const char *pairs_of_rows = test_pairs(&place, "pairs.jsonl", 4, 12, 90, 5);
    const char *const kept[] = {"algorithm={name: dpo, loss: simpo}", NULL};
    const char *const made_again[] = {"algorithm={name: dpo, loss: simpo}", "train.logits_mb=0", NULL};
    assert_flops(count(pairs_of_rows, made_again).flops, count(pairs_of_rows, kept).flops);
}

static void a_shared_prompt_counts_once_and_a_reference_its_forward(void **state)
{
    (void)state;
    const char *rows = test_pairs(&place, "pairs.jsonl", 4, 12, 90, 5);
    const char *const shared[] = {"algorithm={name: dpo, loss: simpo}", NULL};
    const char *const apart[] = {"algorithm={name: dpo, loss: simpo}", "data.prefix_sharing=false", NULL};
    assert_true(count(rows, shared).flops < count(rows, apart).flops);
    const char *const online[] = {"algorithm={name: dpo}", NULL};
    const char *const cached[] = {"algorithm={name: dpo, reference: cached}", NULL};
    double alone = count(rows, cached).flops;
    assert_flops(count(rows, online).flops, alone + alone / 3);
}

static void frozen_weights_have_no_gradient_of_their_own(void **state)
{
    (void)state;
    const char *rows = write_rows("all.jsonl", 4, T - 1);
    const char *const adapters[] = {"lora={rank: 1, targets: [o_proj]}", NULL};
    counted c = count(rows, adapters);
    double forward = 4 * (T * c.body + (T - 1) * c.head + pairs * c.pair);
    /* forward, and back through what lies above the lowest adapter: attention of the first layer has no backward */
    assert_true(c.flops > forward + 4 * (T - 1) * c.head && c.flops < 2 * forward);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_counts_every_product_three_times_and_the_head_for_scored_rows),
        cmocka_unit_test(a_profile_shows_the_same_operations),
        cmocka_unit_test(what_is_computed_again_counts_once),
        cmocka_unit_test(a_shared_prompt_counts_once_and_a_reference_its_forward),
        cmocka_unit_test(frozen_weights_have_no_gradient_of_their_own),
    };
    return cmocka_run_group_tests(tests, open_place, close_place);
}
