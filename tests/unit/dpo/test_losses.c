/*
 * test_losses.c - every loss of the dpo plugin compared with tests/data/dpo_losses.json: the values
 * of TRL 1.16 in float64 for eight pairs (losses, gradients, logged numbers). Columns are set by
 * hand, one row per token, with an untrained prompt row before each answer.
 */
#include "support/batch_check.h"
#include "base/json.h"
#include "run/state/state_io.h"
#include "support/backend.h"
#include "support/options.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { PAIRS = 8, MAX_ROWS = 512, N_METRICS = 7, GOLDEN_MAX = 1 << 20 };
static const char *const sides[2] = {"chosen", "rejected"};
static const char *const metric_names[N_METRICS] = {
    "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies",
    "logps/chosen",   "logps/rejected",   "nll_loss"};

/* Of f32 columns and arithmetic. A loss or metric is measured against max(|value|, 1), a gradient
 * against the largest of its entry. */
static const double TOLERANCE = 1e-6;
/* w = sigmoid(x / tau) with tau 0.05: the rounding of x counts twenty times. */
static const double DISCOPOP_TOLERANCE = 3e-6;

typedef struct {
    arena memory;
    nrl_node *golden;
    plugin_host *host;
    const nrl_algorithm *table;
    void *self;
    device device;
    nrl_ctx *ctx;
} fixture;

/* What one call gave. */
typedef struct {
    double loss, sums[NRL_MAX_TERMS], weights[NRL_MAX_TERMS];
    double metrics[N_METRICS]; /* NaN where none was reported */
    double grad[2][PAIRS][64]; /* of the step loss, a token */
    double prompt_grad;        /* the largest of a prompt row */
} outcome;

/* ---- opening ---- */

static void close_instance(fixture *f)
{
    if (f->self) f->table->destroy(f->self);
    f->self = NULL;
}

static nrl_status open_dpo(fixture *f, const char *yaml)
{
    const void *table;
    void *options;
    close_instance(f);
    NRL_TRY(test_options(f->host, &f->memory, NRL_KIND_ALGORITHM, "algorithm", "dpo", yaml, &table, &options));
    f->table = table;
    return f->table->create(options, &f->self);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->host = test_host();
    *state = f;
    const char *path = arena_printf(&f->memory, "%s/tests/data/dpo_losses.json", getenv("NRL_TEST_SOURCE"));
    if (json_read_file(&f->memory, path, GOLDEN_MAX, &f->golden) != NRL_OK) return 1;
    return test_device_open(&f->device) && ctx_create(&f->device, &f->ctx) == NRL_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    close_instance(f);
    ctx_set_batch(f->ctx, NULL);
    ctx_destroy(f->ctx);
    device_close(&f->device);
    plugin_host_destroy(f->host);
    arena_free(&f->memory);
    free(f);
    return 0;
}

/* ---- batches of some of the eight pairs ---- */

static const nrl_node *token_values(const fixture *f, const char *format, int side, int64_t pair)
{
    char name[64];
    snprintf(name, sizeof name, format, sides[side]);
    return nrl_node_at(nrl_node_find(nrl_node_find(f->golden, "input"), name), (size_t)pair);
}

static int64_t length_of(const fixture *f, int side, int64_t pair)
{
    return (int64_t)nrl_node_size(token_values(f, "policy_%s_token_logps", side, pair));
}

/* Pairs first .. first + n - 1, chosen before rejected; a segment is a prompt row, then its answer.
 */
static nrl_batch *make_batch(const fixture *f, int64_t first, int64_t n)
{
    int64_t rows = 0, row = 0;
    for (int64_t s = 0; s < 2 * n; s++)
        rows += 1 + length_of(f, (int)(s % 2), first + s / 2);
    nrl_batch *b = batch_new(rows + 2 * n, rows, 2 * n);
    b->n_examples = n;
    for (int64_t s = 0; s < 2 * n; s++) {
        int64_t scored = 1 + length_of(f, (int)(s % 2), first + s / 2);
        b->segment_example[s] = (int32_t)(s / 2);
        b->segment_side[s] = (int32_t)(s % 2);
        b->cu_seqlens[s] = (int32_t)(row + s);
        for (int64_t i = 0; i < scored; i++, row++) {
            b->row_token[row] = (int32_t)(row + s);
            b->row_segment[row] = (int32_t)s;
            b->row_weight[row] = i ? 1 : 0;
        }
    }
    b->cu_seqlens[2 * n] = (int32_t)b->n_tokens;
    return b;
}

