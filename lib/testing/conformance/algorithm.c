/*
 * algorithm.c - rules for every algorithm: its losses are sums over examples, so that neither
 * gradient accumulation nor data parallelism changes the result of training.
 */
#include "algorithm_call.h"
#include "base/node.h"
#include <math.h>
#include <string.h>

/* Sums of some hundred f32 values in another order. */
#define RELATIVE 1e-4
#define ABSOLUTE 1e-5

/* A difference of sums near 50 in f32 (error 3e-6) over a step of 0.02: 2e-4, and the curvature of the loss. */
#define SLOPE_STEP 1e-2
#define SLOPE_RELATIVE 2e-2
#define SLOPE_ABSOLUTE 2e-3

enum { SLOPES = 16 };  /* rows that are compared, at most */
enum { N_BLOCKS = 6 }; /* if the loss does not couple examples */

/* ---- instances ---- */

static bool create(algorithm_suite *s, void **self)
{
    *self = (void *)s->options;
    if (!s->table->create) return true;
    return report_ok(s->report, s->table->create(s->options, self), "an instance is created from defaults");
}

static void destroy(algorithm_suite *s, void *self)
{
    if (s->table->create && s->table->destroy) s->table->destroy(self);
}

static const char *const other_words[] = {"prompt_targets", "answer_tokens", "sequences", "pairs", "kl_pairs", NULL};

static void check_needs(algorithm_suite *s)
{
    const char *const *needs = algorithm_needs(s);
    bool reads = false;
    for (; needs && *needs; needs++) {
        report_check(s->report,
                     algorithm_is_word(*needs, algorithm_columns_known) || algorithm_is_word(*needs, other_words),
                     "needs are columns that the core fills", "'%s' is none", *needs);
        if (!strcmp(*needs, "prompt_targets")) s->prompt_targets = true;
        if (!strcmp(*needs, "kl_pairs")) s->pairs = true;
        if (!strcmp(*needs, "logps")) s->logps = true;
        reads |= algorithm_is_word(*needs, (const char *const[]){"logps", "lse", "logits", "hidden", NULL});
    }
    report_check(s->report, reads, "a loss reads values of the policy",
                 "needs has no 'logps', 'lse', 'logits' or 'hidden'");
    report_check(s->report, s->table->n_terms >= 1 && s->table->n_terms <= NRL_MAX_TERMS, "there are 1 to 4 terms",
                 "n_terms is %u", s->table->n_terms);
}

/* ---- rules ---- */

static const int32_t all[ALGORITHM_MAX_BLOCKS] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                  16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

static void check_finite(algorithm_suite *s, const algorithm_outcome *o, const char *what)
{
    bool learns = false;
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        report_check(s->report, isfinite(o->sums[k]) && isfinite(o->weights[k]) && o->weights[k] >= 0,
                     "sums and weights are finite", "%s: term %u is %g, its weight %g", what, k, o->sums[k],
                     o->weights[k]);
    for (int64_t i = 0; i < o->n_rows; i++) {
        report_check(s->report, isfinite(o->grad[i]), "gradients are finite", "%s: row %lld: %g", what, (long long)i,
                     o->grad[i]);
        if (o->grad[i] != 0) learns = true;
    }
    if (s->logps) report_check(s->report, learns, "a gradient reaches the log-probs", "%s: all are zero", what);
}

static void expect_terms(algorithm_suite *s, const char *rule, const algorithm_outcome *got, const algorithm_outcome *a,
                         const algorithm_outcome *b)
{
    for (uint32_t k = 0; k < s->table->n_terms; k++) {
        double sum = a->sums[k] + b->sums[k], weight = a->weights[k] + b->weights[k];
        report_check(s->report, is_near(got->sums[k], sum, RELATIVE, ABSOLUTE), rule, "term %u is %.9g, expected %.9g",
                     k, got->sums[k], sum);
        report_check(s->report, is_near(got->weights[k], weight, 1e-9, 0), rule, "weight %u is %.9g, expected %.9g", k,
                     got->weights[k], weight);
    }
}

static void check_sums(algorithm_suite *s, const algorithm_outcome *whole)
{
    int32_t twice[2 * ALGORITHM_MAX_BLOCKS];
    for (int64_t i = 0; i < 2 * s->n_examples; i++)
        twice[i] = all[i % s->n_examples];
    algorithm_outcome two = algorithm_run(s, s->self, twice, 2 * s->n_examples, 4);
    expect_terms(s, "a loss is a sum, not a mean", &two, whole, whole);
    for (int64_t cut = s->group; cut < s->n_examples; cut += 2 * s->group) {
        algorithm_outcome a = algorithm_run(s, s->self, all, cut, 4);
        algorithm_outcome b = algorithm_run(s, s->self, all + cut, s->n_examples - cut, 4);
        expect_terms(s, "parts of a batch add up", whole, &a, &b);
        for (int64_t i = 0; i < whole->n_rows; i++)
            report_check(s->report,
                         is_near(i < a.n_rows ? a.grad[i] : b.grad[i - a.n_rows], whole->grad[i], RELATIVE, ABSOLUTE),
                         "gradients of parts are those of the whole", "row %lld", (long long)i);
    }
}

