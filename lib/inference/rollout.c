/*
 * rollout.c - nrl/rollout.h: finds the prompts of a step's batches, continues them with the scheduler, and packs what
 * was generated into the batches of the step. Called by algorithms between the loader and the loss.
 */
#include <nrl/rollout.h>
#include "base/arena.h"
#include "data/data.h"
#include "inference/scheduler.h"
#include "mesh/mesh.h"
#include "run/step/batches.h"
#include "run/step/ranks.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Steps of the scheduler between two exchanges in which ranks find out whether any of them still generates. With
 * parameters that are divided, every forward is a collective call, so ranks that have finished compute padding
 * meanwhile. */
enum { STEPS_TOGETHER = 8 };

typedef struct {
    const nrl_batch *batch; /* the loader's */
    int64_t segment;
    int32_t shard;              /* of the batches of this rank */
    int64_t n_prompt, n_answer; /* tokens of the segment with its shared prompt */
    int32_t *ids;               /* [n_prompt + n_answer] */
    int64_t key;                /* of the prompt among those of the step */
} rollout_prompt;

typedef struct {
    const rollout_prompt *prompt;
    int32_t *ids; /* [prompt->n_prompt + max_tokens] */
    float *logps; /* [max_tokens] */
    int64_t n;    /* of the completion */
    bool is_finished;
    const double *values; /* of nrl_rollout_kept */
    const session *session;
    int32_t turn_end; /* of the template, or NRL_TOKEN_NONE */
} rollout_sequence;

typedef struct {
    rollout_prompt *prompts;
    rollout_sequence *sequences;
    int64_t n_prompts, n_sequences, n; /* n: completions of a prompt */
} rollout_made;

static uint64_t rollout_hash(const nrl_rollout *r, uint64_t a, uint64_t b)
{
    const uint64_t words[] = {(uint64_t)r->session->config.train.seed, (uint64_t)r->step, r->trains, a, b};
    return XXH3_64bits(words, sizeof words);
}

double nrl_rollout_uniform(const nrl_rollout *r, uint64_t key)
{
    return (double)(rollout_hash(r, key, 1) >> 11) * 0x1p-53;
}

/* ---- prompts ---- */

/* The last run of neighbouring targets of a segment is its answer; what is before it is the prompt. */
static nrl_status read_prompt(arena *a, const nrl_batch *b, int64_t segment, int64_t *row, rollout_prompt *out)
{
    const int64_t own = b->cu_seqlens[segment], n_shared = batch_prefix_length(b, segment);
    const int64_t n = n_shared + b->cu_seqlens[segment + 1] - own;
    int64_t first = n, end = n;
    for (; *row < b->n_rows && b->row_segment[*row] <= segment; ++*row) {
        const int64_t target = b->positions[b->row_token[*row]] + 1;
        if (b->row_segment[*row] < segment || b->row_weight[*row] == 0) continue;
        if (first == n || target != end) first = target;
        end = target + 1;
    }
    *out = (rollout_prompt){.batch = b, .segment = segment, .n_prompt = first, .n_answer = end - first};
    out->ids = arena_try(a, (size_t)n * sizeof *out->ids, "a prompt");
    if (!out->ids) return NRL_ERR_MEMORY;
    if (n_shared) memcpy(out->ids, b->tokens + b->cu_seqlens[b->prefix[segment]], (size_t)n_shared * sizeof *out->ids);
    memcpy(out->ids + n_shared, b->tokens + own, (size_t)(n - n_shared) * sizeof *out->ids);
    return NRL_OK;
}

/* The key of a prompt is its sample and how often that came before it in the global batch, so a sample that an entry's
 * weight repeats has completions of its own each time, the same on any number of ranks. */
static nrl_status read_prompts(nrl_rollout *r, rollout_made *g)
{
    const data_step *data = r->data;
    const int64_t per_shard = data->n_micro_batches / r->session->shards.n;
    arena *a = &r->memory;
    int64_t most = 0;
    for (int64_t m = 0; m < data->n_micro_batches; m++)
        most += data->micro_batch[m]->is_tail ? 0 : data->micro_batch[m]->n_examples;
    g->prompts = arena_try(a, (size_t)(most + 1) * sizeof *g->prompts, "the prompts of a step");
    if (!g->prompts) return NRL_ERR_MEMORY;
    for (int64_t m = 0; m < data->n_micro_batches; m++) {
        const nrl_batch *b = data->micro_batch[m];
        int64_t row = 0;
        for (int64_t s = 0; s < b->n_segments && !b->is_tail; s++)
            if (b->segment_side[s] == 0) {
                rollout_prompt *p = &g->prompts[g->n_prompts++];
                NRL_TRY(read_prompt(a, b, s, &row, p));
                p->shard = (int32_t)(m / per_shard);
                p->key = data_plan_repeats(r->source->plan, data->step, m, b->segment_example[s]) << 32 |
                         b->segment_sample[s];
            }
    }
    return NRL_OK;
}

