/*
 * build.c - tokenises a file in rounds: the calling thread takes ranges of rows, all workers tokenise them, and the
 * calling thread writes the results in the order of the file, so that the first error of the file is reported.
 */
#include "tokens/build.h"
#include "base/node.h"
#include "base/workers.h"
#include "tokens/kl_pairs.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Several chunks for each worker, so that workers rarely wait for the slowest chunk of a round. */
enum { MAX_WORKERS = 64, CHUNKS_A_WORKER = 4, MAX_KEYS = 32, KEY_SIZE = 64 };

/* Keys of rows that have no meaning, each once. */
typedef struct {
    char key[MAX_KEYS][KEY_SIZE];
    int n;
} key_list;

/* A range of rows, and its tokens. */
typedef struct {
    void *range;  /* of the reader; NULL: read to its end */
    buffer first; /* pointers to rows that were read in advance, in `ahead` */
    arena ahead;
    bool is_read; /* all rows of the range are in `first` */
    nrl_status status;
    char *error; /* malloc'd, if status is not NRL_OK */
    buffer body, segments;
    data_counts counts;
    key_list unknown;
    bool is_counted;
    data_position position; /* of the range */
} chunk;

/* The scratch memory of a worker. */
typedef struct {
    data_encoder encoder;
    arena memory; /* of one row */
} scratch;

struct data_builder {
    const data_build_options *o;
    data_reader *reader;
    const nrl_dataset *table; /* of the reader */
    workers *pool;
    scratch *scratch; /* [n_workers] */
    chunk *chunks;    /* [n_chunks] */
    int n_workers, n_chunks;
    /* The round: chunks [at, n_round), the first `taken` segments of the first of which are over. */
    int n_round, at;
    size_t taken;
    bool read_end;          /* no range follows the round, */
    nrl_status read_status; /* perhaps because of an error, which waits until the rows before it are written: */
    char *read_error;       /* the first error of the file is reported */
    int64_t n_ranges;       /* that were taken */
    int64_t n_read;         /* rows of the file that take_range has read, where rows are selected by number */
    data_position position;
    data_mismatch mismatch;
    data_counts counts; /* of the whole file */
    key_list unknown;
};

/* ---- one chunk ---- */

static void close_range(const data_builder *b, chunk *s)
{
    if (s->range) b->table->close_range(s->range);
    s->range = NULL;
    s->first.size = 0;
    arena_free(&s->ahead);
}

bool data_selection_has(const data_selection *s, const data_schema *schema, const nrl_node *row)
{
    return (!s->limit_below || data_row_hash(schema, row, DATA_HASH_LIMIT) < s->limit_below) &&
           (!s->held_below || (data_row_hash(schema, row, DATA_HASH_SPLIT) < s->held_below) == s->is_held_out);
}

/* Counts the first tokens that both sides of a pair share. Excludes tokens that the tokenizer merged differently across
 * the end of the prompt, and tokens that either side trains, which would be shared if the answers are equal. */
static int32_t shared_prompt(const chat_ids *a, const chat_ids *b)
{
    size_t most = (a->tokens.n < b->tokens.n ? a->tokens.n : b->tokens.n) - 1, n = 0;
    while (n < most && a->tokens.ids[n] == b->tokens.ids[n] && !a->trained[n] && !b->trained[n])
        n++;
    return (int32_t)n;
}

