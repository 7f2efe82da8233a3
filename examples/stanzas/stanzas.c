/*
 * stanzas.c - rows from files of stanzas, like package lists and mail headers: lines "KEY: VALUE",
 * a line that begins with a space continues the value on a new line, and a separator line (empty by
 * default) ends the row. Begin with the table at the end of this file. nrl/dataset.h describes the
 * arguments and the contract of each member.
 */
#include <errno.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RANGE_BYTES = 1 << 20, MAX_ROW = 16 << 20 };

typedef struct {
    const char *separator;
} stanzas_options;

static const nrl_option stanzas_rows[] = {
    NRL_OPT_STR(stanzas_options, separator, "", "the line between two rows; empty: an empty line"),
};

typedef struct {
    char *path;
    const stanzas_options *options;
    FILE *file;
    int64_t line; /* that is read next */
} stanzas_dataset;

/* Whole rows. */
typedef struct {
    const stanzas_dataset *of;
    char *text, *at; /* NUL-terminated; a NUL in a file is refused when it is read */
    size_t size, room;
    int64_t line; /* of `at` */
} stanzas_range;

/* ---- opening ---- */

static int32_t stanzas_probe(const nrl_dataset_source *source)
{
    const char *dot = strrchr(source->path, '.');
    return dot && !strcmp(dot, ".stanzas") ? NRL_PROBE_YES : NRL_PROBE_NO;
}

static nrl_status stanzas_check(const void *options)
{
    const char *s = ((const stanzas_options *)options)->separator;
    if (*s != ' ' && !strpbrk(s, ":\n")) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "separator: expected a line without a colon or a space in front, got '%s'", s);
}

static void stanzas_close(void *self)
{
    stanzas_dataset *d = self;
    fclose(d->file);
    free(d->path);
    free(d);
}

static nrl_status stanzas_open(const void *options, const nrl_dataset_source *source, void **self)
{
    struct stat st;
    if (stat(source->path, &st))
        return nrl_fail(errno == ENOENT || errno == ENOTDIR ? NRL_ERR_CONFIG : NRL_ERR_IO, "%s: %s", source->path,
                        strerror(errno));
    if (!S_ISREG(st.st_mode)) return nrl_fail(NRL_ERR_CONFIG, "%s: not a regular file", source->path);
    FILE *f = fopen(source->path, "rbe");
    if (!f) return nrl_fail(NRL_ERR_IO, "%s: %s", source->path, strerror(errno));
    stanzas_dataset *d = calloc(1, sizeof *d);
    char *path = strdup(source->path);
    if (!d || !path) {
        fclose(f);
        free(path);
        free(d);
        return nrl_fail(NRL_ERR_MEMORY, "%s: cannot allocate a reader", source->path);
    }
    *d = (stanzas_dataset){path, options, f, 1};
    *self = d;
    return NRL_OK;
}

/* The number of rows is unknown until they are read, and the core hashes the file: there is no info
 * to fill. */
static void stanzas_info(const void *self, nrl_dataset_info *info)
{
    (void)self;
    (void)info;
}

/* ---- ranges ---- */

static nrl_status stanzas_fail(const stanzas_dataset *d, int64_t line, const char *what)
{
    return nrl_fail(NRL_ERR_DATA, "%s:%lld: %s", d->path, (long long)line, what);
}

static void stanzas_close_range(void *range)
{
    stanzas_range *g = range;
    free(g->text);
    free(g);
}

static nrl_status stanzas_add(stanzas_range *g, const char *line, size_t size)
{
    while (g->size + size + 1 > g->room) {
        size_t room = g->room ? 2 * g->room : RANGE_BYTES / 4;
        char *text = realloc(g->text, room);
        if (!text) return nrl_fail(NRL_ERR_MEMORY, "%s: cannot allocate %zu bytes for rows", g->of->path, room);
        g->text = text;
        g->room = room;
    }
    memcpy(g->text + g->size, line, size + 1); /* including the NUL that getline writes */
    g->size += size;
    return NRL_OK;
}

/* Whether a line, with or without its end, is the separator. */
static bool stanzas_ends_row(const stanzas_dataset *d, const char *line)
{
    size_t n = strcspn(line, "\n");
    return n == strlen(d->options->separator) && !memcmp(line, d->options->separator, n);
}

/* Reads lines up to the first separator after RANGE_BYTES. */
static nrl_status stanzas_read_lines(stanzas_dataset *d, stanzas_range *g)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    nrl_status st = NRL_OK;
    while (st == NRL_OK && (n = getline(&line, &room, d->file)) > 0) {
        if (strlen(line) != (size_t)n)
            st = stanzas_fail(d, d->line, "the line has a NUL character");
        else if (g->size > RANGE_BYTES + MAX_ROW)
            st = stanzas_fail(d, d->line, "a row of more than 16 MiB");
        else
            st = stanzas_add(g, line, (size_t)n);
        d->line++;
        if (g->size >= RANGE_BYTES && stanzas_ends_row(d, line)) break;
    }
    free(line);
    return st == NRL_OK && ferror(d->file) ? nrl_fail(NRL_ERR_IO, "%s: %s", d->path, strerror(errno)) : st;
}