/* A column of tokens' values; a prompt row has a number that no answer may see. */
static nrl_tensor *set_column(fixture *f, nrl_batch *b, int64_t first, const char *name, const char *format)
{
    float values[MAX_ROWS];
    nrl_tensor *t;
    int64_t i = 0;
    for (int64_t s = 0; s < b->n_segments; s++) {
        const nrl_node *list = token_values(f, format, (int)(s % 2), first + s / 2);
        values[i++] = -1.5f;
        for (size_t k = 0; k < nrl_node_size(list); k++)
            values[i++] = (float)nrl_node_f64(nrl_node_at(list, k), NAN);
    }
    assert_int_equal(nrl_tensor_from_host(f->ctx, NRL_DTYPE_F32, 1, &b->n_rows, values, &t), NRL_OK);
    batch_set_column(b, name, t);
    return t;
}

/* ---- one call ---- */

static void take_metrics(fixture *f, outcome *o)
{
    const ctx_metric *list;
    int64_t n;
    for (int i = 0; i < N_METRICS; i++)
        o->metrics[i] = NAN;
    assert_int_equal(ctx_take_metrics(f->ctx, &list, &n), NRL_OK);
    for (int64_t i = 0; i < n; i++) {
        assert_string_equal(f->table->metrics[list[i].index].name, metric_names[list[i].index]);
        o->metrics[list[i].index] = list[i].value / list[i].weight;
    }
}

static void take_gradients(fixture *f, const nrl_batch *b, nrl_tensor *grad, outcome *o)
{
    double values[MAX_ROWS] = {0};
    int64_t i = 0;
    if (grad) assert_int_equal(nrl_tensor_fetch(f->ctx, grad, values, b->n_rows), NRL_OK);
    for (int64_t s = 0; s < b->n_segments; s++) {
        double *to = o->grad[s % 2][s / 2];
        o->prompt_grad = fmax(o->prompt_grad, fabs(values[i++]));
        for (; i < b->n_rows && b->row_segment[i] == s; i++)
            *to++ = values[i];
    }
}

static void backward(fixture *f, tape *t, const nrl_batch *b, nrl_tensor *logps, nrl_tensor *const *sums, outcome *o)
{
    nrl_tensor *seeds[NRL_MAX_TERMS], *grad = NULL;
    for (uint32_t k = 0; k < f->table->n_terms; k++) {
        float seed = o->weights[k] > 0 ? (float)(1 / o->weights[k]) : 0;
        assert_int_equal(nrl_tensor_from_host(f->ctx, NRL_DTYPE_F32, 1, &(int64_t){1}, &seed, &seeds[k]), NRL_OK);
        assert_int_equal(nrl_tensor_fetch(f->ctx, sums[k], &o->sums[k], 1), NRL_OK);
        if (o->weights[k] > 0) o->loss += o->sums[k] / o->weights[k];
    }
    assert_int_equal(tape_backward(f->ctx, t, sums, seeds, (int)f->table->n_terms, &logps, &grad, 1), NRL_OK);
    take_gradients(f, b, grad, o);
    tensor_release(f->ctx, grad);
}

/* `reference`: the format of the reference's token log-probs. */
static outcome call(fixture *f, int64_t first, int64_t n, const char *reference)
{
    outcome o = {0};
    nrl_tensor *sums[NRL_MAX_TERMS] = {0};
    nrl_batch *b = make_batch(f, first, n);
    tape *t = tape_create();
    assert_int_equal(batch_check(b, 1), NRL_OK);
    f->table->weight(f->self, b, o.weights);
    assert_int_equal(ctx_set_batch(f->ctx, b), NRL_OK);
    ctx_scope_begin(f->ctx);
    nrl_tensor *logps = set_column(f, b, first, "logps", "policy_%s_token_logps");
    for (const char *const *need = f->table->instance_needs(f->self); *need; need++) {
        if (!strcmp(*need, "ref_logps")) set_column(f, b, first, *need, reference);
        if (!strcmp(*need, "sum_p2")) set_column(f, b, first, *need, "%s_log_sum_sq_probs");
    }
    tensor_set_leaf(logps);
    ctx_tape_begin(f->ctx, t);
    if (f->table->loss(f->self, f->ctx, b, sums) != NRL_OK) fail_msg("%s", nrl_error_text());
    ctx_tape_end(f->ctx);
    backward(f, t, b, logps, sums, &o);
    take_metrics(f, &o);
    tape_destroy(f->ctx, t);
    ctx_scope_end(f->ctx);
    ctx_set_batch(f->ctx, NULL);
    batch_free(b);
    return o;
}