static void check_hard(algorithm_suite *s)
{
    algorithm_outcome hard = algorithm_run(s, s->self, all, s->n_examples, 60);
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        report_check(s->report, isfinite(hard.sums[k]), "sums and weights are finite",
                     "log-probs in (-60, 0): term %u is %g", k, hard.sums[k]);
}

/* Tokens of probability 1, as models have them that repeat what they have learned. */
static void check_certain(algorithm_suite *s)
{
    s->certain = true;
    algorithm_outcome o = algorithm_run(s, s->self, all, s->n_examples, 4);
    s->certain = false;
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        report_check(s->report, isfinite(o.sums[k]), "log-probs of 0 give finite numbers", "term %u is %g", k,
                     o.sums[k]);
    for (int64_t i = 0; i < o.n_rows; i++)
        report_check(s->report, isfinite(o.grad[i]), "log-probs of 0 give finite numbers",
                     "the gradient of row %lld is %g", (long long)i, o.grad[i]);
}

static double sum_moved(algorithm_suite *s, int64_t row, double by)
{
    double sum = 0;
    s->moved = row;
    s->by = by;
    algorithm_outcome o = algorithm_run(s, s->self, all, s->n_examples, 4);
    s->by = 0;
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        sum += o.sums[k];
    return sum;
}

/* A custom node with a wrong backward, or a detached value: what is learned is not the loss. A loss may have kinks, and
 * a row next to one has no slope: one row of eight may be off. */
static void check_slopes(algorithm_suite *s)
{
    const char *rule = "a gradient is the slope of the loss";
    if (s->table->detaches && s->table->detaches(s->self)) {
        report_skip(s->report, rule, "it declares that it detaches values");
        return;
    }
    algorithm_outcome o = algorithm_run(s, s->self, all, s->n_examples, 4);
    double length = 0, want = 0;
    int64_t step = o.n_rows / SLOPES + 1, off = 0, n = 0, worst = 0;
    for (int64_t i = 0; i < o.n_rows; i++)
        length = fmax(length, fabs(o.grad[i]));
    for (int64_t i = 0; i < o.n_rows; i += step, n++) {
        double slope = (sum_moved(s, i, SLOPE_STEP) - sum_moved(s, i, -SLOPE_STEP)) / (2 * SLOPE_STEP);
        if (is_near(o.grad[i], slope, 0, SLOPE_RELATIVE * length + SLOPE_ABSOLUTE)) continue;
        off++;
        worst = i;
        want = slope;
    }
    report_check(s->report, off * 8 <= n, rule,
                 "row %lld: the gradient is %.6g, the loss has %.6g; %lld of %lld rows are off", (long long)worst,
                 o.grad[worst], want, (long long)off, (long long)n);
}

static void check_weights(algorithm_suite *s, const algorithm_outcome *whole)
{
    s->light = true;
    algorithm_outcome o = algorithm_run(s, s->self, all, s->n_examples, 4);
    s->light = false;
    bool changed = false;
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        changed = changed || !is_near(o.sums[k], whole->sums[k], 1e-6, 0);
    report_check(s->report, changed, "weights of target positions count",
                 "no term changes when the last position of each sequence weighs 0.25 instead of 0.5");
}

/* A mean over the micro-batch would be averaged again, with the weight of the whole. */
static void check_metrics(algorithm_suite *s)
{
    int32_t twice[2 * ALGORITHM_MAX_BLOCKS];
    for (int64_t i = 0; i < 2 * s->n_examples; i++)
        twice[i] = all[i % s->n_examples];
    algorithm_outcome one = algorithm_run(s, s->self, all, s->n_examples, 4);
    algorithm_outcome two = algorithm_run(s, s->self, twice, 2 * s->n_examples, 4);
    for (uint32_t i = 0; i < ALGORITHM_MAX_METRICS && s->table->metrics && s->table->metrics[i].name; i++) {
        const nrl_metric *row = &s->table->metrics[i];
        double times = row->reduce == NRL_REDUCE_MAX || row->reduce == NRL_REDUCE_MIN ? 1 : 2;
        if (!one.metrics[i].any || !two.metrics[i].any) continue;
        report_check(s->report, is_near(two.metrics[i].value, times * one.metrics[i].value, RELATIVE, ABSOLUTE),
                     "a metric is a sum with its weight", "'%s' of a batch is %.9g, of the batch twice %.9g", row->name,
                     one.metrics[i].value, two.metrics[i].value);
        if (row->reduce == NRL_REDUCE_MEAN)
            report_check(s->report, is_near(two.metrics[i].weight, 2 * one.metrics[i].weight, RELATIVE, ABSOLUTE),
                         "a metric is a sum with its weight", "the weight of '%s' is %.9g, of the batch twice %.9g",
                         row->name, one.metrics[i].weight, two.metrics[i].weight);
    }
}

