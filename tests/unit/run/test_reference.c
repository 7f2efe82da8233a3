/*
 * The reference model of a preference run: its three ways to log-probs give the same numbers, in
 * training, evaluation and after a restart, and a reference that is not what it should be is noticed
 * at the first loss. The file of the cached way is test_reference_cache.c's.
 */
#include "support/run.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { STEPS = 20, FEW = 12, PAIRS = 24, MAX_ROWS = 4096 };
/* Log-probs of other packings: f32 sums in another order. */
static const double SAME = 1e-6;
#define LN2 0.69314718055994531

static test_place place;
static const char *pairs, *eval_pairs, *model_dir;

static const char *yaml_text(const char *out)
{
    return arena_printf(&place.memory,
                        "model: {path: %s}\n"
                        "data: {train: %s, eval: %s, max_length: 60}\n"
                        "train: {steps: %d, global_batch: 4, micro_batch_tokens: 160, seed: 3}\n"
                        "algorithm: {name: dpo, beta: 0.1}\n"
                        "optimizer: {name: adamw, lr: 1.0e-3}\n"
                        "schedule: constant\n"
                        "checkpoint: {every: 5, keep: 0, keep_best: 0}\n"
                        "loggers: []\n"
                        "out: %s/%s\n",
                        model_dir, pairs, eval_pairs, STEPS, place.folder, out);
}

static run *open_run(const char *out, const char *const *overrides)
{
    run *r = NULL;
    if (test_run_open(&place, yaml_text(out), overrides, &r) != NRL_OK) fail_msg("%s", nrl_error_text());
    return r;
}

static run *open_way(const char *out, const char *way, const char *extra)
{
    const char *overrides[] = {arena_printf(&place.memory, "algorithm.reference=%s", way), extra, NULL};
    return open_run(out, overrides);
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

/* ---- columns ---- */

typedef struct {
    double values[MAX_ROWS];
    int64_t n;
} column;

/* Appends the reference log-probs of all micro-batches of a step. */
static void append_step(run *r, size_t set, int64_t step, column *c)
{
    data_step data;
    assert_int_equal(data_loader_step(set ? r->session.evals[0].loader : r->session.train.loader, step, &data), NRL_OK);
    for (int64_t m = 0; m < data.n_micro_batches; m++) {
        nrl_tensor *t;
        int64_t n = data.micro_batch[m]->n_rows;
        assert_true(c->n + n <= MAX_ROWS);
        if (reference_column(r->session.reference, set, data.micro_batch[m], &t) != NRL_OK)
            fail_msg("%s", nrl_error_text());
        assert_int_equal(nrl_tensor_fetch(r->session.ctx, t, c->values + c->n, n), NRL_OK);
        tensor_release(r->session.ctx, t);
        c->n += n;
    }
    ctx_set_batch(r->session.ctx, NULL);
}

static void all_columns(run *r, column *c)
{
    c->n = 0;
    for (int64_t s = 0; s < data_plan_steps_per_epoch(r->session.train.plan); s++)
        append_step(r, 0, s, c);
    for (int64_t s = 0; s < data_plan_steps_per_epoch(r->session.evals[0].plan); s++)
        append_step(r, 1, s, c);
}

static double worst_difference(const column *a, const column *b)
{
    double worst = 0;
    assert_int_equal(a->n, b->n);
    assert_true(a->n > 0);
    for (int64_t i = 0; i < a->n; i++) {
        double size = fmax(1, fabs(b->values[i]));
        worst = fmax(worst, fabs(a->values[i] - b->values[i]) / size);
    }
    return worst;
}

static void columns_of(const char *out, const char *way, const char *extra, column *c)
{
    run *r = open_way(out, way, extra);
    all_columns(r, c);
    nrl_run_close(r);
}

static void cached_log_probs_are_the_online_ones(void **state)
{
    (void)state;
    static const char *const settings[] = {"data.prefix_sharing=true", "data.prefix_sharing=false",
                                           "data.packing=false", "algorithm.loss=[sigmoid, orpo]",
                                           "train.micro_batch_tokens=2048"};
    static column online, cached;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        columns_of(arena_printf(&place.memory, "online%zu", i), "online", settings[i], &online);
        columns_of(arena_printf(&place.memory, "cached%zu", i), "cached", settings[i], &cached);
        assert_true(worst_difference(&cached, &online) <= SAME);
    }
}

static void no_reference_is_zeros(void **state)
{
    (void)state;
    static column c;
    run *r = open_way("none", "none", NULL);
    all_columns(r, &c);
    assert_int_equal(reference_bytes(r->session.reference), 0);
    nrl_run_close(r);
    assert_true(c.n > 0);
    for (int64_t i = 0; i < c.n; i++)
        assert_true(c.values[i] == 0);
}

