/*
 * rows.c - one window over the stream that always contains the whole current row. Indexes of peek()
 * are relative to the first byte that was not consumed.
 */
#include "rows.h"
#include "base/arena.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_WINDOW = 1 << 18, MAGIC = 16, AT_END = -1, FAILED = -2 };

typedef enum { FORM_UNKNOWN = 0, FORM_LINES, FORM_ARRAY, FORM_FINISHED } form;

struct jsonl_rows {
    file_stream *stream;
    char *name;
    char *window;
    size_t capacity, begin, end; /* bytes [begin, end) were not consumed */
    bool stream_end, after_row;  /* after_row: in an array, a comma or bracket must follow */
    form form;
    int64_t line, column; /* position of window[begin] */
    nrl_status status;    /* the reason why peek returned FAILED */
};

void jsonl_rows_create(file_stream *stream, const char *name, jsonl_rows **out)
{
    jsonl_rows *r = *out = mem_alloc(sizeof *r);
    r->stream = stream;
    r->name = mem_strdup(name);
    r->window = mem_alloc(FIRST_WINDOW);
    r->capacity = FIRST_WINDOW;
    r->line = r->column = 1;
}

void jsonl_rows_destroy(jsonl_rows *r)
{
    if (!r) return;
    file_stream_close(r->stream);
    free(r->window);
    free(r->name);
    free(r);
}

/* ---- the window ---- */

static nrl_status fail_long(const jsonl_rows *r)
{
    return nrl_fail(NRL_ERR_DATA, "%s:%" PRId64 ": a row of more than %d MiB, the maximum", r->name, r->line,
                    JSONL_MAX_ROW >> 20);
}

/* Reads more bytes after `end`; moves or grows the window if it is full. */
static nrl_status fill(jsonl_rows *r)
{
    size_t n;
    if (r->end - r->begin > JSONL_MAX_ROW) return fail_long(r);
    if (r->begin) {
        memmove(r->window, r->window + r->begin, r->end - r->begin);
        r->end -= r->begin;
        r->begin = 0;
    }
    if (r->end == r->capacity) {
        char *window = realloc(r->window, r->capacity * 2);
        if (!window) return nrl_fail(NRL_ERR_MEMORY, "%s: cannot allocate %zu bytes", r->name, r->capacity * 2);
        r->window = window;
        r->capacity *= 2;
    }
    NRL_TRY(file_stream_read(r->stream, r->window + r->end, r->capacity - r->end, &n));
    r->stream_end = n == 0;
    r->end += n;
    return NRL_OK;
}

static int peek(jsonl_rows *r, size_t i)
{
    while (r->begin + i >= r->end) {
        if (r->stream_end) return AT_END;
        r->status = fill(r);
        if (r->status != NRL_OK) return FAILED;
    }
    return (unsigned char)r->window[r->begin + i];
}

static void consume(jsonl_rows *r, size_t n)
{
    const char *p = r->window + r->begin, *stop = p + n, *newline;
    while ((newline = memchr(p, '\n', (size_t)(stop - p)))) {
        r->line++;
        r->column = 1;
        p = newline + 1;
    }
    r->column += stop - p;
    r->begin += n;
}

