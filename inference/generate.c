/*
 * generate.c - prompts are continued in groups: one prefill of all prompts of the group as a packed
 * batch, then one token a sequence and pass. A sequence that has ended stays in the batch as an empty
 * segment, so that segment s is always sequence s of the cache.
 */
#include "inference/generate.h"
#include "inference/kv_cache.h"
#include "inference/logits.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_SEQUENCES = 128, GROUP_TOKENS = 16384 };

typedef struct {
    work *work;
    const generate_options *options;
    size_t first, n; /* prompts [first, first + n) */
    const int32_t *const *prompts;
    const int64_t *lengths;
    generate_result *results;
    bool ended[GROUP_SEQUENCES];
    kv_cache *cache;
    float *logits;   /* [V] scratch of one row */
    uint32_t *order; /* [V] scratch of draw */
    bool *seen;      /* [V] scratch of the repetition penalty, false between calls */
    int64_t vocab;
} group;

/* SplitMix64 (Steele, Lea, Flood 2014): one step of a counter-based generator. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double uniform(uint64_t seed, uint64_t prompt, uint64_t token)
{
    return (double)(mix(mix(mix(seed) ^ prompt) ^ token) >> 11) * 0x1p-53;
}

static int32_t largest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

static int by_logit_down(const void *a, const void *b, void *logits)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    float x = ((const float *)logits)[i], y = ((const float *)logits)[j];
    if (x != y) return x < y ? 1 : -1;
    return i < j ? -1 : i > j;
}

/* Sums the first n probabilities in the drawing order. */
static double sum_of(const group *g, const float *p, int64_t n)
{
    double total = 0;
    for (int64_t i = 0; i < n; i++)
        total += p[g->order[i]];
    return total;
}

/* Draws from softmax(logits / temperature), limited by top-k, then top-p, then min-p, as in transformers. */
static int32_t draw(group *g, float *logits, double u)
{
    const generate_options *o = g->options;
    int64_t n = g->vocab;
    double top = logits[largest(logits, n)], total;
    for (int64_t i = 0; i < n; i++) {
        g->order[i] = (uint32_t)i;
        logits[i] = (float)exp((logits[i] - top) / o->temperature);
    }
    total = sum_of(g, logits, n); /* in the order of ids */
    if (o->top_p < 1 || o->top_k > 0 || o->min_p > 0)
        qsort_r(g->order, (size_t)n, sizeof *g->order, by_logit_down, logits);
    if (o->top_k > 0 && o->top_k < n) {
        n = o->top_k;
        total = sum_of(g, logits, n);
    }
    if (o->top_p < 1) {
        double kept = 0;
        int64_t k = 0;
        while (k < n && kept < o->top_p * total)
            kept += logits[g->order[k++]];
        n = k;
        total = kept;
    }
    if (o->min_p > 0) { /* the most likely token has the value 1 */
        int64_t k = 1;
        while (k < n && logits[g->order[k]] >= o->min_p)
            k++;
        n = k;
        total = sum_of(g, logits, n);
    }
    double x = u * total;
    for (int64_t i = 0; i < n; i++)
        if ((x -= logits[g->order[i]]) < 0) return (int32_t)g->order[i];
    return (int32_t)g->order[n - 1];
}

static void penalise(group *g, const int32_t *ids, int64_t n, float *logits)
{
    float penalty = (float)g->options->repetition_penalty;
    for (int64_t i = 0; i < n; i++) {
        int32_t id = ids[i];
        if (id < 0 || id >= g->vocab || g->seen[id]) continue;
        g->seen[id] = true;
        logits[id] = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
    }
}

static int32_t choose(group *g, size_t i, const float *row)
{
    const generate_options *o = g->options;
    memcpy(g->logits, row, (size_t)g->vocab * sizeof *row);
    if (o->repetition_penalty > 0 && o->repetition_penalty != 1) {
        penalise(g, g->prompts[i], g->lengths[i], g->logits);
        penalise(g, g->results[i].ids, g->results[i].n, g->logits);
        memset(g->seen, 0, (size_t)g->vocab * sizeof *g->seen);
    }
    if (o->temperature <= 0) return largest(g->logits, g->vocab);
    return draw(g, g->logits, uniform(o->seed, g->first + i, (uint64_t)g->results[i].n));
}