/* ---- generation ---- */

/* turn_end: the token that ends a turn of the template. Without a tokenizer the end tokens are those of config.json: a
 * number or a list. */
static bool is_end(const session *se, int32_t turn_end, int32_t id)
{
    const nrl_node *ends = nrl_node_find(se->model->config, "eos_token_id");
    if (se->tokenizer) return tokenizer_is_eos(se->tokenizer, id) || (turn_end != NRL_TOKEN_NONE && id == turn_end);
    for (size_t i = 0; i < nrl_node_size(ends); i++)
        if (nrl_node_int(nrl_node_at(ends, i), -1) == id) return true;
    return nrl_node_kind(ends) == NRL_NODE_INT && nrl_node_int(ends, -1) == id;
}

static nrl_status take_token(void *user, const scheduler_token *t, bool *is_last)
{
    rollout_sequence *q = user;
    if (t->id == NRL_TOKEN_NONE) return NRL_ERR_DATA;
    q->ids[q->prompt->n_prompt + q->n] = t->id;
    q->logps[q->n++] = t->logp;
    q->is_finished = is_end(q->session, q->turn_end, t->id);
    *is_last |= q->is_finished;
    return NRL_OK;
}

static nrl_status ignore_hidden(void *user, nrl_tensor *hidden)
{
    (void)user;
    (void)hidden;
    return NRL_OK;
}

/* Generates until no rank has an unfinished sequence. */
static nrl_status generate_all(session *se, const dataset *set, scheduler *s)
{
    const int32_t world = mesh_n_batches(se->mesh) > 1 ? nrl_mesh_world(se->mesh) : 1;
    nrl_batch *padding = NULL;
    int32_t *busy = mem_alloc((size_t)world * sizeof *busy);
    nrl_status st = data_assemble(set, NULL, 0, false, &padding);
    for (bool any = true; any && st == NRL_OK;) {
        scheduler_counts c = {0};
        for (int i = 0; i < STEPS_TOGETHER && st == NRL_OK; i++) {
            c = scheduler_count(s);
            if (c.n_waiting + c.n_running)
                st = scheduler_step(s);
            else if (world > 1)
                st = work_hidden(&se->work, padding, ignore_hidden, NULL);
        }
        c = scheduler_count(s);
        const int32_t own = c.n_waiting + c.n_running > 0;
        busy[0] = own;
        if (st == NRL_OK && world > 1) st = mesh_exchange(se->mesh, "generation", &own, sizeof own, busy);
        any = false;
        for (int32_t k = 0; k < world; k++)
            any |= busy[k] > 0;
    }
    ctx_set_batch(se->ctx, NULL);
    batch_free(padding);
    free(busy);
    return st;
}

static void place_of(const nrl_rollout *r, const rollout_prompt *p, char *out, size_t room)
{
    dataset_place(r->source->set, p->batch->segment_sample[p->segment], out, room);
}

static nrl_status add_sequences(nrl_rollout *r, rollout_made *g, int32_t shard, const nrl_rollout_options *o,
                                scheduler *s)
{
    const int64_t most = r->session->model->info.max_positions;
    const int32_t turn_end = r->session->chat ? chat_template_end(r->session->chat) : NRL_TOKEN_NONE;
    for (int64_t i = 0; i < g->n_prompts * o->n; i++) {
        const rollout_prompt *p = &g->prompts[i / o->n];
        if (p->shard != shard) continue;
        rollout_sequence *q = &g->sequences[g->n_sequences++];
        sequence *running;
        const int64_t room = most > 0 && most - p->n_prompt < o->max_tokens ? most - p->n_prompt : o->max_tokens;
        char place[256];
        *q = (rollout_sequence){.prompt = p, .session = r->session, .turn_end = turn_end};
        if (room < 1) {
            place_of(r, p, place, sizeof place);
            return nrl_fail(NRL_ERR_DATA, "%s: the prompt has %lld tokens, all %lld positions of the model", place,
                            (long long)p->n_prompt, (long long)most);
        }
        q->ids = arena_try(&r->memory, (size_t)(p->n_prompt + room) * sizeof *q->ids, "a completion");
        q->logps = arena_try(&r->memory, (size_t)room * sizeof *q->logps, "a completion");
        if (!q->ids || !q->logps) return NRL_ERR_MEMORY;
        memcpy(q->ids, p->ids, (size_t)p->n_prompt * sizeof *q->ids);
        const sequence_options so = {.choose = {.temperature = o->temperature,
                                                .top_p = o->top_p,
                                                .top_k = o->top_k,
                                                .min_p = o->min_p,
                                                .seed = rollout_hash(r, 0, 0),
                                                .stream = rollout_hash(r, (uint64_t)p->key, 2 + (uint64_t)(i % o->n))},
                                     .max_tokens = room,
                                     .wants_logps = true,
                                     .token = take_token,
                                     .user = q};
        NRL_TRY(scheduler_add(s, q->ids, p->n_prompt, &so, &running));
    }
    return NRL_OK;
}