static void check_repeats(algorithm_suite *s, const algorithm_outcome *first)
{
    algorithm_outcome again = algorithm_run(s, s->self, all, s->n_examples, 4);
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        report_check(s->report, again.sums[k] == first->sums[k] && again.weights[k] == first->weights[k],
                     "equal calls give equal sums", "term %u is %.9g, was %.9g", k, again.sums[k], first->sums[k]);
    report_check(s->report, !memcmp(again.grad, first->grad, sizeof again.grad), "equal calls give equal sums",
                 "gradients differ");
}

/* Splits target positions into arbitrary chunks, as the head does for a tokenwise loss. */
static nrl_status run_chunks(algorithm_suite *s, nrl_batch *b, nrl_tensor *logps, int64_t chunk, algorithm_outcome *sum)
{
    int64_t n = nrl_batch_n_targets(b);
    for (int64_t begin = 0; begin < n; begin += chunk) {
        nrl_batch *view;
        nrl_tensor *part;
        algorithm_outcome o = {0};
        int64_t end = begin + chunk < n ? begin + chunk : n;
        o.n_rows = end - begin;
        NRL_TRY(nrl_op_slice_rows(s->compute.ctx, logps, begin, end, &part));
        NRL_TRY(nrl_harness_batch_rows(b, begin, end, &view));
        nrl_harness_batch_set_column(view, "logps", part);
        nrl_status st = algorithm_loss(s, s->self, view, part, &o);
        nrl_harness_batch_free(view);
        NRL_TRY(st);
        for (uint32_t k = 0; k < s->table->n_terms; k++)
            sum->sums[k] += o.sums[k];
    }
    return NRL_OK;
}

static void check_separable(algorithm_suite *s, const algorithm_outcome *whole)
{
    nrl_batch *b = algorithm_batch(s, all, s->n_examples);
    for (int64_t chunk = 1; chunk <= 5; chunk += 2) {
        algorithm_outcome sum = {0};
        nrl_tensor *logps;
        nrl_scope_begin(s->compute.ctx);
        nrl_status st = nrl_harness_use_batch(s->compute.harness, b);
        if (st == NRL_OK) st = algorithm_columns(s, b, all, 4, &logps);
        if (st == NRL_OK) st = run_chunks(s, b, logps, chunk, &sum);
        report_ok(s->report, st, "a tokenwise loss takes any rows");
        nrl_scope_end(s->compute.ctx);
        for (uint32_t k = 0; k < s->table->n_terms; k++)
            report_check(s->report, is_near(sum.sums[k], whole->sums[k], RELATIVE, ABSOLUTE),
                         "a tokenwise loss takes any rows",
                         "term %u of chunks of %lld rows adds up to %.9g, expected %.9g", k, (long long)chunk,
                         sum.sums[k], whole->sums[k]);
    }
    nrl_harness_use_batch(s->compute.harness, NULL);
    nrl_harness_batch_free(b);
}

static void check_instances(algorithm_suite *s, const algorithm_outcome *first)
{
    void *other;
    if (!s->table->create || !create(s, &other)) return;
    if (s->table->model && algorithm_bind(s, other) != NRL_OK) return;
    algorithm_run(s, other, all + s->group, s->group, 4);
    algorithm_outcome mine = algorithm_run(s, s->self, all, s->n_examples, 4);
    algorithm_outcome its = algorithm_run(s, other, all, s->n_examples, 4);
    destroy(s, other);
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        report_check(s->report, mine.sums[k] == first->sums[k] && its.sums[k] == first->sums[k],
                     "instances live side by side", "term %u is %.9g and %.9g, expected %.9g", k, mine.sums[k],
                     its.sums[k], first->sums[k]);
}