static nrl_status add_example(chunk *s, const data_schema *schema, const data_sample *sample, const data_encoder *e,
                              int64_t line)
{
    int32_t shared = sample->n_sides == 2 ? shared_prompt(&e->side[0], &e->side[1]) : 0;
    while (schema->labels && !e->side[0].trained[shared]) /* what a labelled sample shares with its second side */
        shared++;
    /* Pieces of a long sample overlap by a token, which is a target in the first one and only context in the next one,
     * so each target is trained once. */
    const size_t whole = e->side[0].tokens.n, stride = e->piece > 1 ? e->piece - 1 : e->piece ? 1 : whole;
    for (size_t from = 0; !from || from + 1 < whole; from += stride) {
        int64_t n_trained = 0, n_sides = sample->n_sides;
        const size_t to = e->piece && from + e->piece < whole ? from + e->piece : whole;
        for (size_t t = from; e->piece && t < to; t++)
            n_trained += e->side[0].trained[t] = e->side[0].trained[t] && t > from;
        if (e->piece && !n_trained) continue;
        s->counts.pieces += e->piece > 0;
        buffer_add(&s->body, (const char *)sample->extra, (size_t)schema->n_extra * sizeof(float));
        for (int i = 0; i < n_sides; i++) {
            const chat_ids *ids = &e->side[i];
            const size_t n = e->piece ? to - from : ids->tokens.n;
            data_cache_segment seg = {.offset = (int64_t)s->body.size,
                                      .n_tokens = (int32_t)n,
                                      .n_trained = (int32_t)(e->piece ? n_trained : e->n_trained[i]),
                                      .shared = shared,
                                      .line = line};
            buffer_add(&s->body, (const char *)(ids->tokens.ids + from), n * sizeof(int32_t));
            buffer_add(&s->body, (const char *)(ids->trained + from), n);
            NRL_TRY(data_cache_end_segment(&s->body, &seg));
            buffer_add(&s->segments, (const char *)&seg, sizeof seg);
        }
    }
    s->counts.split += e->piece > 0;
    s->counts.truncated += e->truncated;
    s->counts.identical += e->identical;
    s->counts.endless += e->endless;
    s->counts.merged += e->merged;
    if (e->merged && !s->counts.first_merged) s->counts.first_merged = line;
    if (e->identical && !s->counts.first_identical) s->counts.first_identical = line;
    return buffer_check(&s->segments);
}

static void add_key(key_list *list, const char *key)
{
    for (int i = 0; i < list->n; i++)
        if (!strncmp(list->key[i], key, KEY_SIZE - 1)) return;
    if (list->n < MAX_KEYS) snprintf(list->key[list->n++], KEY_SIZE, "%s", key);
}

static void note_unknown(chunk *s, const data_build_options *o, const nrl_node *row, const data_sample *sample)
{
    static const data_key chat_keys[] = {DATA_KEY_TOOLS, DATA_KEY_TEMPLATE_KWARGS};
    const chat_template *t = o->encode.template;
    char text[KEY_SIZE];
    size_t at = 0;
    for (const char *key; (key = data_row_unknown_key(o->schema, row, &at));)
        add_key(&s->unknown, key);
    /* Not every template uses the other keys of a message. */
    if (sample->shape == DATA_SHAPE_CHAT && t && chat_template_reads_keys(t)) return;
    for (int i = 0; i < 2; i++)
        if (nrl_node_find(row, o->schema->name[chat_keys[i]])) add_key(&s->unknown, o->schema->name[chat_keys[i]]);
    if (!sample->unknown_key) return;
    snprintf(text, sizeof text, "%.40s (of a message)", sample->unknown_key);
    add_key(&s->unknown, text);
}

static nrl_status run_row(const data_builder *b, chunk *s, const nrl_node *row, data_encoder *e, arena *a)
{
    const data_build_options *o = b->o;
    data_sample sample;
    data_outcome outcome;
    int64_t line = row->line;
    if (o->signal && *o->signal)
        return nrl_fail(NRL_ERR_STOPPED, "stopped by signal %d (%s) at %s:%" PRId64 ", while it was tokenized",
                        *o->signal, strsignal(*o->signal), o->name, line);
    if (o->stop && atomic_load(o->stop)) return nrl_fail(NRL_ERR_STOPPED, "the run ends");
    if (!data_selection_has(&o->select, o->schema, row)) return NRL_OK;
    nrl_status st = data_row_read(a, o->schema, row, &sample);
    if (st == NRL_OK) st = data_encode(e, &sample, &outcome);
    if (st == NRL_OK && outcome == DATA_KEPT) st = add_example(s, o->schema, &sample, e, line);
    if (st != NRL_OK) {
        nrl_add_context("%s:%" PRId64, o->name, line);
        return st;
    }
    note_unknown(s, o, row, &sample);
    s->counts.rows++;
    s->counts.outcome[outcome]++;
    if (!s->counts.first_line[outcome]) s->counts.first_line[outcome] = line;
    return NRL_OK;
}

