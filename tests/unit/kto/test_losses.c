/*
 * test_losses.c - the kto plugin compared with the kto entries of tests/data/dpo_losses.json: the
 * values of TRL 1.16 in float64 for eight labelled samples (losses, gradients, logged numbers).
 * Columns are set by hand: one row per token after an untrained prompt row, then one row with the
 * whole log-prob of the kl_pairs side.
 */
#include "support/batch_check.h"
#include "base/json.h"
#include "support/backend.h"
#include "support/options.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { SAMPLES = 8, MAX_ROWS = 256, N_METRICS = 6, GOLDEN_MAX = 1 << 20 };
enum { METRIC_MARGIN = 2, METRIC_KL = 5 };
static const char *const metric_names[N_METRICS] = {"rewards/chosen", "rewards/rejected", "rewards/margins",
                                                    "logps/chosen",   "logps/rejected",   "kl"};

/* Of f32 columns and arithmetic. A loss or metric is measured against max(|value|, 1), a gradient
 * against the largest of its entry. */
static const double TOLERANCE = 1e-6;

typedef struct {
    arena memory;
    nrl_node *golden;
    const nrl_node *entry;
    plugin_host *host;
    const nrl_algorithm *table;
    void *self;
    device device;
    nrl_ctx *ctx;
} fixture;

/* What one call gave. */
typedef struct {
    double sum, weight;
    double metrics[N_METRICS]; /* NaN where none was reported */
    double grad[SAMPLES][64];  /* of the sum, a token */
    double other_grad;         /* the largest of a prompt row or a kl_pairs side */
} outcome;

/* ---- opening ---- */

static nrl_status open_kto(fixture *f, const char *yaml)
{
    const void *table;
    NRL_TRY(test_options(f->host, &f->memory, NRL_KIND_ALGORITHM, "algorithm", "kto", yaml, &table, &f->self));
    f->table = table;
    return NRL_OK;
}

static double param(const fixture *f, const char *name)
{
    return nrl_node_f64(nrl_node_find(nrl_node_find(f->entry, "params"), name), NAN);
}

static void open_entry(fixture *f, const char *name)
{
    f->entry = nrl_node_find(nrl_node_find(f->golden, "kto"), name);
    const char *yaml = arena_printf(&f->memory, "{loss: %s, beta: %g, desirable_weight: %g, undesirable_weight: %g}",
                                    nrl_node_string(nrl_node_find(nrl_node_find(f->entry, "params"), "loss_type"), ""),
                                    param(f, "beta"), param(f, "desirable_weight"), param(f, "undesirable_weight"));
    if (open_kto(f, yaml) != NRL_OK) fail_msg("%s: %s", name, nrl_error_text());
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
    ctx_set_batch(f->ctx, NULL);
    ctx_destroy(f->ctx);
    device_close(&f->device);
    plugin_host_destroy(f->host);
    arena_free(&f->memory);
    free(f);
    return 0;
}

/* ---- batches of some of the eight samples ---- */

static double number(const fixture *f, const char *list, int64_t i)
{
    return nrl_node_f64(nrl_node_at(nrl_node_find(f->entry, list), (size_t)i), NAN);
}

/* The token log-probs of sample i: `who` is policy or ref. */
static const nrl_node *tokens_of(const fixture *f, const char *who, int64_t i)
{
    char name[64];
    const nrl_node *item = nrl_node_at(nrl_node_find(f->entry, "items"), (size_t)i);
    snprintf(name, sizeof name, "%s_%s_token_logps", who, nrl_node_string(nrl_node_find(item, "from"), ""));
    return nrl_node_at(nrl_node_find(nrl_node_find(f->golden, "input"), name),
                       (size_t)nrl_node_int(nrl_node_find(item, "row"), 0));
}

static bool has_kl(const fixture *f)
{
    return f->table->group(f->self) > 1;
}