static bool is_space(int c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Consumes white space and returns the next byte without consuming it. */
static int skip_space(jsonl_rows *r)
{
    int c;
    while (is_space(c = peek(r, 0)))
        consume(r, 1);
    return c;
}

/* ---- what kind of file ---- */

static bool begins(jsonl_rows *r, const char *magic, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (peek(r, i) != (unsigned char)magic[i]) return false;
    return true;
}

static nrl_status find_form(jsonl_rows *r)
{
    if (peek(r, MAGIC - 1) == FAILED) return r->status;
    NRL_TRY(file_check_is_text(r->name, r->window + r->begin, r->end - r->begin, "JSONL or a JSON array in UTF-8"));
    if (begins(r, "\xEF\xBB\xBF", 3)) r->begin += 3;
    int c = skip_space(r);
    if (c == FAILED) return r->status;
    if (c == AT_END) return nrl_fail(NRL_ERR_DATA, "%s: the file is empty, expected rows", r->name);
    if (c != '{' && c != '[')
        return nrl_fail(NRL_ERR_DATA,
                        "%s:%" PRId64 ":%" PRId64 ": expected { (JSONL) or [ (a JSON array of rows)\nhint: %s", r->name,
                        r->line, r->column,
                        c == '-' ? "YAML: python3 -c \"import json, sys, yaml; [print(json.dumps(row)) for row in "
                                   "yaml.safe_load(sys.stdin)]\" <FILE >rows.jsonl"
                                 : "plain text is read from a file whose name ends in .txt; a row for each line: "
                                   "jq -Rc '{text: .}' FILE >rows.jsonl");
    r->form = c == '{' ? FORM_LINES : FORM_ARRAY;
    if (r->form == FORM_ARRAY) consume(r, 1);
    return NRL_OK;
}

/* ---- JSONL ---- */

static void set_row(const jsonl_rows *r, size_t size, jsonl_text *row)
{
    *row = (jsonl_text){r->window + r->begin, size, r->line, r->column, false};
}

/* The rest of the current line, which begins with a byte that is not white space. */
static nrl_status next_line(jsonl_rows *r, jsonl_text *row, bool *end)
{
    int c = skip_space(r);
    const char *newline = NULL;
    if (c == FAILED) return r->status;
    *end = c == AT_END;
    if (*end) return NRL_OK;
    for (size_t seen = 0;;) {
        size_t have = r->end - r->begin;
        newline = memchr(r->window + r->begin + seen, '\n', have - seen);
        if (newline || r->stream_end) break;
        seen = have;
        NRL_TRY(fill(r));
    }
    size_t size = newline ? (size_t)(newline - r->window) - r->begin : r->end - r->begin;
    if (size > JSONL_MAX_ROW) return fail_long(r);
    set_row(r, size, row);
    row->cut = !newline;
    consume(r, size);
    while (row->size && is_space(row->text[row->size - 1]))
        row->size--;
    return NRL_OK;
}

/* ---- a JSON array ---- */

static nrl_status fail_array(jsonl_rows *r, int c, const char *expected)
{
    if (c == FAILED) return r->status;
    if (c == AT_END)
        return nrl_fail(NRL_ERR_DATA, "%s:%" PRId64 ": the file ends inside its JSON array: it is truncated", r->name,
                        r->line);
    return nrl_fail(NRL_ERR_DATA, "%s:%" PRId64 ":%" PRId64 ": expected %s", r->name, r->line, r->column, expected);
}

static nrl_status finish_array(jsonl_rows *r, bool *end)
{
    consume(r, 1);
    int c = skip_space(r);
    if (c != AT_END) return fail_array(r, c, "nothing after the JSON array");
    r->form = FORM_FINISHED;
    *end = true;
    return NRL_OK;
}

/* The size of the current object up to its closing bracket. The content is checked by the parser. */
static nrl_status object_size(jsonl_rows *r, size_t *size)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0;; i++) {
        int c = peek(r, i);
        if (c < 0) return fail_array(r, c, "");
        if (in_string) {
            if (c == '\\') i++;
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            *size = i + 1;
            return NRL_OK;
        }
    }
}

static nrl_status next_object(jsonl_rows *r, jsonl_text *row, bool *end)
{
    size_t size = 0;
    int c = skip_space(r);
    if (c == ']') return finish_array(r, end);
    if (r->after_row) {
        if (c != ',') return fail_array(r, c, ", or ] after a row");
        consume(r, 1);
        c = skip_space(r);
    }
    if (c != '{') return fail_array(r, c, "a row: {...}");
    NRL_TRY(object_size(r, &size));
    if (size > JSONL_MAX_ROW) return fail_long(r);
    set_row(r, size, row);
    consume(r, size);
    r->after_row = true;
    return NRL_OK;
}

nrl_status jsonl_rows_next(jsonl_rows *r, jsonl_text *row, bool *end)
{
    *end = false;
    if (r->form == FORM_UNKNOWN) NRL_TRY(find_form(r));
    if (r->form == FORM_LINES) return next_line(r, row, end);
    if (r->form == FORM_ARRAY) return next_object(r, row, end);
    *end = true;
    return NRL_OK;
}

/* ---- positions: the offset, line and column of the next byte, and what it is in ---- */

bool jsonl_rows_tell(const jsonl_rows *r, char out[NRL_DATASET_POSITION])
{
    static const char forms[] = {[FORM_LINES] = 'L', [FORM_ARRAY] = 'A', [FORM_FINISHED] = 'F'};
    const int64_t read = file_stream_tell(r->stream);
    if (read < 0 || r->form == FORM_UNKNOWN) return false;
    snprintf(out, NRL_DATASET_POSITION, "%" PRId64 " %" PRId64 " %" PRId64 " %c", read - (int64_t)(r->end - r->begin),
             r->line, r->column, r->after_row ? 'R' : forms[r->form]);
    return true;
}

nrl_status jsonl_rows_seek(jsonl_rows *r, const char *position)
{
    int64_t offset, line, column;
    char in;
    if (sscanf(position, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %c", &offset, &line, &column, &in) != 4 || offset < 0 ||
        line < 1 || column < 1 || !strchr("LARF", in))
        return nrl_fail(NRL_ERR_DATA, "%s: '%s' is not a position of a reader", r->name, position);
    r->begin = r->end = 0;
    r->stream_end = false;
    r->line = line;
    r->column = column;
    r->form = in == 'L' ? FORM_LINES : in == 'F' ? FORM_FINISHED : FORM_ARRAY;
    r->after_row = in == 'R';
    return file_stream_seek(r->stream, offset);
}