/* Tokenises all rows of chunk i. Its error waits until the chunks before it are written. */
static nrl_status run_chunk(void *user, int who, int64_t i)
{
    data_builder *b = user;
    chunk *s = &b->chunks[i];
    scratch *w = &b->scratch[who];
    const nrl_node *const *first = (const void *)s->first.text, *row;
    for (size_t k = 0; k < s->first.size / sizeof row && s->status == NRL_OK; k++)
        s->status = run_row(b, s, first[k], &w->encoder, &s->ahead);
    while (s->status == NRL_OK && !s->is_read) {
        arena_reset(&w->memory);
        row = NULL;
        s->status = b->table->next_row(s->range, &w->memory, &row);
        if (s->status != NRL_OK || !row) break;
        s->status = run_row(b, s, row, &w->encoder, &w->memory);
    }
    if (s->status != NRL_OK) s->error = mem_strdup(nrl_error_text());
    close_range(b, s);
    arena_free(&w->memory); /* a huge row may have enlarged it */
    return NRL_OK;
}

/* ---- rounds ---- */

/* Adds the counts of a chunk to those of the file. */
static void count_chunk(data_builder *b, chunk *s)
{
    data_counts *sum = &b->counts;
    const data_counts *c = &s->counts;
    if (s->is_counted) return;
    s->is_counted = true;
    sum->rows += c->rows;
    sum->truncated += c->truncated;
    sum->split += c->split;
    sum->pieces += c->pieces;
    sum->identical += c->identical;
    sum->endless += c->endless;
    sum->merged += c->merged;
    if (!sum->first_merged) sum->first_merged = c->first_merged;
    if (!sum->first_identical) sum->first_identical = c->first_identical;
    for (int v = 0; v < DATA_OUTCOMES; v++) {
        sum->outcome[v] += c->outcome[v];
        if (!sum->first_line[v]) sum->first_line[v] = c->first_line[v];
    }
    for (int i = 0; i < s->unknown.n; i++)
        add_key(&b->unknown, s->unknown.key[i]);
}

/* A thread that waits for bytes of a pipe can be cancelled. */
static nrl_status next_range(data_builder *b, chunk *s)
{
    int was;
    if (!(b->reader->flags & NRL_DATASET_PIPE)) return b->table->next_range(b->reader->self, &s->range);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &was);
    nrl_status st = b->table->next_range(b->reader->self, &s->range);
    pthread_setcancelstate(was, NULL);
    return st;
}

/* Fills an empty chunk with the next range; its range stays NULL after the last one. The first row of the file
 * determines the format. Rows that are selected by number are all read here, in order. */
static nrl_status take_range(data_builder *b, chunk *s)
{
    s->body.size = s->segments.size = 0;
    s->body.what = s->segments.what = "tokens of the data";
    s->unknown.n = 0;
    s->counts = (data_counts){0};
    s->is_counted = false;
    s->position = (data_position){.range = b->n_ranges++, .rows = b->n_read};
    if (!b->table->tell || !b->table->tell(b->reader->self, s->position.at)) s->position.at[0] = 0;
    const data_selection *select = &b->o->select;
    const bool by_number = select->first || select->end;
    nrl_status st = select->end && b->n_read >= select->end ? NRL_OK : next_range(b, s);
    if (st != NRL_OK) s->range = NULL;
    s->is_read = by_number;
    while (s->range && st == NRL_OK && (by_number || (!b->o->schema->format && !s->first.size))) {
        const nrl_node *row = NULL;
        NRL_TRY(b->table->next_row(s->range, &s->ahead, &row));
        if (!row) break;
        if (by_number && (b->n_read++ < select->first || (select->end && b->n_read > select->end))) continue;
        buffer_add(&s->first, (const char *)&row, sizeof row);
        if (!b->o->schema->format) st = data_schema_detect(b->o->schema, row);
        if (st != NRL_OK) nrl_add_context("%s:%u", b->o->name, row->line);
    }
    return st == NRL_OK ? buffer_check(&s->first) : st;
}

