/*
 * csv.c - rows from tables as in RFC 4180: fields between commas (or tabs), quoted if they contain commas, quotes or
 * line ends. Values are texts; what is used as a number or a label is converted where it is used, so a prompt "42"
 * stays a text. The exception are columns of JSON: the ones that the option json lists, and a list in a column whose
 * name is that of a list in a row format (messages, input_ids). The thread that takes ranges finds where rows end;
 * fields are read by the thread that reads the range.
 */
#include "base/arena.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text_window.h"
#include <ctype.h>
#include <inttypes.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COLUMNS = 4096 };

typedef struct {
    const char *delimiter, *quote;
    const nrl_node *names, *json;
} csv_options;

static const nrl_option csv_rows[] = {
    NRL_OPT_STR(csv_options, delimiter, "",
                "one character between fields; empty: a tab for .tsv files, otherwise a comma"),
    NRL_OPT_STR(csv_options, quote, "\"", "quote character; empty: fields are never quoted"),
    NRL_OPT_NODE(csv_options, names, "[]", "names of the columns, for a file without a header row"),
    NRL_OPT_NODE(csv_options, json, "[]",
                 "columns whose fields are JSON; lists in columns such as messages and input_ids are always parsed"),
};

/* How the fields of a column are read. */
typedef enum { CSV_TEXT = 0, CSV_TEXT_OR_JSON, CSV_TEXT_OR_MESSAGES, CSV_JSON } csv_reading;

typedef struct {
    char *name;
    char *place; /* "column 'NAME'", for errors in its JSON */
    csv_reading reading;
} csv_column;

typedef struct {
    text_window window;
    const csv_options *options;
    char delimiter, quote; /* quote 0: none */
    bool begun;
    csv_column *columns; /* complete before the first range is given */
    size_t n_columns;
} csv_dataset;

/* Whole rows. Fields are unquoted where they are. */
typedef struct {
    const csv_dataset *of;
    char *text, *at, *stop;
    int64_t line;  /* of `at` */
    bool too_long; /* the text is not whole: its last row is longer than a row may be */
} csv_range;

/* ---- opening ---- */

static const char csv_expected[] = "a table (CSV) in UTF-8";
static const char *const csv_endings[] = {".csv", ".tsv", ".tab", NULL};

static int32_t csv_probe(const nrl_dataset_source *source)
{
    return file_name_ends_in(source->path, csv_endings, NULL) ? NRL_PROBE_YES : NRL_PROBE_NO;
}

static nrl_status csv_check_names(const char *option, const nrl_node *list)
{
    if (nrl_node_kind(list) != NRL_NODE_LIST)
        return nrl_fail(NRL_ERR_CONFIG, "%s: expected a list of names, as in [prompt, completion]", option);
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const char *name = nrl_node_string(nrl_node_at(list, i), "");
        if (!*name) return nrl_fail(NRL_ERR_CONFIG, "%s: expected a list of names, as in [prompt, completion]", option);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(nrl_node_string(nrl_node_at(list, k), ""), name))
                return nrl_fail(NRL_ERR_CONFIG, "%s: '%s' is there twice", option, name);
    }
    return NRL_OK;
}

static nrl_status csv_check(const void *options)
{
    const csv_options *o = options;
    const char *d = o->delimiter, *q = o->quote;
    if (*d && (d[1] || strchr("\r\n", *d) || (unsigned char)*d >= 0x80))
        return nrl_fail(NRL_ERR_CONFIG, "delimiter: expected one ASCII character, not a line end, got '%s'", d);
    if (*q && (q[1] || strchr("\r\n", *q) || (unsigned char)*q >= 0x80))
        return nrl_fail(NRL_ERR_CONFIG, "quote: expected one ASCII character, not a line end, or nothing, got '%s'", q);
    if (*d && *d == *q) return nrl_fail(NRL_ERR_CONFIG, "delimiter and quote are both '%s'", d);
    NRL_TRY(csv_check_names("names", o->names));
    return csv_check_names("json", o->json);
}

