/*
 * datasets.h - datasets that break one rule each, with the rule that must detect it. The correct
 * one reads a file of lines: key, tab, text, tab, key, tab, text; line ends, tabs and backslashes
 * are escaped.
 */
#ifndef WRONG_DATASETS_H
#define WRONG_DATASETS_H
#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/node.h"
#include <errno.h>
#include <fcntl.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
    RIGHT = 0,
    MISPLACED,
    UNPLACED,
    FALLING,
    ENDLESS,
    OVERLAPPING,
    DROPPING,
    CHANGING,
    BOASTING,
    STALE,
    NAMING,
    WORDY,
    LEAKING,
    HOLDING,
    CRASHING,
    SHARING,
    NAMELESS,
    ABSENT,
    TRIMMING,
    WHOLE,
    ENTANGLED,
    SINGLE,
    LISTING,
    TURNED,
    PLACELESS,
    ASTRAY,
    CREDULOUS
} fault;

enum { RANGE_ROWS = 1000 };

typedef struct {
    fault wrong;
    char *path, *text, *at, *cursor; /* `at`: where the next range begins, `cursor` the latest */
    size_t size;
    int64_t rows, line;
    char hash[HASH_TEXT + 8];
} lines;

typedef struct {
    lines *of;
    char *at;
    int64_t line, left;
    arena shared;
} lines_range;

static int n_opened;
static lines *current;

static int32_t right_probe(const nrl_dataset_source *source)
{
    const char *dot = strrchr(source->path, '.');
    return dot && !strcmp(dot, ".lines") ? NRL_PROBE_YES : NRL_PROBE_NO;
}

static int32_t greedy_probe(const nrl_dataset_source *source)
{
    (void)source;
    return NRL_PROBE_PERHAPS;
}

static int32_t modest_probe(const nrl_dataset_source *source)
{
    (void)source;
    return NRL_PROBE_NO;
}

static nrl_status open_with(fault wrong, const nrl_dataset_source *source, void **self)
{
    char *text;
    size_t size;
    if (file_read(source->path, (size_t)1 << 30, &text, &size) != NRL_OK)
        return nrl_fail(wrong == ABSENT ? NRL_ERR_IO : NRL_ERR_CONFIG, "%s: cannot be read", source->path);
    if (wrong == CRASHING && !size) abort();
    lines *d = mem_alloc(sizeof *d);
    d->wrong = wrong;
    d->path = mem_strdup(source->path);
    d->text = mem_alloc(size + 2);
    memcpy(d->text, text, size);
    free(text);
    if (size && d->text[size - 1] != '\n') {
        if (wrong == ENDLESS) size = strrchr(d->text, '\n') ? (size_t)(strrchr(d->text, '\n') + 1 - d->text) : 0;
        if (wrong == TURNED && strchr(d->text, '\n')) d->at = strchr(d->text, '\n') + 1;
        if (wrong != ENDLESS) d->text[size++] = '\n';
    }
    d->text[size] = 0;
    d->size = size;
    if (!d->at) d->at = d->text;
    d->line = 1;
    for (const char *c = d->text; *c; c++)
        d->rows += *c == '\n';
    if (wrong == BOASTING) d->rows++;
    hash_bytes(d->text, size, d->hash);
    if (wrong == STALE) strcpy(d->hash, "0123");
    if (wrong == NAMING) hash_bytes(d->path, strlen(d->path), d->hash);
    if (wrong == WORDY) strcpy(d->hash, "no digits");
    if (wrong == LEAKING && !malloc(100)) abort();
    if (wrong == HOLDING && open("/dev/null", O_RDONLY) < 0) abort();
    n_opened++;
    current = d;
    *self = d;
    return NRL_OK;
}

static void right_close(void *self)
{
    lines *d = self;
    if (current == d) current = NULL;
    free(d->text);
    free(d->path);
    free(d);
}

static void right_info(const void *self, nrl_dataset_info *info)
{
    const lines *d = self;
    info->rows = d->rows;
    info->bytes = (int64_t)d->size;
    info->hash = d->hash;
}

static nrl_status right_next_range(void *self, void **range)
{
    lines *d = self;
    *range = NULL;
    if (d->wrong == SINGLE && d != current) return NRL_OK;
    if (!*d->at) return NRL_OK;
    lines_range *g = mem_alloc(sizeof *g);
    *g = (lines_range){.of = d, .at = d->at, .line = d->line};
    char *last = d->at;
    for (; *d->at && (g->left < RANGE_ROWS || d->wrong == WHOLE); g->left++) {
        last = d->at;
        d->at = strchr(d->at, '\n') + 1;
    }
    d->line += g->left;
    if (d->wrong == OVERLAPPING && *d->at) {
        d->at = last;
        d->line--;
    }
    if (d->wrong == DROPPING && *d->at && d->at[1]) {
        d->at = strchr(d->at, '\n') + 1;
        d->line++;
    }
    d->cursor = g->at;
    *range = g;
    return NRL_OK;
}