static nrl_status next_round(data_builder *b)
{
    b->n_round = b->at = 0;
    while (b->n_round < b->n_chunks && !b->read_end) {
        chunk *s = &b->chunks[b->n_round];
        b->read_status = take_range(b, s);
        if (b->read_status != NRL_OK) b->read_error = mem_strdup(nrl_error_text());
        b->read_end = b->read_status != NRL_OK || !s->range;
        b->n_round += !b->read_end;
    }
    return workers_run(b->pool, b->n_round, run_chunk, b);
}

static size_t segments_of(const chunk *s)
{
    return s->segments.size / sizeof(data_cache_segment);
}

nrl_status data_builder_more(data_builder *b, bool *end)
{
    *end = false;
    for (;;) {
        for (; b->at < b->n_round; b->at++, b->taken = 0) {
            chunk *s = &b->chunks[b->at];
            if (s->status != NRL_OK) return nrl_fail(s->status, "%s", s->error);
            count_chunk(b, s);
            if (b->taken < segments_of(s)) return NRL_OK;
        }
        if (b->read_status != NRL_OK) return nrl_fail(b->read_status, "%s", b->read_error);
        if (b->read_end) break;
        NRL_TRY(next_round(b));
    }
    *end = !b->mismatch.any;
    return NRL_OK;
}

nrl_status data_builder_take(data_builder *b, data_cache_writer *writer, int64_t most)
{
    if (b->at == b->n_round) {
        b->position.skip++;
        return data_mismatch_finish(&b->mismatch, writer);
    }
    const chunk *s = &b->chunks[b->at];
    const size_t sides = b->o->schema->pairs ? 2 : 1, all = segments_of(s);
    const size_t n = (all - b->taken) / sides > (size_t)most ? (size_t)most * sides : all - b->taken;
    const size_t extra = (size_t)b->o->schema->n_extra * sizeof(float);
    const data_cache_segment *segments = (const data_cache_segment *)(const void *)s->segments.text + b->taken;
    b->taken += n;
    b->position = s->position;
    b->position.skip = (int64_t)(b->taken / sides) - b->o->kl_pairs; /* the last one waits for the next */
    if (b->o->kl_pairs) return data_mismatch_append(&b->mismatch, writer, s->body.text, segments, n);
    return data_cache_append(writer, s->body.text, (size_t)segments->offset - extra,
                             b->taken < all ? (size_t)segments[n].offset - extra : s->body.size, segments, n);
}

nrl_status data_builder_next_cache(data_builder *b)
{
    return b->mismatch.any ? data_mismatch_restart(&b->mismatch) : NRL_OK;
}

data_position data_builder_position(const data_builder *b)
{
    return b->position;
}

nrl_status data_builder_seek(data_builder *b, const data_position *p)
{
    const bool seeks = *p->at && b->table->seek;
    bool end = false;
    b->position = *p;
    /* The first range says the format. */
    for (; b->n_ranges < p->range && !end && !(seeks && b->n_ranges);) {
        chunk *s = &b->chunks[0];
        NRL_TRY(take_range(b, s));
        end = !s->range;
        close_range(b, s);
        if (b->o->signal && *b->o->signal)
            return nrl_fail(NRL_ERR_STOPPED, "stopped by signal %d (%s) while %s was read", *b->o->signal,
                            strsignal(*b->o->signal), b->o->name);
        if (b->o->stop && atomic_load(b->o->stop)) return nrl_fail(NRL_ERR_STOPPED, "the run ends");
    }
    if (seeks && p->range) NRL_TRY(b->table->seek(b->reader->self, p->at));
    b->n_ranges = p->range;
    b->n_read = p->rows;
    if (!end && p->skip) NRL_TRY(next_round(b));
    b->taken = (size_t)p->skip * (b->o->schema->pairs ? 2 : 1);
    if (!end && (!p->skip || (b->n_round && (b->chunks[0].status != NRL_OK || b->taken <= segments_of(&b->chunks[0])))))
        return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "%s: it no longer contains the rows that the run has read", b->o->name);
}

