/*
 * test_prefix.c - training on pairs gives the same result whether prompts are computed once or for
 * each side, packed or not, with grouped heads and sliding windows, with any reference.
 */
#include "support/run.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { STEPS = 50, FEW = 10, PAIRS = 40, LONGEST = 60, VOCABULARY = 96 };
/* f32 sums in another order; losses are 0.3 to 0.7, gradients 0.1 to 10. */
static const double SUM_ORDER_TOLERANCE = 1e-5;

static test_place place;
static const char *rows;

/* ---- the loss: -log sigmoid(beta (margin of the policy - margin of the reference)) ---- */

static void pair_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "pairs");
}

/* margin[b] = sum of a column's rows of the chosen side - of the rejected side. */
static nrl_status margin(nrl_ctx *ctx, const nrl_batch *batch, const char *column, nrl_tensor **out)
{
    int32_t sides[2][PAIRS];
    int64_t n_segments = nrl_batch_n_segments(batch), n[2] = {0, 0};
    nrl_tensor *x, *sums, *of[2];
    for (int64_t s = 0; s < n_segments; s++) {
        int32_t k = nrl_batch_segment_side(batch)[s];
        sides[k][n[k]++] = (int32_t)s;
    }
    assert_int_equal(n[0], n[1]);
    NRL_TRY(nrl_batch_column(ctx, batch, column, &x));
    NRL_TRY(
        nrl_op_segment_sum(ctx, x, nrl_batch_target_segments(batch), nrl_batch_n_targets(batch), n_segments, &sums));
    for (int k = 0; k < 2; k++)
        NRL_TRY(nrl_op_gather_rows(ctx, sums, sides[k], n[k], &of[k]));
    return nrl_op_binary(ctx, NRL_BINARY_SUB, of[0], of[1], out);
}

static nrl_status pair_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *policy, *fixed, *x;
    (void)self;
    NRL_TRY(margin(ctx, batch, "logps", &policy));
    NRL_TRY(margin(ctx, batch, "ref_logps", &fixed));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, policy, fixed, &x));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x, 0.1, 0, &x));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_LOG_SIGMOID, x, 0, 0, &x));
    NRL_TRY(nrl_op_sum(ctx, x, &x));
    return nrl_op_unary(ctx, NRL_UNARY_NEG, x, 0, 0, &sums[0]);
}

static double ln2(void *self)
{
    (void)self;
    return log(2);
}

static const char *const answers[] = {"logps", "ref_logps", NULL};
static const char *const all_rows[] = {"logps", "ref_logps", "prompt_targets", NULL};

static nrl_algorithm pair_algorithm = {
    .plugin = {.abi = NRL_ABI,
               .build = NRL_BUILD,
               .kind = NRL_KIND_ALGORITHM,
               .size = sizeof(nrl_algorithm),
               .option_size = sizeof(nrl_option),
               .name = "pair"},
    .n_terms = 1,
    .example_kind = 1,
    .weight = pair_weight,
    .loss = pair_loss,
    .initial_loss = ln2,
};

static const nrl_algorithm *find_pair(void *user, const char *name, void **self)
{
    (void)user;
    *self = NULL;
    return strcmp(name, "pair") ? NULL : &pair_algorithm;
}

/* ---- runs ---- */

static run *open_run(const char *name, const char *out, const char *const *overrides)
{
    const char *yaml = arena_printf(&place.memory,
                                    "model: {path: %s}\n"
                                    "algorithm: {name: pair}\n"
                                    "data: {train: %s, max_length: %d, prefix_sharing: false, cache: %s/cache}\n"
                                    "train: {steps: %d, global_batch: 8, micro_batch_tokens: 512, seed: 3}\n"
                                    "optimizer: {name: adamw, lr: 1.0e-3, weight_decay: 0.1}\n"
                                    "checkpoint: {every: 0, export: none}\n"
                                    "loggers: [jsonl]\n"
                                    "out: %s/%s\n",
                                    test_source(&place, arena_printf(&place.memory, "tests/data/models/%s", name)),
                                    rows, LONGEST, place.folder, STEPS, place.folder, out);
    config_problems problems = {0};
    nrl_node *root = NULL;
    run *r = NULL;
    nrl_environment env = {.size = sizeof env,
                           .exe_dir = arena_printf(&place.memory, "%s/bin", getenv("NRL_TEST_BUILD")),
                           .plugin_path = getenv("NRL_PLUGIN_PATH"),
                           .quiet = true,
                           .find_algorithm = find_pair};
    nrl_status st = config_read(&place.memory, test_file(&place, "config.yaml", yaml), &root);
    config_override(&place.memory, &problems, root, "overwrite=true");
    for (; st == NRL_OK && overrides && *overrides; overrides++)
        config_override(&place.memory, &problems, root, *overrides);
    if (st == NRL_OK) st = problems_report(&problems);
    if (st == NRL_OK) st = run_open(root, NULL, &env, &r);
    if (st != NRL_OK) fail_msg("%s", nrl_error_text());
    return r;
}