static nrl_status check_options(const session *se, const nrl_rollout_options *o)
{
    if (se->model->drops_head)
        return nrl_fail(NRL_ERR_CONFIG, "the model has a score head instead of an output layer, so it cannot generate");
    if (se->config.data.train_on == CONFIG_TRAIN_ON_ALL)
        return nrl_fail(NRL_ERR_CONFIG, "data.train_on is all, so there is no prompt to continue; expected answer or "
                                        "last");
    if (o->n < 1 || o->max_tokens < 1)
        return nrl_fail(NRL_ERR_CONFIG, "%lld completions of at most %lld tokens; expected at least 1 each",
                        (long long)o->n, (long long)o->max_tokens);
    return NRL_OK;
}

/* Sequences in the same forward may change the last bits of a log-prob, so reproducible shards run separately. */
static nrl_status generate_shard(nrl_rollout *r, rollout_made *g, int32_t shard, const nrl_rollout_options *o)
{
    session *se = r->session;
    const scheduler_options so = {.vocab_size = se->tokenizer ? se->tokenizer->info.vocab_size : 0};
    scheduler *s = NULL;
    nrl_status st = scheduler_create(&se->work, &so, &s);
    if (st == NRL_OK) st = add_sequences(r, g, shard, o, s);
    if (st == NRL_OK) st = generate_all(se, r->source->set, s);
    scheduler_destroy(s);
    return st;
}

nrl_status nrl_rollout_generate(nrl_rollout *r, const nrl_rollout_options *options)
{
    session *se = r->session;
    nrl_rollout_options o = {0};
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    NRL_TRY(check_options(se, &o));
    NRL_TRY(ranks_agree(se->mesh, &se->shards, "generate", (uint64_t)r->step));
    if (r->batches) return nrl_fail(NRL_ERR_PLUGIN, "nrl_rollout_generate is called after nrl_rollout_replace");
    arena_free(&r->memory);
    rollout_made *g = r->made = arena_alloc(&r->memory, sizeof *g);
    g->n = o.n;
    NRL_TRY(read_prompts(r, g));
    g->sequences = arena_try(&r->memory, (size_t)(g->n_prompts * o.n + 1) * sizeof *g->sequences, "completions");
    if (!g->sequences) return NRL_ERR_MEMORY;
    nrl_status st = strategy_begin(&se->strategy, STRATEGY_HOLD, se->ctx);
    for (int32_t k = 0; k < se->shards.n && st == NRL_OK; k++)
        st = generate_shard(r, g, k, &o);
    return strategy_end(&se->strategy, STRATEGY_HOLD, se->ctx, st);
}

/* ---- what was generated ---- */

void nrl_rollout_info_fill(const nrl_rollout *r, nrl_rollout_info *fill)
{
    const rollout_made *g = r->made;
    nrl_rollout_info info = {.size = fill->size,
                             .trains = r->trains,
                             .step = r->step,
                             .has_text = r->session->tokenizer,
                             .update = r->update};
    if (g) info.n_sequences = g->n_sequences;
    for (int64_t m = 0; m < r->data->n_micro_batches; m++)
        info.n_prompts += r->data->micro_batch[m]->is_tail ? 0 : r->data->micro_batch[m]->n_examples;
    memcpy(fill, &info, fill->size < sizeof info ? fill->size : sizeof info);
}

static const rollout_sequence *sequence_at(const nrl_rollout *r, int64_t i)
{
    const rollout_made *g = r->made;
    NRL_ASSERT((g && i >= 0 && i < g->n_sequences), ==, true);
    return &g->sequences[i];
}

