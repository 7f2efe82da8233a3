/*
 * gradcheck.c - nrl_gradcheck of nrl/harness.h: evaluates a loss on a small synthetic batch. The gradient is compared
 * with finite differences of the loss, and the loss and the weight of a batch with those of its halves.
 */
#include <nrl/harness.h>
#include <math.h>
#include <string.h>

enum { EXAMPLES = 6, MAX_SEGMENTS = 2 * EXAMPLES, MAX_ROWS = 5 * MAX_SEGMENTS, MAX_EXTRA = 8, VOCAB = 32 };
enum { COLUMN_TOKEN, COLUMN_WEIGHT, COLUMN_LOGPS, COLUMN_OTHERS, COLUMN_EXTRA = 10 };

typedef struct {
    nrl_harness *harness;
    const nrl_algorithm *loss;
    void *self;
    const nrl_gradcheck_options *options;
    int64_t sides; /* segments of an example */
    double worst;  /* largest difference so far, relative to max(1, |gradient|) */
} gradcheck;

/* Examples [first, first + n) of the synthetic batch. */
typedef struct {
    int64_t first_segment;
    nrl_batch *batch;
    float logps[MAX_ROWS];
    double sum, weight; /* over all terms */
} gradcheck_part;

/* In [0, 1). A function of a segment's number, the place in it and a column, so that a part of the batch holds the same
 * values as the whole. */
static double gradcheck_value(int64_t segment, int64_t place, int64_t column)
{
    uint64_t x = (uint64_t)((segment * 8 + place) * 31 + column + 1) * 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return (double)(x >> 40) / (double)(1 << 24);
}

/* A column of target positions: log-probs in (-3, 0), others in (0, 3). */
static void gradcheck_fill_column(const gradcheck_part *p, int64_t column, double sign, float *values)
{
    const int32_t *segments = nrl_batch_target_segments(p->batch);
    for (int64_t i = 0, k = 0; i < nrl_batch_n_targets(p->batch); i++, k++) {
        if (i && segments[i] != segments[i - 1]) k = 0;
        values[i] = (float)(sign * (0.05 + 2.9 * gradcheck_value(p->first_segment + segments[i], k, column)));
    }
}

/* Segments of 2 to 5 target positions, each with one token before them. */
static nrl_status gradcheck_part_create(const gradcheck *c, int64_t first, int64_t n, gradcheck_part *p)
{
    int32_t tokens[MAX_ROWS + MAX_SEGMENTS], cu_seqlens[MAX_SEGMENTS + 1] = {0};
    int32_t row_token[MAX_ROWS], row_target[MAX_ROWS], row_segment[MAX_ROWS];
    int32_t example[MAX_SEGMENTS], side[MAX_SEGMENTS];
    float weight[MAX_ROWS], extra[MAX_EXTRA][MAX_SEGMENTS];
    const float *extra_values[MAX_EXTRA];
    nrl_harness_batch spec = {.size = sizeof spec,
                              .n_extra = (int32_t)c->options->n_extra,
                              .n_segments = n * c->sides,
                              .n_examples = n,
                              .tokens = tokens,
                              .cu_seqlens = cu_seqlens,
                              .row_token = row_token,
                              .row_target = row_target,
                              .row_segment = row_segment,
                              .row_weight = weight,
                              .segment_example = example,
                              .segment_side = side,
                              .extra_names = c->options->extra,
                              .extra_values = extra_values};
    *p = (gradcheck_part){.first_segment = first * c->sides};
    for (int64_t s = 0; s < spec.n_segments; s++) {
        int64_t segment = p->first_segment + s, n_rows = 2 + segment * 7 % 4;
        example[s] = (int32_t)(s / c->sides);
        side[s] = (int32_t)(s % c->sides);
        for (int64_t i = 0; i <= n_rows; i++) {
            int32_t token = (int32_t)(gradcheck_value(segment, i, COLUMN_TOKEN) * VOCAB);
            if (i) {
                row_token[spec.n_rows] = (int32_t)spec.n_tokens - 1;
                row_target[spec.n_rows] = token;
                row_segment[spec.n_rows] = (int32_t)s;
                weight[spec.n_rows++] = gradcheck_value(segment, i, COLUMN_WEIGHT) < 0.2 ? 0.5F : 1;
            }
            tokens[spec.n_tokens++] = token;
        }
        cu_seqlens[s + 1] = (int32_t)spec.n_tokens;
        for (int32_t k = 0; k < spec.n_extra; k++)
            extra[k][s] = (float)gradcheck_value(segment / 8, segment % 8, COLUMN_EXTRA + k);
    }
    for (int32_t k = 0; k < spec.n_extra; k++)
        extra_values[k] = extra[k];
    NRL_TRY(nrl_harness_batch_create(&spec, &p->batch));
    gradcheck_fill_column(p, COLUMN_LOGPS, -1, p->logps);
    double weights[NRL_MAX_TERMS] = {0};
    c->loss->weight(c->self, p->batch, weights); /* before any column exists */
    for (uint32_t k = 0; k < c->loss->n_terms; k++)
        p->weight += weights[k];
    return NRL_OK;
}

