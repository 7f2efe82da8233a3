/*
 * choose.c - see choose.h.
 */
#include "base/mix.h"
#include "inference/choose.h"
#include "base/arena.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct chooser {
    int64_t vocab;
    float *values;   /* [V] logits, then unnormalised probabilities */
    uint32_t *order; /* [V] a heap of ids */
    bool *seen;      /* [V] false between calls */
};

chooser *chooser_create(int64_t vocab)
{
    chooser *c = mem_alloc(sizeof *c);
    c->vocab = vocab;
    c->values = mem_try((size_t)vocab * sizeof *c->values, "the logits of a token");
    c->order = mem_try((size_t)vocab * sizeof *c->order, "the order of logits");
    c->seen = mem_try((size_t)vocab * sizeof *c->seen, "the tokens of a text");
    if (c->values && c->order && c->seen) return c;
    chooser_destroy(c);
    return NULL;
}

void chooser_destroy(chooser *c)
{
    if (!c) return;
    free(c->values);
    free(c->order);
    free(c->seen);
    free(c);
}

/* One step of a counter-based generator. */
static uint64_t mix(uint64_t x)
{
    return mix64(x + MIX_GOLDEN);
}

static int32_t largest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* ---- ids by descending value, smallest id first on ties: a heap, because only few are taken ---- */

static bool comes_first(const float *values, uint32_t i, uint32_t j)
{
    return values[i] > values[j] || (values[i] == values[j] && i < j);
}

static void heap_sink(const chooser *c, const float *values, int64_t at, int64_t n)
{
    uint32_t id = c->order[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && comes_first(values, c->order[child + 1], c->order[child])) child++;
        if (!comes_first(values, c->order[child], id)) break;
        c->order[at] = c->order[child];
    }
    c->order[at] = id;
}

static void heap_make(const chooser *c, const float *values)
{
    for (int64_t i = 0; i < c->vocab; i++)
        c->order[i] = (uint32_t)i;
    for (int64_t i = c->vocab / 2; i-- > 0;)
        heap_sink(c, values, i, c->vocab);
}

/* Moves the first id of a heap of n to its end, order[n - 1]. */
static uint32_t heap_take(const chooser *c, const float *values, int64_t n)
{
    uint32_t first = c->order[0];
    c->order[0] = c->order[n - 1];
    heap_sink(c, values, 0, n - 1);
    c->order[n - 1] = first;
    return first;
}

/* ---- a token ---- */

/* Draws from softmax(logits / temperature), limited by top-k, then top-p, then min-p, as in transformers: u in [0,1).
 */
static int32_t draw(const chooser *c, const choose_options *o, double u)
{
    float *p = c->values;
    const float top = p[largest(p, c->vocab)];
    double total = 0;
    for (int64_t i = 0; i < c->vocab; i++) {
        p[i] = expf((float)((p[i] - top) / o->temperature));
        total += p[i];
    }
    if (o->top_p >= 1 && !o->top_k && o->min_p <= 0) { /* in the order of ids */
        double x = u * total;
        for (int64_t i = 0; i < c->vocab; i++)
            if ((x -= p[i]) < 0) return (int32_t)i;
        return largest(p, c->vocab); /* x is 0 except for rounding */
    }
    /* Likely tokens are taken from the heap until a limit is reached; they lie at the end of `order`, most likely last.
     */
    const int64_t most = o->top_k > 0 && o->top_k < c->vocab ? o->top_k : c->vocab;
    const bool of_top_k = o->top_p < 1 && most < c->vocab; /* top-p is a share of the probability of these k */
    const double limit = o->top_p < 1 && !of_top_k ? o->top_p * total : INFINITY;
    double kept = 0;
    int64_t n = 0;
    heap_make(c, p);
    while (n < most && (!n || kept < limit)) { /* at least one, as transformers do with a top_p of 0 */
        uint32_t id = heap_take(c, p, c->vocab - n);
        if (n && p[id] < o->min_p && !of_top_k) break; /* the first has the value 1 */
        kept += p[id];
        n++;
    }
    const uint32_t *last = c->order + c->vocab - 1;
    if (of_top_k) {
        double part = 0;
        int64_t k = 0;
        while (k < n && (!k || part < o->top_p * kept))
            part += p[last[-k++]];
        n = k;
        kept = part;
    }
    if (o->min_p > 0)
        for (; n > 1 && p[last[1 - n]] < o->min_p; n--)
            kept -= p[last[1 - n]];
    double x = u * kept;
    for (int64_t i = 0; i < n; i++)
        if ((x -= p[last[-i]]) < 0) return (int32_t)last[-i];
    return (int32_t)last[1 - n];
}

bool chooser_token(chooser *c, const choose_options *o, const float *row, const int32_t *ids, int64_t n, int64_t t,
                   int32_t *out)
{
    const bool penalised = o->repetition_penalty > 0 && o->repetition_penalty != 1;
    for (int64_t i = 0; i < c->vocab; i++) /* weights that are not finite give no token, not token 0 */
        if (isnan(row[i]) || row[i] == INFINITY) {
            *out = (int32_t)i;
            return false;
        }
    if (!penalised && o->temperature <= 0) {
        *out = largest(row, c->vocab);
        return true;
    }
    memcpy(c->values, row, (size_t)c->vocab * sizeof *row);
    for (int64_t i = 0; penalised && i < n; i++) {
        const int32_t id = ids[i];
        if (id < 0 || id >= c->vocab || c->seen[id]) continue;
        c->seen[id] = true;
        const float penalty = (float)o->repetition_penalty, x = c->values[id];
        c->values[id] = x > 0 ? x / penalty : x * penalty;
    }
    if (penalised) memset(c->seen, 0, (size_t)c->vocab * sizeof *c->seen);
    const uint64_t bits = mix(mix(mix(o->seed) ^ o->stream) ^ (uint64_t)t);
    *out = o->temperature <= 0 ? largest(c->values, c->vocab) : draw(c, o, (double)(bits >> 11) * 0x1p-53);
    return true;
}

float chooser_logps(chooser *c, const float *row, int64_t n_row, int32_t id, int32_t *top_ids, float *top_logps,
                    int64_t n)
{
    const float top = row[largest(row, n_row)];
    double total = 0;
    for (int64_t i = 0; i < n_row; i++)
        total += expf(row[i] - top);
    const double log_total = log(total) + top;
    if (n) heap_make(c, row);
    for (int64_t k = 0; k < n; k++) {
        top_ids[k] = (int32_t)heap_take(c, row, c->vocab - k);
        top_logps[k] = (float)(row[top_ids[k]] - log_total);
    }
    return (float)(row[id] - log_total);
}
