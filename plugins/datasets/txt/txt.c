/*
 * txt.c - rows {"text"} from plain text: each line, each paragraph or the whole file is one. With the option chunk a
 * longer text becomes several rows, cut before white space where that is possible; without overlap, the rows of a
 * document joined again are the document.
 * The thread that takes ranges finds where rows begin and end; texts are checked and copied by the thread that reads
 * the range.
 */
#include "base/arena.h"
#include "base/utf8.h"
#include "text_window.h"
#include <inttypes.h>
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>

typedef enum { TXT_LINE = 0, TXT_PARAGRAPH, TXT_DOCUMENT } txt_unit;

typedef struct {
    int64_t sample_by, chunk, overlap;
} txt_options;

/* A chunk has at most 4 MiB of text, so the window can hold it. */
static const nrl_option txt_rows[] = {
    NRL_OPT_ENUM(txt_options, sample_by, "line", "line|paragraph|document",
                 "the unit of a row: a line, the lines up to an empty line, or the whole file"),
    NRL_OPT_INT(txt_options, chunk, "0", 0, 1 << 20,
                "maximum number of characters of a row; longer texts become several rows; 0: no limit"),
    NRL_OPT_INT(txt_options, overlap, "0", 0, 1 << 19,
                "characters at the end of a chunk that the next chunk repeats, at most half of chunk"),
};

typedef struct {
    text_window window;
    const txt_options *options;
} txt_dataset;

typedef struct {
    size_t at, size;
    int64_t line;
} txt_span;

typedef struct {
    const txt_dataset *of;
    char *text;
    txt_span *spans;
    size_t n, room, n_read;
} txt_range;

/* ---- opening ---- */

static const char txt_expected[] = "plain text in UTF-8";
static const char *const txt_endings[] = {".txt", ".text", ".md", ".markdown", NULL};

/* JSON lines are sometimes called .txt, so plugins that read JSON have precedence. */
static bool txt_looks_like_json(const char *path)
{
    text_window w;
    if (text_window_open(path, false, &w) != NRL_OK) return false;
    bool json = false;
    if (text_window_fill(&w, 64, txt_expected) == NRL_OK) {
        size_t i = 0;
        char c[2] = {0};
        for (int k = 0; k < 2; k++) {
            while (i < w.size && strchr(" \t\r\n", w.text[i]))
                i++;
            if (i < w.size) c[k] = w.text[i++];
        }
        json = (c[0] == '{' && c[1] == '"') || (c[0] == '[' && c[1] == '{');
    }
    text_window_close(&w);
    return json;
}

static int32_t txt_probe(const nrl_dataset_source *source)
{
    if (!file_name_ends_in(source->path, txt_endings, NULL)) return NRL_PROBE_NO;
    return txt_looks_like_json(source->path) ? NRL_PROBE_NAME : NRL_PROBE_YES;
}

static nrl_status txt_check(const void *options)
{
    const txt_options *o = options;
    if (o->overlap * 2 <= o->chunk) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "overlap %" PRId64 ": expected at most half of chunk, which is %" PRId64,
                    o->overlap, o->chunk);
}

static void txt_close(void *self)
{
    txt_dataset *d = self;
    text_window_close(&d->window);
    free(d);
}

static nrl_status txt_open(const void *options, const nrl_dataset_source *source, void **self)
{
    text_window window;
    NRL_TRY(text_window_open(source->path, source->flags & NRL_DATASET_PIPE, &window));
    txt_dataset *d = mem_alloc(sizeof *d);
    *d = (txt_dataset){window, options};
    *self = d;
    return NRL_OK;
}

static void txt_info(const void *self, nrl_dataset_info *info)
{
    (void)self;
    (void)info;
}

/* ---- where a text ends ---- */

/* The next line of text[0..size): its size without and with its end. False: its end is not in the window. */
static bool txt_line(const char *text, size_t size, bool end, size_t *line, size_t *whole)
{
    const char *newline = size ? memchr(text, '\n', size) : NULL;
    if (!newline && !end) return false;
    *line = newline ? (size_t)(newline - text) : size;
    *whole = *line + (newline != NULL);
    if (*line && text[*line - 1] == '\r') (*line)--;
    return true;
}

