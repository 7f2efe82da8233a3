/*
 * algorithm_call.c - batches of examples with every column that a loss may need, and the terms and
 * gradient of a loss on them.
 */
#include "algorithm_call.h"
#include "base/json.h"
#include "model/model.h"
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

const char *const algorithm_columns_known[] = {"logps",  "ref_logps", "entropy",       "sum_p2",         "lse",
                                               "logits", "hidden",    "teacher_logps", "teacher_logits", NULL};

/* ---- batches ---- */

/* The parts of a batch that is being built. */
typedef struct {
    int32_t cu_seqlens[2 * ALGORITHM_MAX_SEGMENTS + 1], segment_example[2 * ALGORITHM_MAX_SEGMENTS],
        segment_side[2 * ALGORITHM_MAX_SEGMENTS];
    float labels[2 * ALGORITHM_MAX_SEGMENTS];
    int32_t row_token[ALGORITHM_MAX_ROWS], row_target[ALGORITHM_MAX_ROWS], row_segment[ALGORITHM_MAX_ROWS];
    float row_weight[ALGORITHM_MAX_ROWS];
    int64_t n_rows, n_tokens;
} filling;

/* One segment of an example: a prompt row of weight 0 if required, then rows of weight 1 and 0.5.
 * If examples have labels, two of three are desirable. */
static void fill_segment(const algorithm_suite *s, filling *f, int64_t segment, int32_t example, int32_t local,
                         int32_t side)
{
    int64_t n = 2 + example % 3 + (s->prompt_targets ? 1 : 0);
    f->segment_example[segment] = local;
    f->segment_side[segment] = side;
    f->labels[segment] = example % 3 ? 1 : 0;
    f->cu_seqlens[segment] = (int32_t)f->n_tokens;
    for (int64_t i = 0; i < n; i++, f->n_rows++) {
        f->row_token[f->n_rows] = (int32_t)(f->n_tokens + i);
        f->row_target[f->n_rows] = (int32_t)((example * 7 + i) % 50);
        f->row_segment[f->n_rows] = (int32_t)segment;
        f->row_weight[f->n_rows] = s->prompt_targets && i == 0 ? 0 : i < n - 1 ? 1 : s->light ? 0.25f : 0.5f;
    }
    f->n_tokens += n + 1;
    f->cu_seqlens[segment + 1] = (int32_t)f->n_tokens;
}

nrl_batch *algorithm_batch(const algorithm_suite *s, const int32_t *examples, int64_t n)
{
    static const char *const label = "label";
    int64_t sides = s->pairs ? 2 : 1;
    nrl_batch *b = NULL;
    filling *f = calloc(1, sizeof *f);
    for (int64_t i = 0; i < n * sides; i++)
        fill_segment(s, f, i, examples[i / sides], (int32_t)(i / sides), (int32_t)(i % sides));
    const float *labels = f->labels;
    const nrl_harness_batch spec = {.size = sizeof spec,
                                    .n_extra = s->table->example_kind == 2,
                                    .n_tokens = f->n_tokens,
                                    .n_rows = f->n_rows,
                                    .n_segments = n * sides,
                                    .n_examples = n,
                                    .cu_seqlens = f->cu_seqlens,
                                    .row_token = f->row_token,
                                    .row_target = f->row_target,
                                    .row_segment = f->row_segment,
                                    .row_weight = f->row_weight,
                                    .segment_example = f->segment_example,
                                    .segment_side = f->segment_side,
                                    .extra_names = &label,
                                    .extra_values = &labels};
    nrl_status st = nrl_harness_batch_create(&spec, &b);
    if (st != NRL_OK) report_ok(s->report, st, "loss succeeds on an ordinary batch");
    free(f);
    return b;
}

enum { VOCABULARY = 64, WIDTH = 8 };

/* ---- parameters of an algorithm ---- */

