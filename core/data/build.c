/*
 * build.c - a ring of chunks between the thread that reads and writes and the workers. Chunks are taken in order,
 * finished in any order and written in order, so that the first error of the file is reported.
 */
#include "data/build.h"
#include "data/kl_pairs.h"
#include "data/read_chunk.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORKERS = 64, MAX_NOTED = 32 };

typedef enum { CHUNK_FREE = 0, CHUNK_READY, CHUNK_RUNNING, CHUNK_DONE } chunk_state;

typedef struct {
    const data_build_options *o;
    data_chunk *chunks; /* [n_chunks], chunk k of the file is number k % n_chunks */
    chunk_state *state;
    size_t n_chunks;
    size_t filled, taken, written; /* chunks of the file so far */
    bool stop;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t threads[MAX_WORKERS];
    int n_threads;
    data_worker own;        /* of the calling thread, when there are no others */
    data_mismatch mismatch; /* of the writing thread */
    /* totals over the whole file */
    data_counts counts;
    char unknown[MAX_NOTED][CHUNK_KEY];
    int64_t unknown_line[MAX_NOTED];
    int n_unknown;
} build;

/* ---- workers ---- */

static data_chunk *take(build *b)
{
    data_chunk *s = NULL;
    pthread_mutex_lock(&b->lock);
    while (!b->stop && b->taken == b->filled)
        pthread_cond_wait(&b->changed, &b->lock);
    if (!b->stop) {
        size_t k = b->taken++ % b->n_chunks;
        b->state[k] = CHUNK_RUNNING;
        s = &b->chunks[k];
    }
    pthread_mutex_unlock(&b->lock);
    return s;
}

static void set_done(build *b, const data_chunk *s)
{
    pthread_mutex_lock(&b->lock);
    b->state[s - b->chunks] = CHUNK_DONE;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static void count_dropped(build *b, const data_worker *w)
{
    size_t n = w->encoder.scratch ? tokenizer_scratch_dropped(w->encoder.scratch) : 0;
    pthread_mutex_lock(&b->lock);
    b->counts.dropped_characters += (int64_t)n;
    pthread_mutex_unlock(&b->lock);
}

static void *work(void *self)
{
    build *b = self;
    data_worker w = {.encoder.options = &b->o->encode};
    for (data_chunk *s; (s = take(b));) {
        data_chunk_run(s, &w, b->o);
        set_done(b, s);
    }
    count_dropped(b, &w);
    data_worker_free(&w);
    return NULL;
}

static void start(build *b)
{
    int64_t n = b->o->workers < MAX_WORKERS ? b->o->workers : MAX_WORKERS;
    b->n_chunks = n > 1 ? (size_t)n * 2 + 2 : 1;
    b->chunks = mem_alloc(b->n_chunks * sizeof *b->chunks);
    b->state = mem_alloc(b->n_chunks * sizeof *b->state);
    b->own.encoder.options = &b->o->encode;
    b->mismatch = (data_mismatch){.max_length = b->o->encode.max_length, .n_extra = b->o->schema->n_extra};
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    while (n > 1 && b->n_threads < n)
        if (pthread_create(&b->threads[b->n_threads], NULL, work, b))
            break;
        else
            b->n_threads++;
}

static void stop(build *b)
{
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    for (int i = 0; i < b->n_threads; i++)
        pthread_join(b->threads[i], NULL);
    if (!b->n_threads) count_dropped(b, &b->own);
}

static void finish(build *b)
{
    for (size_t i = 0; i < b->n_chunks; i++)
        data_chunk_free(&b->chunks[i]);
    data_worker_free(&b->own);
    data_mismatch_free(&b->mismatch);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b->chunks);
    free(b->state);
}

/* ---- reading and writing ---- */