typedef struct {
    double loss[STEPS], norm[STEPS], tokens[STEPS];
    float *gradient; /* of the first step, all parameters after each other */
    int64_t n;
} trace;

static void keep_gradient(run *r, trace *t)
{
    t->gradient = calloc((size_t)model_n_params(r->session.model), sizeof *t->gradient);
    for (int32_t i = 0; i < r->session.model->n_params; i++) {
        nrl_param *p = r->session.model->params[i];
        if (tensor_read(r->session.ctx, nrl_param_tensor(p, NRL_SLOT_GRAD), t->gradient + t->n))
            fail_msg("%s", nrl_error_text());
        t->n += nrl_param_numel(p);
    }
}

static trace train(const char *name, int steps, const char *const *overrides)
{
    trace t = {.n = 0};
    run *r = open_run(name, "run", overrides);
    for (int i = 0; i < steps; i++) {
        nrl_run_event e = {.size = sizeof e};
        bool done;
        if (nrl_run_step(r, &e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
        assert_false(done);
        t.loss[i] = e.loss;
        t.norm[i] = e.grad_norm;
        t.tokens[i] = e.tokens;
        if (!i) keep_gradient(r, &t);
    }
    nrl_run_close(r);
    return t;
}

static double residual(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += fabs(a[i] - b[i]) / fmax(fabs(b[i]), 0.05);
    return sum / n;
}

/* |x - y| / |y| of the first gradients. */
static double gradient_difference(const trace *a, const trace *b)
{
    double difference = 0, size = 0;
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        double d = (double)a->gradient[i] - (double)b->gradient[i];
        difference += d * d;
        size += (double)b->gradient[i] * (double)b->gradient[i];
    }
    return sqrt(difference / size);
}

/* Both runs learn the same; the second trace is freed. */
static void check_equal(const char *what, const trace *a, trace b, int steps)
{
    double loss = residual(b.loss, a->loss, steps), norm = residual(b.norm, a->norm, steps);
    double gradient = gradient_difference(&b, a);
    print_message("%-24s loss %.2g, grad_norm %.2g, first gradient %.2g\n", what, loss, norm, gradient);
    assert_true(loss <= SUM_ORDER_TOLERANCE);
    assert_true(norm <= SUM_ORDER_TOLERANCE);
    assert_true(gradient <= SUM_ORDER_TOLERANCE);
    assert_memory_equal(a->tokens, b.tokens, (size_t)steps * sizeof *b.tokens);
    free(b.gradient);
}

static const char *const shared[] = {"data.prefix_sharing=true", NULL};

/* ---- tests ---- */

static void sharing_changes_neither_loss_nor_gradient(void **state)
{
    static const char *const models[] = {"llama", "qwen2", "mistral", "gpt2"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        trace whole = train(models[i], STEPS, NULL);
        assert_true(fabs(whole.loss[0] - log(2)) < 1e-6);
        assert_true(whole.loss[STEPS - 1] < whole.loss[0] - 0.05);
        check_equal(models[i], &whole, train(models[i], STEPS, shared), STEPS);
        free(whole.gradient);
    }
}

static void packed_equals_unpacked_equals_shared(void **state)
{
    static const char *const ways[][5] = {
        {"data.packing=false", "train.micro_batch=1", NULL},
        {"data.packing=false", "train.micro_batch=1", "data.prefix_sharing=true", NULL},
        {"data.packing=false", "train.micro_batch=8", "data.prefix_sharing=true", NULL},
        {"train.micro_batch_tokens=128", NULL},
        {"train.micro_batch_tokens=128", "data.prefix_sharing=true", NULL},
        {"train.activation_checkpointing=all", "data.prefix_sharing=true", NULL},
    };
    (void)state;
    trace whole = train("mistral", FEW, NULL);
    for (int i = 0; i < 6; i++) {
        const char *name = ways[i][2] ? arena_printf(&place.memory, "%s, shared", ways[i][1]) : ways[i][0];
        check_equal(name, &whole, train("mistral", FEW, ways[i]), FEW);
    }
    free(whole.gradient);
}

static void prompt_rows_are_scored_for_both_sides(void **state)
{
    (void)state;
    pair_algorithm.needs = all_rows; /* prompts cancel out: the loss is the same once more */
    trace whole = train("llama", FEW, NULL);
    check_equal("prompt rows, shared", &whole, train("llama", FEW, shared), FEW);
    pair_algorithm.needs = answers;
    free(whole.gradient);
}

/* Losses that read more of a batch than sums: lengths, entropies, single rows, other pairs. */
static void no_loss_of_dpo_sees_a_difference(void **state)
{
    static const char *const losses[] = {
        "loss: [sigmoid, sft], ld_alpha: 0.5",
        "loss: sigmoid, use_weighting: true",
        "loss: [sigmoid_norm, ipo]",
        "loss: aot, aot_group: 4",
        "loss: simpo",
        "loss: orpo",
    };
    (void)state;
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        const char *name = arena_printf(&place.memory, "algorithm={name: dpo, %s}", losses[i]);
        const char *const apart[] = {name, NULL};
        const char *const together[] = {name, shared[0], NULL};
        trace whole = train("llama", FEW, apart);
        check_equal(losses[i], &whole, train("llama", FEW, together), FEW);
        free(whole.gradient);
    }
}