static nrl_status stanzas_next_range(void *self, void **range)
{
    stanzas_dataset *d = self;
    *range = NULL;
    stanzas_range *g = calloc(1, sizeof *g);
    if (!g) return nrl_fail(NRL_ERR_MEMORY, "%s: cannot allocate a range", d->path);
    g->of = d;
    g->line = d->line;
    nrl_status st = stanzas_read_lines(d, g);
    g->at = g->text;
    if (st == NRL_OK && g->size)
        *range = g;
    else
        stanzas_close_range(g);
    return st;
}

/* ---- rows ---- */

static bool stanzas_is_utf8(const char *text, size_t size)
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

/* "KEY: VALUE" and the lines that continue it, joined in place. */
static nrl_status stanzas_value(stanzas_range *g, nrl_arena *memory, nrl_node *map)
{
    const int64_t line = g->line;
    char *key = g->at, *colon = key + strcspn(key, ":\n"), *value, *out;
    if (*colon != ':' || colon == key) return stanzas_fail(g->of, line, "expected KEY: VALUE");
    *colon = 0;
    if (nrl_node_find(map, key))
        return nrl_fail(NRL_ERR_DATA, "%s:%lld: the key '%s' is already in this row", g->of->path, (long long)line,
                        key);
    value = out = colon + 1 + (colon[1] == ' ');
    g->at = value;
    for (;;) {
        size_t n = strcspn(g->at, "\n");
        memmove(out, g->at, n);
        out += n;
        g->at += n;
        if (!*g->at) break;
        g->at++;
        g->line++;
        if (*g->at != ' ') break;
        *out++ = '\n';
        g->at++;
    }
    if (!stanzas_is_utf8(key, strlen(key)) || !stanzas_is_utf8(value, (size_t)(out - value)))
        return stanzas_fail(g->of, line, "the key or its value is not valid UTF-8");
    nrl_node_put(memory, map, key, nrl_node_new_string(memory, value, (size_t)(out - value)));
    return NRL_OK;
}

static nrl_status stanzas_next_row(void *range, nrl_arena *memory, const nrl_node **row)
{
    stanzas_range *g = range;
    *row = NULL;
    while (*g->at && stanzas_ends_row(g->of, g->at)) {
        g->at += strcspn(g->at, "\n");
        g->at += *g->at == '\n';
        g->line++;
    }
    if (!*g->at) return NRL_OK;
    nrl_node *map = nrl_node_new(memory, NRL_NODE_MAP);
    nrl_node_set_place(map, g->of->path, (uint32_t)g->line, 1);
    while (*g->at && !stanzas_ends_row(g->of, g->at))
        NRL_TRY(stanzas_value(g, memory, map));
    *row = map;
    return NRL_OK;
}

/* ---- writing ---- */

static nrl_status stanzas_write(const void *options, const char *path, const nrl_node *rows)
{
    const char *separator = ((const stanzas_options *)options)->separator;
    FILE *f = fopen(path, "wbe");
    if (!f) return nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
    for (size_t i = 0; i < nrl_node_size(rows); i++) {
        const nrl_node *row = nrl_node_at(rows, i);
        if (i) fprintf(f, "%s\n", separator);
        for (size_t k = 0; k < nrl_node_size(row); k++) {
            const char *text = nrl_node_string(nrl_node_at(row, k), "");
            fprintf(f, "%s: ", nrl_node_key(row, k));
            for (const char *c = text; *c; c++) {
                putc(*c, f);
                if (*c == '\n') putc(' ', f);
            }
            putc('\n', f);
        }
    }
    bool written = !ferror(f);
    if (fclose(f)) written = false;
    return written ? NRL_OK : nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
}

static const nrl_dataset stanzas = {
    NRL_PLUGIN(NRL_KIND_DATASET, nrl_dataset, stanzas_options, stanzas_rows, "stanzas", "1.0",
               "rows of stanzas: lines KEY: VALUE, and an empty line between rows"),
    .plugin.check = stanzas_check,
    .probe = stanzas_probe,
    .open = stanzas_open,
    .close = stanzas_close,
    .info = stanzas_info,
    .next_range = stanzas_next_range,
    .next_row = stanzas_next_row,
    .close_range = stanzas_close_range,
    .extension = "stanzas",
    .write = stanzas_write,
};
NRL_EXPORT(stanzas)