static void add_segment(nrl_batch *b, int64_t s, int64_t example, int side, int64_t rows, int64_t *row)
{
    b->segment_example[s] = (int32_t)example;
    b->segment_side[s] = side;
    b->cu_seqlens[s] = (int32_t)(*row + s);
    for (int64_t i = 0; i < rows; i++, ++*row) {
        b->row_token[*row] = (int32_t)(*row + s);
        b->row_segment[*row] = (int32_t)s;
        b->row_weight[*row] = i || side ? 1 : 0;
    }
}

static nrl_batch *make_batch(const fixture *f, int64_t first, int64_t n)
{
    int64_t sides = has_kl(f) ? 2 : 1, rows = 0, row = 0;
    for (int64_t i = 0; i < n; i++)
        rows += sides + (int64_t)nrl_node_size(tokens_of(f, "policy", first + i));
    nrl_batch *b = batch_new(rows + sides * n, rows, sides * n);
    b->n_examples = n;
    b->n_extra = 1;
    b->extra[0] = (batch_extra){"label", arena_alloc(&b->memory, (size_t)b->n_segments * sizeof(float)), false};
    for (int64_t i = 0; i < n; i++)
        for (int side = 0; side < sides; side++) {
            int64_t own = 1 + (int64_t)nrl_node_size(tokens_of(f, "policy", first + i));
            b->extra[0].values[sides * i + side] = (float)number(f, "labels", first + i);
            add_segment(b, sides * i + side, i, side, side ? 1 : own, &row);
        }
    b->cu_seqlens[b->n_segments] = (int32_t)b->n_tokens;
    return b;
}

/* The entry has four kl_pairs answers: each is that of two samples. */
static nrl_tensor *set_column(fixture *f, nrl_batch *b, int64_t first, const char *name, const char *who)
{
    char kl_name[32];
    float values[MAX_ROWS];
    nrl_tensor *t;
    int64_t i = 0;
    snprintf(kl_name, sizeof kl_name, "kl_%s_logps", who);
    for (int64_t s = 0; s < b->n_segments; s++) {
        int64_t sample = first + b->segment_example[s];
        const nrl_node *list = tokens_of(f, who, sample);
        values[i++] = b->segment_side[s] ? (float)number(f, kl_name, sample % 4) : -1.5f;
        for (size_t k = 0; !b->segment_side[s] && k < nrl_node_size(list); k++)
            values[i++] = (float)nrl_node_f64(nrl_node_at(list, k), NAN);
    }
    assert_int_equal(i, b->n_rows);
    assert_int_equal(nrl_tensor_from_host(f->ctx, NRL_DTYPE_F32, 1, &b->n_rows, values, &t), NRL_OK);
    batch_set_column(b, name, t);
    return t;
}

/* ---- one call ---- */

static void take_metrics(fixture *f, outcome *o)
{
    const ctx_metric *list;
    int64_t n;
    for (int i = 0; i < N_METRICS; i++) {
        o->metrics[i] = NAN;
        assert_string_equal(f->table->metrics[i].name, metric_names[i]);
    }
    assert_null(f->table->metrics[N_METRICS].name);
    assert_int_equal(ctx_take_metrics(f->ctx, &list, &n), NRL_OK);
    for (int64_t i = 0; i < n; i++)
        o->metrics[list[i].index] = list[i].value / list[i].weight;
    assert_true(isnan(o->metrics[METRIC_MARGIN])); /* the core makes it of the two before */
    assert_int_equal(f->table->metrics[METRIC_MARGIN].reduce, NRL_REDUCE_DIFFERENCE);
    o->metrics[METRIC_MARGIN] = o->metrics[0] - o->metrics[1];
}

