/*
 * algorithm.c - what every algorithm promises: its losses are sums over blocks, so that neither
 * gradient accumulation nor data parallelism can change what is learned.
 */
#include "checkpoint/visitor.h"
#include "conformance/compute.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums of some hundred f32 values in another order. */
#define RELATIVE 1e-4
#define ABSOLUTE 1e-5

/* A loss that couples groups of blocks is given two of them, each other one six blocks. */
enum { N_BLOCKS = 6, MAX_GROUP = 16, MAX_BLOCKS = 2 * MAX_GROUP, MAX_ROWS = 1024 };

typedef struct {
    const nrl_algorithm *table;
    conformance_report *report;
    compute compute;
    const void *options;
    void *self;
    bool pairs, prompt_rows;
    int64_t group, n_blocks;
    bool agree; /* the policy is the reference */
} suite;

/* What a loss gave for one batch. */
typedef struct {
    double sums[NRL_MAX_TERMS], weights[NRL_MAX_TERMS];
    double grad[MAX_ROWS]; /* d (sum of the terms) / d logps */
    int64_t n_rows;
} outcome;

/* ---- instances ---- */

static bool create(suite *s, void **self)
{
    *self = (void *)s->options;
    if (!s->table->create) return true;
    return report_ok(s->report, s->table->create(s->options, self),
                     "an instance is created from defaults");
}

static void destroy(suite *s, void *self)
{
    if (s->table->create && s->table->destroy) s->table->destroy(self);
}

static const char *const *needs_of(const suite *s)
{
    return s->table->instance_needs ? s->table->instance_needs(s->self) : s->table->needs;
}

static bool is_word(const char *word, const char *const *words)
{
    while (*words && strcmp(*words, word))
        words++;
    return *words;
}

static const char *const row_columns[] = {"logps", "ref_logps", "entropy", "sum_p2", NULL};
static const char *const other_words[] = {"prompt_rows", "answer_tokens", "sequences",
                                          "pairs",       "mismatched",    NULL};

static void check_needs(suite *s)
{
    const char *const *needs = needs_of(s);
    bool logps = false;
    for (; needs && *needs; needs++) {
        report_check(s->report, is_word(*needs, row_columns) || is_word(*needs, other_words),
                     "needs are columns that the core fills", "'%s' is none", *needs);
        if (!strcmp(*needs, "prompt_rows")) s->prompt_rows = true;
        if (!strcmp(*needs, "mismatched")) s->pairs = true;
        if (!strcmp(*needs, "logps")) logps = true;
    }
    report_check(s->report, logps, "a loss reads log-probs", "needs has no 'logps'");
    report_check(s->report, s->table->n_terms >= 1 && s->table->n_terms <= NRL_MAX_TERMS,
                 "there are 1 to 4 terms", "n_terms is %u", s->table->n_terms);
}

/* ---- batches ---- */

static int64_t rows_of_block(const suite *s, int64_t block)
{
    return (s->pairs ? 2 : 1) * (2 + block % 3 + (s->prompt_rows ? 1 : 0));
}

/* One segment of a block: a prompt row of weight 0 where asked for, then rows of weight 1 and 0.5.
 */
static void fill_segment(const suite *s, nrl_batch *b, int64_t segment, int32_t block,
                         int32_t local, int32_t side, int64_t *row, int64_t *token)
{
    int64_t n = 2 + block % 3 + (s->prompt_rows ? 1 : 0);
    b->segment_block[segment] = local;
    b->segment_side[segment] = side;
    b->segment_sample[segment] = block;
    b->cu_seqlens[segment] = (int32_t)*token;
    for (int64_t i = 0; i < n; i++, (*row)++) {
        b->row_token[*row] = (int32_t)(*token + i);
        b->row_target[*row] = (int32_t)((block * 7 + i) % 50);
        b->row_segment[*row] = (int32_t)segment;
        b->row_weight[*row] = s->prompt_rows && i == 0 ? 0 : i == n - 1 ? 0.5f : 1;
    }
    *token += n + 1;
}