/* The next text of a line, unescaped in place of a copy; *c moves behind it. */
static const nrl_node *read_text(arena *a, const char **c, char *key, size_t room)
{
    char *out = arena_alloc(a, strcspn(*c, "\n") + 1);
    size_t n = 0;
    for (; **c && **c != '\t' && **c != '\n'; (*c)++) {
        char k = **c;
        if (k == '\\' && (*c)[1] && (*c)[1] != '\n') {
            k = *++*c;
            k = k == 'n' ? '\n' : k == 'r' ? '\r' : k == 't' ? '\t' : k;
        }
        out[n++] = k;
    }
    if (**c == '\t') ++*c;
    if (key) snprintf(key, room, "%.*s", (int)n, out);
    return key ? NULL : node_string(a, out, n);
}

static nrl_status right_next_row(void *range, nrl_arena *memory, const nrl_node **row)
{
    lines_range *g = range;
    lines *d = g->of;
    arena *a = d->wrong == SHARING ? &g->shared : memory;
    char key[64];
    *row = NULL;
    if (!g->left) return NRL_OK;
    if (d->wrong == ENTANGLED && g->left % RANGE_ROWS == 0) g->at = d->cursor;
    if (d->wrong == SHARING) arena_reset(a);
    g->left--;
    nrl_node *map = node_new(a, d->wrong == LISTING ? NRL_NODE_LIST : NRL_NODE_MAP);
    const char *c = g->at;
    while (*c && *c != '\n') {
        read_text(a, &c, key, sizeof key);
        nrl_node *value = (nrl_node *)(uintptr_t)read_text(a, &c, NULL, 0);
        if (d->wrong == TRIMMING)
            while (value->size && value->as.string[value->size - 1] == ' ')
                value->size--;
        if (d->wrong == CHANGING && n_opened % 2) value->size = value->size ? value->size - 1 : 0;
        if (d->wrong == LISTING)
            node_append(a, map, NULL, value);
        else if (!nrl_node_find(map, key))
            node_append(a, map, key, value);
    }
    if (d->wrong == NAMELESS && g->at[0] != 'p') return nrl_fail(NRL_ERR_DATA, "a line without a prompt");
    g->at = strchr(g->at, '\n') + 1;
    int64_t line = g->line++;
    line = d->wrong == MISPLACED ? line + 1 : d->wrong == UNPLACED ? 0 : d->wrong == FALLING ? 100000 - line : line;
    nrl_node_set_place(map, d->wrong == PLACELESS ? "somewhere" : d->path, (uint32_t)line, 1);
    *row = map;
    return NRL_OK;
}

static void right_close_range(void *range)
{
    lines_range *g = range;
    arena_free(&g->shared);
    free(g);
}

static bool right_tell(const void *self, char out[NRL_DATASET_POSITION])
{
    const lines *d = self;
    snprintf(out, NRL_DATASET_POSITION, "%td %lld", d->at - d->text, (long long)d->line);
    return true;
}

static nrl_status right_seek(void *self, const char *position)
{
    lines *d = self;
    long long line;
    size_t at = 0;
    if (sscanf(position, "%zu %lld", &at, &line) != 2 || at > d->size)
        return d->wrong == CREDULOUS ? NRL_OK : nrl_fail(NRL_ERR_DATA, "%s: no position", d->path);
    d->at = d->text + at;
    d->line = line + (d->wrong == ASTRAY);
    return NRL_OK;
}

static void write_text(FILE *f, const char *text, size_t size)
{
    static const char special[] = "\n\r\t\\", escaped[] = "nrt\\";
    for (size_t i = 0; i < size; i++) {
        const char *found = memchr(special, text[i], sizeof special - 1);
        if (found) fputc('\\', f);
        fputc(found ? escaped[found - special] : text[i], f);
    }
}