static void only_online_keeps_weights(void **state)
{
    (void)state;
    run *r = open_way("held-online", "online", NULL);
    assert_true(reference_bytes(r->session.reference) > 0);
    nrl_run_close(r);
    r = open_way("held-cached", "cached", NULL);
    assert_int_equal(reference_bytes(r->session.reference), 0);
    nrl_run_close(r);
}

/* ---- training and evaluation ---- */

static void losses_of(const char *out, const char *way, double *losses)
{
    run *r = open_way(out, way, NULL);
    assert_int_equal(take_steps(r, STEPS, losses), STEPS);
    nrl_run_close(r);
}

static void cached_trains_as_online_does(void **state)
{
    (void)state;
    double a[STEPS], b[STEPS], worst = 0;
    losses_of("train-online", "online", a);
    losses_of("train-cached", "cached", b);
    for (int i = 0; i < STEPS; i++)
        worst = fmax(worst, fabs(a[i] - b[i]) / fmax(fabs(a[i]), 0.05));
    print_message("cached beside online, %d losses: worst %.2g\n", STEPS, worst);
    assert_true(worst <= SAME);
    assert_true(fabs(a[0] - LN2) <= SAME && a[STEPS - 1] < a[0]);
}

static void the_reference_stays_while_the_policy_moves(void **state)
{
    (void)state;
    static column before, after;
    double losses[FEW];
    run *r = open_way("still", "online", NULL);
    all_columns(r, &before);
    take_steps(r, FEW, losses);
    all_columns(r, &after);
    nrl_run_close(r);
    assert_memory_equal(before.values, after.values, (size_t)before.n * sizeof(double));
}

static void evaluation_of(const char *way, const char *extra, bool evaluate_only, double *loss, double *margin)
{
    const char *overrides[] = {arena_printf(&place.memory, "algorithm.reference=%s", way), extra, NULL};
    nrl_environment env = {.size = sizeof env,
                           .exe_dir = arena_printf(&place.memory, "%s/bin", getenv("NRL_TEST_BUILD")),
                           .plugin_path = getenv("NRL_PLUGIN_PATH"),
                           .quiet = true,
                           .no_output = evaluate_only,
                           .evaluate_only = evaluate_only};
    const nrl_value *values;
    size_t n;
    run *r = NULL;
    const char *yaml = yaml_text(arena_printf(&place.memory, "eval-%s-%d", way, evaluate_only));
    if (test_run_open_in(&place, &env, yaml, overrides, &r) != NRL_OK) fail_msg("%s", nrl_error_text());
    assert_int_equal(nrl_run_evaluate(r, NULL, &values, &n), NRL_OK);
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(values[i].name, "eval_loss")) *loss = values[i].value;
        if (!strcmp(values[i].name, "eval_rewards/margins")) *margin = values[i].value;
    }
    nrl_run_close(r);
}

static void evaluation_reads_the_reference(void **state)
{
    (void)state;
    const char *folder = arena_printf(&place.memory, "data.cache=%s/eval-cache", place.folder);
    double loss = 0, margin = 1, none, none_margin;
    for (int only = 0; only < 2; only++) {
        evaluation_of("online", NULL, only, &loss, &margin);
        assert_true(fabs(loss - LN2) <= SAME && fabs(margin) <= SAME);
        evaluation_of("cached", folder, only, &loss, &margin);
        assert_true(fabs(loss - LN2) <= SAME && fabs(margin) <= SAME);
    }
    evaluation_of("none", NULL, true, &none, &none_margin);
    assert_true(fabs(none - LN2) > 1e-3);
}

static void a_resumed_cached_run_is_the_uninterrupted_one(void **state)
{
    (void)state;
    double a[FEW], b[FEW];
    run *r = open_way("whole", "cached", NULL);
    assert_int_equal(take_steps(r, FEW, a), FEW);
    nrl_run_close(r);
    r = open_way("parts", "cached", NULL);
    take_steps(r, 7, b);
    nrl_run_close(r);
    r = open_way("parts", "cached", "resume=auto");
    assert_int_equal(nrl_run_steps_done(r), 5);
    take_steps(r, FEW - 5, b + 5);
    nrl_run_close(r);
    assert_memory_equal(a, b, sizeof a);
}

/* ---- another reference ---- */

/* A Hugging Face directory of the same architecture after some steps. */
static const char *trained_model(void)
{
    const char *dir = arena_printf(&place.memory, "%s/trained", place.folder);
    double losses[FEW];
    if (!access(dir, R_OK)) return dir;
    run *r = open_way("for-export", "online", NULL);
    take_steps(r, FEW, losses);
    if (nrl_run_export(r, dir) != NRL_OK) fail_msg("%s", nrl_error_text());
    nrl_run_close(r);
    return dir;
}