/* The sum of all terms for the part's log-probs; its gradient too unless `grad` is NULL. */
static nrl_status gradcheck_loss(const gradcheck *c, const gradcheck_part *p, double *sum, double *grad)
{
    static const char *const others[] = {"ref_logps", "entropy", "sum_p2", "lse"};
    nrl_ctx *ctx = nrl_harness_ctx(c->harness);
    const int64_t n = nrl_batch_n_targets(p->batch);
    nrl_tensor *column, *terms[NRL_MAX_TERMS] = {0};
    double values[NRL_MAX_TERMS];
    float other[MAX_ROWS];
    int64_t n_metrics;
    nrl_status st = NRL_OK;
    NRL_TRY(nrl_harness_use_batch(c->harness, p->batch));
    nrl_scope_begin(ctx);
    for (int k = 0; k < 4 && st == NRL_OK; k++) {
        gradcheck_fill_column(p, COLUMN_OTHERS + k, k == 1 ? 1 : -1, other);
        st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &n, other, &column);
        if (st == NRL_OK) nrl_harness_batch_set_column(p->batch, others[k], column);
    }
    if (st == NRL_OK) st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &n, p->logps, &column);
    if (st == NRL_OK) {
        nrl_harness_batch_set_column(p->batch, "logps", column);
        st = nrl_harness_loss(c->harness, c->loss, c->self, p->batch, column, terms);
    }
    if (st == NRL_OK) st = nrl_harness_loss_values(c->harness, terms, c->loss->n_terms, column, values, grad);
    nrl_harness_forget(c->harness);
    if (st == NRL_OK) st = nrl_harness_take_metrics(c->harness, &n_metrics); /* they are not used */
    nrl_scope_end(ctx);
    *sum = 0;
    for (uint32_t k = 0; k < c->loss->n_terms && st == NRL_OK; k++)
        *sum += values[k];
    return st;
}

static nrl_status gradcheck_differences(gradcheck *c, gradcheck_part *p)
{
    const double step = 0.01; /* f32 rounding of the sum against the third derivative */
    const double tolerance = c->options->tolerance > 0 ? c->options->tolerance : 0.005;
    double grad[MAX_ROWS], sum, above, below;
    NRL_TRY(gradcheck_loss(c, p, &sum, grad));
    for (int64_t i = 0; i < nrl_batch_n_targets(p->batch); i++) {
        float kept = p->logps[i], high = (float)(kept + step), low = (float)(kept - step);
        p->logps[i] = high;
        NRL_TRY(gradcheck_loss(c, p, &above, NULL));
        p->logps[i] = low;
        NRL_TRY(gradcheck_loss(c, p, &below, NULL));
        p->logps[i] = kept;
        double expected = (above - below) / ((double)high - (double)low);
        double off = fabs(expected - grad[i]) / fmax(1, fabs(expected));
        if (!(off <= tolerance))
            return nrl_fail(NRL_ERR_CONFIG,
                            "loss '%s': the gradient of row %lld is %.6g, differences of the loss give %.6g",
                            c->loss->plugin.name, (long long)i + 1, grad[i], expected);
        if (off > c->worst) c->worst = off;
    }
    return NRL_OK;
}

static nrl_status gradcheck_compare(const gradcheck *c, const char *what, double all, double x, double y)
{
    if (fabs(all - (x + y)) <= 1e-4 * fmax(1, fabs(all))) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "loss '%s': the %s of a batch is %.6g, of its halves %.6g and %.6g: expected a "
                    "sum over examples\nhint: use :sum(), not :mean(); the core divides by the weight",
                    c->loss->plugin.name, what, all, x, y);
}

/* parts[0] is the whole batch, parts[1] and parts[2] are its halves. */
static nrl_status gradcheck_run(gradcheck *c, gradcheck_part *parts)
{
    NRL_TRY(gradcheck_part_create(c, 0, EXAMPLES, &parts[0]));
    NRL_TRY(gradcheck_part_create(c, 0, EXAMPLES / 2, &parts[1]));
    NRL_TRY(gradcheck_part_create(c, EXAMPLES / 2, EXAMPLES - EXAMPLES / 2, &parts[2]));
    NRL_TRY(gradcheck_differences(c, &parts[0]));
    for (int i = 0; i < 3; i++)
        NRL_TRY(gradcheck_loss(c, &parts[i], &parts[i].sum, NULL));
    NRL_TRY(gradcheck_compare(c, "loss", parts[0].sum, parts[1].sum, parts[2].sum));
    return gradcheck_compare(c, "weight", parts[0].weight, parts[1].weight, parts[2].weight);
}

nrl_status nrl_gradcheck(const nrl_environment *env, const nrl_algorithm *loss, void *self,
                         const nrl_gradcheck_options *options, double *worst)
{
    nrl_gradcheck_options o = {0};
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    gradcheck c = {.loss = loss, .self = self, .options = &o, .sides = loss->example_kind == 1 ? 2 : 1};
    gradcheck_part parts[3] = {0};
    *worst = 0;
    if (loss->model || loss->rollout)
        return nrl_fail(NRL_ERR_CONFIG, "cannot check loss '%s': it has %s, which only a run gives it",
                        loss->plugin.name, loss->model ? "parameters of its own" : "completions of the policy");
    if (o.n_extra > MAX_EXTRA)
        return nrl_fail(NRL_ERR_CONFIG, "cannot check loss '%s': %u extra columns; expected at most %d",
                        loss->plugin.name, o.n_extra, MAX_EXTRA);
    nrl_arena *memory = nrl_arena_create();
    nrl_component *backend;
    nrl_status st = nrl_component_open(env, NRL_KIND_BACKEND, "backend",
                                       nrl_node_new_string(memory, o.backend, strlen(o.backend)), &backend);
    if (st == NRL_OK)
        st = nrl_harness_open((const nrl_backend *)nrl_component_table(backend), nrl_component_options(backend),
                              &c.harness);
    if (st == NRL_OK) {
        st = gradcheck_run(&c, parts);
        (void)nrl_harness_use_batch(c.harness, NULL);
    }
    for (int i = 0; i < 3; i++)
        nrl_harness_batch_free(parts[i].batch);
    nrl_harness_close(c.harness);
    nrl_component_close(backend);
    nrl_arena_destroy(memory);
    *worst = c.worst;
    return st;
}
