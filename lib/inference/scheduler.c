/*
 * scheduler.c - see scheduler.h.
 *
 * A sequence reserves a range of rows of the key/value cache for its prompt and all tokens that it may get, so a
 * sequence that runs never has to wait for room. Sequences are admitted in the order in which they were added.
 */
#include "inference/scheduler.h"
#include "inference/kv_cache.h"
#include "inference/logits.h"
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SEQUENCES = 128,
    MAX_CACHED = 131072,
    STEP_TOKENS = 512, /* of one step: a long prompt is computed in parts, so that others get their tokens meanwhile */
    FIRST_ROWS = 1024, /* of the cache, which grows */
    ROW_UNIT = 16,     /* ranges of rows are multiples of it */
    LEAST_SHARED = 16, /* shared tokens for which waiting is worthwhile */
};

typedef enum { WAITING, RUNNING, KEPT } sequence_state;

struct sequence {
    sequence_state state;
    sequence_options options;
    int32_t *ids; /* the prompt and the tokens that followed */
    int64_t n, n_prompt;
    int64_t row, n_rows; /* of the cache, unless it waits */
    int64_t n_cached;    /* ids[0..n_cached) have keys and values in it */
    uint64_t last_use;
};

struct scheduler {
    work *work;
    scheduler_options options;
    int64_t vocab;
    kv_cache *cache;
    chooser *chooser;
    sequence **all; /* [n] in the order in which they were added */
    size_t n, room;
    float *logits; /* room for those of a step, which would cost page faults in each one */
    size_t logits_room;
    uint64_t n_steps;
    scheduler_counts counts;
};

nrl_status scheduler_create(work *w, const scheduler_options *options, scheduler **out)
{
    scheduler *s = mem_alloc(sizeof *s);
    *s = (scheduler){.work = w, .options = *options};
    if (!s->options.max_sequences) s->options.max_sequences = MAX_SEQUENCES;
    if (!s->options.max_cached) s->options.max_cached = MAX_CACHED;
    s->vocab = logits_vocab(w);
    if (options->vocab_size > 0 && options->vocab_size < s->vocab) s->vocab = options->vocab_size;
    s->chooser = chooser_create(s->vocab);
    nrl_status st = s->chooser ? kv_cache_create(w->ctx, FIRST_ROWS, &s->cache) : NRL_ERR_MEMORY;
    if (st != NRL_OK) scheduler_destroy(s);
    *out = st == NRL_OK ? s : NULL;
    return st;
}

static void sequence_free(sequence *q)
{
    free(q->ids);
    free(q);
}

void scheduler_destroy(scheduler *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n; i++)
        sequence_free(s->all[i]);
    kv_cache_destroy(s->cache);
    chooser_destroy(s->chooser);
    free(s->logits);
    free(s->all);
    free(s);
}

static void drop(scheduler *s, size_t i)
{
    sequence_free(s->all[i]);
    memmove(s->all + i, s->all + i + 1, (--s->n - i) * sizeof *s->all);
}

void scheduler_forget(scheduler *s)
{
    for (size_t i = s->n; i-- > 0;)
        if (s->all[i]->state == KEPT) drop(s, i);
}

nrl_status scheduler_add(scheduler *s, const int32_t *ids, int64_t n, const sequence_options *given, sequence **out)
{
    const int64_t most = s->work->policy->info.max_positions;
    sequence_options own = *given, *o = &own;
    if (o->fits_context && most > n && n + o->max_tokens > most) o->max_tokens = most - n;
    if (n < 1) return nrl_fail(NRL_ERR_CONFIG, "the prompt is empty: it needs at least one token");
    if (most > 0 && n + o->max_tokens > most)
        return nrl_fail(NRL_ERR_CONFIG,
                        "the prompt has %lld tokens: with max_tokens %lld this exceeds the %lld positions of the model",
                        (long long)n, (long long)o->max_tokens, (long long)most);
    if (n > INT32_MAX / 2 - o->max_tokens)
        return nrl_fail(NRL_ERR_CONFIG, "max_tokens %lld is too large", (long long)o->max_tokens);
    sequence *q = mem_alloc(sizeof *q);
    *q = (sequence){.options = *o, .n = n, .n_prompt = n};
    q->ids = mem_try((size_t)(n + o->max_tokens) * sizeof *q->ids, "the tokens of a text");
    if (!q->ids) {
        free(q);
        return NRL_ERR_MEMORY;
    }
    memcpy(q->ids, ids, (size_t)n * sizeof *ids);
    if (s->n == s->room) {
        s->room = 2 * s->room + 16;
        s->all = mem_realloc(s->all, s->room * sizeof *s->all);
    }
    s->all[s->n++] = *out = q;
    return NRL_OK;
}

