/*
 * logits.c - see logits.h.
 */
#include "inference/logits.h"
#include <stdlib.h>
#include <string.h>

enum { GROUP_TOKENS = 16384, CHUNK_VALUES = 1 << 24 /* logits at once: 64 MiB */ };

/* Sequences that one forward computes. */
typedef struct {
    work *work;
    nrl_batch *batch;
    float *logits, *logps; /* of the group's first token on; one is NULL */
} logits_group;

int32_t logits_vocab(const work *w)
{
    return (int32_t)nrl_param_part(w->policy->head.weight, 0)->dims[0];
}

static nrl_status logits_check(const work *w, const char *what, const int32_t *ids, const int64_t *lengths, size_t n)
{
    const int64_t most = w->policy->info.max_positions, vocab = logits_vocab(w);
    for (size_t i = 0; i < n; i++) {
        if (lengths[i] < 1 || (most > 0 && lengths[i] > most))
            return nrl_fail(NRL_ERR_CONFIG, "cannot compute %s: sequence %zu has %lld tokens, expected 1 to %lld", what,
                            i + 1, (long long)lengths[i], (long long)(most > 0 ? most : INT32_MAX));
        for (int64_t t = 0; t < lengths[i]; t++, ids++)
            if (*ids < 0 || *ids >= vocab)
                return nrl_fail(NRL_ERR_CONFIG,
                                "cannot compute %s: token %lld of sequence %zu is %d, expected 0 to %lld", what,
                                (long long)t + 1, i + 1, *ids, (long long)vocab - 1);
    }
    return NRL_OK;
}

/* A target position for each token but the first of each sequence. */
static nrl_batch *logits_batch(const int32_t *ids, const int64_t *lengths, size_t n, int64_t total)
{
    nrl_batch *b = batch_new(total, total - (int64_t)n, (int64_t)n);
    if (!b) return NULL;
    int64_t at = 0, row = 0;
    b->n_examples = (int64_t)n;
    memcpy(b->tokens, ids, (size_t)total * sizeof *ids);
    for (size_t i = 0; i < n; i++) {
        b->cu_seqlens[i] = (int32_t)at;
        b->segment_example[i] = (int32_t)i;
        for (int64_t t = 0; t < lengths[i]; t++, at++) {
            b->positions[at] = (int32_t)t;
            if (!t) continue;
            b->row_token[row] = (int32_t)at - 1;
            b->row_target[row] = ids[at];
            b->row_segment[row] = (int32_t)i;
            b->row_weight[row++] = 1;
        }
    }
    b->cu_seqlens[n] = (int32_t)at;
    return b;
}

static nrl_status logits_take(void *user, nrl_tensor *hidden)
{
    logits_group *g = user;
    nrl_ctx *ctx = g->work->ctx;
    const int64_t total = g->batch->n_tokens, vocab = logits_vocab(g->work);
    const int64_t most = CHUNK_VALUES / vocab > 0 ? CHUNK_VALUES / vocab : 1;
    int32_t *rows = mem_try((size_t)total * sizeof *rows, "rows of logits");
    nrl_status st = rows ? NRL_OK : NRL_ERR_MEMORY;
    for (int64_t t = 0; t < total && st == NRL_OK; t++)
        rows[t] = (int32_t)t;
    for (int64_t begin = 0; begin < total && st == NRL_OK; begin += most) {
        nrl_tensor *logits;
        ctx_scope_begin(ctx);
        st = head_logits(ctx, &g->work->policy->head, hidden, rows + begin, total - begin < most ? total - begin : most,
                         &logits);
        if (st == NRL_OK) st = tensor_read(ctx, logits, g->logits + begin * vocab);
        ctx_scope_end(ctx);
    }
    free(rows);
    return st;
}

static nrl_status logits_take_logps(void *user, nrl_tensor *hidden)
{
    logits_group *g = user;
    const nrl_batch *b = g->batch;
    head_tensors v;
    memset(g->logps, 0, (size_t)b->n_tokens * sizeof *g->logps);
    if (!b->n_rows) return NRL_OK;
    NRL_TRY(head_columns(g->work->ctx, &g->work->policy->head, hidden, HEAD_LOGP, 1.0, &v));
    NRL_TRY(tensor_read(g->work->ctx, v.logps, g->logps)); /* there are fewer rows than tokens */
    for (int64_t row = b->n_rows; row-- > 0;) {
        float value = g->logps[row];
        g->logps[row] = 0;
        g->logps[b->row_token[row] + 1] = value;
    }
    return NRL_OK;
}