/* Two blocks of three are wanted. */
static void add_labels(nrl_batch *b)
{
    b->n_extra = 1;
    b->extra[0].name = "label";
    b->extra[0].values = arena_alloc(&b->memory, (size_t)b->n_segments * sizeof(float));
    for (int64_t s = 0; s < b->n_segments; s++)
        b->extra[0].values[s] = b->segment_sample[s] % 3 ? 1 : 0;
}

/* The listed blocks, packed; block numbers fix every value, so a block is the same wherever it is.
 */
static nrl_batch *make_batch(const suite *s, const int32_t *blocks, int64_t n)
{
    int64_t sides = s->pairs ? 2 : 1, rows = 0, row = 0, token = 0;
    for (int64_t i = 0; i < n; i++)
        rows += rows_of_block(s, blocks[i]);
    nrl_batch *b = batch_new(rows + n * sides, rows, n * sides);
    b->n_blocks = n;
    for (int64_t i = 0; i < n * sides; i++)
        fill_segment(s, b, i, blocks[i / sides], (int32_t)(i / sides), (int32_t)(i % sides), &row,
                     &token);
    b->cu_seqlens[n * sides] = (int32_t)token;
    if (s->table->block_kind == 2) add_labels(b);
    for (int64_t i = 0; i < n * sides; i++)
        for (int32_t t = b->cu_seqlens[i]; t < b->cu_seqlens[i + 1]; t++)
            b->positions[t] = t - b->cu_seqlens[i];
    return b;
}

/* Log-probs and the like in [-scale, 0), by block, side and row: not by place in the batch. */
static nrl_status set_column(suite *s, nrl_batch *b, const char *name, double scale,
                             nrl_tensor **column)
{
    float values[MAX_ROWS];
    int32_t last = -1;
    uint64_t state = 0;
    for (int64_t i = 0; i < b->n_rows; i++) {
        int32_t segment = b->row_segment[i];
        if (segment != last)
            state = (uint64_t)b->segment_sample[segment] * 1000 +
                    (uint64_t)b->segment_side[segment] * 100 +
                    (unsigned char)(s->agree ? 'l' : name[0]);
        last = segment;
        values[i] = (float)compute_uniform(&state, -scale, 0);
    }
    NRL_TRY(nrl_tensor_from_host(s->compute.ctx, NRL_DTYPE_F32, 1, &b->n_rows, values, column));
    batch_set_column(b, name, *column);
    return NRL_OK;
}

static nrl_status set_columns(suite *s, nrl_batch *b, double scale, nrl_tensor **logps)
{
    nrl_tensor *other;
    NRL_TRY(set_column(s, b, "logps", scale, logps));
    for (const char *const *n = needs_of(s); n && *n; n++)
        if (strcmp(*n, "logps") && is_word(*n, row_columns))
            NRL_TRY(set_column(s, b, *n, scale, &other));
    return NRL_OK;
}

/* ---- one call of loss ---- */

static bool terms_are_numbers(suite *s, nrl_tensor *const *sums)
{
    bool good = true;
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        good = report_check(s->report,
                            sums[k] && nrl_tensor_numel(sums[k]) == 1 &&
                                nrl_tensor_dtype(sums[k]) == NRL_DTYPE_F32,
                            "each term is one f32 number", "term %u is not", k) &&
               good;
    return good;
}

static nrl_status fetch_outcome(suite *s, tape *t, nrl_tensor *logps, nrl_tensor *const *sums,
                                outcome *o)
{
    nrl_ctx *ctx = s->compute.ctx;
    nrl_tensor *seeds[NRL_MAX_TERMS], *grad = NULL;
    float one = 1;
    for (uint32_t k = 0; k < s->table->n_terms; k++) {
        NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &(int64_t){1}, &one, &seeds[k]));
        NRL_TRY(nrl_tensor_fetch(ctx, sums[k], &o->sums[k], 1));
    }
    NRL_TRY(tape_backward(ctx, t, sums, seeds, (int)s->table->n_terms, &logps, &grad, 1));
    if (!grad) return NRL_OK; /* nothing flows: zeros */
    nrl_status st = nrl_tensor_fetch(ctx, grad, o->grad, o->n_rows);
    tensor_release(ctx, grad);
    return st;
}

