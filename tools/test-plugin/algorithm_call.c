/*
 * algorithm_call.c - batches of blocks with every column that a loss needs, and its terms and gradient on them.
 */
#include "algorithm_call.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const *algorithm_needs(const algorithm_suite *s)
{
    return s->table->instance_needs ? s->table->instance_needs(s->self) : s->table->needs;
}

bool algorithm_is_word(const char *word, const char *const *words)
{
    while (*words && strcmp(*words, word))
        words++;
    return *words;
}

const char *const algorithm_columns_known[] = {"logps", "ref_logps", "entropy", "sum_p2", NULL};

/* ---- batches ---- */

static int64_t rows_of_block(const algorithm_suite *s, int64_t block)
{
    return (s->pairs ? 2 : 1) * (2 + block % 3 + (s->prompt_rows ? 1 : 0));
}

/* One segment of a block: a prompt row of weight 0 where asked for, then rows of weight 1 and 0.5.
 */
static void fill_segment(const algorithm_suite *s, nrl_batch *b, int64_t segment, int32_t block,
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
nrl_batch *algorithm_batch(const algorithm_suite *s, const int32_t *blocks, int64_t n)
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
static nrl_status set_column(algorithm_suite *s, nrl_batch *b, const char *name, double scale,
                             nrl_tensor **column)
{
    float values[ALGORITHM_MAX_ROWS];
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

nrl_status algorithm_columns(algorithm_suite *s, nrl_batch *b, double scale, nrl_tensor **logps)
{
    nrl_tensor *other;
    NRL_TRY(set_column(s, b, "logps", scale, logps));
    for (const char *const *n = algorithm_needs(s); n && *n; n++)
        if (strcmp(*n, "logps") && algorithm_is_word(*n, algorithm_columns_known))
            NRL_TRY(set_column(s, b, *n, scale, &other));
    return NRL_OK;
}

/* ---- one call of loss ---- */

static bool terms_are_numbers(algorithm_suite *s, nrl_tensor *const *sums)
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

static nrl_status fetch_outcome(algorithm_suite *s, tape *t, nrl_tensor *logps, nrl_tensor *const *sums,
                                algorithm_outcome *o)
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

nrl_status algorithm_loss(algorithm_suite *s, void *self, nrl_batch *b, nrl_tensor *logps, algorithm_outcome *o)
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

static void check_metrics(algorithm_suite *s)
{
    const ctx_metric *list;
    int64_t n, rows = 0;
    while (s->table->metrics && s->table->metrics[rows].name)
        rows++;
    for (int64_t i = 0; i < rows; i++)
        report_check(s->report, s->table->metrics[i].better <= NRL_BETTER_LARGER,
                     "a metric declares its better values by nrl_better", "'%s' has %u", s->table->metrics[i].name,
                     s->table->metrics[i].better);
    if (!report_ok(s->report, ctx_take_metrics(s->compute.ctx, &list, &n), "metrics can be read"))
        return;
    for (int64_t i = 0; i < n; i++)
        report_check(s->report,
                     list[i].index < rows && isfinite(list[i].value) && isfinite(list[i].weight),
                     "metrics are declared and finite", "metric %u is %g, weight %g", list[i].index,
                     list[i].value, list[i].weight);
}

static void weigh(algorithm_suite *s, void *self, const nrl_batch *b, double *weights)
{
    for (int k = 0; k < NRL_MAX_TERMS; k++)
        weights[k] = NAN;
    s->table->weight(self, b, weights);
}

algorithm_outcome algorithm_run(algorithm_suite *s, void *self, const int32_t *blocks, int64_t n, double scale)
{
    algorithm_outcome o = {0};
    nrl_tensor *logps;
    nrl_batch *b = algorithm_batch(s, blocks, n);
    o.n_rows = b->n_rows;
    weigh(s, self, b, o.weights); /* before any column exists */
    ctx_scope_begin(s->compute.ctx);
    nrl_status st = ctx_set_batch(s->compute.ctx, b);
    if (st == NRL_OK) st = algorithm_columns(s, b, scale, &logps);
    if (st == NRL_OK) st = algorithm_loss(s, self, b, logps, &o);
    report_ok(s->report, st, "loss succeeds on an ordinary batch");
    check_metrics(s);
    ctx_scope_end(s->compute.ctx);
    ctx_set_batch(s->compute.ctx, NULL);
    batch_free(b);
    return o;
}
