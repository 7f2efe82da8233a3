/*
 * csv.c - rows from tables as RFC 4180 has them: fields between commas (or tabs), quoted where they hold commas, quotes
 * or line ends. The first row names the columns; every value is a text.
 * Begin reading at the table at the end; nrl/dataset.h says what each member is given and what it promises.
 */
#include <errno.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RANGE_BYTES = 1 << 20, MAX_ROW = 16 << 20, MAX_COLUMNS = 256 };

typedef struct {
    const char *delimiter;
} csv_options;

static const nrl_option csv_rows[] = {
    NRL_OPT_STR(csv_options, delimiter, "", "one character between fields; empty: a tab for .tsv files, else a comma"),
};

typedef struct {
    char *path;
    char delimiter;
    FILE *file;
    char *held; /* read from the file, not yet part of a range */
    size_t n_held;
    int64_t line; /* of the first byte that is held, or else read next */
    bool begun, end;
    char *names[MAX_COLUMNS]; /* from the header row; complete before the first range is given */
    size_t n_names;
} csv_dataset;

/* Whole rows. Fields are unquoted where they lie. */
typedef struct {
    const csv_dataset *of;
    char *text, *at, *stop;
    int64_t line; /* of `at` */
} csv_range;

/* ---- opening ---- */

static bool csv_ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), k = strlen(ending);
    return n > k && !strcmp(path + n - k, ending);
}

static int32_t csv_probe(const nrl_dataset_source *source)
{
    return csv_ends_in(source->path, ".csv") || csv_ends_in(source->path, ".tsv") ? NRL_PROBE_YES : NRL_PROBE_NO;
}

static nrl_status csv_check(const void *options)
{
    const char *d = ((const csv_options *)options)->delimiter;
    if (!*d || (!d[1] && !strchr("\"\r\n", *d))) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "delimiter: expected one character, not a quote or a line end, got '%s'", d);
}

static char csv_delimiter(const void *options, const char *path)
{
    const char *d = ((const csv_options *)options)->delimiter;
    return *d ? *d : csv_ends_in(path, ".tsv") ? '\t' : ',';
}

static void csv_close(void *self)
{
    csv_dataset *d = self;
    for (size_t i = 0; i < d->n_names; i++)
        free(d->names[i]);
    if (d->file) fclose(d->file);
    free(d->held);
    free(d->path);
    free(d);
}

static nrl_status csv_open(const void *options, const nrl_dataset_source *source, void **self)
{
    struct stat st;
    if (stat(source->path, &st))
        return nrl_fail(errno == ENOENT || errno == ENOTDIR ? NRL_ERR_CONFIG : NRL_ERR_IO, "%s: %s", source->path,
                        strerror(errno));
    if (!S_ISREG(st.st_mode)) return nrl_fail(NRL_ERR_CONFIG, "%s: not a regular file", source->path);
    csv_dataset *d = calloc(1, sizeof *d);
    if (d) d->path = strdup(source->path);
    if (!d || !d->path) {
        free(d);
        return nrl_fail(NRL_ERR_MEMORY, "%s: cannot allocate a reader", source->path);
    }
    d->file = fopen(d->path, "rbe");
    if (!d->file) {
        nrl_status status = nrl_fail(NRL_ERR_IO, "%s: %s", d->path, strerror(errno));
        csv_close(d);
        return status;
    }
    d->line = 1;
    d->delimiter = csv_delimiter(options, d->path);
    *self = d;
    return NRL_OK;
}

/* Rows are counted by reading them, and the core hashes the file: nothing to tell. */
static void csv_info(const void *self, nrl_dataset_info *info)
{
    (void)self;
    (void)info;
}

/* ---- fields ---- */

static nrl_status csv_fail(const csv_dataset *d, int64_t line, const char *what)
{
    return nrl_fail(NRL_ERR_DATA, "%s:%lld: %s", d->path, (long long)line, what);
}