static nrl_status call_loss(suite *s, void *self, nrl_batch *b, nrl_tensor *logps, outcome *o)
{
    nrl_ctx *ctx = s->compute.ctx;
    nrl_tensor *sums[NRL_MAX_TERMS] = {0};
    tape *t = tape_create();
    tensor_set_leaf(logps);
    ctx_tape_begin(ctx, t);
    nrl_status st = s->table->loss(self, ctx, b, sums);
    ctx_tape_end(ctx);
    if (st == NRL_OK && terms_are_numbers(s, sums)) st = fetch_outcome(s, t, logps, sums, o);
    tape_destroy(ctx, t);
    return st;
}

static void check_metrics(suite *s)
{
    const ctx_metric *list;
    int64_t n, rows = 0;
    while (s->table->metrics && s->table->metrics[rows].name)
        rows++;
    if (!report_ok(s->report, ctx_take_metrics(s->compute.ctx, &list, &n), "metrics can be read"))
        return;
    for (int64_t i = 0; i < n; i++)
        report_check(s->report,
                     list[i].index < rows && isfinite(list[i].value) && isfinite(list[i].weight),
                     "metrics are declared and finite", "metric %u is %g, weight %g", list[i].index,
                     list[i].value, list[i].weight);
}

static void weigh(suite *s, void *self, const nrl_batch *b, double *weights)
{
    for (int k = 0; k < NRL_MAX_TERMS; k++)
        weights[k] = NAN;
    s->table->weight(self, b, weights);
}

static outcome run_blocks(suite *s, void *self, const int32_t *blocks, int64_t n, double scale)
{
    outcome o = {0};
    nrl_tensor *logps;
    nrl_batch *b = make_batch(s, blocks, n);
    o.n_rows = b->n_rows;
    weigh(s, self, b, o.weights); /* before any column exists */
    ctx_scope_begin(s->compute.ctx);
    nrl_status st = ctx_set_batch(s->compute.ctx, b);
    if (st == NRL_OK) st = set_columns(s, b, scale, &logps);
    if (st == NRL_OK) st = call_loss(s, self, b, logps, &o);
    report_ok(s->report, st, "loss succeeds on an ordinary batch");
    check_metrics(s);
    ctx_scope_end(s->compute.ctx);
    ctx_set_batch(s->compute.ctx, NULL);
    batch_free(b);
    return o;
}

/* ---- rules ---- */

static const int32_t all[MAX_BLOCKS] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                        11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                        22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

static void check_finite(suite *s, const outcome *o, const char *what)
{
    bool learns = false;
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        report_check(s->report,
                     isfinite(o->sums[k]) && isfinite(o->weights[k]) && o->weights[k] >= 0,
                     "sums and weights are finite", "%s: term %u is %g, its weight %g", what, k,
                     o->sums[k], o->weights[k]);
    for (int64_t i = 0; i < o->n_rows; i++) {
        report_check(s->report, isfinite(o->grad[i]), "gradients are finite", "%s: row %lld: %g",
                     what, (long long)i, o->grad[i]);
        if (o->grad[i] != 0) learns = true;
    }
    report_check(s->report, learns, "a gradient reaches the log-probs", "%s: all are zero", what);
}

static void expect_terms(suite *s, const char *rule, const outcome *got, const outcome *a,
                         const outcome *b)
{
    for (uint32_t k = 0; k < s->table->n_terms; k++) {
        double sum = a->sums[k] + b->sums[k], weight = a->weights[k] + b->weights[k];
        report_check(s->report, is_near(got->sums[k], sum, RELATIVE, ABSOLUTE), rule,
                     "term %u is %.9g, expected %.9g", k, got->sums[k], sum);
        report_check(s->report, is_near(got->weights[k], weight, 1e-9, 0), rule,
                     "weight %u is %.9g, expected %.9g", k, got->weights[k], weight);
    }
}