void nrl_rollout_sequence_fill(const nrl_rollout *r, int64_t i, nrl_rollout_sequence *fill)
{
    const rollout_sequence *q = sequence_at(r, i);
    const rollout_prompt *p = q->prompt;
    const nrl_rollout_sequence filled = {.size = fill->size,
                                         .is_finished = q->is_finished,
                                         .prompt = i / ((const rollout_made *)r->made)->n,
                                         .ids = q->ids,
                                         .answer = p->ids + p->n_prompt,
                                         .n_prompt = p->n_prompt,
                                         .n_completion = q->n,
                                         .n_answer = p->n_answer,
                                         .logps = q->logps,
                                         .values = q->values,
                                         .shard = p->shard};
    memcpy(fill, &filled, fill->size < sizeof filled ? fill->size : sizeof filled);
}

nrl_status nrl_rollout_report(const nrl_rollout *r, int64_t i, const nrl_metric *row, double value, double weight)
{
    const int32_t first = i < 0 ? 0 : sequence_at(r, i)->prompt->shard, end = i < 0 ? r->session->shards.n : first + 1;
    nrl_status st = NRL_OK;
    for (int32_t k = first; k < end && st == NRL_OK; k++) {
        metrics_report_to(k);
        st = nrl_metric_report_f64(row, value, weight);
    }
    metrics_report_to(0);
    return st;
}

nrl_status nrl_rollout_text(const nrl_rollout *r, const int32_t *ids, int64_t n, char **text)
{
    size_t size;
    if (!r->session->tokenizer)
        return nrl_fail(NRL_ERR_CONFIG, "the text of a completion needs a tokenizer\nhint: set model.tokenizer");
    return nrl_tokenizer_decode(&r->session->tokenizer->open, ids, (size_t)n, true, text, &size);
}

const char *nrl_rollout_extra_name(const nrl_rollout *r, int32_t k)
{
    return k < dataset_info(r->source->set)->n_extra ? dataset_info(r->source->set)->extra[k] : NULL;
}

double nrl_rollout_extra(const nrl_rollout *r, int64_t i, const char *key)
{
    const rollout_prompt *p = sequence_at(r, i)->prompt;
    for (int32_t k = 0; k < p->batch->n_extra; k++)
        if (!strcmp(p->batch->extra[k].name, key)) return (double)p->batch->extra[k].values[p->segment];
    return (double)NAN;
}

void nrl_rollout_place(const nrl_rollout *r, int64_t i, char *out, size_t room)
{
    place_of(r, sequence_at(r, i)->prompt, out, room);
}

/* ---- what is kept ---- */

/* A sequence is a header, its values, and a word for each token: the id above the bits of the log-prob. */
enum { KEPT_PROMPT, KEPT_NUMBER, KEPT_PART, KEPT_FINISHED, KEPT_LENGTH, KEPT_HEADER };

struct nrl_rollout_kept {
    int64_t n_values, n_words, n; /* n: sequences */
    int64_t *words;               /* [n_words] */
    int64_t **at;                 /* [n] ascending by prompt and number */
};

void nrl_rollout_kept_free(nrl_rollout_kept *k)
{
    if (!k) return;
    free(k->words);
    free(k->at);
    free(k);
}

static int by_prompt(const void *a, const void *b)
{
    const int64_t *x = *(int64_t *const *)a, *y = *(int64_t *const *)b;
    const int by = (x[KEPT_PROMPT] > y[KEPT_PROMPT]) - (x[KEPT_PROMPT] < y[KEPT_PROMPT]);
    return by ? by : (x[KEPT_NUMBER] > y[KEPT_NUMBER]) - (x[KEPT_NUMBER] < y[KEPT_NUMBER]);
}

/* Of equal ones the first in memory. */
static int by_prompt_and_place(const void *a, const void *b)
{
    const int64_t *x = *(int64_t *const *)a, *y = *(int64_t *const *)b;
    const int by = by_prompt(a, b);
    return by ? by : (x > y) - (x < y);
}

/* Finds the sequences in the words. Ranks that share a batch have the same ones, of which one stays. */
static nrl_status kept_index(nrl_rollout_kept *k)
{
    int64_t n = 0, used = 0;
    k->at = mem_try((size_t)(k->n_words / KEPT_HEADER + 1) * sizeof *k->at, "the kept completions");
    if (!k->at) return NRL_ERR_MEMORY;
    for (int64_t at = 0; at < k->n_words; n++) {
        const int64_t room = k->n_words - at - KEPT_HEADER - k->n_values;
        if (room < 0 || k->words[at + KEPT_LENGTH] < 0 || k->words[at + KEPT_LENGTH] > room)
            return nrl_fail(NRL_ERR_CORRUPT, "the completions of the checkpoint end within one");
        k->at[n] = k->words + at;
        at += KEPT_HEADER + k->n_values + k->words[at + KEPT_LENGTH];
    }
    qsort(k->at, (size_t)n, sizeof *k->at, by_prompt_and_place);
    for (int64_t i = 0; i < n; i++)
        if (!i || by_prompt(&k->at[used - 1], &k->at[i])) k->at[used++] = k->at[i];
    k->n = used;
    return NRL_OK;
}