/* A line end here, or the end of the text: its bytes; -1: none. */
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
    int64_t opened = g->line;
    bool quoted = c < g->stop && *c == '"';
    *text = out;
    if (quoted) {
        for (c++;; c++) {
            if (c == g->stop) return csv_fail(g->of, opened, "the file ends inside this quoted field: is it cut off?");
            if (*c == '"') {
                if (c + 1 == g->stop || c[1] != '"') break;
                c++;
            }
            g->line += *c == '\n';
            *out++ = *c;
        }
        c++;
    }
    while (csv_line_end(c, g->stop) < 0 && *c != g->of->delimiter) {
        if (quoted) return csv_fail(g->of, g->line, "text follows the closing quote of a field");
        if (*c == '"') return csv_fail(g->of, g->line, "a quote in a field that does not begin with one");
        *out++ = *c++;
    }
    *size = (size_t)(out - *text);
    int end = csv_line_end(c, g->stop);
    *last = end >= 0;
    g->line += end > 0 && c[end - 1] == '\n';
    g->at = c + (end >= 0 ? end : 1);
    return NRL_OK;
}

static bool csv_is_utf8(const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0, n; i < size; i += n) {
        unsigned c = s[i];
        n = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
        if (!n || n > size - i) return false;
        for (size_t k = 1; k < n; k++)
            if ((s[i + k] & 0xC0) != 0x80) return false;
        if ((c == 0xE0 && s[i + 1] < 0xA0) || (c == 0xED && s[i + 1] > 0x9F) || (c == 0xF0 && s[i + 1] < 0x90) ||
            (c == 0xF4 && s[i + 1] > 0x8F))
            return false;
    }
    return true;
}

/* ---- ranges ---- */

static void csv_close_range(void *range)
{
    csv_range *g = range;
    free(g->text);
    free(g);
}

/* Bytes up to the end of the last whole row. A quote inside a quoted field is doubled, so quotes alone tell. */
static size_t csv_whole_rows(const char *text, size_t size)
{
    size_t whole = 0;
    bool quoted = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"') quoted = !quoted;
        if (text[i] == '\n' && !quoted) whole = i + 1;
    }
    return whole;
}

/* Reads whole rows into d->held: *size bytes of what is there. */
static nrl_status csv_read_rows(csv_dataset *d, size_t *size)
{
    for (size_t room = RANGE_BYTES;; room *= 2) {
        char *more = realloc(d->held, room + 1);
        if (!more) return nrl_fail(NRL_ERR_MEMORY, "%s: cannot allocate %zu bytes for rows", d->path, room);
        d->held = more;
        if (room > d->n_held) {
            d->n_held += fread(d->held + d->n_held, 1, room - d->n_held, d->file);
            if (ferror(d->file)) return nrl_fail(NRL_ERR_IO, "%s: %s", d->path, strerror(errno));
            d->end = feof(d->file) != 0;
        }
        *size = d->end ? d->n_held : csv_whole_rows(d->held, d->n_held);
        if (*size || d->end) return NRL_OK;
        if (room > MAX_ROW) return csv_fail(d, d->line, "a row of more than 16 MiB: is a quote never closed?");
    }
}

static nrl_status csv_read_header(csv_range *g, csv_dataset *d)
{
    char *text;
    size_t size;
    if (g->stop - g->at >= 3 && !memcmp(g->at, "\xEF\xBB\xBF", 3)) g->at += 3;
    if (g->at == g->stop)
        return nrl_fail(NRL_ERR_DATA, "%s: the file is empty, expected a row of column names", d->path);
    for (bool last = false; !last;) {
        NRL_TRY(csv_field(g, &text, &size, &last));
        if (!size || memchr(text, 0, size) || !csv_is_utf8(text, size))
            return csv_fail(d, 1, "expected the name of a column in each field");
        for (size_t i = 0; i < d->n_names; i++)
            if (strlen(d->names[i]) == size && !memcmp(d->names[i], text, size))
                return csv_fail(d, 1, "two columns have the same name");
        if (d->n_names == MAX_COLUMNS) return csv_fail(d, 1, "more than 256 columns");
        char *name = strndup(text, size);
        if (!name) return nrl_fail(NRL_ERR_MEMORY, "%s: cannot allocate the name of a column", d->path);
        d->names[d->n_names++] = name;
    }
    d->begun = true;
    return NRL_OK;
}