nrl_status algorithm_bind(algorithm_suite *s, void *self)
{
    static const char text[] = "{\"architectures\": [\"TinyForCausalLM\"], \"pad_token_id\": 0}";
    const nrl_model_info info = {.size = sizeof info, .vocab_size = VOCABULARY, .width = WIDTH};
    nrl_algorithm_model out = {.size = sizeof out};
    nrl_node *config;
    NRL_TRY(json_parse(&s->memory, "config.json", text, sizeof text - 1, &config));
    NRL_TRY(s->table->model(self, config, &info, &out));
    if (out.n_params > ALGORITHM_MAX_PARAMS)
        return nrl_fail(NRL_ERR_CONFIG, "more than %d parameters", (int)ALGORITHM_MAX_PARAMS);
    for (; s->n_params < out.n_params; s->n_params++) {
        const nrl_param_spec *spec = nrl_algorithm_param(&out, s->n_params);
        nrl_param *p = arena_alloc(&s->memory, sizeof *p);
        nrl_tensor **t = &s->values[2 * s->n_params];
        param_init(p, arena_alloc(&s->memory, sizeof(nrl_part)), spec->name, spec->n_dims, spec->dims);
        s->params[s->n_params] = p;
        p->init = spec->init;
        p->init_scale = spec->init_scale;
        float *values = arena_alloc(&s->memory, (size_t)p->numel * sizeof *values);
        model_init_values(p, 1, 0, p->numel, values);
        NRL_TRY(tensor_persistent(s->compute.ctx, NRL_DTYPE_F32, p->n_dims, p->dims, true, &t[0]));
        NRL_TRY(tensor_persistent(s->compute.ctx, NRL_DTYPE_F32, p->n_dims, p->dims, true, &t[1]));
        NRL_TRY(tensor_write(s->compute.ctx, t[0], values));
        nrl_param_bind(p, NRL_SLOT_WEIGHT, t[0]);
        nrl_param_bind(p, NRL_SLOT_GRAD, t[1]);
    }
    s->table->bind(self, s->params);
    return NRL_OK;
}

void algorithm_unbind(algorithm_suite *s)
{
    for (int i = 0; i < 2 * ALGORITHM_MAX_PARAMS; i++)
        tensor_release(s->compute.ctx, s->values[i]);
    arena_free(&s->memory);
}

/* ---- columns ---- */

/* [N,D] that depends on example, side and position. */
static nrl_status set_hidden(algorithm_suite *s, nrl_batch *b, const int32_t *examples)
{
    const int32_t *begin = nrl_batch_cu_seqlens(b);
    int64_t shape[] = {nrl_batch_n_tokens(b), WIDTH};
    float *values = calloc((size_t)(shape[0] * WIDTH + 1), sizeof *values), *next = values;
    nrl_tensor *column;
    for (int64_t i = 0; i < nrl_batch_n_segments(b); i++) {
        uint64_t state = (uint64_t)examples[nrl_batch_segment_example(b)[i]] * 1000 +
                         (uint64_t)nrl_batch_segment_side(b)[i] * 100 + 'h';
        for (int64_t n = (begin[i + 1] - begin[i]) * WIDTH; n-- > 0;)
            *next++ = (float)compute_uniform(&state, -1, 1);
    }
    nrl_status st = nrl_tensor_from_host(s->compute.ctx, NRL_DTYPE_F32, 2, shape, values, &column);
    free(values);
    if (st == NRL_OK) nrl_harness_batch_set_column(b, "hidden", column);
    return st;
}

/* Values in [-scale, 0) that depend on example, side and row, but not on the position in the batch. */
static nrl_status set_column(algorithm_suite *s, nrl_batch *b, const int32_t *examples, const char *name, double scale,
                             nrl_tensor **column)
{
    int32_t last = -1;
    uint64_t state = 0;
    int64_t n = nrl_batch_n_targets(b), width = strstr(name, "logits") ? VOCABULARY : 1, shape[] = {n, width};
    float *values = calloc((size_t)(n * width + 1), sizeof *values);
    for (int64_t i = 0; i < n; i++) {
        int32_t segment = nrl_batch_target_segments(b)[i];
        if (segment != last)
            state = (uint64_t)examples[nrl_batch_segment_example(b)[segment]] * 1000 +
                    (uint64_t)nrl_batch_segment_side(b)[segment] * 100 + (unsigned char)(s->agree ? 'l' : name[0]);
        last = segment;
        for (int64_t v = 0; v < width; v++)
            values[i * width + v] = s->certain ? 0 : (float)compute_uniform(&state, -scale, 0);
        if (i == s->moved && !strcmp(name, "logps")) values[i] += (float)s->by;
    }
    nrl_status st = nrl_tensor_from_host(s->compute.ctx, NRL_DTYPE_F32, width > 1 ? 2 : 1, shape, values, column);
    free(values);
    NRL_TRY(st);
    nrl_harness_batch_set_column(b, name, *column);
    return NRL_OK;
}