static char csv_delimiter(const csv_options *o, const char *path)
{
    size_t which = 0;
    if (*o->delimiter) return *o->delimiter;
    return file_name_ends_in(path, csv_endings, &which) && which ? '\t' : ',';
}

static void csv_close(void *self)
{
    csv_dataset *d = self;
    for (size_t i = 0; i < d->n_columns; i++) {
        free(d->columns[i].name);
        free(d->columns[i].place);
    }
    free(d->columns);
    text_window_close(&d->window);
    free(d);
}

static nrl_status csv_open(const void *options, const nrl_dataset_source *source, void **self)
{
    text_window window;
    NRL_TRY(text_window_open(source->path, source->flags & NRL_DATASET_PIPE, &window));
    csv_dataset *d = mem_alloc(sizeof *d);
    *d = (csv_dataset){.window = window, .options = options};
    d->delimiter = csv_delimiter(options, source->path);
    d->quote = *d->options->quote;
    *self = d;
    return NRL_OK;
}

/* The rows are counted by reading them; the core hashes the file. */
static void csv_info(const void *self, nrl_dataset_info *info)
{
    (void)self;
    (void)info;
}

/* ---- fields ---- */

static nrl_status csv_fail(const csv_dataset *d, int64_t line, const char *what)
{
    return nrl_fail(NRL_ERR_DATA, "%s:%" PRId64 ": %s", d->window.path, line, what);
}

static nrl_status csv_fail_open(const csv_range *g, int64_t line)
{
    return csv_fail(g->of, line,
                    g->too_long ? "a row of more than 16 MiB begins here, or this quoted field is never closed"
                                : "the file ends inside this quoted field: is it truncated?");
}

/* The size of the line end here, 0 at the end of the text, -1: neither. */
static int csv_line_end(const char *c, const char *stop)
{
    if (c == stop) return 0;
    if (*c == '\n') return 1;
    if (*c == '\r' && (c + 1 == stop || c[1] == '\n')) return c + 1 == stop ? 1 : 2;
    return -1;
}

/* The next field of a row, unquoted in place; *last: it ends the row. g->at moves behind what follows the field. */
static nrl_status csv_field(csv_range *g, char **text, size_t *size, bool *last)
{
    char *c = g->at, *out = g->at;
    const char quote = g->of->quote;
    int64_t opened = g->line;
    bool quoted = quote && c < g->stop && *c == quote;
    *text = out;
    if (quoted) {
        for (c++;; c++) {
            if (c == g->stop) return csv_fail_open(g, opened);
            if (*c == quote) {
                if (c + 1 == g->stop || c[1] != quote) break;
                c++;
            }
            g->line += *c == '\n';
            *out++ = *c;
        }
        c++;
    }
    while (csv_line_end(c, g->stop) < 0 && *c != g->of->delimiter) {
        if (quoted) return csv_fail(g->of, g->line, "text follows the closing quote of a field");
        if (quote && *c == quote)
            return csv_fail(g->of, g->line,
                            "a quote in a field that does not begin with one\n"
                            "hint: a quote is doubled inside a quoted field; reader: {name: csv, quote: \"\"} reads "
                            "a file without quoted fields");
        *out++ = *c++;
    }
    *size = (size_t)(out - *text);
    int end = csv_line_end(c, g->stop);
    if (end == 0 && g->too_long) return csv_fail_open(g, opened);
    *last = end >= 0;
    g->line += end > 0 && c[end - 1] == '\n';
    g->at = c + (end >= 0 ? end : 1);
    return NRL_OK;
}

/* ---- columns ---- */

static bool csv_lists(const nrl_node *names, const char *name)
{
    for (size_t i = 0; i < nrl_node_size(names); i++)
        if (!strcmp(nrl_node_string(nrl_node_at(names, i), ""), name)) return true;
    return false;
}

/* By the keys of the row formats whose values are lists or maps, never texts, and by those that are texts or messages.
 */