/* A saved state is unchanged when it is loaded after another step_end and saved again. */
static void check_state(algorithm_suite *s)
{
    arena a = {0};
    double totals[NRL_MAX_TERMS] = {3, 3, 3, 3}, weights[NRL_MAX_TERMS] = {2, 2, 2, 2};
    nrl_node *first = NULL, *again = NULL;
    if (s->table->step_end) report_ok(s->report, s->table->step_end(s->self, totals, weights), "step_end succeeds");
    if (s->table->state) {
        nrl_status st = nrl_harness_save_state(s->table->state, s->self, &a, &first);
        if (st == NRL_OK && s->table->step_end) st = s->table->step_end(s->self, weights, totals);
        if (st == NRL_OK) st = nrl_harness_load_state(s->table->state, s->self, first);
        if (st == NRL_OK) st = nrl_harness_save_state(s->table->state, s->self, &a, &again);
        if (report_ok(s->report, st, "state comes back as it was saved"))
            for (size_t i = 0; i < nrl_node_size(first); i++) {
                const nrl_node *was = nrl_node_at(first, i), *is = nrl_node_at(again, i);
                for (size_t k = 0; k < nrl_node_size(was); k++)
                    report_check(s->report, nrl_node_f64(nrl_node_at(was, k), 0) == nrl_node_f64(nrl_node_at(is, k), 1),
                                 "state comes back as it was saved", "'%s', number %zu", nrl_node_key(first, i), k);
            }
    }
    arena_free(&a);
}

/* With the reference equal to the policy. */
static void check_initial_loss(algorithm_suite *s)
{
    double known = s->table->initial_loss(s->self), loss = 0;
    if (isnan(known)) return;
    s->agree = true;
    algorithm_outcome o = algorithm_run(s, s->self, all, s->n_examples, 4);
    s->agree = false;
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        if (o.weights[k] > 0) loss += o.sums[k] / o.weights[k];
    report_check(s->report, is_near(loss, known, RELATIVE, ABSOLUTE), "initial_loss is the loss of policy = reference",
                 "it is %.9g, the loss is %.9g", known, loss);
}

/* False if the group is larger than the suite supports. */
static bool find_group(algorithm_suite *s)
{
    s->group = s->table->group ? s->table->group(s->self) : 1;
    s->n_examples = s->group > 1 ? 2 * s->group : N_BLOCKS;
    report_check(s->report, s->group >= 1, "a group has at least one example", "it has %lld", (long long)s->group);
    if (s->group > ALGORITHM_MAX_GROUP)
        report_skip(s->report, "parts of a batch add up",
                    "groups of more than 16 examples are not tested; set an option for smaller groups");
    return s->group >= 1 && s->group <= ALGORITHM_MAX_GROUP;
}

static void run_rules(algorithm_suite *s)
{
    if (!find_group(s)) return;
    conformance_report *r = s->report;
    if (!report_begin(r, "a loss is computed")) return;
    algorithm_outcome whole = algorithm_run(s, s->self, all, s->n_examples, 4);
    report_end(r, CASE_NEW);
    REPORT_CASE(r, "sums and weights are finite") check_finite(s, &whole, "log-probs in (-4, 0)");
    REPORT_CASE(r, "sums and weights are finite") check_hard(s);
    REPORT_CASE(r, "equal calls give equal sums") check_repeats(s, &whole);
    REPORT_CASE(r, "a loss is a sum, not a mean") check_sums(s, &whole);
    REPORT_CASE(r, "a gradient is the slope of the loss") check_slopes(s);
    REPORT_CASE(r, "log-probs of 0 give finite numbers") check_certain(s);
    if (s->logps)
        REPORT_CASE(r, "weights of target positions count") check_weights(s, &whole); /* of rows, which it reads */
    REPORT_CASE(r, "a metric is a sum with its weight") check_metrics(s);
    if (s->table->tokenwise) REPORT_CASE(r, "a tokenwise loss takes any rows") check_separable(s, &whole);
    REPORT_CASE(r, "instances live side by side") check_instances(s, &whole);
    REPORT_CASE(r, "state comes back as it was saved") check_state(s);
    if (s->table->initial_loss) REPORT_CASE(r, "initial_loss is the loss of policy = reference") check_initial_loss(s);
}

void conformance_algorithm(const nrl_algorithm *table, const conformance_setup *setup, conformance_report *report)
{
    algorithm_suite s = {
        .table = table, .report = report, .options = setup->options, .pairs = table->example_kind == 1};
    int64_t before = report->failed;
    if (!compute_open(&s.compute, setup, report)) return;
    if (create(&s, &s.self)) {
        if (table->model) report_ok(report, algorithm_bind(&s, s.self), "parameters are declared and bound");
        check_needs(&s);
        if (report->failed == before) run_rules(&s);
        destroy(&s, s.self);
    }
    algorithm_unbind(&s);
    compute_close(&s.compute);
}