/* The cached tokens may be reused by another sequence. */
static void end(scheduler *s, sequence *q)
{
    q->last_use = s->n_steps;
    if (q->state == RUNNING && q->n_cached) {
        q->state = KEPT;
        return;
    }
    for (size_t i = 0; i < s->n; i++)
        if (s->all[i] == q) {
            drop(s, i);
            return;
        }
}

void scheduler_remove(scheduler *s, sequence *q)
{
    end(s, q);
}

scheduler_counts scheduler_count(const scheduler *s)
{
    scheduler_counts c = s->counts;
    for (size_t i = 0; i < s->n; i++) {
        c.n_waiting += s->all[i]->state == WAITING;
        c.n_running += s->all[i]->state == RUNNING;
    }
    return c;
}

int64_t scheduler_vocab(const scheduler *s)
{
    return s->vocab;
}

/* ---- rows of the cache ---- */

static int by_row(const void *a, const void *b)
{
    const sequence *x = *(sequence *const *)a, *y = *(sequence *const *)b;
    return (x->row > y->row) - (x->row < y->row);
}

/* The sequences that have rows, or only those that run, by their rows; the caller frees the list. */
static sequence **sequences_by_row(const scheduler *s, bool kept, size_t *n)
{
    sequence **list = mem_alloc((s->n + 1) * sizeof *list);
    *n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->all[i]->state == RUNNING || (kept && s->all[i]->state == KEPT)) list[(*n)++] = s->all[i];
    qsort(list, *n, sizeof *list, by_row);
    return list;
}

/* The first of n_rows unused rows; -1: there are none. */
static int64_t find_rows(const scheduler *s, int64_t n_rows, int64_t *end_of_used)
{
    size_t n;
    sequence **list = sequences_by_row(s, true, &n);
    int64_t at = 0, found = -1;
    for (size_t i = 0; i < n; i++) {
        if (found < 0 && list[i]->row - at >= n_rows) found = at;
        at = list[i]->row + list[i]->n_rows;
    }
    if (found < 0 && kv_cache_rows(s->cache) - at >= n_rows) found = at;
    *end_of_used = at;
    free(list);
    return found;
}

/* Rows for a sequence: unused ones, else the cache grows, else what was kept for longest goes. -1: there are none until
 * a sequence ends. */
static nrl_status take_rows(scheduler *s, int64_t n_rows, const sequence *except, int64_t *out)
{
    int64_t used;
    while ((*out = find_rows(s, n_rows, &used)) < 0) {
        const int64_t rows = kv_cache_rows(s->cache);
        const int64_t limit = s->options.max_cached > n_rows ? s->options.max_cached : n_rows;
        int64_t wanted = used + n_rows > 2 * rows ? used + n_rows : 2 * rows;
        if (wanted > limit) wanted = limit;
        bool runs = false;
        size_t oldest = SIZE_MAX;
        for (size_t i = 0; i < s->n; i++) {
            const sequence *q = s->all[i];
            runs |= q->state == RUNNING;
            if (q->state == KEPT && q != except && (oldest == SIZE_MAX || q->last_use < s->all[oldest]->last_use))
                oldest = i;
        }
        if (wanted >= used + n_rows) {
            nrl_status st = kv_cache_grow(s->cache, wanted);
            if (st == NRL_OK) continue;
            if (st != NRL_ERR_MEMORY || (oldest == SIZE_MAX && !runs && !except)) return st;
        }
        if (oldest == SIZE_MAX) return NRL_OK;
        drop(s, oldest);
    }
    return NRL_OK;
}

static int64_t shared_ids(const sequence *a, const sequence *b, int64_t most)
{
    int64_t n = 0;
    while (n < most && a->ids[n] == b->ids[n])
        n++;
    return n;
}

/* Gives a waiting sequence its rows, with the longest prefix that is cached. It stays as it is if there is no room, or
 * if another sequence is about to compute more of its prompt than is cached. */