static void take_gradients(fixture *f, const nrl_batch *b, nrl_tensor *grad, outcome *o)
{
    double values[MAX_ROWS];
    assert_int_equal(nrl_tensor_fetch(f->ctx, grad, values, b->n_rows), NRL_OK);
    int64_t at = 0;
    for (int64_t i = 0; i < b->n_rows; i++) {
        int32_t s = b->row_segment[i];
        bool first = !i || b->row_segment[i - 1] != s;
        at = first ? 0 : at + 1;
        if (first)
            o->other_grad = fmax(o->other_grad, fabs(values[i]));
        else
            o->grad[b->segment_example[s]][at - 1] = values[i];
    }
}

static outcome call(fixture *f, int64_t first, int64_t n, const char *reference)
{
    outcome o = {0};
    float one = 1;
    nrl_tensor *sums[NRL_MAX_TERMS] = {0}, *seed, *grad = NULL;
    nrl_batch *b = make_batch(f, first, n);
    tape *t = tape_create();
    assert_int_equal(batch_check(b, 1), NRL_OK);
    f->table->weight(f->self, b, &o.weight);
    assert_int_equal(ctx_set_batch(f->ctx, b), NRL_OK);
    ctx_scope_begin(f->ctx);
    nrl_tensor *logps = set_column(f, b, first, "logps", "policy");
    set_column(f, b, first, "ref_logps", reference);
    tensor_set_leaf(logps);
    ctx_tape_begin(f->ctx, t);
    if (f->table->loss(f->self, f->ctx, b, sums) != NRL_OK) fail_msg("%s", nrl_error_text());
    ctx_tape_end(f->ctx);
    assert_int_equal(nrl_tensor_fetch(f->ctx, sums[0], &o.sum, 1), NRL_OK);
    assert_int_equal(nrl_tensor_from_host(f->ctx, NRL_DTYPE_F32, 1, &(int64_t){1}, &one, &seed), NRL_OK);
    assert_int_equal(tape_backward(f->ctx, t, sums, &seed, 1, &logps, &grad, 1), NRL_OK);
    take_gradients(f, b, grad, &o);
    tensor_release(f->ctx, grad);
    take_metrics(f, &o);
    tape_destroy(f->ctx, t);
    ctx_scope_end(f->ctx);
    ctx_set_batch(f->ctx, NULL);
    batch_free(b);
    return o;
}

/* ---- the recordings ---- */

static void expect(const char *what, double got, double want, double size)
{
    if (!(fabs(got - want) <= TOLERANCE * size)) fail_msg("%s: %.9g, expected %.9g", what, got, want);
}

static void check_gradients(const fixture *f, const outcome *o)
{
    double largest = 0;
    for (int64_t i = 0; i < SAMPLES; i++)
        largest = fmax(largest, fabs(number(f, "grad_logps", i)));
    for (int64_t i = 0; i < SAMPLES; i++)
        for (size_t t = 0; t < nrl_node_size(tokens_of(f, "policy", i)); t++)
            expect("gradient", o->grad[i][t] / o->weight, number(f, "grad_logps", i), largest);
    assert_true(o->other_grad == 0);
}

static void check_metrics(const fixture *f, const outcome *o)
{
    const nrl_node *metrics = nrl_node_find(f->entry, "trl_metrics");
    int found = 0;
    for (int i = 0; i < METRIC_KL; i++) {
        double want = nrl_node_f64(nrl_node_find(metrics, metric_names[i]), NAN);
        expect(metric_names[i], o->metrics[i], want, fmax(fabs(want), 1));
        found++;
    }
    assert_int_equal(found, nrl_node_size(metrics));
    double kl = nrl_node_f64(nrl_node_find(f->entry, "kl"), NAN);
    if (has_kl(f))
        expect("kl", o->metrics[METRIC_KL], kl, fmax(kl, 1));
    else
        assert_true(isnan(o->metrics[METRIC_KL]));
}