/* Next input of sequence i: the whole prompt at first, then the last chosen token. */
static int64_t input_of(const group *g, size_t i, bool prefill, const int32_t **ids, int64_t *position)
{
    const generate_result *r = &g->results[i];
    *ids = prefill ? g->prompts[i] : r->ids + r->n - 1;
    *position = prefill ? 0 : g->lengths[i] + r->n - 1;
    if (g->ended[i]) return 0;
    return prefill ? g->lengths[i] : 1;
}

static nrl_batch *make_batch(const group *g, bool prefill)
{
    const int32_t *ids;
    int64_t total = 0, at = 0, position;
    for (size_t i = 0; i < g->n; i++)
        total += input_of(g, i, prefill, &ids, &position);
    nrl_batch *b = batch_new(total, 0, (int64_t)g->n);
    if (!b) return NULL;
    b->n_examples = (int64_t)g->n;
    for (size_t i = 0; i < g->n; i++) {
        int64_t n = input_of(g, i, prefill, &ids, &position);
        b->cu_seqlens[i] = (int32_t)at;
        b->segment_example[i] = (int32_t)i;
        for (int64_t t = 0; t < n; t++, at++) {
            b->tokens[at] = ids[t];
            b->positions[at] = (int32_t)(position + t);
        }
    }
    b->cu_seqlens[g->n] = (int32_t)at;
    return b;
}

static nrl_status take_token(group *g, size_t i, int32_t id)
{
    const generate_options *o = g->options;
    generate_result *r = &g->results[i];
    r->ids[r->n++] = id;
    if (r->n >= o->max_tokens) g->ended[i] = true;
    if (o->is_end && o->is_end(o->user, id)) g->ended[i] = true;
    return o->token ? o->token(o->user, g->first + i, id, &g->ended[i]) : NRL_OK;
}

/* Logits of one row each of the live sequences. */
typedef struct {
    work *work;
    int32_t rows[GROUP_SEQUENCES], owner[GROUP_SEQUENCES], n;
    float *logits; /* [n, stride], malloc'd */
    int64_t stride;
} last_rows;

static nrl_status take_logits(void *user, nrl_tensor *hidden)
{
    last_rows *l = user;
    nrl_tensor *logits;
    NRL_TRY(head_logits(l->work->ctx, &l->work->policy->head, hidden, l->rows, l->n, &logits));
    l->stride = nrl_tensor_dim(logits, -1);
    l->logits = mem_try((size_t)nrl_tensor_numel(logits) * sizeof *l->logits, "logits");
    if (!l->logits) return NRL_ERR_MEMORY;
    return tensor_read(l->work->ctx, logits, l->logits);
}

/* Weights that are not finite give no token, not token 0. */
static nrl_status check_logits(const float *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(row[i]) || row[i] == INFINITY)
            return nrl_fail(NRL_ERR_DATA,
                            "cannot choose a token: the logit of token %lld is %g; are the model's weights finite?",
                            (long long)i, (double)row[i]);
    return NRL_OK;
}

