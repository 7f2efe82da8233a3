/*
 * slab.c - rows of text to examples of a token cache.
 */
#include "data/slab.h"
#include "base/json.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* An arena that a huge row blew up is given back rather than kept for the next small one. */
enum { KEEP_MEMORY = 64 << 20 };

void data_worker_free(data_worker *w)
{
    data_encoder_free(&w->encoder);
    arena_free(&w->memory);
}

void data_slab_free(data_slab *s)
{
    buffer_free(&s->text);
    buffer_free(&s->body);
    buffer_free(&s->segments);
    free(s->error);
}

static void empty(data_slab *s)
{
    s->n_rows = s->text.size = s->body.size = s->segments.size = 0;
    s->n_unknown = 0;
    s->counts = (data_counts){0};
    s->status = NRL_OK;
    free(s->error);
    s->error = NULL;
}

nrl_status data_slab_fill(data_slab *s, data_reader *reader, bool *end)
{
    empty(s);
    while (s->n_rows < SLAB_ROWS && s->text.size < SLAB_BYTES) {
        data_row_text *row = &s->rows[s->n_rows];
        bool last;
        NRL_TRY(data_reader_next(reader, row, &last));
        if (last) break;
        s->at[s->n_rows++] = s->text.size;
        buffer_add(&s->text, row->text, row->size);
        row->text = NULL; /* the reader's; the slab has it at at[] */
    }
    *end = s->n_rows == 0;
    return NRL_OK;
}

/* A line with nothing but {: JSON that was written for people. */
static bool is_opening(const char *text, size_t size)
{
    while (size && strchr(" \t\r\n", text[size - 1]))
        size--;
    return size == 1 && *text == '{';
}

static nrl_status parse(const data_slab *s, size_t i, const char *name, arena *a, nrl_node **node)
{
    const data_row_text *row = &s->rows[i];
    arena_reset(a);
    nrl_status st = json_parse_at(a, name, row->line, row->column, s->text.text + s->at[i], row->size, node);
    if (st != NRL_OK && row->cut)
        return nrl_fail(st, "%s\nthe file ends in this line, without a line end: is it cut off?", nrl_error_text());
    if (st != NRL_OK && is_opening(s->text.text + s->at[i], row->size))
        return nrl_fail(
            st, "%s\na file that begins with { has a whole row in each line; an indented one is a list, [ ... ]",
            nrl_error_text());
    return st;
}

/* ---- results ---- */

/* The prompt that both sides of a pair begin with, token by token: not what a tokenizer merged in
 * two ways across its end, and no token that either is trained on, as equal answers would be. */
static int32_t shared_prompt(const chat_ids *a, const chat_ids *b)
{
    size_t most = (a->tokens.n < b->tokens.n ? a->tokens.n : b->tokens.n) - 1, n = 0;
    while (n < most && a->tokens.ids[n] == b->tokens.ids[n] && !a->trained[n] && !b->trained[n])
        n++;
    return (int32_t)n;
}

/* Tokens before the first trained one: what a labelled sample shares with its kl_pairs side. */
static int32_t prompt_length(const chat_ids *ids)
{
    size_t n = 0;
    while (!ids->trained[n])
        n++;
    return (int32_t)n;
}

static void add_segment(data_slab *s, const chat_ids *ids, int64_t n_trained, int32_t shared, int64_t line)
{
    size_t n = ids->tokens.n;
    data_cache_segment seg = {.offset = (int64_t)s->body.size,
                              .n_tokens = (int32_t)n,
                              .n_trained = (int32_t)n_trained,
                              .shared = shared,
                              .line = line};
    buffer_add(&s->body, (const char *)ids->tokens.ids, n * sizeof(int32_t));
    buffer_add(&s->body, (const char *)ids->trained, n);
    data_cache_end_segment(&s->body, &seg);
    buffer_add(&s->segments, (const char *)&seg, sizeof seg);
}