/* How many of n > 0 sequences one forward computes, and their tokens. */
static size_t group_size(const int64_t *lengths, size_t n, int64_t *total)
{
    size_t k = 0;
    for (*total = 0; k < n && (!k || *total + lengths[k] <= GROUP_TOKENS); k++)
        *total += lengths[k];
    return k;
}

nrl_status logits_compute(work *w, const int32_t *ids, const int64_t *lengths, size_t n, float *logits, float *logps)
{
    const int64_t vocab = logits_vocab(w);
    nrl_status st = logits_check(w, "logits", ids, lengths, n);
    for (size_t i = 0; i < n && st == NRL_OK;) {
        int64_t total;
        const size_t k = group_size(lengths + i, n - i, &total);
        logits_group g = {w, logits_batch(ids, lengths + i, k, total), logits, logps};
        st = g.batch ? work_hidden(w, g.batch, logits ? logits_take : logits_take_logps, &g) : NRL_ERR_MEMORY;
        /* stages without the head learn the values as words of 32 bits */
        int32_t *values = (int32_t *)(void *)(logits ? logits : logps);
        if (st == NRL_OK) st = logits_share(&w->stage, w->ctx, values, logits ? total * vocab : total);
        ctx_set_batch(w->ctx, NULL);
        batch_free(g.batch);
        if (logits) logits += total * vocab;
        if (logps) logps += total;
        ids += total;
        i += k;
    }
    return st;
}

typedef struct {
    nrl_ctx *ctx;
    nrl_param *weight;
    const int32_t *last; /* [n] tokens of the group */
    int64_t n;
    float *scores;
} score_group;

static nrl_status scores_take(void *user, nrl_tensor *hidden)
{
    const score_group *g = user;
    nrl_tensor *rows, *scores;
    NRL_TRY(nrl_op_gather_rows(g->ctx, hidden, g->last, g->n, &rows));
    NRL_TRY(nrl_op_linear(g->ctx, rows, g->weight, NULL, &scores));
    NRL_TRY(nrl_op_cast(g->ctx, scores, NRL_DTYPE_F32, &scores));
    return tensor_read(g->ctx, scores, g->scores);
}

nrl_status scores_compute(work *w, nrl_param *weight, int32_t pad, const int32_t *ids, const int64_t *lengths, size_t n,
                          float *scores)
{
    int32_t *last = mem_try((n + 1) * sizeof *last, "sequences to score");
    nrl_status st = last ? logits_check(w, "scores", ids, lengths, n) : NRL_ERR_MEMORY;
    for (size_t i = 0; i < n && st == NRL_OK;) {
        int64_t total, begin = 0;
        const size_t k = group_size(lengths + i, n - i, &total);
        for (size_t s = 0; s < k; begin += lengths[i + s++]) {
            int64_t at = begin + lengths[i + s] - 1;
            while (at > begin && ids[at] == pad)
                at--;
            last[s] = (int32_t)at;
        }
        score_group g = {w->ctx, weight, last, (int64_t)k, scores + i};
        nrl_batch *batch = logits_batch(ids, lengths + i, k, total);
        st = batch ? work_hidden(w, batch, scores_take, &g) : NRL_ERR_MEMORY;
        ctx_set_batch(w->ctx, NULL);
        batch_free(batch);
        ids += total;
        i += k;
    }
    free(last);
    return st;
}

/* ---- values that only the stage with the head has ---- */

static nrl_status broadcast(stage_link *s, nrl_ctx *ctx, int32_t *values, int64_t n)
{
    nrl_tensor *t;
    nrl_work *sent;
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_I32, 1, &n, values, &t));
    nrl_comm_call call = {.size = sizeof call, .peer = s->n - 1, .receive = t, .what = "what the last stage chose"};
    NRL_TRY(nrl_comm_broadcast(s->comm, ctx, &call, &sent));
    NRL_TRY(nrl_work_wait(&sent, ctx));
    return tensor_read(ctx, t, values);
}

nrl_status logits_share(stage_link *s, nrl_ctx *ctx, int32_t *values, int64_t n)
{
    if (!s->comm || !n) return NRL_OK;
    ctx_scope_begin(ctx);
    nrl_status st = broadcast(s, ctx, values, n);
    ctx_scope_end(ctx);
    return st;
}
