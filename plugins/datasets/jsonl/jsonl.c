/*
 * jsonl.c - rows from a file of JSON lines or a JSON array, plain or compressed. The thread that
 * takes ranges finds where rows begin and end (rows.h); the thread that reads a range parses its
 * text.
 */
#include "base/json.h"
#include "rows.h"
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A range is full when it has this many rows or bytes. */
enum { RANGE_ROWS = 256, RANGE_BYTES = 1 << 20, PROBE_BYTES = 4096 };

typedef struct {
    const char *path; /* borrowed from the dataset */
    jsonl_text rows[RANGE_ROWS];
    size_t at[RANGE_ROWS]; /* the start of each row in `text` */
    size_t n_rows, n_read;
    char *text;
    size_t size, room;
} jsonl_range;

typedef struct {
    char *path;
    jsonl_rows *rows;
    nrl_status status; /* the reason why there is no further range, */
    char *error;       /* reported after the rows before it */
} jsonl_dataset;

/* ---- opening ---- */

static const char *const jsonl_endings[] = {".jsonl", ".ndjson", ".json", NULL};

/* Other files are possible too, because the error of open describes best what was expected. */
static int32_t jsonl_probe(const nrl_dataset_source *source)
{
    char text[PROBE_BYTES];
    size_t size = 0, i = 0;
    file_stream *stream;
    if (file_name_ends_in(source->path, jsonl_endings, NULL)) return NRL_PROBE_YES;
    if (file_stream_open(source->path, false, &stream) != NRL_OK) return NRL_PROBE_EXPLAINS;
    nrl_status st = file_stream_read(stream, text, sizeof text, &size);
    file_stream_close(stream);
    if (st != NRL_OK) return NRL_PROBE_EXPLAINS;
    if (size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) i = 3;
    while (i < size && strchr(" \t\r\n", text[i]))
        i++;
    return i < size && (text[i] == '{' || text[i] == '[') ? NRL_PROBE_PERHAPS : NRL_PROBE_EXPLAINS;
}

static nrl_status jsonl_open(const void *options, const nrl_dataset_source *source, void **self)
{
    file_stream *stream;
    (void)options;
    NRL_TRY(file_stream_open(source->path, source->flags & NRL_DATASET_PIPE, &stream));
    jsonl_dataset *d = mem_alloc(sizeof *d);
    d->path = mem_strdup(source->path);
    jsonl_rows_create(stream, d->path, &d->rows);
    *self = d;
    return NRL_OK;
}

static void jsonl_close(void *self)
{
    jsonl_dataset *d = self;
    jsonl_rows_destroy(d->rows);
    free(d->error);
    free(d->path);
    free(d);
}

/* The number of rows is known when all were seen. The rows depend only on the bytes of the file. */
static void jsonl_info(const void *self, nrl_dataset_info *info)
{
    (void)self;
    (void)info;
}

/* ---- ranges ---- */

static void jsonl_close_range(void *range)
{
    jsonl_range *g = range;
    free(g->text);
    free(g);
}

static nrl_status jsonl_add(jsonl_range *g, const jsonl_text *row)
{
    if (g->size + row->size > g->room) {
        size_t room = g->room ? g->room * 2 : RANGE_BYTES / 4;
        while (room < g->size + row->size)
            room *= 2;
        char *text = realloc(g->text, room);
        if (!text) return nrl_fail(NRL_ERR_MEMORY, "%s: cannot allocate %zu bytes for rows", g->path, room);
        g->text = text;
        g->room = room;
    }
    memcpy(g->text + g->size, row->text, row->size);
    g->rows[g->n_rows] = *row;
    g->rows[g->n_rows].text = NULL; /* it points into the window; the range has the text at at[] */
    g->at[g->n_rows++] = g->size;
    g->size += row->size;
    return NRL_OK;
}