static int count_files(const char *folder, const char *pattern)
{
    int n = 0;
    FILE *p = popen(arena_printf(&place.memory, "ls %s/%s 2>/dev/null | wc -l", folder, pattern), "r");
    if (!p || fscanf(p, "%d", &n) != 1) fail();
    pclose(p);
    return n;
}

static void a_cached_reference_serves_both_layouts(void **state)
{
    static const char *const cached[] = {"algorithm.reference=cached", NULL};
    static const char *const both[] = {"algorithm.reference=cached", "data.prefix_sharing=true", NULL};
    const char *folder = arena_printf(&place.memory, "%s/cache", place.folder);
    (void)state;
    trace online = train("llama", FEW, NULL);
    check_equal("built shared", &online, train("llama", FEW, both), FEW);
    check_equal("read unshared", &online, train("llama", FEW, cached), FEW);
    assert_int_equal(count_files(folder, "ref-*"), 1);
    if (system(arena_printf(&place.memory, "rm %s/ref-*", folder))) fail();
    check_equal("built unshared", &online, train("llama", FEW, cached), FEW);
    check_equal("read shared", &online, train("llama", FEW, both), FEW);
    free(online.gradient);
}

static void bf16_follows_fp32(void **state)
{
    static const char *const bf16[] = {"train.precision=bf16", "data.prefix_sharing=true", NULL};
    (void)state;
    trace full = train("llama", FEW, shared), half = train("llama", FEW, bf16);
    assert_true(residual(half.loss, full.loss, FEW) <= 1e-2);
    free(full.gradient);
    free(half.gradient);
}

/* ---- data ---- */

static uint32_t random_state = 9;

static int uniform(int least, int most)
{
    random_state = random_state * 1103515245u + 12345u;
    return least + (int)((random_state >> 16) % (uint32_t)(most - least + 1));
}

static void put_ids(FILE *f, const char *key, int n)
{
    fprintf(f, "%s[", key);
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%d", i ? "," : "", uniform(3, VOCABULARY - 1));
    fputs("]", f);
}

/* Prompts of 1 to 50 tokens, shorter and longer than a window and an example of keys; answers of up
 * to 10. */
static const char *write_pairs(void)
{
    const char *path = arena_printf(&place.memory, "%s/pairs.jsonl", place.folder);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < PAIRS; i++) {
        put_ids(f, "{\"prompt_input_ids\": ", i % 4 ? uniform(5, 50) : uniform(1, 4));
        put_ids(f, ", \"chosen_input_ids\": ", uniform(1, 10));
        put_ids(f, ", \"rejected_input_ids\": ", uniform(1, 10));
        fputs("}\n", f);
    }
    fclose(f);
    return path;
}

static int setup(void **state)
{
    (void)state;
    test_place_make(&place);
    pair_algorithm.needs = answers;
    rows = write_pairs();
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
        cmocka_unit_test(sharing_changes_neither_loss_nor_gradient),
        cmocka_unit_test(packed_equals_unpacked_equals_shared),
        cmocka_unit_test(prompt_rows_are_scored_for_both_sides),
        cmocka_unit_test(no_loss_of_dpo_sees_a_difference),
        cmocka_unit_test(a_cached_reference_serves_both_layouts),
        cmocka_unit_test(bf16_follows_fp32),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
