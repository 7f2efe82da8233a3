/*
 * read_chunk.c - turns rows of a dataset into examples of a token cache.
 */
#include "data/read_chunk.h"
#include "base/node.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void data_worker_free(data_worker *w)
{
    data_encoder_free(&w->encoder);
    arena_free(&w->memory);
}

static void chunk_close_range(data_chunk *s)
{
    if (s->range) s->table->close_range(s->range);
    s->range = NULL;
    s->first = NULL;
    arena_free(&s->ahead);
}

void data_chunk_free(data_chunk *s)
{
    chunk_close_range(s);
    buffer_free(&s->body);
    buffer_free(&s->segments);
    free(s->error);
}

nrl_status data_chunk_fill(data_chunk *s, data_reader *reader, bool *end)
{
    s->body.size = s->segments.size = 0;
    s->body.what = s->segments.what = "tokens of the data";
    s->n_unknown = 0;
    s->counts = (data_counts){0};
    s->status = NRL_OK;
    free(s->error);
    s->error = NULL;
    s->table = reader->table;
    nrl_status st = s->table->next_range(reader->self, &s->range);
    if (st != NRL_OK) s->range = NULL;
    *end = !s->range;
    return st;
}

/* *row = NULL after the last one. */
static nrl_status chunk_next_row(data_chunk *s, arena *a, const nrl_node **row)
{
    *row = NULL;
    arena_reset(a);
    return s->table->next_row(s->range, a, row);
}

/* ---- results ---- */

/* Counts the first tokens that both sides of a pair share. Excludes tokens that the tokenizer merged differently across
 * the end of the prompt, and tokens that either side trains, which would be shared if the answers are equal. */
static int32_t shared_prompt(const chat_ids *a, const chat_ids *b)
{
    size_t most = (a->tokens.n < b->tokens.n ? a->tokens.n : b->tokens.n) - 1, n = 0;
    while (n < most && a->tokens.ids[n] == b->tokens.ids[n] && !a->trained[n] && !b->trained[n])
        n++;
    return (int32_t)n;
}

/* Counts the tokens before the first trained one, which a labelled sample shares with its second side. */
static int32_t prompt_length(const chat_ids *ids)
{
    size_t n = 0;
    while (!ids->trained[n])
        n++;
    return (int32_t)n;
}

static nrl_status add_segment(data_chunk *s, const chat_ids *ids, int64_t n_trained, int32_t shared, int64_t line)
{
    size_t n = ids->tokens.n;
    data_cache_segment seg = {.offset = (int64_t)s->body.size,
                              .n_tokens = (int32_t)n,
                              .n_trained = (int32_t)n_trained,
                              .shared = shared,
                              .line = line};
    buffer_add(&s->body, (const char *)ids->tokens.ids, n * sizeof(int32_t));
    buffer_add(&s->body, (const char *)ids->trained, n);
    NRL_TRY(data_cache_end_segment(&s->body, &seg));
    buffer_add(&s->segments, (const char *)&seg, sizeof seg);
    return buffer_check(&s->segments);
}

static nrl_status add_example(data_chunk *s, const data_schema *schema, const data_sample *sample,
                              const data_encoder *e, int64_t line)
{
    buffer_add(&s->body, (const char *)sample->extra, (size_t)schema->n_extra * sizeof(float));
    int32_t shared = sample->n_sides == 2 ? shared_prompt(&e->side[0], &e->side[1])
                     : schema->labels     ? prompt_length(&e->side[0])
                                          : 0;
    for (int i = 0; i < sample->n_sides; i++)
        NRL_TRY(add_segment(s, &e->side[i], e->n_trained[i], shared, line));
    s->counts.truncated += e->truncated;
    s->counts.identical += e->identical;
    s->counts.endless += e->endless;
    if (e->identical && !s->counts.first_identical) s->counts.first_identical = line;
    return NRL_OK;
}

static void add_unknown(data_chunk *s, const char *key, int64_t line)
{
    for (int i = 0; i < s->n_unknown; i++)
        if (!strncmp(s->unknown[i], key, CHUNK_KEY - 1)) return;
    if (s->n_unknown == CHUNK_UNKNOWN) return;
    snprintf(s->unknown[s->n_unknown], CHUNK_KEY, "%s", key);
    s->unknown_line[s->n_unknown++] = line;
}

/* Not every template uses the other keys of a message. */
static bool reads_keys(const data_build_options *o, const data_sample *sample)
{
    const chat_template *t = o->encode.template;
    return sample->shape == DATA_SHAPE_CHAT && t && chat_template_reads_keys(t);
}

static void note_unused(data_chunk *s, const data_schema *schema, const nrl_node *row, int64_t line)
{
    static const data_key keys[] = {DATA_KEY_TOOLS, DATA_KEY_TEMPLATE_KWARGS};
    for (int i = 0; i < 2; i++)
        if (nrl_node_find(row, schema->name[keys[i]])) add_unknown(s, schema->name[keys[i]], line);
}

static void note_unknown(data_chunk *s, const data_build_options *o, const nrl_node *row, const data_sample *sample,
                         int64_t line)
{
    const data_schema *schema = o->schema;
    size_t at = 0;
    for (const char *key; (key = data_row_unknown_key(schema, row, &at));)
        add_unknown(s, key, line);
    if (reads_keys(o, sample)) return;
    note_unused(s, schema, row, line);
    if (!sample->unknown_key) return;
    char key[CHUNK_KEY];
    snprintf(key, sizeof key, "%.40s (of a message)", sample->unknown_key);
    add_unknown(s, key, line);
}

/* ---- running ---- */

static nrl_status run_row(data_chunk *s, const nrl_node *row, data_worker *w, arena *a, const data_build_options *o)
{
    data_sample sample;
    data_outcome outcome;
    int64_t line = row->line;
    if (o->signal && *o->signal)
        return nrl_fail(NRL_ERR_STOPPED, "stopped by signal %d (%s) at %s:%" PRId64 ", while it was tokenized",
                        *o->signal, strsignal(*o->signal), o->name, line);
    nrl_status st = data_row_read(a, o->schema, row, &sample);
    if (st == NRL_OK) st = data_encode(&w->encoder, &sample, &outcome);
    if (st == NRL_OK && outcome == DATA_KEPT) st = add_example(s, o->schema, &sample, &w->encoder, line);
    if (st != NRL_OK) {
        nrl_add_context("%s:%" PRId64, o->name, line);
        return st;
    }
    note_unknown(s, o, row, &sample, line);
    s->counts.rows++;
    s->counts.outcome[outcome]++;
    if (!s->counts.first_line[outcome]) s->counts.first_line[outcome] = line;
    return NRL_OK;
}

void data_chunk_run(data_chunk *s, data_worker *w, const data_build_options *o)
{
    const nrl_node *row = s->first;
    if (row) s->status = run_row(s, row, w, &s->ahead, o);
    while (s->status == NRL_OK) {
        s->status = chunk_next_row(s, &w->memory, &row);
        if (s->status != NRL_OK || !row) break;
        s->status = run_row(s, row, w, &w->memory, o);
    }
    if (s->status != NRL_OK) s->error = mem_strdup(nrl_error_text());
    chunk_close_range(s);
    arena_free(&w->memory); /* a huge row may have enlarged it */
}

nrl_status data_chunk_detect(data_chunk *s, const data_build_options *o)
{
    NRL_TRY(chunk_next_row(s, &s->ahead, &s->first));
    if (!s->first) return NRL_OK;
    nrl_status st = data_schema_detect(o->schema, s->first);
    if (st != NRL_OK) nrl_add_context("%s:%u", o->name, s->first->line);
    return st;
}