static nrl_status jsonl_next_range(void *self, void **range)
{
    jsonl_dataset *d = self;
    *range = NULL;
    if (d->status != NRL_OK) return nrl_fail(d->status, "%s", d->error);
    jsonl_range *g = calloc(1, sizeof *g);
    if (!g) return nrl_fail(NRL_ERR_MEMORY, "%s: cannot allocate %zu bytes for rows", d->path, sizeof *g);
    g->path = d->path;
    bool end = false;
    while (d->status == NRL_OK && !end && g->n_rows < RANGE_ROWS && g->size < RANGE_BYTES) {
        jsonl_text row;
        d->status = jsonl_rows_next(d->rows, &row, &end);
        if (d->status == NRL_OK && !end) d->status = jsonl_add(g, &row);
    }
    if (d->status != NRL_OK) d->error = mem_strdup(nrl_error_text());
    if (g->n_rows) {
        *range = g;
        return NRL_OK;
    }
    jsonl_close_range(g);
    return d->status;
}

static bool jsonl_tell(const void *self, char out[NRL_DATASET_POSITION])
{
    return jsonl_rows_tell(((const jsonl_dataset *)self)->rows, out);
}

static nrl_status jsonl_seek(void *self, const char *position)
{
    jsonl_dataset *d = self;
    d->status = NRL_OK;
    free(d->error);
    d->error = NULL;
    return jsonl_rows_seek(d->rows, position);
}

/* ---- rows ---- */

/* A line with only {: JSON formatted for people. */
static bool jsonl_is_opening(const char *text, size_t size)
{
    while (size && strchr(" \t\r\n", text[size - 1]))
        size--;
    return size == 1 && *text == '{';
}

static nrl_status jsonl_next_row(void *range, nrl_arena *memory, const nrl_node **row)
{
    jsonl_range *g = range;
    nrl_node *node;
    *row = NULL;
    if (g->n_read == g->n_rows) return NRL_OK;
    const jsonl_text *t = &g->rows[g->n_read];
    const char *text = g->text + g->at[g->n_read++];
    nrl_status st = json_parse_at(memory, g->path, t->line, t->column, text, t->size, &node);
    if (st != NRL_OK && t->cut)
        return nrl_fail(st, "%s\nhint: the file ends in this line, without a line end; it may be truncated",
                        nrl_error_text());
    if (st != NRL_OK && jsonl_is_opening(text, t->size))
        return nrl_fail(st,
                        "%s\nhint: in a file that begins with {, each line is a whole row; indented rows must be in a "
                        "list, [ ... ]",
                        nrl_error_text());
    if (st != NRL_OK) return st;
    nrl_node_set_place(node, g->path, (uint32_t)t->line, (uint32_t)t->column);
    *row = node;
    return NRL_OK;
}

/* ---- writing ---- */

static nrl_status jsonl_write(const void *options, const char *path, const nrl_node *rows)
{
    (void)options;
    FILE *f = fopen(path, "wbe");
    bool written = f != NULL;
    for (size_t i = 0; i < nrl_node_size(rows) && written; i++) {
        char *text = json_write(nrl_node_at(rows, i), 0);
        written = fprintf(f, "%s\n", text) > 0;
        free(text);
    }
    if (f && fclose(f)) written = false;
    return written ? NRL_OK : nrl_fail(NRL_ERR_IO, "cannot write %s", path);
}

static const nrl_dataset jsonl = {
    NRL_PLUGIN_PLAIN(NRL_KIND_DATASET, nrl_dataset, "jsonl", "0.1", "rows of JSON lines or of a JSON array"),
    .probe = jsonl_probe,
    .open = jsonl_open,
    .close = jsonl_close,
    .info = jsonl_info,
    .next_range = jsonl_next_range,
    .next_row = jsonl_next_row,
    .close_range = jsonl_close_range,
    .extension = "jsonl",
    .write = jsonl_write,
    .tell = jsonl_tell,
    .seek = jsonl_seek,
};
NRL_EXPORT(jsonl)