/* ---- notes ---- */

/* The bits of data_builder_notes: those of outcomes, and */
enum {
    NOTE_TRUNCATED = DATA_OUTCOMES,
    NOTE_SPLIT,
    NOTE_IDENTICAL,
    NOTE_ENDLESS,
    NOTE_MERGED,
    NOTE_DROPPED,
    NOTE_UNKNOWN
};

/* Whether there is something to note that was not noted before. */
static bool note_is_new(unsigned *told, int bit, int64_t n)
{
    const bool new = n && !(*told & 1u << bit);
    *told |= n ? 1u << bit : 0;
    return new;
}

static void note_left_out(buffer *notes, const data_builder *b, unsigned *told, data_outcome v, const char *what)
{
    if (!note_is_new(told, (int)v, b->counts.outcome[v])) return;
    buffer_print(notes, "%" PRId64 " of %" PRId64 " rows are skipped: %s (first: line %" PRId64 ")\n",
                 b->counts.outcome[v], b->counts.rows, what, b->counts.first_line[v]);
}

void data_builder_notes(data_builder *b, unsigned *told, buffer *notes)
{
    data_counts *c = &b->counts;
    c->dropped_characters = 0;
    for (int i = 0; i < b->n_workers; i++)
        if (b->scratch[i].encoder.scratch)
            c->dropped_characters += (int64_t)tokenizer_scratch_dropped(b->scratch[i].encoder.scratch);
    note_left_out(notes, b, told, DATA_EMPTY, "no text, or no answer");
    note_left_out(notes, b, told, DATA_TOO_LONG, "longer than data.max_length");
    note_left_out(notes, b, told, DATA_UNTRAINABLE, "no trained token");
    if (note_is_new(told, NOTE_TRUNCATED, c->truncated))
        buffer_print(notes, "%" PRId64 " of %" PRId64 " rows are truncated to data.max_length\n", c->truncated,
                     c->rows);
    if (note_is_new(told, NOTE_SPLIT, c->split))
        buffer_print(notes, "%" PRId64 " of %" PRId64 " rows are split into %" PRId64 " samples (data.overlong)\n",
                     c->split, c->rows, c->pieces);
    if (note_is_new(told, NOTE_IDENTICAL, c->identical))
        buffer_print(notes,
                     "%" PRId64 " of %" PRId64
                     " pairs have equal answers and contribute no gradient (first: line %" PRId64 ")\n",
                     c->identical, c->rows, c->first_identical);
    if (note_is_new(told, NOTE_ENDLESS, c->endless))
        buffer_puts(notes, "the tokenizer has no eos_token: samples end without one\n");
    if (note_is_new(told, NOTE_MERGED, c->merged))
        buffer_print(notes,
                     "%" PRId64 " of %" PRId64
                     " rows have a token that spans the end of the prompt and the beginning of the answer; it is not "
                     "trained (first: line %" PRId64 "). Let answers begin with the space that separates them\n",
                     c->merged, c->rows, c->first_merged);
    if (note_is_new(told, NOTE_DROPPED, c->dropped_characters))
        buffer_print(notes, "%" PRId64 " characters have no token and are skipped\n", c->dropped_characters);
    const bool keys = note_is_new(told, NOTE_UNKNOWN, b->unknown.n);
    for (int i = 0; keys && i < b->unknown.n; i++)
        buffer_print(notes, "%s '%s'%s", i ? "," : "keys that are not used:", b->unknown.key[i],
                     i + 1 == b->unknown.n ? "\n" : "");
}

/* ---- a builder ---- */