static void add_example(data_slab *s, const data_schema *schema, const data_sample *sample, const data_encoder *e,
                        int64_t line)
{
    buffer_add(&s->body, (const char *)sample->extra, (size_t)schema->n_extra * sizeof(float));
    int32_t shared = sample->n_sides == 2 ? shared_prompt(&e->side[0], &e->side[1])
                     : schema->labels     ? prompt_length(&e->side[0])
                                          : 0;
    for (int i = 0; i < sample->n_sides; i++)
        add_segment(s, &e->side[i], e->n_trained[i], shared, line);
    s->counts.truncated += e->truncated;
    s->counts.identical += e->identical;
    s->counts.endless += e->endless;
    if (e->identical && !s->counts.first_identical) s->counts.first_identical = line;
}

static void add_unknown(data_slab *s, const char *key, int64_t line)
{
    for (int i = 0; i < s->n_unknown; i++)
        if (!strncmp(s->unknown[i], key, SLAB_KEY - 1)) return;
    if (s->n_unknown == SLAB_UNKNOWN) return;
    snprintf(s->unknown[s->n_unknown], SLAB_KEY, "%s", key);
    s->unknown_line[s->n_unknown++] = line;
}

/* Not every template reads what stands beside role and content. */
static bool reads_keys(const data_build_options *o, const data_sample *sample)
{
    const chat_template *t = o->encode.template;
    return sample->shape == DATA_SHAPE_CHAT && t && chat_template_reads_keys(t);
}

static void note_unused(data_slab *s, const data_schema *schema, const nrl_node *row, int64_t line)
{
    static const data_key keys[] = {DATA_KEY_TOOLS, DATA_KEY_TEMPLATE_KWARGS};
    for (int i = 0; i < 2; i++)
        if (nrl_node_find(row, schema->name[keys[i]])) add_unknown(s, schema->name[keys[i]], line);
}

static void note_unknown(data_slab *s, const data_build_options *o, const nrl_node *row, const data_sample *sample,
                         int64_t line)
{
    const data_schema *schema = o->schema;
    size_t at = 0;
    for (const char *key; (key = data_row_unknown_key(schema, row, &at));)
        add_unknown(s, key, line);
    if (reads_keys(o, sample)) return;
    note_unused(s, schema, row, line);
    if (!sample->unknown_key) return;
    char key[SLAB_KEY];
    snprintf(key, sizeof key, "%.40s (of a message)", sample->unknown_key);
    add_unknown(s, key, line);
}

/* ---- running ---- */

static nrl_status run_row(data_slab *s, size_t i, data_worker *w, const data_build_options *o)
{
    nrl_node *node;
    data_sample sample;
    data_outcome outcome;
    int64_t line = s->rows[i].line;
    if (o->signal && *o->signal)
        return nrl_fail(NRL_ERR_STOPPED, "stopped by signal %d (%s) at %s:%" PRId64 ", while it was tokenized",
                        *o->signal, strsignal(*o->signal), o->name, line);
    NRL_TRY(parse(s, i, o->name, &w->memory, &node));
    nrl_status st = data_row_read(&w->memory, o->schema, node, &sample);
    if (st == NRL_OK) st = data_encode(&w->encoder, &sample, &outcome);
    if (st != NRL_OK) {
        nrl_add_context("%s:%" PRId64, o->name, line);
        return st;
    }
    note_unknown(s, o, node, &sample, line);
    s->counts.rows++;
    s->counts.outcome[outcome]++;
    if (!s->counts.first_line[outcome]) s->counts.first_line[outcome] = line;
    if (outcome == DATA_KEPT) add_example(s, o->schema, &sample, &w->encoder, line);
    return NRL_OK;
}

void data_slab_run(data_slab *s, data_worker *w, const data_build_options *o)
{
    for (size_t i = 0; i < s->n_rows && s->status == NRL_OK; i++) {
        s->status = run_row(s, i, w, o);
        if (s->rows[i].size > KEEP_MEMORY / 32) arena_free(&w->memory);
    }
    if (s->status != NRL_OK) s->error = mem_strdup(nrl_error_text());
}

nrl_status data_slab_detect(data_slab *s, const data_build_options *o)
{
    arena a = {0};
    nrl_node *node;
    nrl_status st = parse(s, 0, o->name, &a, &node);
    if (st == NRL_OK) {
        st = data_schema_detect(o->schema, node);
        if (st != NRL_OK) nrl_add_context("%s:%" PRId64, o->name, s->rows[0].line);
    }
    arena_free(&a);
    return st;
}