/* One pass: the logits of each live sequence's last row, and a token chosen from them. */
static nrl_status pass(group *g, bool prefill)
{
    nrl_batch *b = make_batch(g, prefill);
    if (!b) return NRL_ERR_MEMORY;
    last_rows l = {.work = g->work};
    for (size_t i = 0; i < g->n; i++) {
        if (g->ended[i]) continue;
        l.owner[l.n] = (int32_t)i;
        l.rows[l.n++] = b->cu_seqlens[i + 1] - 1;
    }
    nrl_status st = work_hidden(g->work, b, take_logits, &l);
    int32_t chosen[GROUP_SEQUENCES] = {0};
    for (int32_t k = 0; st == NRL_OK && l.logits && k < l.n; k++)
        st = check_logits(l.logits + k * l.stride, g->vocab);
    for (int32_t k = 0; st == NRL_OK && l.logits && k < l.n; k++)
        chosen[k] = choose(g, (size_t)l.owner[k], l.logits + k * l.stride);
    if (st == NRL_OK) st = logits_share(&g->work->stage, g->work->ctx, chosen, l.n);
    for (int32_t k = 0; st == NRL_OK && k < l.n; k++)
        st = take_token(g, (size_t)l.owner[k], chosen[k]);
    free(l.logits);
    ctx_set_batch(g->work->ctx, NULL);
    batch_free(b);
    return st;
}

static bool all_ended(const group *g)
{
    for (size_t i = 0; i < g->n; i++)
        if (!g->ended[i]) return false;
    return true;
}

static nrl_status run_group(group *g)
{
    nrl_ctx *ctx = g->work->ctx;
    int64_t longest = 0;
    for (size_t i = 0; i < g->n; i++) {
        g->results[i].ids = mem_try((size_t)g->options->max_tokens * sizeof(int32_t), "generated tokens");
        if (!g->results[i].ids) return NRL_ERR_MEMORY;
        if (g->lengths[i] > longest) longest = g->lengths[i];
    }
    NRL_TRY(kv_cache_create(ctx, (int64_t)g->n, longest + g->options->max_tokens, &g->cache));
    kv_cache_use(ctx, g->cache);
    nrl_status st = NRL_OK;
    for (bool prefill = true; st == NRL_OK && !all_ended(g); prefill = false)
        st = pass(g, prefill);
    kv_cache_use(ctx, NULL);
    kv_cache_destroy(ctx, g->cache);
    return st;
}

nrl_status generate(work *w, const int32_t *const *prompts, const int64_t *lengths, size_t n, const generate_options *o,
                    generate_result *results)
{
    int64_t head_rows = nrl_param_part(w->policy->head.weight, 0)->dims[0];
    int64_t vocab = o->vocab_size > 0 && o->vocab_size < head_rows ? o->vocab_size : head_rows;
    nrl_status st = NRL_OK;
    memset(results, 0, n * sizeof *results);
    if (o->max_tokens < 1) return NRL_OK;
    int64_t most = w->policy->info.max_positions;
    for (size_t i = 0; i < n; i++) {
        if (lengths[i] < 1) return nrl_fail(NRL_ERR_CONFIG, "prompt %zu is empty: it needs at least one token", i + 1);
        if (most > 0 && lengths[i] + o->max_tokens > most)
            return nrl_fail(NRL_ERR_CONFIG,
                            "prompt %zu has %lld tokens: with max_tokens %lld that is more than the "
                            "model's %lld positions",
                            i + 1, (long long)lengths[i], (long long)o->max_tokens, (long long)most);
    }
    float *logits = mem_try((size_t)vocab * sizeof *logits, "the logits of a token");
    uint32_t *order = mem_try((size_t)vocab * sizeof *order, "the order of logits");
    bool *seen = mem_try((size_t)vocab * sizeof *seen, "the tokens of a text");
    if (!logits || !order || !seen) st = NRL_ERR_MEMORY;
    for (size_t i = 0; i < n && st == NRL_OK;) {
        size_t k = 0;
        int64_t tokens = 0;
        while (i + k < n && k < GROUP_SEQUENCES && (!k || tokens + lengths[i + k] <= GROUP_TOKENS))
            tokens += lengths[i + k++];
        group g = {.work = w,
                   .options = o,
                   .first = i,
                   .n = k,
                   .prompts = prompts + i,
                   .lengths = lengths + i,
                   .results = results + i,
                   .logits = logits,
                   .order = order,
                   .seen = seen,
                   .vocab = vocab};
        st = run_group(&g);
        i += k;
    }
    free(logits);
    free(order);
    free(seen);
    return st;
}