static int64_t *put_sequence(const rollout_sequence *q, int64_t number, const double *values, int64_t n_values,
                             int64_t *to)
{
    const int64_t header[KEPT_HEADER] = {
        [KEPT_PROMPT] = q->prompt->key, [KEPT_NUMBER] = number, [KEPT_FINISHED] = q->is_finished, [KEPT_LENGTH] = q->n};
    memcpy(to, header, sizeof header);
    memcpy(to + KEPT_HEADER, values, (size_t)n_values * sizeof *values);
    to += KEPT_HEADER + n_values;
    for (int64_t t = 0; t < q->n; t++) {
        uint32_t bits;
        memcpy(&bits, &q->logps[t], sizeof bits);
        *to++ = ((int64_t)q->ids[q->prompt->n_prompt + t] << 32) | bits;
    }
    return to;
}

/* Gathers the words of all ranks, of which each has its own number. */
static nrl_status gather_words(nrl_mesh *mesh, nrl_rollout_kept *k)
{
    const int32_t world = nrl_mesh_world(mesh);
    int64_t most = 0, sum = 0, *counts = mem_alloc((size_t)world * sizeof *counts);
    nrl_status st = mesh_exchange(mesh, "kept completions", &k->n_words, sizeof k->n_words, counts);
    for (int32_t i = 0; i < world; i++)
        most = counts[i] > most ? counts[i] : most;
    int64_t *own = mem_try((size_t)(most + 1) * sizeof *own, "the kept completions");
    int64_t *all = mem_try((size_t)(world * most + 1) * sizeof *all, "the kept completions");
    if (st == NRL_OK && (!own || !all)) st = NRL_ERR_MEMORY;
    if (st == NRL_OK) {
        memset(own, 0, (size_t)most * sizeof *own);
        memcpy(own, k->words, (size_t)k->n_words * sizeof *own);
        if (most) st = mesh_exchange(mesh, "kept completions", own, (size_t)most * sizeof *own, all);
    }
    for (int32_t i = 0; i < world && st == NRL_OK; i++) {
        memmove(all + sum, all + i * most, (size_t)counts[i] * sizeof *all);
        sum += counts[i];
    }
    free(own);
    free(counts);
    if (st != NRL_OK) {
        free(all);
        return st;
    }
    free(k->words);
    k->words = all;
    k->n_words = sum;
    return NRL_OK;
}

typedef struct {
    uint64_t key;
    int64_t first; /* sequence */
} kept_prompt;

static int by_key(const void *a, const void *b)
{
    const kept_prompt *x = a, *y = b;
    return x->key == y->key ? (x->first > y->first) - (x->first < y->first) : x->key > y->key ? 1 : -1;
}

/* In a random order of the prompts, which depends on their keys alone. */
static nrl_status divide_kept(const nrl_rollout *r, int64_t n_parts, nrl_rollout_kept *k)
{
    int64_t n = 0;
    kept_prompt *prompts = mem_try((size_t)(k->n + 1) * sizeof *prompts, "the kept completions");
    if (!prompts) return NRL_ERR_MEMORY;
    for (int64_t i = 0; i < k->n; i++)
        if (!i || k->at[i][KEPT_PROMPT] != k->at[i - 1][KEPT_PROMPT])
            prompts[n++] = (kept_prompt){rollout_hash(r, (uint64_t)k->at[i][KEPT_PROMPT], 2), i};
    if (n_parts > 1) qsort(prompts, (size_t)n, sizeof *prompts, by_key);
    for (int64_t p = 0; p < n; p++)
        for (int64_t i = prompts[p].first, key = k->at[i][KEPT_PROMPT]; i < k->n; i++) {
            if (k->at[i][KEPT_PROMPT] != key) break;
            k->at[i][KEPT_PART] = p * n_parts / n;
        }
    free(prompts);
    return NRL_OK;
}