static nrl_status admit(scheduler *s, sequence *q)
{
    const int64_t rows = (q->n_prompt + q->options.max_tokens + ROW_UNIT - 1) / ROW_UNIT * ROW_UNIT;
    sequence *best = NULL;
    int64_t shared = 0, soon = 0;
    for (size_t i = 0; i < s->n; i++) {
        sequence *other = s->all[i];
        if (other->state == WAITING) continue;
        int64_t most = other->n < q->n - 1 ? other->n : q->n - 1; /* the last token is computed, for its logits */
        int64_t n = shared_ids(q, other, most);
        if (other->state == RUNNING && n > other->n_cached && n > soon) soon = n;
        if (n > other->n_cached) n = other->n_cached;
        if (n > shared || (n && n == shared && other->state == KEPT)) {
            shared = n;
            best = other;
        }
    }
    if (soon >= shared + LEAST_SHARED) return NRL_OK;
    /* A sequence that has ended gives its rows if they suffice and most of what it has is shared. */
    if (best && best->state == KEPT && best->n_rows >= rows && 2 * shared >= best->n_cached) {
        q->row = best->row;
        q->n_rows = best->n_rows;
        best->state = WAITING; /* without rows */
        end(s, best);
    } else {
        int64_t row;
        NRL_TRY(take_rows(s, rows, best, &row));
        if (row < 0 && best && best->state == KEPT) { /* the room of the prefix itself is needed */
            best = NULL;
            shared = 0;
            NRL_TRY(take_rows(s, rows, NULL, &row));
        }
        if (row < 0) return NRL_OK;
        if (shared) NRL_TRY(kv_cache_copy(s->cache, best->row, row, shared));
        if (best) best->last_use = s->n_steps;
        q->row = row;
        q->n_rows = rows;
    }
    q->n_cached = shared;
    q->state = RUNNING;
    s->counts.n_reused += shared;
    s->counts.n_computed += q->n - shared;
    return NRL_OK;
}

static nrl_status admit_all(scheduler *s)
{
    for (bool admitted = true; admitted;) {
        sequence *next = NULL;
        int64_t running = 0;
        for (size_t i = 0; i < s->n; i++) {
            if (s->all[i]->state == RUNNING) running++;
            if (s->all[i]->state == WAITING && !next) next = s->all[i];
        }
        if (!next || running >= s->options.max_sequences) return NRL_OK;
        NRL_TRY(admit(s, next));
        admitted = next->state == RUNNING;
    }
    return NRL_OK;
}

/* ---- a step ---- */

/* The sequences of one forward; segment i of the batch is list[i]. */
typedef struct {
    scheduler *s;
    sequence **list;
    size_t n;
    int64_t *first; /* [n] rows of the cache */
    int64_t *count; /* [n] tokens of the batch */
    int32_t *rows;  /* [n_rows] last rows of those that get a token */
    size_t *owner;  /* [n_rows] in list */
    int64_t n_rows;
    const float *logits; /* [n_rows, stride]; NULL: another stage has them */
    int64_t stride;
} step;

/* One token each of the sequences that decode, and as many tokens of prompts as a step may have. */
static nrl_batch *step_batch(step *t)
{
    int64_t total = 0, left = STEP_TOKENS;
    for (size_t i = 0; i < t->n; i++) {
        t->count[i] = t->list[i]->n - t->list[i]->n_cached;
        left -= t->count[i] == 1;
    }
    for (size_t i = 0; i < t->n; i++) {
        if (t->count[i] > 1) {
            if (t->count[i] > left) t->count[i] = left > 0 ? left : 0;
            left -= t->count[i];
        }
        total += t->count[i];
    }
    nrl_batch *b = batch_new(total, 0, (int64_t)t->n);
    if (!b) return NULL;
    b->n_examples = (int64_t)t->n;
    int32_t at = 0;
    for (size_t i = 0; i < t->n; i++) {
        const sequence *q = t->list[i];
        b->cu_seqlens[i] = at;
        b->segment_example[i] = (int32_t)i;
        t->first[i] = q->row;
        for (int64_t k = 0; k < t->count[i]; k++, at++) {
            b->tokens[at] = q->ids[q->n_cached + k];
            b->positions[at] = (int32_t)(q->n_cached + k);
        }
        if (!t->count[i] || q->n_cached + t->count[i] < q->n) continue;
        t->owner[t->n_rows] = i;
        t->rows[t->n_rows++] = at - 1;
    }
    b->cu_seqlens[t->n] = at;
    return b;
}

static nrl_status step_take_logits(void *user, nrl_tensor *hidden)
{
    step *t = user;
    work *w = t->s->work;
    nrl_tensor *logits;
    if (!t->n_rows) return NRL_OK;
    NRL_TRY(head_logits(w->ctx, &w->policy->head, hidden, t->rows, t->n_rows, &logits));
    const size_t n = (size_t)nrl_tensor_numel(logits);
    if (n > t->s->logits_room) {
        free(t->s->logits);
        t->s->logits = mem_try(n * sizeof *t->s->logits, "logits");
        t->s->logits_room = t->s->logits ? n : 0;
        if (!t->s->logits) return NRL_ERR_MEMORY;
    }
    t->stride = nrl_tensor_dim(logits, -1);
    t->logits = t->s->logits;
    return tensor_read(w->ctx, logits, t->s->logits);
}