/* ---- from an entry's parameters to ours ---- */

static const char *list_text(fixture *f, const nrl_node *list)
{
    const char *text = "";
    if (nrl_node_kind(list) == NRL_NODE_STRING) return nrl_node_string(list, "");
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const nrl_node *n = nrl_node_at(list, i);
        const char *word = nrl_node_string(n, NULL);
        if (!word) word = arena_printf(&f->memory, "%.17g", nrl_node_f64(n, NAN));
        text = arena_printf(&f->memory, "%s%s%s", text, i ? ", " : "", word);
    }
    return arena_printf(&f->memory, "[%s]", text);
}

/* Options with the same names in both; those of a loss that does not read them are omitted. */
static const char *common_options(fixture *f, const nrl_node *params, bool smoothing)
{
    static const char *const names[] = {"beta", "label_smoothing", "f_alpha_divergence_coef", "ld_alpha",
                                        "discopop_tau"};
    const char *text = "", *divergence = nrl_node_string(nrl_node_find(params, "f_divergence_type"), NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const nrl_node *n = nrl_node_find(params, names[i]);
        if (!n || (!smoothing && !strcmp(names[i], "label_smoothing"))) continue;
        text = arena_printf(&f->memory, "%s%s: %.17g\n", text, names[i], nrl_node_f64(n, NAN));
    }
    if (divergence) text = arena_printf(&f->memory, "%sf_divergence_type: %s\n", text, divergence);
    if (nrl_node_find(params, "use_weighting")) text = arena_printf(&f->memory, "%suse_weighting: true\n", text);
    return text;
}

static void open_dpo_entry(fixture *f, const char *name, const nrl_node *params)
{
    const char *yaml = common_options(f, params, strcmp(name, "sigmoid_label_smoothing_ignored"));
    const nrl_node *weights = nrl_node_find(params, "loss_weights");
    yaml = arena_printf(&f->memory, "%sloss: %s\n", yaml, list_text(f, nrl_node_find(params, "loss_type")));
    if (weights) yaml = arena_printf(&f->memory, "%sloss_weights: %s\n", yaml, list_text(f, weights));
    if (open_dpo(f, yaml) != NRL_OK) fail_msg("%s: %s", name, nrl_error_text());
}

/* CPOTrainer's loss_type is a loss of ours each; its simpo with cpo_alpha is a mixture. */
static void open_cpo_entry(fixture *f, const char *name, const nrl_node *params)
{
    const char *type = nrl_node_string(nrl_node_find(params, "loss_type"), "");
    double cpo_alpha = nrl_node_f64(nrl_node_find(params, "cpo_alpha"), 0);
    double alpha = nrl_node_f64(nrl_node_find(params, "alpha"), 0);
    const char *yaml = common_options(f, params, nrl_node_f64(nrl_node_find(params, "label_smoothing"), 0) > 0);
    bool simpo = !strcmp(type, "simpo");
    if (simpo && alpha != 0)
        yaml = arena_printf(&f->memory, "%sloss: alphapo\nalpha: %g\n", yaml, alpha);
    else if (simpo && cpo_alpha > 0)
        yaml = arena_printf(&f->memory, "%sloss: [simpo, sft]\nloss_weights: [1, %g]\n", yaml, cpo_alpha);
    else if (simpo)
        yaml = arena_printf(&f->memory, "%sloss: simpo\n", yaml);
    else
        yaml = arena_printf(&f->memory, "%sloss: cpo%s%s\ncpo_alpha: %g\n", yaml, strcmp(type, "sigmoid") ? "_" : "",
                            strcmp(type, "sigmoid") ? type : "", cpo_alpha);
    if (open_dpo(f, yaml) != NRL_OK) fail_msg("%s: %s", name, nrl_error_text());
}

/* ---- comparing ---- */