nrl_status data_builder_check(const data_builder *b)
{
    const data_counts *c = &b->counts;
    const data_selection *s = &b->o->select;
    if (s->first || s->end || s->limit_below || s->held_below) return NRL_OK; /* the part may stay empty */
    if (b->reader->info.rows >= 0 && b->reader->info.rows != c->rows)
        return nrl_fail(NRL_ERR_DATA,
                        "%s: dataset plugin %s gave %" PRId64 " rows, expected %" PRId64 " as it announced", b->o->name,
                        b->reader->plugin, c->rows, b->reader->info.rows);
    if (!c->rows) return nrl_fail(NRL_ERR_DATA, "%s: the file contains no rows", b->o->name);
    if (c->outcome[DATA_KEPT]) return NRL_OK;
    static const char *const reasons[DATA_OUTCOMES] = {[DATA_EMPTY] = "without text or answer",
                                                       [DATA_TOO_LONG] = "too long",
                                                       [DATA_UNTRAINABLE] = "without a trained token"};
    buffer why = {0};
    for (int i = 0; i < DATA_OUTCOMES; i++)
        if (reasons[i] && c->outcome[i])
            buffer_print(&why, "%s %" PRId64 " %s", why.size ? "," : ":", c->outcome[i], reasons[i]);
    nrl_fail(NRL_ERR_DATA, "%s: none of %" PRId64 " rows can be trained on%s", b->o->name, c->rows,
             why.text ? why.text : "");
    buffer_free(&why);
    return NRL_ERR_DATA;
}

nrl_status data_builder_create(const data_build_options *o, data_reader *reader, data_builder **out)
{
    data_builder *b = mem_alloc(sizeof *b);
    *b = (data_builder){.o = o, .reader = reader, .table = reader->table, .n_workers = 1, .n_chunks = 1};
    b->mismatch = (data_mismatch){.max_length = o->encode.max_length, .n_extra = o->schema->n_extra};
    int n = o->workers < MAX_WORKERS ? (int)o->workers : MAX_WORKERS;
    if (n > 1 && workers_create(n - 1, &b->pool) == NRL_OK) {
        b->n_workers = n;
        b->n_chunks = n * CHUNKS_A_WORKER;
    }
    nrl_status st = b->pool ? NRL_OK : workers_create(0, &b->pool);
    b->scratch = mem_alloc((size_t)b->n_workers * sizeof *b->scratch);
    b->chunks = mem_alloc((size_t)b->n_chunks * sizeof *b->chunks);
    for (int i = 0; i < b->n_workers; i++)
        b->scratch[i].encoder.options = &o->encode;
    if (st == NRL_OK)
        *out = b;
    else
        data_builder_destroy(b);
    return st;
}

void data_builder_destroy(data_builder *b)
{
    if (!b) return;
    for (int i = 0; i < b->n_workers; i++) {
        data_encoder_free(&b->scratch[i].encoder);
        arena_free(&b->scratch[i].memory);
    }
    for (int i = 0; i < b->n_chunks; i++) {
        close_range(b, &b->chunks[i]);
        buffer_free(&b->chunks[i].first);
        buffer_free(&b->chunks[i].body);
        buffer_free(&b->chunks[i].segments);
        free(b->chunks[i].error);
    }
    workers_destroy(b->pool);
    data_mismatch_free(&b->mismatch);
    free(b->read_error);
    free(b->chunks);
    free(b->scratch);
    free(b);
}

nrl_status data_build(const data_build_options *o, data_reader *reader, data_cache_writer *writer, data_cache *out)
{
    data_builder *b = NULL;
    buffer notes = {0};
    unsigned told = 0;
    bool end = false;
    nrl_status st = data_builder_create(o, reader, &b);
    while (st == NRL_OK) {
        st = data_builder_more(b, &end);
        if (end) break;
        if (st == NRL_OK) st = data_builder_take(b, writer, INT64_MAX);
    }
    if (st == NRL_OK) st = data_builder_check(b);
    if (st == NRL_OK && o->check) st = o->check(o->check_user);
    if (st == NRL_OK) {
        data_builder_notes(b, &told, &notes);
        data_cache_header header = data_cache_header_of(o->schema, o->kl_pairs);
        header.counts = b->counts;
        st = data_cache_finish(writer, &header, notes.text, notes.size, out);
    } else {
        data_cache_abandon(writer);
    }
    data_builder_destroy(b);
    buffer_free(&notes);
    return st;
}