/* The text that was read becomes the range's; what lies behind its last row is held for the next one. */
static nrl_status csv_next_range(void *self, void **range)
{
    csv_dataset *d = self;
    size_t size;
    *range = NULL;
    if (d->begun && d->end && !d->n_held) return NRL_OK;
    NRL_TRY(csv_read_rows(d, &size));
    csv_range *g = calloc(1, sizeof *g);
    char *rest = malloc(d->n_held - size + 1);
    if (!g || !rest) {
        free(g);
        free(rest);
        return nrl_fail(NRL_ERR_MEMORY, "%s: cannot allocate %zu bytes for rows", d->path, d->n_held - size);
    }
    memcpy(rest, d->held + size, d->n_held - size);
    *g = (csv_range){.of = d, .text = d->held, .at = d->held, .stop = d->held + size, .line = d->line};
    for (const char *c = g->at; (c = memchr(c, '\n', (size_t)(g->stop - c))); c++)
        d->line++;
    d->held = rest;
    d->n_held -= size;
    nrl_status st = d->begun ? NRL_OK : csv_read_header(g, d);
    if (st == NRL_OK)
        *range = g;
    else
        csv_close_range(g);
    return st;
}

/* ---- rows ---- */

static nrl_status csv_next_row(void *range, nrl_arena *memory, const nrl_node **row)
{
    csv_range *g = range;
    const csv_dataset *d = g->of;
    *row = NULL;
    for (int n; g->at < g->stop && (n = csv_line_end(g->at, g->stop)) > 0; g->at += n)
        g->line++; /* a blank line */
    if (g->at == g->stop) return NRL_OK;
    const int64_t line = g->line;
    nrl_node *map = nrl_node_new(memory, NRL_NODE_MAP);
    nrl_node_set_place(map, d->path, (uint32_t)line, 1);
    bool last = false;
    size_t n = 0, size;
    for (char *text; !last; n++) {
        NRL_TRY(csv_field(g, &text, &size, &last));
        if (n >= d->n_names) continue;
        if (!csv_is_utf8(text, size))
            return nrl_fail(NRL_ERR_DATA, "%s:%lld: column '%s' is not UTF-8", d->path, (long long)line, d->names[n]);
        nrl_node_put(memory, map, d->names[n], nrl_node_new_string(memory, text, size));
    }
    if (n != d->n_names)
        return nrl_fail(NRL_ERR_DATA, "%s:%lld: a row of %zu fields, expected %zu as the first row has", d->path,
                        (long long)line, n, d->n_names);
    *row = map;
    return NRL_OK;
}

/* ---- writing ---- */

static void csv_put(FILE *f, const char *text, size_t size, char after)
{
    putc('"', f);
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"') putc('"', f);
        putc(text[i], f);
    }
    putc('"', f);
    putc(after, f);
}

static nrl_status csv_write(const void *options, const char *path, const nrl_node *rows)
{
    const nrl_node *first = nrl_node_at(rows, 0);
    const char delimiter = csv_delimiter(options, path);
    const size_t columns = nrl_node_size(first);
    FILE *f = fopen(path, "wbe");
    if (!f) return nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
    for (size_t k = 0; k < columns; k++)
        csv_put(f, nrl_node_key(first, k), strlen(nrl_node_key(first, k)), k + 1 == columns ? '\n' : delimiter);
    for (size_t i = 0; i < nrl_node_size(rows); i++)
        for (size_t k = 0; k < columns; k++) {
            const nrl_node *value = nrl_node_find(nrl_node_at(rows, i), nrl_node_key(first, k));
            csv_put(f, nrl_node_string(value, ""), nrl_node_string_size(value), k + 1 == columns ? '\n' : delimiter);
        }
    bool written = !ferror(f);
    if (fclose(f)) written = false;
    return written ? NRL_OK : nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
}

static const nrl_dataset csv = {
    NRL_PLUGIN(NRL_KIND_DATASET, nrl_dataset, csv_options, csv_rows, "csv", "1.0",
               "rows of CSV and TSV tables, whose first row names the columns"),
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
};
NRL_EXPORT(csv)