static nrl_status right_write(const void *options, const char *path, const nrl_node *rows)
{
    (void)options;
    FILE *f = fopen(path, "wbe");
    if (!f) return nrl_fail(NRL_ERR_IO, "%s: cannot be written", path);
    for (size_t i = 0; i < nrl_node_size(rows); i++) {
        const nrl_node *row = nrl_node_at(rows, i);
        for (size_t k = 0; k < nrl_node_size(row); k++) {
            const nrl_node *value = nrl_node_at(row, k);
            fprintf(f, "%s%s\t", k ? "\t" : "", nrl_node_key(row, k));
            write_text(f, nrl_node_string(value, ""), nrl_node_string_size(value));
        }
        fputc('\n', f);
    }
    return fclose(f) ? nrl_fail(NRL_ERR_IO, "%s: cannot be written", path) : NRL_OK;
}

#define OPEN(name, wrong)                                                                                              \
    static nrl_status name##_open(const void *options, const nrl_dataset_source *source, void **self)                  \
    {                                                                                                                  \
        (void)options;                                                                                                 \
        return open_with(wrong, source, self);                                                                         \
    }
OPEN(right, RIGHT)
OPEN(misplaced, MISPLACED)
OPEN(unplaced, UNPLACED)
OPEN(falling, FALLING)
OPEN(endless, ENDLESS)
OPEN(overlapping, OVERLAPPING)
OPEN(dropping, DROPPING)
OPEN(changing, CHANGING)
OPEN(boasting, BOASTING)
OPEN(stale, STALE)
OPEN(naming, NAMING)
OPEN(wordy, WORDY)
OPEN(leaking, LEAKING)
OPEN(holding, HOLDING)
OPEN(crashing, CRASHING)
OPEN(sharing, SHARING)
OPEN(nameless, NAMELESS)
OPEN(absent, ABSENT)
OPEN(trimming, TRIMMING)
OPEN(whole, WHOLE)
OPEN(entangled, ENTANGLED)
OPEN(single, SINGLE)
OPEN(listing, LISTING)
OPEN(turned, TURNED)
OPEN(placeless, PLACELESS)
OPEN(astray, ASTRAY)
OPEN(credulous, CREDULOUS)
#undef OPEN

#define TABLE(nm, rule, p, o, n, e)                                                                                    \
    {                                                                                                                  \
        NRL_PLUGIN_PLAIN(NRL_KIND_DATASET, nrl_dataset, #nm, "0", rule),                                               \
            .probe = p, .open = o, .close = right_close, .info = right_info, .next_range = right_next_range,           \
            .next_row = n, .close_range = right_close_range, .extension = e, .write = right_write, .tell = right_tell, \
            .seek = right_seek                                                                                         \
    }
#define WRONG(nm, rule) TABLE(nm, rule, right_probe, nm##_open, right_next_row, "lines")
static const nrl_dataset wrong[] = {
    WRONG(right, "nothing is wrong with it"),
    WRONG(misplaced, "a row's line is where the file has it"),
    WRONG(unplaced, "a row has a line, from 1"),
    WRONG(falling, "lines never fall"),
    WRONG(placeless, "a row names its path"),
    WRONG(endless, "the last row needs no line end"),
    WRONG(overlapping, "every row is given once"),
    WRONG(dropping, "every row is given once"),
    WRONG(changing, "a second reading gives the same rows"),
    WRONG(boasting, "the number of rows is the announced one"),
    WRONG(stale, "another content has another hash"),
    WRONG(naming, "equal content has an equal hash"),
    WRONG(wordy, "a hash is up to 64 hex digits"),
    WRONG(leaking, "readings leave no memory behind"),
    WRONG(holding, "nothing stays open"),
    WRONG(crashing, "an empty file has no rows"),
    WRONG(sharing, "a row stays valid as long as its memory"),
    WRONG(nameless, "an error names the path"),
    WRONG(absent, "a missing path is NRL_ERR_CONFIG"),
    WRONG(trimming, "a row has the texts that were written"),
    WRONG(whole, "many rows are more than one range"),
    WRONG(entangled, "threads read the same rows in the same order"),
    WRONG(single, "instances live side by side"),
    WRONG(listing, "a row is a map"),
    WRONG(astray, "a source goes on where it said that it was"),
    WRONG(credulous, "no position is NRL_ERR_DATA"),
    WRONG(turned, "a truncated file gives its first rows or an error"),
#undef WRONG
#define WRONG TABLE
    WRONG(greedy, "a probe leaves other files alone", greedy_probe, right_open, right_next_row, "lines"),
    WRONG(modest, "a probe knows the plugin's own files", modest_probe, right_open, right_next_row, "lines"),
    WRONG(unnamed, "a writer has an extension", right_probe, right_open, right_next_row, NULL),
    WRONG(lacks_next_row, "next_row is NULL", right_probe, right_open, NULL, "lines"),
};
#undef WRONG
#undef TABLE

#endif