/* Fills what was chosen for row k, words of 32 bits that stages without the head receive: id, log-prob, top ids, top
 * log-probs; or NRL_TOKEN_NONE and the id whose logit is not finite. */
static void step_choose(const step *t, int64_t k, int32_t *words)
{
    sequence *q = t->list[t->owner[k]];
    const float *row = t->logits + k * t->stride;
    const int64_t n_top = q->options.n_top;
    if (!chooser_token(t->s->chooser, &q->options.choose, row, q->ids, q->n, q->n - q->n_prompt, &words[0])) {
        words[1] = words[0];
        words[0] = NRL_TOKEN_NONE;
        return;
    }
    if (!q->options.wants_logps) return;
    float logp =
        chooser_logps(t->s->chooser, row, t->stride, words[0], words + 2, (float *)(void *)(words + 2 + n_top), n_top);
    memcpy(&words[1], &logp, sizeof logp);
}

/* Chooses a token for each row and gives it to its sequence. */
static nrl_status step_tokens(step *t)
{
    scheduler *s = t->s;
    nrl_status failed = NRL_OK;
    int64_t width = 2;
    for (int64_t k = 0; k < t->n_rows; k++) {
        const sequence_options *o = &t->list[t->owner[k]]->options;
        if (o->wants_logps && 2 + 2 * (int64_t)o->n_top > width) width = 2 + 2 * (int64_t)o->n_top;
    }
    int32_t *words = mem_try((size_t)(t->n_rows * width) * sizeof *words, "chosen tokens");
    if (!words) return NRL_ERR_MEMORY;
    memset(words, 0, (size_t)(t->n_rows * width) * sizeof *words);
    for (int64_t k = 0; t->logits && k < t->n_rows; k++)
        step_choose(t, k, words + k * width);
    nrl_status st = logits_share(&s->work->stage, s->work->ctx, words, t->n_rows * width);
    for (size_t i = 0; i < t->n && st == NRL_OK; i++)
        t->list[i]->n_cached += t->count[i];
    for (int64_t k = 0; k < t->n_rows && st == NRL_OK; k++) {
        sequence *q = t->list[t->owner[k]];
        const int32_t *chosen = words + k * width;
        scheduler_token token = {.id = chosen[0]};
        if (token.id == NRL_TOKEN_NONE) {
            nrl_fail(NRL_ERR_DATA,
                     "cannot choose a token: the logit of token %d is not finite; are the model's weights finite?",
                     chosen[1]);
        } else if (q->options.wants_logps) {
            memcpy(&token.logp, &chosen[1], sizeof token.logp);
            token.n_top = q->options.n_top;
            token.top_ids = chosen + 2;
            token.top_logps = (const float *)(const void *)(chosen + 2 + token.n_top);
        }
        if (token.id != NRL_TOKEN_NONE) q->ids[q->n++] = token.id;
        bool is_last = token.id == NRL_TOKEN_NONE || q->n - q->n_prompt >= q->options.max_tokens;
        nrl_status given = q->options.token(q->options.user, &token, &is_last);
        if (is_last || given != NRL_OK) end(s, q);
        if (failed == NRL_OK) failed = given; /* the others get their tokens all the same */
    }
    free(words);
    return st == NRL_OK ? failed : st;
}

nrl_status scheduler_step(scheduler *s)
{
    nrl_ctx *ctx = s->work->ctx;
    s->n_steps++;
    NRL_TRY(admit_all(s));
    step t = {.s = s};
    t.list = sequences_by_row(s, false, &t.n);
    if (!t.n) {
        free(t.list);
        return NRL_OK;
    }
    t.first = mem_alloc(t.n * sizeof *t.first);
    t.count = mem_alloc(t.n * sizeof *t.count);
    t.rows = mem_alloc(t.n * sizeof *t.rows);
    t.owner = mem_alloc(t.n * sizeof *t.owner);
    nrl_batch *b = step_batch(&t);
    nrl_status st = b ? NRL_OK : NRL_ERR_MEMORY;
    if (st == NRL_OK) {
        kv_cache_use(ctx, s->cache, t.first, (int64_t)t.n);
        st = work_hidden(s->work, b, step_take_logits, &t);
        kv_cache_use(ctx, NULL, NULL, 0);
    }
    if (st == NRL_OK) st = step_tokens(&t);
    ctx_set_batch(ctx, NULL);
    if (b) batch_free(b);
    free(t.list);
    free(t.first);
    free(t.count);
    free(t.rows);
    free(t.owner);
    return st;
}