static csv_reading csv_reading_of(const char *name)
{
    static const char *const structures[] = {
        "messages",           "conversations", "tools",          "history",          "chat_template_kwargs",
        "input_ids",          "labels",        "attention_mask", "prompt_input_ids", "chosen_input_ids",
        "rejected_input_ids",
    };
    static const char *const either[] = {"prompt", "completion", "chosen", "rejected"};
    for (size_t i = 0; i < sizeof structures / sizeof *structures; i++)
        if (!strcmp(structures[i], name)) return CSV_TEXT_OR_JSON;
    for (size_t i = 0; i < sizeof either / sizeof *either; i++)
        if (!strcmp(either[i], name)) return CSV_TEXT_OR_MESSAGES;
    return CSV_TEXT;
}

static nrl_status csv_add_column(csv_dataset *d, const char *text, size_t size)
{
    if (!size || memchr(text, 0, size) || !utf8_valid(text, size))
        return csv_fail(d, 1, "expected the name of a column in each field of the first row");
    if (d->n_columns == MAX_COLUMNS) return csv_fail(d, 1, "more than 4096 columns");
    for (size_t i = 0; i < d->n_columns; i++)
        if (strlen(d->columns[i].name) == size && !memcmp(d->columns[i].name, text, size))
            return nrl_fail(NRL_ERR_DATA, "%s:1: two columns have the same name, '%s'", d->window.path,
                            d->columns[i].name);
    d->columns = mem_realloc(d->columns, (d->n_columns + 1) * sizeof *d->columns);
    csv_column *c = &d->columns[d->n_columns++];
    *c = (csv_column){.name = mem_alloc(size + 1)};
    memcpy(c->name, text, size);
    c->place = mem_printf("column '%s'", c->name);
    c->reading = csv_lists(d->options->json, c->name) ? CSV_JSON : csv_reading_of(c->name);
    return NRL_OK;
}

static nrl_status csv_read_columns(csv_range *g, csv_dataset *d)
{
    const nrl_node *names = d->options->names, *json = d->options->json;
    char *text;
    size_t size;
    if (g->at == g->stop)
        return nrl_fail(NRL_ERR_DATA, "%s: the file is empty, expected a row of column names", d->window.path);
    for (size_t i = 0; i < nrl_node_size(names); i++) {
        const nrl_node *name = nrl_node_at(names, i);
        NRL_TRY(csv_add_column(d, nrl_node_string(name, ""), nrl_node_string_size(name)));
    }
    for (bool last = nrl_node_size(names) > 0; !last;) {
        NRL_TRY(csv_field(g, &text, &size, &last));
        NRL_TRY(csv_add_column(d, text, size));
    }
    const char *other = d->n_columns == 1 && !*d->options->delimiter ? strpbrk(d->columns[0].name, ";\t|") : NULL;
    if (other && !nrl_node_size(names)) /* many spreadsheets export so where numbers have a decimal comma */
        return nrl_fail(NRL_ERR_DATA,
                        "%s:1: the first row is one field, '%s'; expected column names separated by commas\n"
                        "hint: data.train: {path: FILE, reader: {name: csv, delimiter: \"%s\"}}, or with \",\" if it "
                        "is one name",
                        d->window.path, d->columns[0].name, *other == '\t' ? "\\t" : (char[2]){*other});
    for (size_t i = 0; i < nrl_node_size(json); i++) {
        const char *name = nrl_node_string(nrl_node_at(json, i), "");
        bool found = false;
        for (size_t k = 0; k < d->n_columns && !found; k++)
            found = !strcmp(d->columns[k].name, name);
        if (!found)
            return nrl_fail(NRL_ERR_CONFIG, "%s: reader.json: the table has no column '%s'", d->window.path, name);
    }
    d->begun = true;
    return NRL_OK;
}

/* ---- ranges ---- */

static void csv_close_range(void *range)
{
    csv_range *g = range;
    free(g->text);
    free(g);
}

/* Bytes up to the end of the last whole row. A quote inside a quoted field is doubled, so counting quotes is enough. */
static size_t csv_whole_rows(const csv_dataset *d)
{
    const char *text = d->window.text;
    size_t whole = 0;
    bool quoted = false;
    for (size_t i = 0; i < d->window.size; i++) {
        if (d->quote && text[i] == d->quote) quoted = !quoted;
        if (text[i] == '\n' && !quoted) whole = i + 1;
    }
    return whole;
}