/* Notes the larger of *worst and the error of `got`, in units of `size`. */
static void compare(double *worst, double got, double want, double size)
{
    double error = fabs(got - want) / size;
    if (!(error <= *worst)) *worst = error;
}

static void compare_value(double *worst, double got, double want)
{
    compare(worst, got, want, fmax(fabs(want), 1));
}

static double gradient_error(const fixture *f, const nrl_node *entry, const outcome *o, const char *const names[2])
{
    double largest = 0, worst = 0;
    double ld = nrl_node_f64(nrl_node_find(nrl_node_find(entry, "params"), "ld_alpha"), 1);
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < PAIRS; i++)
            largest = fmax(largest, fabs(nrl_node_f64(nrl_node_at(nrl_node_find(entry, names[side]), (size_t)i), NAN)));
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < PAIRS; i++) {
            double want = nrl_node_f64(nrl_node_at(nrl_node_find(entry, names[side]), (size_t)i), NAN);
            int64_t other = length_of(f, !side, i);
            for (int64_t t = 0; t < length_of(f, side, i); t++)
                compare(&worst, o->grad[side][i][t], t < other ? want : ld * want, largest);
        }
    return worst;
}

static double metric_error(const nrl_node *entry, const outcome *o)
{
    const nrl_node *metrics = nrl_node_find(entry, "trl_metrics");
    double worst = 0;
    for (int i = 0; i < N_METRICS; i++) {
        const nrl_node *n = nrl_node_find(metrics, metric_names[i]);
        if (n && !(i == 6 && isnan(o->metrics[i]) && nrl_node_f64(n, 1) == 0))
            compare_value(&worst, o->metrics[i], nrl_node_f64(n, NAN));
    }
    return worst;
}

/* The losses of single pairs, where a pair's loss does not depend on the others. */
static double pair_error(fixture *f, const nrl_node *entry, bool mean_alone)
{
    const nrl_node *list = nrl_node_find(entry, "pair_losses");
    double worst = 0;
    if (!list || mean_alone) return 0;
    for (int64_t i = 0; i < PAIRS; i++) {
        outcome o = call(f, i, 1, "ref_%s_token_logps");
        compare_value(&worst, o.sums[0], nrl_node_f64(nrl_node_at(list, (size_t)i), NAN));
    }
    return worst;
}

static int judge(const char *name, double loss, double gradient, double metric, double pair)
{
    double worst = fmax(fmax(loss, gradient), fmax(metric, pair));
    double allowed = strncmp(name, "discopop", 8) ? TOLERANCE : DISCOPOP_TOLERANCE;
    bool good = worst <= allowed && !isnan(loss) && !isnan(gradient) && !isnan(metric) && !isnan(pair);
    if (!good || getenv("NRL_TEST_VERBOSE"))
        print_message("%-32s loss %.1e gradient %.1e metrics %.1e pairs %.1e%s\n", name, loss, gradient, metric, pair,
                      good ? "" : "  WRONG");
    return !good;
}

static void every_dpo_entry_is_reproduced(void **state)
{
    static const char *const names[2] = {"grad_chosen", "grad_rejected"};
    fixture *f = *state;
    const nrl_node *entries = nrl_node_find(f->golden, "dpo");
    int failed = 0;
    for (size_t i = 0; i < nrl_node_size(entries); i++) {
        const nrl_node *entry = nrl_node_at(entries, i);
        const char *name = nrl_node_key(entries, i);
        double loss = 0;
        open_dpo_entry(f, name, nrl_node_find(entry, "params"));
        outcome o = call(f, 0, PAIRS, "ref_%s_token_logps");
        assert_true(o.prompt_grad == 0);
        compare_value(&loss, o.loss, nrl_node_f64(nrl_node_find(entry, "loss_mean"), NAN));
        double pair = pair_error(f, entry, !strncmp(name, "aot", 3) || !strcmp(name, "sft"));
        failed += judge(name, loss, gradient_error(f, entry, &o, names), metric_error(entry, &o), pair);
    }
    print_message("%zu entries of dpo, %d wrong\n", nrl_node_size(entries), failed);
    assert_true(nrl_node_size(entries) == 50 && !failed);
}