static bool txt_is_blank(const char *text, size_t size)
{
    for (size_t i = 0, n; i < size; i += n)
        if (!utf8_is_space(utf8_check(text + i, text + size, &n))) return false;
    return true;
}

/* The text that begins at `at` of the window, in its first `left` bytes: its size without and with what separates it
 * from the next text. `end`: nothing follows these bytes. False: its end is not in them. */
static bool txt_unit_size(const txt_dataset *d, size_t at, size_t left, bool end, size_t *size, size_t *whole)
{
    const char *text = d->window.text + at;
    size_t line, step;
    *size = *whole = left;
    switch ((txt_unit)d->options->sample_by) {
    case TXT_LINE:
        return txt_line(text, left, end, size, whole);
    case TXT_DOCUMENT:
        return end;
    case TXT_PARAGRAPH:
        break;
    }
    for (size_t i = 0; i < left; i += step) {
        if (!txt_line(text + i, left - i, end, &line, &step)) {
            *size = left;
            return false;
        }
        bool blank = txt_is_blank(text + i, line);
        if (!blank) *size = i + line;
        if (!blank) continue;
        if (!i) *size = line; /* an empty line before a paragraph is a text of its own, which is left out */
        *whole = i + step;
        return true;
    }
    return end;
}

/* ---- chunks ---- */

/* Bytes of the first n characters, or `size` if there are fewer. */
static size_t txt_prefix(const char *text, size_t size, int64_t n)
{
    size_t i = 0;
    for (; i < size; i++)
        if (((unsigned char)text[i] & 0xC0) != 0x80 && n-- == 0) break;
    return i;
}

/* The last begin of white space in (least, most], or else `most`. */
static size_t txt_cut(const char *text, size_t size, size_t least, size_t most)
{
    for (size_t i = most; i > least; i = (size_t)(utf8_back(text, text + i) - text)) {
        size_t n;
        if (utf8_is_space(utf8_check(text + i, text + size, &n))) return i;
    }
    return most;
}

/* The next chunk begins about `overlap` characters before `cut`, where white space begins. */
static size_t txt_step(const txt_dataset *d, const char *text, size_t cut)
{
    size_t at = cut;
    for (int64_t n = d->options->overlap; n > 0 && at; n--)
        at = (size_t)(utf8_back(text, text + at) - text);
    if (!at) return cut; /* only in what is not UTF-8: `cut` is behind half of the chunk */
    for (size_t i = at, n; i < cut; i += n)
        if (utf8_is_space(utf8_check(text + i, text + cut, &n))) return i;
    return at;
}

/* The row that begins at `at`: its size, and where the next one begins, relative to it. False: the window does not have
 * all of it. A chunk has at most 4 bytes a character; no more of a long text is looked at. */
static bool txt_row_size(const txt_dataset *d, size_t at, size_t *size, size_t *next)
{
    const char *text = d->window.text + at;
    const int64_t chunk = d->options->chunk;
    const size_t all = d->window.size - at, enough = 4 * (size_t)chunk + 8;
    const bool part = chunk && enough < all;
    bool whole = txt_unit_size(d, at, part ? enough : all, d->window.end && !part, size, next);
    if (!chunk) return whole;
    size_t most = txt_prefix(text, *size, chunk);
    if (most == *size) return whole || part; /* such a part is not UTF-8, which its row reports */
    if (!whole && !part) return false;
    *size = txt_cut(text, *size, txt_prefix(text, *size, chunk / 2), most);
    *next = txt_step(d, text, *size);
    return true;
}

/* ---- ranges ---- */

static void txt_close_range(void *range)
{
    txt_range *g = range;
    free(g->spans);
    free(g->text);
    free(g);
}

static nrl_status txt_add(txt_range *g, txt_span span)
{
    if (g->n == g->room) {
        size_t room = g->room ? 2 * g->room : 64;
        txt_span *spans = mem_try_grow(g->spans, room * sizeof *spans, g->of->window.path);
        if (!spans) return NRL_ERR_MEMORY;
        g->spans = spans;
        g->room = room;
    }
    g->spans[g->n++] = span;
    return NRL_OK;
}