nrl_status nrl_rollout_keep(nrl_rollout *r, const double *values, int64_t n_values, int64_t n_parts,
                            nrl_rollout_kept **kept)
{
    const rollout_made *g = r->made;
    nrl_mesh *mesh = r->session->mesh;
    if (!g) return nrl_fail(NRL_ERR_PLUGIN, "nrl_rollout_keep is called before nrl_rollout_generate");
    nrl_rollout_kept_free(*kept);
    nrl_rollout_kept *k = *kept = mem_alloc(sizeof *k);
    k->n_values = n_values;
    for (int64_t i = 0; i < g->n_sequences; i++)
        k->n_words += KEPT_HEADER + n_values + g->sequences[i].n;
    k->words = mem_try((size_t)(k->n_words + 1) * sizeof *k->words, "the kept completions");
    nrl_status st = k->words ? NRL_OK : NRL_ERR_MEMORY;
    int64_t *to = k->words;
    for (int64_t i = 0; i < g->n_sequences && st == NRL_OK; i++)
        to = put_sequence(&g->sequences[i], i % g->n, values + i * n_values, n_values, to);
    if (st == NRL_OK && nrl_mesh_world(mesh) > 1) st = gather_words(mesh, k);
    if (st == NRL_OK) st = kept_index(k);
    return st == NRL_OK ? divide_kept(r, n_parts, k) : st;
}

int64_t nrl_rollout_kept_n(const nrl_rollout_kept *k)
{
    return k->n;
}

int64_t nrl_rollout_kept_n_values(const nrl_rollout_kept *k)
{
    return k->n_values;
}

void nrl_rollout_kept_fill(const nrl_rollout_kept *k, int64_t i, nrl_rollout_kept_sequence *fill)
{
    NRL_ASSERT((i >= 0 && i < k->n), ==, true);
    const int64_t *words = k->at[i];
    const nrl_rollout_kept_sequence filled = {.size = fill->size,
                                              .is_finished = words[KEPT_FINISHED],
                                              .prompt = words[KEPT_PROMPT],
                                              .part = words[KEPT_PART],
                                              .n_completion = words[KEPT_LENGTH],
                                              .values = (const double *)(const void *)(words + KEPT_HEADER)};
    memcpy(fill, &filled, fill->size < sizeof filled ? fill->size : sizeof filled);
}

