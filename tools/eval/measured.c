/*
 * measured.c - see measured.h. The wrapped table has the algorithm's loss, and metrics of its own behind the
 * algorithm's.
 */
#include "measured.h"
#include "base/arena.h"
#include <math.h>
#include <nrl/algorithm.h>
#include <nrl/tokenizer.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NEEDS = 16, MOST_METRICS = 32 };
enum { OWN_NLL, OWN_ACCURACY, OWN_ENTROPY, OWN_BYTES, N_OWN };

static const nrl_metric own_metrics[N_OWN] = {
    {"nll", "nats", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
    {"token_accuracy", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    {"entropy", "nats", NRL_REDUCE_MEAN, NRL_BETTER_NONE},
    {"bytes_per_token", "1", NRL_REDUCE_MEAN, NRL_BETTER_NONE},
};
/* The logit of a target is its log-prob plus lse, which rounding may move from the largest logit. */
static const double LOGIT_ROUNDING = 1e-4;

struct measured {
    nrl_component *base;
    const nrl_algorithm *inner;
    void *self; /* of inner */
    nrl_algorithm table;
    const char *needs[MOST_NEEDS + 1];
    nrl_metric metrics[MOST_METRICS + 1];
    uint32_t first; /* of the own metrics */
    const nrl_open_tokenizer *tokenizer;
    char *piece; /* [stream_room] */
};

static void measured_weight(void *self, const nrl_batch *batch, double *weight)
{
    const measured *m = self;
    m->inner->weight(m->self, batch, weight);
}

/* Bytes of the text of the targets of weight above 0. */
static double count_bytes(measured *m, const nrl_batch *batch)
{
    const nrl_open_tokenizer *t = m->tokenizer;
    const int32_t *ids = nrl_batch_target_ids(batch), *segments = nrl_batch_target_segments(batch);
    const float *weights = nrl_batch_target_weights(batch);
    const int64_t n = nrl_batch_n_targets(batch);
    nrl_decode_stream stream = {0};
    size_t bytes = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(weights[i] > 0)) continue;
        bytes += t->table->decode_next(t->self, &stream, ids[i], true, m->piece, t->info->stream_room);
        if (i + 1 < n && segments[i + 1] == segments[i]) continue;
        bytes += t->table->decode_next(t->self, &stream, NRL_TOKEN_NONE, true, m->piece, t->info->stream_room);
        stream = (nrl_decode_stream){0};
    }
    return (double)bytes;
}

/* Adds sum_i mask_i x_i to a metric. */
static nrl_status add_sum(measured *m, nrl_ctx *ctx, uint32_t own, nrl_tensor *x, nrl_tensor *mask, double n)
{
    nrl_tensor *each, *sum;
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, x, mask, &each));
    NRL_TRY(nrl_op_sum(ctx, each, &sum));
    return nrl_metric_add(ctx, m->first + own, sum, n);
}

static nrl_status measured_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    measured *m = self;
    NRL_TRY(m->inner->loss(m->self, ctx, batch, sums));
    const int64_t n = nrl_batch_n_targets(batch), one = 1;
    const float *weights = nrl_batch_target_weights(batch);
    double count = 0;
    float *trained = malloc((size_t)(n + 1) * sizeof *trained);
    if (!trained) return nrl_fail(NRL_ERR_MEMORY, "no memory for %lld weights", (long long)n);
    for (int64_t i = 0; i < n; i++)
        count += trained[i] = weights[i] > 0;
    nrl_tensor *mask, *logps, *lse, *entropy, *logits, *x, *largest, *number; /* [P], logits [P,V] */
    if (count == 0) {
        free(trained);
        return NRL_OK;
    }
    nrl_status st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &n, trained, &mask);
    free(trained);
    NRL_TRY(st);
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_batch_column(ctx, batch, "lse", &lse));
    NRL_TRY(nrl_batch_column(ctx, batch, "entropy", &entropy));
    NRL_TRY(nrl_batch_column(ctx, batch, "logits", &logits));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_NEG, logps, 0, 0, &x));
    NRL_TRY(add_sum(m, ctx, OWN_NLL, x, mask, count));
    NRL_TRY(add_sum(m, ctx, OWN_ENTROPY, entropy, mask, count));
    /* 1 where the largest logit is not above the target's; 0 where the target has no number, which nothing is above */
    NRL_TRY(nrl_op_max_columns(ctx, logits, &largest));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, logps, lse, &x));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x, 1, LOGIT_ROUNDING, &x));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_GREATER, largest, x, &x));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x, -1, 1, &x));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, logps, 1, 1, &number));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_GREATER, number, logps, &number));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, x, number, &x));
    NRL_TRY(add_sum(m, ctx, OWN_ACCURACY, x, mask, count));
    if (!m->tokenizer) return NRL_OK;
    const float bytes = (float)count_bytes(m, batch);
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &one, &bytes, &x));
    return nrl_metric_add(ctx, m->first + OWN_BYTES, x, count);
}