static void every_kto_entry_is_reproduced(void **state)
{
    fixture *f = *state;
    const nrl_node *entries = nrl_node_find(f->golden, "kto");
    assert_int_equal(nrl_node_size(entries), 3);
    for (size_t e = 0; e < 3; e++) {
        open_entry(f, nrl_node_key(entries, e));
        outcome o = call(f, 0, SAMPLES, "ref");
        assert_true(o.weight == SAMPLES);
        expect("loss", o.sum / o.weight, nrl_node_f64(nrl_node_find(f->entry, "loss_mean"), NAN), 1);
        check_gradients(f, &o);
        check_metrics(f, &o);
    }
}

/* Without a KL term a sample's loss does not depend on the others. */
static void losses_of_single_samples_are_those_recorded(void **state)
{
    fixture *f = *state;
    open_entry(f, "apo_zero_unpaired");
    for (int64_t i = 0; i < SAMPLES; i++) {
        outcome o = call(f, i, 1, "ref");
        expect("loss", o.sum, number(f, "losses", i), 1);
        assert_true(isnan(o.metrics[number(f, "labels", i) > 0 ? 1 : 0]));
    }
}

/* ---- what the recordings do not have ---- */

static void the_kl_term_is_that_of_each_group(void **state)
{
    fixture *f = *state;
    f->entry = nrl_node_find(nrl_node_find(f->golden, "kto"), "kto");
    assert_int_equal(open_kto(f, "kl_group: 3"), NRL_OK);
    outcome whole = call(f, 0, SAMPLES, "ref");
    double sum = 0, kl = 0;
    for (int64_t first = 0; first < SAMPLES; first += 3) {
        int64_t n = first + 3 < SAMPLES ? 3 : SAMPLES - first;
        outcome part = call(f, first, n, "ref");
        sum += part.sum;
        kl += part.metrics[METRIC_KL] * (double)n;
        for (int64_t i = 0; i < n; i++)
            assert_true(part.grad[i][0] == whole.grad[first + i][0]);
    }
    expect("sum", whole.sum, sum, SAMPLES);
    expect("kl", whole.metrics[METRIC_KL], kl / SAMPLES, 1);
    /* ratios 1.5, -2.25, 5.5, 1 over and over: groups of 3, 3 and 2 */
    expect("kl", kl / SAMPLES, (3 * (4.75 / 3) + 3 * (0.25 / 3) + 2 * 3.25) / SAMPLES, 1);
}

static void the_first_loss_is_known_where_the_reference_is_the_policy(void **state)
{
    static const char *const known[] = {"loss: kto", "loss: apo_zero_unpaired",
                                        "{loss: kto, beta: 0.7, desirable_weight: 2, undesirable_weight: 2}"};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal(open_kto(f, known[i]), NRL_OK);
        outcome o = call(f, 0, SAMPLES, "policy");
        expect("loss", o.sum / o.weight, f->table->initial_loss(f->self), 1);
    }
    assert_int_equal(open_kto(f, "undesirable_weight: 1.33"), NRL_OK);
    assert_true(isnan(f->table->initial_loss(f->self)));
}

static void options_that_cannot_be_are_refused(void **state)
{
    static const struct {
        const char *yaml, *text;
    } rows[] = {{"{desirable_weight: 0, undesirable_weight: 0}", "nothing would be trained"},
                {"beta: 0", "beta"},
                {"loss: bco", "kto, apo_zero_unpaired"},
                {"kl_group: 0", "kl_group"},
                {"{loss: apo_zero_unpaired, kl_group: 4}", "has no KL term"}};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(open_kto(f, rows[i].yaml), NRL_ERR_CONFIG);
        if (!strstr(nrl_error_text(), rows[i].text))
            fail_msg("%s: '%s' does not say '%s'", rows[i].yaml, nrl_error_text(), rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kto_entry_is_reproduced),
        cmocka_unit_test(losses_of_single_samples_are_those_recorded),
        cmocka_unit_test(the_kl_term_is_that_of_each_group),
        cmocka_unit_test(the_first_loss_is_known_where_the_reference_is_the_policy),
        cmocka_unit_test(options_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