/* The first kept sequence of the prompt with this key, or k->n. */
static int64_t find_prompt(const nrl_rollout_kept *k, int64_t key)
{
    int64_t low = 0, high = k->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (k->at[middle][KEPT_PROMPT] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < k->n && k->at[low][KEPT_PROMPT] == key ? low : k->n;
}

static nrl_status take_sequence(nrl_rollout *r, const nrl_rollout_kept *k, const int64_t *words,
                                const rollout_prompt *p, rollout_sequence *q)
{
    const int64_t n = words[KEPT_LENGTH];
    *q = (rollout_sequence){.prompt = p, .n = n, .is_finished = words[KEPT_FINISHED], .session = r->session};
    q->values = (const double *)(const void *)(words + KEPT_HEADER);
    q->ids = arena_try(&r->memory, (size_t)(p->n_prompt + n) * sizeof *q->ids, "a completion");
    q->logps = arena_try(&r->memory, (size_t)n * sizeof *q->logps, "a completion");
    if (!q->ids || !q->logps) return NRL_ERR_MEMORY;
    memcpy(q->ids, p->ids, (size_t)p->n_prompt * sizeof *q->ids);
    for (int64_t t = 0; t < n; t++) {
        const uint64_t word = (uint64_t)words[KEPT_HEADER + k->n_values + t];
        const uint32_t bits = (uint32_t)word;
        q->ids[p->n_prompt + t] = (int32_t)(word >> 32);
        memcpy(&q->logps[t], &bits, sizeof bits);
    }
    return NRL_OK;
}

nrl_status nrl_rollout_take(nrl_rollout *r, const nrl_rollout_kept *k, int64_t part)
{
    int64_t n_prompts = 0;
    if (r->batches) return nrl_fail(NRL_ERR_PLUGIN, "nrl_rollout_take is called after nrl_rollout_replace");
    arena_free(&r->memory);
    rollout_made *g = r->made = arena_alloc(&r->memory, sizeof *g);
    g->n = 1;
    while (g->n < k->n && k->at[g->n][KEPT_PROMPT] == k->at[0][KEPT_PROMPT])
        g->n++;
    NRL_TRY(read_prompts(r, g));
    g->sequences = arena_try(&r->memory, (size_t)(g->n_prompts * g->n + 1) * sizeof *g->sequences, "completions");
    if (!g->sequences) return NRL_ERR_MEMORY;
    for (int64_t p = 0; p < g->n_prompts; p++) {
        const rollout_prompt prompt = g->prompts[p];
        const int64_t first = find_prompt(k, prompt.key);
        char place[256];
        if (first + g->n > k->n) {
            place_of(r, &prompt, place, sizeof place);
            return nrl_fail(NRL_ERR_CONFIG,
                            "%s: it has no completions for update %lld of its batch\n"
                            "hint: continue with the algorithm options of the checkpoint",
                            place, (long long)r->update + 1);
        }
        if (k->at[first][KEPT_PART] != part) continue;
        g->prompts[n_prompts] = prompt;
        for (int64_t i = 0; i < g->n; i++)
            NRL_TRY(take_sequence(r, k, k->at[first + i], &g->prompts[n_prompts], &g->sequences[g->n_sequences++]));
        n_prompts++;
    }
    g->n_prompts = n_prompts;
    return NRL_OK;
}

nrl_status nrl_rollout_kept_io(nrl_rollout_kept **kept, nrl_state_io *io)
{
    int64_t sizes[2] = {*kept ? (*kept)->n_values : 0, *kept ? (*kept)->n_words : 0};
    const int64_t now[2] = {sizes[0], sizes[1]};
    NRL_TRY(nrl_state_io_i64(io, "rollout_sizes", sizes, 2));
    if (memcmp(sizes, now, sizeof now)) { /* those of a checkpoint */
        nrl_rollout_kept_free(*kept);
        *kept = NULL;
    }
    if (!sizes[1]) return NRL_OK;
    if (!*kept) {
        nrl_rollout_kept *k = *kept = mem_alloc(sizeof *k);
        *k = (nrl_rollout_kept){.n_values = sizes[0], .n_words = sizes[1]};
        if (sizes[0] < 0 || sizes[1] < 0) return nrl_fail(NRL_ERR_CORRUPT, "state 'rollout_sizes' is negative");
        k->words = mem_try((size_t)k->n_words * sizeof *k->words, "the completions of a checkpoint");
        if (!k->words) return NRL_ERR_MEMORY;
    }
    NRL_TRY(nrl_state_io_i64(io, "rollout", (*kept)->words, sizes[1]));
    free((*kept)->at);
    return kept_index(*kept);
}

/* ---- batches ---- */

/* Sequences [first, end) as a micro-batch, none as padding. Targets are the tokens of completions, and those of prompts
 * with weight 0 where the loss asks for them. */
static nrl_status make_batch(const nrl_rollout *r, int64_t first, int64_t end, const nrl_rollout_column *columns,
                             size_t n_columns, nrl_batch **out)
{
    const rollout_made *g = r->made;
    const bool prompts = work_needs(r->session->algorithm, "prompt_targets");
    int64_t n_tokens = 0, n_rows = 0;
    for (int64_t i = first; i < end; i++) {
        const rollout_sequence *q = &g->sequences[i];
        n_tokens += q->prompt->n_prompt + q->n;
        n_rows += q->n + (prompts ? q->prompt->n_prompt - 1 : 0);
    }
    if (first == end) return data_assemble(r->source->set, NULL, 0, prompts, out);
    nrl_batch *b = *out = batch_new(n_tokens, n_rows, end - first);
    if (!b) return NRL_ERR_MEMORY;
    b->n_examples = b->n_segments;
    const int64_t n_extra = dataset_info(r->source->set)->n_extra;
    float *extra[BATCH_MAX_EXTRA], *values[BATCH_MAX_EXTRA + 1], *sampled;
    for (int64_t k = 0; k < n_extra; k++)
        NRL_TRY(batch_add_extra(b, dataset_info(r->source->set)->extra[k], false, &extra[k]));
    NRL_TRY(batch_add_extra(b, "sampled_logps", true, &sampled));
    for (size_t k = 0; k < n_columns; k++)
        if (strcmp(columns[k].name, "weights"))
            NRL_TRY(batch_add_extra(b, columns[k].name, true, &values[k]));
        else
            values[k] = b->row_weight;
    int64_t at = 0, row = 0;
    for (int64_t i = first; i < end; i++) {
        const rollout_sequence *q = &g->sequences[i];
        const rollout_prompt *p = q->prompt;
        const int64_t s = i - first, n = p->n_prompt + q->n;
        b->segment_example[s] = (int32_t)s;
        b->segment_sample[s] = p->batch->segment_sample[p->segment];
        for (int64_t k = 0; k < n_extra; k++)
            extra[k][s] = dataset_extra(r->source->set, b->segment_sample[s], k);
        memcpy(b->tokens + at, q->ids, (size_t)n * sizeof *q->ids);
        for (int64_t t = 0; t < n; t++) {
            const bool is_new = t >= p->n_prompt;
            b->positions[at + t] = (int32_t)t;
            if (!t || (!is_new && !prompts)) continue;
            b->row_token[row] = (int32_t)(at + t - 1);
            b->row_target[row] = q->ids[t];
            b->row_segment[row] = (int32_t)s;
            b->row_weight[row] = is_new ? 1.0f : 0.0f;
            sampled[row] = is_new ? q->logps[t - p->n_prompt] : 0;
            for (size_t k = 0; k < n_columns && is_new; k++)
                values[k][row] = columns[k].values[i];
            row++;
        }
        at += n;
        b->cu_seqlens[s + 1] = (int32_t)at;
    }
    return NRL_OK;
}

/* The end of the micro-batch that begins at `first`: consecutive sequences of a shard up to the budget, at least one.
 */
static int64_t batch_end(const nrl_rollout *r, int64_t first)
{
    const rollout_made *g = r->made;
    const config_train *t = &r->session->config.train;
    int64_t i = first, tokens = 0;
    while (i < g->n_sequences && g->sequences[i].prompt->shard == g->sequences[first].prompt->shard) {
        tokens += g->sequences[i].prompt->n_prompt + g->sequences[i].n;
        bool fits = t->micro_batch ? i - first < t->micro_batch : tokens <= t->micro_batch_tokens;
        if (i > first && !fits) break;
        i++;
    }
    return i;
}

/* Every shard of every rank has as many micro-batches as the one with the most. */
static nrl_status count_batches(const nrl_rollout *r, int64_t *out)
{
    nrl_mesh *mesh = r->session->mesh;
    const rollout_made *g = r->made;
    int64_t own = 0, n = 0;
    for (int64_t i = 0; i < g->n_sequences;) {
        const int32_t shard = g->sequences[i].prompt->shard;
        i = batch_end(r, i);
        own = ++n > own ? n : own;
        if (i < g->n_sequences && g->sequences[i].prompt->shard != shard) n = 0;
    }
    const int32_t world = nrl_mesh_world(mesh);
    int64_t *all = mem_alloc((size_t)world * sizeof *all);
    all[0] = own;
    nrl_status st = world > 1 ? mesh_exchange(mesh, "generated batches", &own, sizeof own, all) : NRL_OK;
    *out = 1;
    for (int32_t i = 0; i < world; i++)
        if (all[i] > *out) *out = all[i];
    free(all);
    return st;
}

/* In the order of nrl_algorithm.rollout_columns. */
static nrl_status check_columns(const nrl_rollout *r, const nrl_rollout_column *columns, size_t n)
{
    const nrl_algorithm *a = r->session->algorithm;
    const char *const *names = a->rollout_columns;
    size_t n_names = 0;
    while (names && names[n_names])
        n_names++;
    if (n > BATCH_MAX_EXTRA) return nrl_fail(NRL_ERR_PLUGIN, "%zu columns; expected at most %d", n, BATCH_MAX_EXTRA);
    if (!r->made) return nrl_fail(NRL_ERR_PLUGIN, "nrl_rollout_replace is called before nrl_rollout_generate");
    for (size_t i = 0; i < (n > n_names ? n : n_names); i++)
        if (i >= n || i >= n_names || strcmp(columns[i].name, names[i]))
            return nrl_fail(NRL_ERR_PLUGIN, "column %zu is '%s'; expected '%s', as rollout_columns lists it", i + 1,
                            i < n ? columns[i].name : "", i < n_names ? names[i] : "");
    return NRL_OK;
}

nrl_status nrl_rollout_replace(nrl_rollout *r, const nrl_rollout_column *columns, size_t n_columns)
{
    int64_t per_shard, at = 0;
    NRL_TRY(check_columns(r, columns, n_columns));
    NRL_TRY(count_batches(r, &per_shard));
    const rollout_made *g = r->made;
    const int64_t n = per_shard * r->session->shards.n;
    nrl_batch **batches = arena_alloc(&r->memory, (size_t)n * sizeof *batches);
    nrl_status st = NRL_OK;
    for (int64_t m = 0; m < n && st == NRL_OK; m++) {
        const bool has_more = at < g->n_sequences && g->sequences[at].prompt->shard == m / per_shard;
        const int64_t end = has_more ? batch_end(r, at) : at;
        st = make_batch(r, at, end, columns, n_columns, &batches[m]);
        at = end;
    }
    if (st != NRL_OK) {
        for (int64_t m = 0; m < n; m++)
            batch_free(batches[m]);
        return st;
    }
    r->batches = batches;
    r->data->micro_batch = batches;
    r->data->n_micro_batches = n;
    return NRL_OK;
}