nrl_status algorithm_columns(algorithm_suite *s, nrl_batch *b, const int32_t *examples, double scale,
                             nrl_tensor **logps)
{
    nrl_tensor *other;
    NRL_TRY(set_column(s, b, examples, "logps", scale, logps));
    for (const char *const *n = algorithm_needs(s); n && *n; n++)
        if (!strcmp(*n, "hidden"))
            NRL_TRY(set_hidden(s, b, examples));
        else if (strcmp(*n, "logps") && algorithm_is_word(*n, algorithm_columns_known))
            NRL_TRY(set_column(s, b, examples, *n, scale, &other));
    if (s->table->rollout) NRL_TRY(set_column(s, b, examples, "sampled_logps", scale, &other));
    for (const char *const *n = s->table->rollout_columns; n && *n; n++)
        if (strcmp(*n, "weights")) NRL_TRY(set_column(s, b, examples, *n, scale, &other));
    return NRL_OK;
}

/* ---- one call of loss ---- */

static bool terms_are_numbers(algorithm_suite *s, nrl_tensor *const *sums)
{
    bool good = true;
    for (uint32_t k = 0; k < s->table->n_terms; k++)
        good = report_check(s->report,
                            sums[k] && nrl_tensor_numel(sums[k]) == 1 && nrl_tensor_dtype(sums[k]) == NRL_DTYPE_F32,
                            "each term is one f32 number", "term %u is not", k) &&
               good;
    return good;
}

nrl_status algorithm_loss(algorithm_suite *s, void *self, nrl_batch *b, nrl_tensor *logps, algorithm_outcome *o)
{
    nrl_harness *h = s->compute.harness;
    nrl_tensor *sums[NRL_MAX_TERMS] = {0};
    nrl_status st = nrl_harness_loss(h, s->table, self, b, logps, sums);
    if (st == NRL_OK && terms_are_numbers(s, sums))
        st = nrl_harness_loss_values(h, sums, s->table->n_terms, logps, o->sums, o->grad);
    nrl_harness_forget(h);
    return st;
}

static void take_metrics(algorithm_suite *s, algorithm_outcome *o)
{
    int64_t n, rows = 0;
    while (s->table->metrics && s->table->metrics[rows].name)
        rows++;
    for (int64_t i = 0; i < rows; i++)
        report_check(s->report, s->table->metrics[i].better <= NRL_BETTER_LARGER,
                     "a metric declares its better values by nrl_better", "'%s' has %u", s->table->metrics[i].name,
                     s->table->metrics[i].better);
    if (!report_ok(s->report, nrl_harness_take_metrics(s->compute.harness, &n), "metrics can be read")) return;
    for (int64_t i = 0; i < n; i++) {
        uint32_t index;
        double value, weight;
        nrl_harness_metric(s->compute.harness, i, &index, &value, &weight);
        report_check(s->report, index < rows && isfinite(value) && isfinite(weight), "metrics are declared and finite",
                     "metric %u is %g, weight %g", index, value, weight);
        if (index >= rows || index >= ALGORITHM_MAX_METRICS) continue;
        bool adds =
            s->table->metrics[index].reduce == NRL_REDUCE_MEAN || s->table->metrics[index].reduce == NRL_REDUCE_SUM;
        o->metrics[index].value = adds ? o->metrics[index].value + value : value;
        o->metrics[index].weight += weight;
        o->metrics[index].any = true;
    }
}

static void weigh(algorithm_suite *s, void *self, const nrl_batch *b, double *weights)
{
    for (int k = 0; k < NRL_MAX_TERMS; k++)
        weights[k] = NAN;
    s->table->weight(self, b, weights);
}

algorithm_outcome algorithm_run(algorithm_suite *s, void *self, const int32_t *examples, int64_t n, double scale)
{
    algorithm_outcome o = {0};
    nrl_tensor *logps;
    nrl_batch *b = algorithm_batch(s, examples, n);
    if (!b) return o;
    o.n_rows = nrl_batch_n_targets(b);
    weigh(s, self, b, o.weights); /* before any column exists */
    nrl_scope_begin(s->compute.ctx);
    nrl_status st = nrl_harness_use_batch(s->compute.harness, b);
    if (st == NRL_OK) st = algorithm_columns(s, b, examples, scale, &logps);
    if (st == NRL_OK) st = algorithm_loss(s, self, b, logps, &o);
    report_ok(s->report, st, "loss succeeds on an ordinary batch");
    take_metrics(s, &o);
    nrl_scope_end(s->compute.ctx);
    nrl_harness_use_batch(s->compute.harness, NULL);
    nrl_harness_batch_free(b);
    return o;
}