static void every_cpo_entry_is_reproduced(void **state)
{
    static const char *const names[2] = {"grad_total_chosen", "grad_total_rejected"};
    fixture *f = *state;
    const nrl_node *entries = nrl_node_find(f->golden, "cpo_orpo");
    int failed = 0, n = 0;
    for (size_t i = 0; i < nrl_node_size(entries); i++) {
        const nrl_node *entry = nrl_node_at(entries, i);
        const char *name = nrl_node_key(entries, i);
        double loss = 0;
        if (!strncmp(name, "orpo", 4)) continue;
        open_cpo_entry(f, name, nrl_node_find(entry, "params"));
        outcome o = call(f, 0, PAIRS, NULL);
        compare_value(&loss, o.loss, nrl_node_f64(nrl_node_find(entry, "loss_total"), NAN));
        failed += judge(name, loss, gradient_error(f, entry, &o, names), metric_error(entry, &o),
                        pair_error(f, entry, false));
        n++;
    }
    print_message("%d entries of cpo, %d wrong\n", n, failed);
    assert_true(n == 8 && !failed);
}

/* The recorded orpo takes its token mean as given: here it comes from the rows, so it is omitted
 * of what is compared and checked by itself. */
static void every_orpo_entry_is_reproduced(void **state)
{
    fixture *f = *state;
    const nrl_node *entries = nrl_node_find(f->golden, "cpo_orpo");
    int failed = 0;
    for (int k = 0; k < 2; k++) {
        static const char *const names[2] = {"grad_chosen", "grad_rejected"};
        const char *name = k ? "orpo_beta05" : "orpo_beta01";
        const nrl_node *entry = nrl_node_find(entries, name);
        double beta = nrl_node_f64(nrl_node_find(nrl_node_find(entry, "params"), "beta"), NAN);
        double loss = 0, nll = 0, tokens = 0;
        assert_int_equal(open_dpo(f, arena_printf(&f->memory, "loss: orpo\nbeta: %g", beta)), NRL_OK);
        outcome o = call(f, 0, PAIRS, NULL);
        for (int64_t i = 0; i < PAIRS; i++) {
            const nrl_node *list = token_values(f, "policy_%s_token_logps", 0, i);
            nll += 1.5;
            tokens += 1 + (double)nrl_node_size(list);
            for (size_t t = 0; t < nrl_node_size(list); t++)
                nll -= nrl_node_f64(nrl_node_at(list, t), NAN);
        }
        assert_true(o.weights[2] == tokens && o.weights[1] == 0);
        assert_true(fabs(o.sums[2] - nll) <= TOLERANCE * nll);
        assert_true(fabs(o.prompt_grad - 1 / tokens) <= TOLERANCE / tokens);
        for (int64_t i = 0; i < PAIRS; i++) /* what is left is the odds ratio's */
            for (int64_t t = 0; t < length_of(f, 0, i); t++)
                o.grad[0][i][t] += 1 / tokens;
        compare_value(&loss, o.sums[0] / o.weights[0], nrl_node_f64(nrl_node_find(entry, "loss_mean"), NAN));
        failed += judge(name, loss, gradient_error(f, entry, &o, names), metric_error(entry, &o),
                        pair_error(f, entry, false));
    }
    assert_false(failed);
}

/* ---- what the recordings do not have ---- */

/* With right = -ls(x) and wrong = -ls(-x): robust = ((1-eps) right - eps wrong) / (1 - 2 eps),
 * which gives wrong; cdpo = (1-eps) right + eps wrong. */
static void cdpo_is_the_mean_over_labels_that_flip(void **state)
{
    const char *reference = "ref_%s_token_logps";
    fixture *f = *state;
    assert_int_equal(open_dpo(f, "loss: sigmoid"), NRL_OK);
    double right = call(f, 0, PAIRS, reference).loss;
    assert_int_equal(open_dpo(f, "{loss: robust, label_smoothing: 0.25}"), NRL_OK);
    double wrong = (0.75 * right - 0.5 * call(f, 0, PAIRS, reference).loss) / 0.25;
    assert_int_equal(open_dpo(f, "{loss: cdpo, label_smoothing: 0.25}"), NRL_OK);
    assert_true(fabs(call(f, 0, PAIRS, reference).loss - (0.75 * right + 0.25 * wrong)) <= 2 * TOLERANCE);
}