/* Rows from the window until there is enough text, or the window has no whole row any more: *done bytes are read. */
static nrl_status txt_find_rows(txt_dataset *d, txt_range *g, size_t *done, size_t *used)
{
    const char *text = d->window.text;
    size_t at = 0, size, next;
    int64_t line = d->window.line;
    *used = 0;
    while (at < d->window.size && at < TEXT_RANGE && txt_row_size(d, at, &size, &next)) {
        if (!txt_is_blank(text + at, size)) {
            if (size > TEXT_MAX_ROW) break;
            NRL_TRY(txt_add(g, (txt_span){at, size, line}));
            *used = at + size;
        }
        for (const char *c = text + at; (c = memchr(c, '\n', (size_t)(text + at + next - c))); c++)
            line++;
        at += next;
    }
    *done = at;
    if (*used < at) *used = at;
    return NRL_OK;
}

static nrl_status txt_fill_range(txt_dataset *d, txt_range *g, bool *end)
{
    size_t done = 0, used = 0;
    for (size_t room = 2 * TEXT_RANGE; !done; room *= 2) {
        NRL_TRY(text_window_fill(&d->window, room, txt_expected));
        NRL_TRY(txt_find_rows(d, g, &done, &used));
        *end = d->window.end && !d->window.size;
        if (*end) return NRL_OK;
        if (!done && d->window.size > TEXT_MAX_ROW)
            return nrl_fail(NRL_ERR_DATA,
                            "%s:%" PRId64 ": a text of more than 16 MiB begins here\n"
                            "hint: the option chunk of the reader splits a long text into several rows",
                            d->window.path, d->window.line);
    }
    return text_window_take(&d->window, used, done, &g->text);
}

static nrl_status txt_next_range(void *self, void **range)
{
    txt_dataset *d = self;
    bool end = false;
    *range = NULL;
    txt_range *g = mem_try(sizeof *g, d->window.path);
    if (!g) return NRL_ERR_MEMORY;
    g->of = d;
    nrl_status st = txt_fill_range(d, g, &end);
    if (st == NRL_OK && !end)
        *range = g;
    else
        txt_close_range(g);
    return st;
}

static bool txt_tell(const void *self, char out[NRL_DATASET_POSITION])
{
    return text_window_tell(&((const txt_dataset *)self)->window, out);
}

static nrl_status txt_seek(void *self, const char *position)
{
    return text_window_seek(&((txt_dataset *)self)->window, position);
}

/* ---- rows ---- */

static nrl_status txt_verify(const txt_range *g, const txt_span *s)
{
    const char *text = g->text + s->at, *end = text + s->size;
    int64_t line = s->line;
    if (utf8_valid(text, s->size) && !memchr(text, 0, s->size)) return NRL_OK;
    for (size_t n; text < end; text += n) {
        int32_t c = utf8_check(text, end, &n);
        if (c <= 0)
            return nrl_fail(NRL_ERR_DATA, "%s:%" PRId64 ": %s", g->of->window.path, line,
                            c ? "the text is not UTF-8" : "the text contains a NUL character");
        line += c == '\n';
    }
    return NRL_OK;
}

static nrl_status txt_next_row(void *range, nrl_arena *memory, const nrl_node **row)
{
    txt_range *g = range;
    *row = NULL;
    if (g->n_read == g->n) return NRL_OK;
    const txt_span *s = &g->spans[g->n_read++];
    NRL_TRY(txt_verify(g, s));
    nrl_node *map = nrl_node_new(memory, NRL_NODE_MAP);
    nrl_node_put(memory, map, "text", nrl_node_new_string(memory, g->text + s->at, s->size));
    nrl_node_set_place(map, g->of->window.path, (uint32_t)s->line, 1);
    *row = map;
    return NRL_OK;
}

static const nrl_dataset txt = {
    NRL_PLUGIN(NRL_KIND_DATASET, nrl_dataset, txt_options, txt_rows, "txt", "0.1",
               "rows of plain text: lines, paragraphs or whole files"),
    .plugin.check = txt_check,
    .probe = txt_probe,
    .open = txt_open,
    .close = txt_close,
    .info = txt_info,
    .next_range = txt_next_range,
    .next_row = txt_next_row,
    .close_range = txt_close_range,
    .tell = txt_tell,
    .seek = txt_seek,
};
NRL_EXPORT(txt)