/* A copy of the policy's directory in which config.json says something else. */
static const char *model_with(const char *name, const char *from, const char *to)
{
    const char *dir = arena_printf(&place.memory, "%s/%s", place.folder, name);
    const char *command =
        arena_printf(&place.memory, "cp -r %s %s && sed -i 's/%s/%s/' %s/config.json", model_dir, dir, from, to, dir);
    if (system(command)) fail_msg("%s", command);
    return dir;
}

/* Its log-probs are those that a run of that model has of itself. */
static void check_own_reference(const char *name, const char *dir)
{
    static column own, other, policy;
    static const char *const ways[] = {"online", "cached"};
    columns_of(arena_printf(&place.memory, "%s-as-policy", name), "online",
               arena_printf(&place.memory, "model.path=%s", dir), &own);
    columns_of(arena_printf(&place.memory, "%s-unset", name), "online", NULL, &policy);
    assert_true(worst_difference(&policy, &own) > 1e-3);
    for (int i = 0; i < 2; i++) {
        double loss;
        run *r = open_way(arena_printf(&place.memory, "%s-%s", name, ways[i]), ways[i],
                          arena_printf(&place.memory, "algorithm.reference_model=%s", dir));
        all_columns(r, &other);
        take_steps(r, 1, &loss); /* no start loss is known */
        nrl_run_close(r);
        assert_true(worst_difference(&other, &own) <= SAME);
        assert_true(fabs(loss - LN2) > 1e-4);
    }
}

static void a_reference_of_its_own_is_read(void **state)
{
    (void)state;
    check_own_reference("weights", trained_model());
    check_own_reference("theta", model_with("theta-model", "10000.0", "100.0"));
    check_own_reference("qwen2", test_source(&place, "tests/data/models/qwen2"));
    check_own_reference("gpt2", test_source(&place, "tests/data/models/gpt2"));
}

static void a_reference_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    const char *const wrong[][2] = {
        {model_with("words", "\"vocab_size\": 96", "\"vocab_size\": 90"),
         "its vocabulary is 90, that of the policy 96"},
        {model_with("short", "\"max_position_embeddings\": 64", "\"max_position_embeddings\": 59"), "59 positions"},
        {model_with("narrow", "\"hidden_size\": 32", "\"hidden_size\": 40"), "the weights do not fit config.json"},
        {model_with("strange", "\"llama\"", "\"unheard_of\""), "algorithm.reference_model"},
        {place.folder, "algorithm.reference_model"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *overrides[] = {arena_printf(&place.memory, "algorithm.reference_model=%s", wrong[i][0]), NULL};
        run *r = NULL;
        assert_int_not_equal(test_run_open(&place, yaml_text("refused"), overrides, &r), NRL_OK);
        if (!strstr(nrl_error_text(), wrong[i][1])) fail_msg("%s", nrl_error_text());
    }
}

/* ---- the first loss ---- */

static nrl_status first_step_of_other_weights(const char *out, const char *extra, double *loss)
{
    nrl_run_event e = {.size = sizeof e};
    bool done;
    run *r = open_way(out, "online", extra);
    const model_origin other = {.seed = 77};
    assert_int_equal(origin_load(&other, r->session.ctx, r->session.model, NULL), NRL_OK);
    nrl_status st = nrl_run_step(r, &e, &done);
    *loss = e.loss;
    nrl_run_close(r);
    return st;
}

static void a_first_loss_that_is_not_the_known_one_stops(void **state)
{
    (void)state;
    double loss;
    assert_int_equal(first_step_of_other_weights("wrong", NULL, &loss), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "0.693147"));
    assert_non_null(strstr(nrl_error_text(), "check_initial_loss: false"));
    assert_int_equal(first_step_of_other_weights("unchecked", "algorithm.check_initial_loss=false", &loss), NRL_OK);
    assert_true(fabs(loss - LN2) > 1e-3);
}

static int setup(void **state)
{
    (void)state;
    test_place_make(&place);
    pairs = test_pairs(&place, "train.jsonl", PAIRS, 30, 96, 1);
    eval_pairs = test_pairs(&place, "eval.jsonl", 6, 30, 96, 2);
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
        cmocka_unit_test(cached_log_probs_are_the_online_ones),
        cmocka_unit_test(no_reference_is_zeros),
        cmocka_unit_test(only_online_keeps_weights),
        cmocka_unit_test(cached_trains_as_online_does),
        cmocka_unit_test(the_reference_stays_while_the_policy_moves),
        cmocka_unit_test(evaluation_reads_the_reference),
        cmocka_unit_test(a_resumed_cached_run_is_the_uninterrupted_one),
        cmocka_unit_test(a_reference_of_its_own_is_read),
        cmocka_unit_test(a_reference_that_does_not_fit_is_refused),
        cmocka_unit_test(a_first_loss_that_is_not_the_known_one_stops),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