static void aot_sorts_within_groups(void **state)
{
    fixture *f = *state;
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "aot_unpaired" : "aot";
        double parts = 0;
        assert_int_equal(open_dpo(f, arena_printf(&f->memory, "{loss: %s, aot_group: 3}", name)), NRL_OK);
        assert_int_equal(f->table->group(f->self), 3);
        double whole = call(f, 0, 8, "ref_%s_token_logps").sums[0];
        for (int64_t first = 0; first < 8; first += 3)
            parts += call(f, first, first + 3 < 8 ? 3 : 8 - first, "ref_%s_token_logps").sums[0];
        assert_true(fabs(whole - parts) <= 8 * TOLERANCE);
    }
    assert_int_equal(open_dpo(f, "loss: [sigmoid, sft]"), NRL_OK);
    assert_int_equal(f->table->group(f->self), 1);
}

static void bco_shift_is_the_mean_of_earlier_rewards(void **state)
{
    fixture *f = *state;
    arena a = {0};
    nrl_state_io saved = {.a = &a, .into = node_new(&a, NRL_NODE_MAP)};
    assert_int_equal(open_dpo(f, "{loss: bco_pair, bco_shift: true}"), NRL_OK);
    outcome first = call(f, 0, PAIRS, "ref_%s_token_logps");
    double mean = (first.metrics[0] + first.metrics[1]) / 2;
    assert_true(fabs(first.sums[3] - 2 * PAIRS * mean) <= 2 * PAIRS * TOLERANCE);
    assert_true(first.weights[3] == 0);
    assert_int_equal(f->table->step_end(f->self, first.sums, first.weights), NRL_OK);
    outcome second = call(f, 0, 1, "ref_%s_token_logps");
    double x = second.metrics[0] - mean, y = second.metrics[1] - mean;
    assert_true(fabs(second.sums[0] - log1p(exp(-x)) - log1p(exp(y))) <= 2 * TOLERANCE);
    assert_int_equal(f->table->state(f->self, &saved), NRL_OK);
    assert_int_equal(open_dpo(f, "{loss: bco_pair, bco_shift: true}"), NRL_OK);
    assert_int_equal(f->table->state(f->self, &(nrl_state_io){.from = saved.into}), NRL_OK);
    assert_true(call(f, 0, 1, "ref_%s_token_logps").sums[0] == second.sums[0]);
    /* the rewards of bco_pair, although those of the first loss are logged */
    assert_int_equal(open_dpo(f, "{loss: [simpo, bco_pair], bco_shift: true}"), NRL_OK);
    assert_true(fabs(call(f, 0, PAIRS, "ref_%s_token_logps").sums[3] - first.sums[3]) <= 2 * PAIRS * TOLERANCE);
    arena_free(&a);
}

/* ---- start constants ---- */

static void the_first_loss_is_known_where_the_reference_is_the_policy(void **state)
{
    static const char *const known[] = {
        "loss: sigmoid",
        "{loss: cdpo, label_smoothing: 0.1}",
        "{loss: robust, label_smoothing: 0.1}",
        "loss: hinge",
        "loss: ipo",
        "{loss: ipo, beta: 0.5}",
        "loss: sigmoid_norm",
        "{loss: exo_pair, label_smoothing: 0.01}",
        "loss: nca_pair",
        "loss: bco_pair",
        "{loss: bco_pair, bco_shift: true}",
        "{loss: sppo_hard, beta: 0.2}",
        "loss: apo_zero",
        "loss: apo_down",
        "loss: discopop",
        "{loss: aot, label_smoothing: 0.1}",
        "loss: aot_unpaired",
        "{loss: sigmoid, f_divergence_type: forward_kl}",
        "{loss: sigmoid, f_divergence_type: js_divergence}",
        "{loss: sigmoid, f_divergence_type: alpha_divergence}",
        "{loss: sigmoid, f_divergence_type: alpha_divergence, f_alpha_divergence_coef: 1}",
        "{loss: sigmoid, ld_alpha: 0.3}",
        "{loss: [hinge, ipo], loss_weights: [0.5, 2]}"};
    static const char *const unknown[] = {"loss: sft",
                                          "loss: cpo",
                                          "loss: cpo_hinge",
                                          "loss: cpo_ipo",
                                          "loss: simpo",
                                          "loss: alphapo",
                                          "loss: orpo",
                                          "loss: [sigmoid, sft]",
                                          "{loss: sigmoid, use_weighting: true}"};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal(open_dpo(f, known[i]), NRL_OK);
        double want = f->table->initial_loss(f->self), got = call(f, 0, PAIRS, "policy_%s_token_logps").loss;
        if (!(fabs(got - want) <= TOLERANCE * fmax(fabs(want), 1)))
            fail_msg("%s: %.9g, expected %.9g", known[i], got, want);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_int_equal(open_dpo(f, unknown[i]), NRL_OK);
        assert_true(isnan(f->table->initial_loss(f->self)));
    }
}