static void check_sums(suite *s, const outcome *whole)
{
    int32_t twice[2 * MAX_BLOCKS];
    for (int64_t i = 0; i < 2 * s->n_blocks; i++)
        twice[i] = all[i % s->n_blocks];
    outcome two = run_blocks(s, s->self, twice, 2 * s->n_blocks, 4);
    expect_terms(s, "a loss is a sum, not a mean", &two, whole, whole);
    for (int64_t cut = s->group; cut < s->n_blocks; cut += 2 * s->group) {
        outcome a = run_blocks(s, s->self, all, cut, 4);
        outcome b = run_blocks(s, s->self, all + cut, s->n_blocks - cut, 4);
        expect_terms(s, "parts of a batch add up", whole, &a, &b);
        for (int64_t i = 0; i < whole->n_rows; i++)
            report_check(s->report,
                         is_near(i < a.n_rows ? a.grad[i] : b.grad[i - a.n_rows], whole->grad[i],
                                 RELATIVE, ABSOLUTE),
                         "gradients of parts are those of the whole", "row %lld", (long long)i);
    }
}

static void check_repeats(suite *s, const outcome *first)
{
    outcome again = run_blocks(s, s->self, all, s->n_blocks, 4);
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        report_check(s->report,
                     again.sums[k] == first->sums[k] && again.weights[k] == first->weights[k],
                     "equal calls give equal sums", "term %u is %.9g, was %.9g", k, again.sums[k],
                     first->sums[k]);
    report_check(s->report, !memcmp(again.grad, first->grad, sizeof again.grad),
                 "equal calls give equal sums", "gradients differ");
}

/* Chunks of scored rows, cut anywhere, as the head hands them to a separable loss. */
static nrl_status run_chunks(suite *s, nrl_batch *b, nrl_tensor *logps, int64_t chunk, outcome *sum)
{
    for (int64_t begin = 0; begin < b->n_rows; begin += chunk) {
        nrl_batch view;
        nrl_tensor *part;
        outcome o = {0};
        int64_t end = begin + chunk < b->n_rows ? begin + chunk : b->n_rows;
        batch_rows(b, begin, end, &view);
        o.n_rows = end - begin;
        NRL_TRY(nrl_op_slice_rows(s->compute.ctx, logps, begin, end, &part));
        batch_set_column(&view, "logps", part);
        NRL_TRY(call_loss(s, s->self, &view, part, &o));
        for (uint32_t k = 0; k < s->table->n_terms; k++)
            sum->sums[k] += o.sums[k];
    }
    return NRL_OK;
}

static void check_separable(suite *s, const outcome *whole)
{
    nrl_batch *b = make_batch(s, all, s->n_blocks);
    for (int64_t chunk = 1; chunk <= 5; chunk += 2) {
        outcome sum = {0};
        nrl_tensor *logps;
        ctx_scope_begin(s->compute.ctx);
        nrl_status st = ctx_set_batch(s->compute.ctx, b);
        if (st == NRL_OK) st = set_columns(s, b, 4, &logps);
        if (st == NRL_OK) st = run_chunks(s, b, logps, chunk, &sum);
        report_ok(s->report, st, "a separable loss takes any rows");
        ctx_scope_end(s->compute.ctx);
        for (uint32_t k = 0; k < s->table->n_terms; k++)
            report_check(s->report, is_near(sum.sums[k], whole->sums[k], RELATIVE, ABSOLUTE),
                         "a separable loss takes any rows",
                         "term %u of chunks of %lld rows adds up to %.9g, expected %.9g", k,
                         (long long)chunk, sum.sums[k], whole->sums[k]);
    }
    ctx_set_batch(s->compute.ctx, NULL);
    batch_free(b);
}

static void check_instances(suite *s, const outcome *first)
{
    void *other;
    if (!s->table->create || !create(s, &other)) return;
    run_blocks(s, other, all + s->group, s->group, 4);
    outcome mine = run_blocks(s, s->self, all, s->n_blocks, 4);
    outcome its = run_blocks(s, other, all, s->n_blocks, 4);
    destroy(s, other);
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        report_check(s->report, mine.sums[k] == first->sums[k] && its.sums[k] == first->sums[k],
                     "instances live side by side", "term %u is %.9g and %.9g, expected %.9g", k,
                     mine.sums[k], its.sums[k], first->sums[k]);
}

/* What is saved, loaded and saved again is the same; totals of a step in between change it or not.
 */