static nrl_status csv_take_rows(csv_dataset *d, csv_range *g)
{
    size_t size = 0;
    for (size_t room = TEXT_RANGE; !size; room *= 2) {
        NRL_TRY(text_window_fill(&d->window, room, csv_expected));
        size = d->window.end ? d->window.size : csv_whole_rows(d);
        g->too_long = !size && room > TEXT_MAX_ROW;
        if (g->too_long) size = d->window.size;
        if (d->window.end) break;
    }
    g->line = d->window.line;
    NRL_TRY(text_window_take(&d->window, size, size, &g->text));
    g->at = g->text;
    g->stop = g->text + size;
    return NRL_OK;
}

static nrl_status csv_next_range(void *self, void **range)
{
    csv_dataset *d = self;
    *range = NULL;
    if (d->begun && d->window.end && !d->window.size) return NRL_OK;
    csv_range *g = mem_try(sizeof *g, d->window.path);
    if (!g) return NRL_ERR_MEMORY;
    g->of = d;
    nrl_status st = csv_take_rows(d, g);
    if (st == NRL_OK && !d->begun) st = csv_read_columns(g, d);
    if (st == NRL_OK)
        *range = g;
    else
        csv_close_range(g);
    return st;
}

static bool csv_tell(const void *self, char out[NRL_DATASET_POSITION])
{
    return text_window_tell(&((const csv_dataset *)self)->window, out);
}

static nrl_status csv_seek(void *self, const char *position)
{
    return text_window_seek(&((csv_dataset *)self)->window, position);
}

/* ---- rows ---- */

static nrl_status csv_json(const csv_column *c, nrl_arena *memory, const char *text, size_t size, nrl_node **value)
{
    if (!size) {
        *value = nrl_node_new(memory, NRL_NODE_NULL);
        return NRL_OK;
    }
    nrl_status st = json_parse(memory, c->place, text, size, value);
    if (st != NRL_OK && size > 1 && strchr("[{", text[0]) && (text[1] == '\'' || (text[1] == '{' && text[2] == '\'')))
        return nrl_fail(st,
                        "%s\n"
                        "hint: this is the Python representation of a value; write JSON: table['NAME'] = "
                        "table['NAME'].map(json.dumps) before to_csv, or to_json(lines=True)",
                        nrl_error_text());
    return st;
}

/* Whether a field begins as a list of messages: [{"role": or with another of their keys, also as Python writes them. In
 * other lists the columns `prompt`, `completion`, `chosen` and `rejected` may just have text. */
static bool csv_begins_messages(const char *text, size_t size)
{
    static const char *const keys[] = {"role", "content", "from", "value"};
    const char *at = text, *end = text + size;
    for (const char *c = "[{"; *c; c++) {
        if (at == end || *at++ != *c) return false;
        while (at < end && isspace((unsigned char)*at))
            at++;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys && end - at > 2; i++) {
        const size_t n = strlen(keys[i]);
        if ((*at == '"' || *at == '\'') && (size_t)(end - at) > n + 1 && !memcmp(at + 1, keys[i], n) &&
            at[n + 1] == *at)
            return true;
    }
    return false;
}

static bool csv_is_text(const csv_column *c, const char *text, size_t size)
{
    switch (c->reading) {
    case CSV_TEXT:
        return true;
    case CSV_TEXT_OR_JSON:
        return !size || !strchr("[{", *text);
    case CSV_TEXT_OR_MESSAGES:
        return !csv_begins_messages(text, size);
    default:
        return false;
    }
}