static void only_losses_that_read_a_reference_ask_for_one(void **state)
{
    static const struct {
        const char *yaml, *needs;
    } rows[] = {{"loss: sigmoid", "logps ref_logps"},
                {"loss: [simpo, sft]", "logps"},
                {"loss: cpo", "logps"},
                {"loss: orpo", "logps prompt_targets"},
                {"loss: sft", "logps ref_logps"},
                {"{loss: robust, use_weighting: true}", "logps ref_logps sum_p2"}};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *text = "";
        assert_int_equal(open_dpo(f, rows[i].yaml), NRL_OK);
        for (const char *const *n = f->table->instance_needs(f->self); *n; n++)
            text = arena_printf(&f->memory, "%s%s%s", text, *text ? " " : "", *n);
        assert_string_equal(text, rows[i].needs);
    }
}

/* ---- refusals ---- */

static void options_that_cannot_be_are_refused(void **state)
{
    static const struct {
        const char *yaml, *text;
    } rows[] = {
        {"{loss: sigmoid, label_smoothing: 0.1}",
         "label_smoothing: loss sigmoid does not use it\nhint: losses that use it: cdpo"},
        {"loss: sigmod", "unknown loss 'sigmod'"},
        {"loss: []", "a list of 0"},
        {"loss: {sigmoid: 1}", "expected the name of a loss or a list of names"},
        {"loss: [sigmoid, sigmoid]", "'sigmoid' is listed twice"},
        {"{loss: [sigmoid, sft], loss_weights: [1]}", "got 1 weights for 2 losses"},
        {"{loss: [sigmoid, sft], loss_weights: [1, x]}", "entry 2 is not a number"},
        {"{loss: [sigmoid, sft], loss_weights: [0, 0]}", "all weights are 0"},
        {"beta: 0", "expected a number above 0"},
        {"{loss: robust, label_smoothing: 0.5}", "expected below 0.5"},
        {"loss: exo_pair", "takes its logarithm"},
        {"{loss: nca_pair, f_divergence_type: js_divergence}", "loss nca_pair does not use it"},
        {"f_alpha_divergence_coef: 2", "no effect without f_divergence_type: alpha_divergence"},
        {"{loss: aot, use_weighting: true}", "use_weighting: loss aot does not use it"},
        {"{loss: [sigmoid, aot], use_weighting: true}", "loss aot does not support weighted pairs"},
        {"{loss: [sigmoid, simpo], ld_alpha: 0.5}", "loss simpo does not use it"},
        {"{loss: simpo, cpo_alpha: 0.5}", "cpo_alpha: loss simpo does not use it"},
        {"{loss: ipo, simpo_gamma: 1}", "losses that use it: simpo, alphapo"},
        {"{loss: bco_pair, aot_group: 4}", "losses that use it: aot, aot_unpaired"},
        {"{loss: sft, bco_shift: true}", "losses that use it: bco_pair"},
        {"label_smoothing: 0.7", "label_smoothing"},
        {"ld_alpha: 1.5", "ld_alpha"},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(open_dpo(f, rows[i].yaml), NRL_ERR_CONFIG);
        if (!strstr(nrl_error_text(), rows[i].text))
            fail_msg("%s: '%s' does not say '%s'", rows[i].yaml, nrl_error_text(), rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dpo_entry_is_reproduced),
        cmocka_unit_test(every_cpo_entry_is_reproduced),
        cmocka_unit_test(every_orpo_entry_is_reproduced),
        cmocka_unit_test(cdpo_is_the_mean_over_labels_that_flip),
        cmocka_unit_test(aot_sorts_within_groups),
        cmocka_unit_test(bco_shift_is_the_mean_of_earlier_rewards),
        cmocka_unit_test(the_first_loss_is_known_where_the_reference_is_the_policy),
        cmocka_unit_test(only_losses_that_read_a_reference_ask_for_one),
        cmocka_unit_test(options_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