static void submit(build *b)
{
    pthread_mutex_lock(&b->lock);
    b->state[b->filled++ % b->n_chunks] = CHUNK_READY;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

/* The oldest chunk that is not written yet, done. */
static data_chunk *oldest_done(build *b)
{
    size_t k = b->written % b->n_chunks;
    if (!b->n_threads) {
        data_chunk_run(&b->chunks[k], &b->own, b->o);
        return &b->chunks[k];
    }
    pthread_mutex_lock(&b->lock);
    while (b->state[k] != CHUNK_DONE)
        pthread_cond_wait(&b->changed, &b->lock);
    b->state[k] = CHUNK_FREE;
    pthread_mutex_unlock(&b->lock);
    return &b->chunks[k];
}

static void add_unknown(build *b, const data_chunk *s)
{
    for (int i = 0; i < s->n_unknown; i++) {
        int j = 0;
        while (j < b->n_unknown && strcmp(b->unknown[j], s->unknown[i]) != 0)
            j++;
        if (j < b->n_unknown || j == MAX_NOTED) continue;
        memcpy(b->unknown[j], s->unknown[i], CHUNK_KEY);
        b->unknown_line[j] = s->unknown_line[i];
        b->n_unknown++;
    }
}

static void add_counts(data_counts *sum, const data_counts *c)
{
    sum->rows += c->rows;
    sum->truncated += c->truncated;
    sum->identical += c->identical;
    sum->endless += c->endless;
    if (!sum->first_identical) sum->first_identical = c->first_identical;
    for (int v = 0; v < DATA_OUTCOMES; v++) {
        sum->outcome[v] += c->outcome[v];
        if (!sum->first_line[v]) sum->first_line[v] = c->first_line[v];
    }
}

static nrl_status write_oldest(build *b, data_cache_writer *writer)
{
    data_chunk *s = oldest_done(b);
    b->written++;
    if (s->status != NRL_OK) return nrl_fail(s->status, "%s", s->error);
    add_counts(&b->counts, &s->counts);
    add_unknown(b, s);
    const data_cache_segment *segments = (const void *)s->segments.text;
    size_t n = s->segments.size / sizeof *segments;
    if (b->o->kl_pairs) return data_mismatch_append(&b->mismatch, writer, s->body.text, segments, n);
    return data_cache_append(writer, s->body.text, s->body.size, segments, n);
}

/* An error of the reader waits until the rows before it are written: the first error of the file is reported. */
static nrl_status run(build *b, data_reader *reader, data_cache_writer *writer)
{
    bool end = false;
    nrl_status read_status = NRL_OK;
    char *read_error = NULL;
    while (!end || b->written < b->filled) {
        if (end || b->filled - b->written == b->n_chunks) {
            nrl_status st = write_oldest(b, writer);
            if (st == NRL_OK) continue;
            free(read_error);
            return st;
        }
        data_chunk *s = &b->chunks[b->filled % b->n_chunks];
        read_status = data_chunk_fill(s, reader, &end);
        if (read_status != NRL_OK) read_error = mem_strdup(nrl_error_text());
        end = end || read_status != NRL_OK;
        if (!b->o->schema->format && s->range) {
            nrl_status st = data_chunk_detect(s, b->o);
            if (st != NRL_OK) {
                free(read_error);
                return st;
            }
        }
        if (s->range) submit(b);
    }
    if (read_status != NRL_OK) nrl_fail(read_status, "%s", read_error);
    free(read_error);
    return read_status;
}

/* ---- notes ---- */

static void note_left_out(buffer *notes, const build *b, data_outcome v, const char *what)
{
    if (!b->counts.outcome[v]) return;
    buffer_print(notes, "%" PRId64 " of %" PRId64 " rows are omitted: %s (first: line %" PRId64 ")\n",
                 b->counts.outcome[v], b->counts.rows, what, b->counts.first_line[v]);
}

static void write_notes(const build *b, buffer *notes)
{
    note_left_out(notes, b, DATA_EMPTY, "no text, or no answer");
    note_left_out(notes, b, DATA_TOO_LONG, "longer than data.max_length");
    note_left_out(notes, b, DATA_UNTRAINABLE, "no token in them is trained");
    if (b->counts.truncated)
        buffer_print(notes, "%" PRId64 " of %" PRId64 " rows are cut to data.max_length\n", b->counts.truncated,
                     b->counts.rows);
    if (b->counts.identical)
        buffer_print(notes,
                     "%" PRId64 " of %" PRId64 " pairs have equal answers and teach nothing (first: "
                     "line %" PRId64 ")\n",
                     b->counts.identical, b->counts.rows, b->counts.first_identical);
    if (b->counts.endless) buffer_puts(notes, "the tokenizer names no eos_token: samples end without one\n");
    if (b->counts.dropped_characters)
        buffer_print(notes, "%" PRId64 " characters have no token and are dropped\n", b->counts.dropped_characters);
    for (int i = 0; i < b->n_unknown; i++)
        buffer_print(notes, "%s '%s'%s", i ? "," : "keys that are not used:", b->unknown[i],
                     i + 1 == b->n_unknown ? "\n" : "");
}

static nrl_status check_rows(const build *b, const data_reader *reader)
{
    const data_counts *c = &b->counts;
    if (reader->info.rows >= 0 && reader->info.rows != c->rows)
        return nrl_fail(NRL_ERR_DATA,
                        "%s: dataset plugin %s gave %" PRId64 " rows, expected %" PRId64 " as it announced", b->o->name,
                        reader->plugin, c->rows, reader->info.rows);
    if (!c->rows) return nrl_fail(NRL_ERR_DATA, "%s: no rows in the file", b->o->name);
    if (c->outcome[DATA_KEPT]) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA,
                    "%s: none of %" PRId64 " rows can be trained on: %" PRId64 " without text or answer, %" PRId64
                    " too long, %" PRId64 " without a trained "
                    "token",
                    b->o->name, c->rows, c->outcome[DATA_EMPTY], c->outcome[DATA_TOO_LONG],
                    c->outcome[DATA_UNTRAINABLE]);
}

static nrl_status complete(build *b, data_cache_writer *writer, data_cache *out)
{
    const data_schema *schema = b->o->schema;
    data_cache_header header = {
        .n_sides = schema->pairs || b->o->kl_pairs ? 2 : 1, .n_extra = schema->n_extra, .counts = b->counts};
    buffer notes = {0};
    strncpy(header.format, data_format_name(schema->format), sizeof header.format - 1);
    write_notes(b, &notes);
    nrl_status st = data_cache_finish(writer, &header, notes.text, notes.size, out);
    buffer_free(&notes);
    return st;
}

nrl_status data_build(const data_build_options *o, data_reader *reader, data_cache_writer *writer, data_cache *out)
{
    build *b = mem_alloc(sizeof *b);
    b->o = o;
    start(b);
    nrl_status st = run(b, reader, writer);
    stop(b);
    if (st == NRL_OK) st = check_rows(b, reader);
    if (st == NRL_OK) st = data_mismatch_finish(&b->mismatch, writer);
    if (st == NRL_OK && o->check) st = o->check(o->check_user);
    if (st == NRL_OK)
        st = complete(b, writer, out);
    else
        data_cache_abandon(writer);
    finish(b);
    free(b);
    return st;
}