static void check_state(suite *s)
{
    arena a = {0};
    double totals[NRL_MAX_TERMS] = {3, 3, 3, 3}, weights[NRL_MAX_TERMS] = {2, 2, 2, 2};
    nrl_visitor first = {.a = &a, .into = node_new(&a, NRL_NODE_MAP)};
    nrl_visitor again = {.a = &a, .into = node_new(&a, NRL_NODE_MAP)};
    if (s->table->step_end)
        report_ok(s->report, s->table->step_end(s->self, totals, weights), "step_end succeeds");
    if (s->table->state) {
        nrl_status st = s->table->state(s->self, &first);
        if (st == NRL_OK && s->table->step_end) st = s->table->step_end(s->self, weights, totals);
        if (st == NRL_OK) st = s->table->state(s->self, &(nrl_visitor){.from = first.into});
        if (st == NRL_OK) st = s->table->state(s->self, &again);
        if (report_ok(s->report, st, "state comes back as it was saved"))
            for (size_t i = 0; i < nrl_node_size(first.into); i++) {
                const nrl_node *was = nrl_node_at(first.into, i), *is = nrl_node_at(again.into, i);
                for (size_t k = 0; k < nrl_node_size(was); k++)
                    report_check(s->report,
                                 nrl_node_f64(nrl_node_at(was, k), 0) ==
                                     nrl_node_f64(nrl_node_at(is, k), 1),
                                 "state comes back as it was saved", "'%s', number %zu",
                                 nrl_node_key(first.into, i), k);
            }
    }
    arena_free(&a);
}

/* With the reference equal to the policy. */
static void check_start_loss(suite *s)
{
    double known = s->table->start_loss(s->self), loss = 0;
    if (isnan(known)) return;
    s->agree = true;
    outcome o = run_blocks(s, s->self, all, s->n_blocks, 4);
    s->agree = false;
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        if (o.weights[k] > 0) loss += o.sums[k] / o.weights[k];
    report_check(s->report, is_near(loss, known, RELATIVE, ABSOLUTE),
                 "start_loss is the loss of policy = reference", "it is %.9g, the loss is %.9g",
                 known, loss);
}

/* False where the group is larger than what is tried here. */
static bool find_group(suite *s)
{
    s->group = s->table->group ? s->table->group(s->self) : 1;
    s->n_blocks = s->group > 1 ? 2 * s->group : N_BLOCKS;
    report_check(s->report, s->group >= 1, "a group has at least one block", "it has %lld",
                 (long long)s->group);
    if (s->group > MAX_GROUP)
        report_skip(s->report, "parts of a batch add up",
                    "groups of more than 16 blocks are not tried: set an option for smaller ones");
    return s->group >= 1 && s->group <= MAX_GROUP;
}

static void run_rules(suite *s)
{
    if (!find_group(s)) return;
    outcome whole = run_blocks(s, s->self, all, s->n_blocks, 4);
    check_finite(s, &whole, "log-probs in (-4, 0)");
    outcome hard = run_blocks(s, s->self, all, s->n_blocks, 60);
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        report_check(s->report, isfinite(hard.sums[k]), "sums and weights are finite",
                     "log-probs in (-60, 0): term %u is %g", k, hard.sums[k]);
    check_repeats(s, &whole);
    check_sums(s, &whole);
    if (s->table->separable) check_separable(s, &whole);
    check_instances(s, &whole);
    check_state(s);
    if (s->table->start_loss) check_start_loss(s);
}

void conformance_algorithm(const nrl_algorithm *table, const conformance_setup *setup,
                           conformance_report *report)
{
    suite s = {.table = table,
               .report = report,
               .options = setup->options,
               .pairs = table->block_kind == 1};
    int64_t before = report->failed;
    if (!report_check(report, table->weight && table->loss, "an algorithm has weight and loss",
                      "one is NULL"))
        return;
    if (!compute_open(&s.compute, setup, report)) return;
    if (create(&s, &s.self)) {
        check_needs(&s);
        if (report->failed == before) run_rules(&s);
        destroy(&s, s.self);
    }
    compute_close(&s.compute);
}