/* Whether the targets are scored one by one, and nothing but the model is needed for it. */
static bool is_plain(const nrl_algorithm *a, const char *const *needs)
{
    static const char *const others[] = {"ref_logps", "teacher_logps", "teacher_logits", "hidden", "kl_pairs"};
    bool plain =
        a->tokenwise && a->example_kind == 0 && a->n_terms == 1 && !a->model && !a->state && !a->group && !a->step_end;
    for (; plain && needs && *needs; needs++)
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            plain &= strcmp(*needs, others[i]) != 0;
    return plain;
}

static void add_need(measured *m, const char *need)
{
    size_t n = 0;
    while (n < MOST_NEEDS && m->needs[n] && strcmp(m->needs[n], need) != 0)
        n++;
    if (n < MOST_NEEDS) m->needs[n] = need;
}

nrl_status measured_open(const nrl_environment *env, const nrl_node *config, measured **out)
{
    static const char *const own_needs[] = {"logps", "lse", "entropy", "logits"};
    nrl_component *base;
    *out = NULL;
    if (!config || nrl_component_open(env, NRL_KIND_ALGORITHM, "algorithm", config, &base) != NRL_OK) return NRL_OK;
    measured *m = mem_alloc(sizeof *m);
    *m = (measured){.base = base, .inner = (const nrl_algorithm *)(const void *)nrl_component_table(base)};
    nrl_status st = NRL_OK;
    if (m->inner->create)
        st = m->inner->create(nrl_component_options(base), &m->self);
    else
        m->self = nrl_component_options(base);
    const char *const *needs = st != NRL_OK               ? NULL
                               : m->inner->instance_needs ? m->inner->instance_needs(m->self)
                                                          : m->inner->needs;
    while (m->inner->metrics && m->first < MOST_METRICS && m->inner->metrics[m->first].name) {
        m->metrics[m->first] = m->inner->metrics[m->first];
        m->first++;
    }
    if (st != NRL_OK || !is_plain(m->inner, needs) || m->first + N_OWN > MOST_METRICS) {
        measured_close(m);
        return st;
    }
    for (; needs && *needs; needs++)
        add_need(m, *needs);
    for (size_t i = 0; i < sizeof own_needs / sizeof *own_needs; i++)
        add_need(m, own_needs[i]);
    memcpy(m->metrics + m->first, own_metrics, sizeof own_metrics);
    m->table = (nrl_algorithm){.plugin = m->inner->plugin,
                               .needs = m->needs,
                               .metrics = m->metrics,
                               .n_terms = 1,
                               .tokenwise = true,
                               .weight = measured_weight,
                               .loss = measured_loss};
    *out = m;
    return NRL_OK;
}

void measured_close(measured *m)
{
    if (!m) return;
    if (m->inner->create && m->self) m->inner->destroy(m->self);
    nrl_component_close(m->base);
    free(m->piece);
    free(m);
}

const nrl_algorithm *measured_find(void *user, const char *name, void **self)
{
    measured *m = user;
    if (!m || strcmp(name, MEASURED_NAME) != 0) return NULL;
    *self = m;
    return &m->table;
}

void measured_set_tokenizer(measured *m, const nrl_open_tokenizer *t)
{
    if (!m || !t) return;
    m->piece = mem_alloc(t->info->stream_room + 1);
    m->tokenizer = t;
}

/* ---- values ---- */

static const char *ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);
    return n >= k && !strcmp(name + n - k, end) ? name + n - k : NULL;
}

const nrl_value *measured_values(nrl_arena *a, const nrl_value *values, size_t *n)
{
    nrl_value *all = arena_alloc(a, (2 * *n + 1) * sizeof *all);
    size_t k = 0;
    for (size_t i = 0; i < *n; i++) {
        const char *end = ends_in(values[i].name, "_nll");
        if (ends_in(values[i].name, "_bytes_per_token")) continue;
        if (!end) {
            all[k++] = values[i];
            continue;
        }
        const char *prefix = arena_printf(a, "%.*s", (int)(end - values[i].name), values[i].name);
        const char *bytes = arena_printf(a, "%s_bytes_per_token", prefix);
        all[k] = values[i];
        all[k].name = arena_printf(a, "%s_perplexity", prefix);
        all[k].unit = "1";
        all[k++].value = exp(values[i].value);
        for (size_t j = 0; j < *n; j++) {
            if (strcmp(values[j].name, bytes) != 0 || !(values[j].value > 0)) continue;
            all[k] = values[j];
            all[k].name = arena_printf(a, "%s_bits_per_byte", prefix);
            all[k++].value = values[i].value / log(2) / values[j].value;
        }
    }
    *n = k;
    return all;
}