static nrl_status csv_value(const csv_range *g, const csv_column *c, int64_t line, nrl_arena *memory, const char *text,
                            size_t size, nrl_node **value)
{
    const csv_dataset *d = g->of;
    if (!utf8_valid(text, size))
        return nrl_fail(NRL_ERR_DATA,
                        "%s:%" PRId64 ": column '%s' is not UTF-8\n"
                        "hint: a file of a spreadsheet may be in WINDOWS-1252: "
                        "iconv -f WINDOWS-1252 -t UTF-8 '%s' >utf8.%s",
                        d->window.path, line, c->name, d->window.path, d->delimiter == '\t' ? "tsv" : "csv");
    if (memchr(text, 0, size))
        return nrl_fail(NRL_ERR_DATA, "%s:%" PRId64 ": column '%s' contains a NUL character", d->window.path, line,
                        c->name);
    if (csv_is_text(c, text, size)) {
        *value = nrl_node_new_string(memory, text, size);
        return NRL_OK;
    }
    nrl_status st = csv_json(c, memory, text, size, value);
    if (st != NRL_OK) nrl_add_context("%s:%" PRId64, d->window.path, line);
    return st;
}

static nrl_status csv_next_row(void *range, nrl_arena *memory, const nrl_node **row)
{
    csv_range *g = range;
    const csv_dataset *d = g->of;
    *row = NULL;
    for (int n; g->at < g->stop && (n = csv_line_end(g->at, g->stop)) > 0; g->at += n)
        g->line++; /* a blank line */
    if (g->at == g->stop) return NRL_OK;
    const int64_t line = g->line;
    nrl_node *map = nrl_node_new(memory, NRL_NODE_MAP), *value;
    nrl_node_set_place(map, d->window.path, (uint32_t)line, 1);
    bool last = false;
    size_t n = 0, size;
    for (char *text; !last; n++) {
        NRL_TRY(csv_field(g, &text, &size, &last));
        if (n >= d->n_columns) continue;
        NRL_TRY(csv_value(g, &d->columns[n], line, memory, text, size, &value));
        nrl_node_put(memory, map, d->columns[n].name, value);
    }
    if (n != d->n_columns)
        return nrl_fail(NRL_ERR_DATA, "%s:%" PRId64 ": a row of %zu fields, expected %zu as %s", d->window.path, line,
                        n, d->n_columns, nrl_node_size(d->options->names) ? "reader.names has" : "the first row has");
    *row = map;
    return NRL_OK;
}

/* ---- writing ---- */

static void csv_put(FILE *f, char quote, const char *text, size_t size, char after)
{
    if (quote) putc(quote, f);
    for (size_t i = 0; i < size; i++) {
        if (quote && text[i] == quote) putc(quote, f);
        putc(text[i], f);
    }
    if (quote) putc(quote, f);
    putc(after, f);
}

static nrl_status csv_write(const void *options, const char *path, const nrl_node *rows)
{
    const csv_options *o = options;
    const nrl_node *first = nrl_node_at(rows, 0);
    const char delimiter = csv_delimiter(o, path), quote = *o->quote;
    const size_t columns = nrl_node_size(first);
    FILE *f = fopen(path, "wbe");
    bool written = f != NULL;
    for (size_t k = 0; k < columns && written && !nrl_node_size(o->names); k++)
        csv_put(f, quote, nrl_node_key(first, k), strlen(nrl_node_key(first, k)), k + 1 == columns ? '\n' : delimiter);
    for (size_t i = 0; i < nrl_node_size(rows) && written; i++)
        for (size_t k = 0; k < columns; k++) {
            const nrl_node *value = nrl_node_find(nrl_node_at(rows, i), nrl_node_key(first, k));
            csv_put(f, quote, nrl_node_string(value, ""), nrl_node_string_size(value),
                    k + 1 == columns ? '\n' : delimiter);
        }
    if (f && (ferror(f) | fclose(f))) written = false;
    return written ? NRL_OK : nrl_fail(NRL_ERR_IO, "%s: cannot be written", path);
}

static const nrl_dataset csv = {
    NRL_PLUGIN(NRL_KIND_DATASET, nrl_dataset, csv_options, csv_rows, "csv", "0.1", "rows of CSV and TSV tables"),
    .plugin.check = csv_check,
    .probe = csv_probe,
    .open = csv_open,
    .close = csv_close,
    .info = csv_info,
    .next_range = csv_next_range,
    .next_row = csv_next_row,
    .close_range = csv_close_range,
    .extension = "csv",
    .write = csv_write,
    .tell = csv_tell,
    .seek = csv_seek,
};
NRL_EXPORT(csv)
