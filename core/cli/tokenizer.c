/*
 * tokenizer.c - the verb `nrl tokenizer train|encode|decode`. Files are read line by line, so memory
 * is bounded by the longest line, and that by MAX_LINE, whatever the file's size or shape.
 */
#include "base/buffer.h"
#include "base/json.h"
#include "cli/cli.h"
#include "text/tokenizer.h"
#include "text/train.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 16 << 20, READ_SIZE = 1 << 16, WRITE_SIZE = 1 << 18 };

typedef struct {
    const char *tokenizer, *out, *pattern, *special, *vocab_size, *min_frequency;
    bool jsonl, add_special, skip_special;
    char **files; /* [n_files] */
    int n_files;
} arguments;

/* ---- arguments ---- */

static nrl_status read_arguments(int argc, char **argv, arguments *a)
{
    const struct {
        const char *flag;
        const char **value;
    } values[] = {{"--tokenizer", &a->tokenizer},   {"--out", &a->out},
                  {"--pattern", &a->pattern},       {"--special", &a->special},
                  {"--vocab-size", &a->vocab_size}, {"--min-frequency", &a->min_frequency}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        NRL_TRY(cli_take_value(&argc, argv, values[i].flag, values[i].value));
    a->jsonl = cli_take_flag(&argc, argv, "--jsonl");
    a->add_special = cli_take_flag(&argc, argv, "--add-special");
    a->skip_special = cli_take_flag(&argc, argv, "--skip-special");
    NRL_TRY(cli_expect(argc, argv, 2, -1)); /* what to do, and a file */
    a->files = argv + 2;
    a->n_files = argc - 2;
    return NRL_OK;
}

static nrl_status whole_number(const char *text, const char *name, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (!*text || *end || errno)
        return nrl_fail(NRL_ERR_CONFIG, "%s: '%s', expected a whole number", name, text);
    *out = v;
    return NRL_OK;
}

/* ---- lines in, lines out ---- */

typedef struct {
    const char *name;
    FILE *file;
    buffer line;
    size_t number;
} source;

static nrl_status source_open(source *s, const char *name)
{
    *s = (source){.name = !strcmp(name, "-") ? "standard input" : name};
    s->file = strcmp(name, "-") ? fopen(name, "rb") : stdin;
    if (!s->file) return nrl_fail(NRL_ERR_IO, "%s cannot be read: %s", name, strerror(errno));
    return NRL_OK;
}

static void source_close(source *s)
{
    if (s->file && s->file != stdin) fclose(s->file);
    buffer_free(&s->line);
}

/* The next line without its end; false at the end of the file. */
static nrl_status source_next(source *s, bool *more)
{
    char piece[READ_SIZE];
    s->line.size = 0;
    size_t n = 0;
    int c = 0;
    s->number++;
    flockfile(s->file);
    while (s->line.size + n <= MAX_LINE && (c = getc_unlocked(s->file)) != EOF && c != '\n') {
        piece[n++] = (char)c;
        if (n == sizeof piece) {
            buffer_add(&s->line, piece, n);
            n = 0;
        }
    }
    funlockfile(s->file);
    buffer_add(&s->line, piece, n);
    if (ferror(s->file)) return nrl_fail(NRL_ERR_IO, "%s cannot be read: %s", s->name, strerror(errno));
    if (s->line.size > MAX_LINE)
        return nrl_fail(NRL_ERR_DATA, "%s:%zu: a line of more than %d bytes, expected less\n  use "
                                      "--jsonl with shorter rows, or break the line",
                        s->name, s->number, MAX_LINE);
    *more = c == '\n' || s->line.size > 0;
    return NRL_OK;
}

static nrl_status flush_output(buffer *out, bool all)
{
    if (out->size < WRITE_SIZE && !all) return NRL_OK;
    bool ok = !out->size || fwrite(out->text, 1, out->size, stdout) == out->size;
    out->size = 0;
    if (all && fflush(stdout)) ok = false;
    if (ok) return NRL_OK;
    return nrl_fail(errno == ENOSPC || errno == EFBIG ? NRL_ERR_FULL : NRL_ERR_IO,
                    "standard output cannot be written: %s", strerror(errno));
}

/* The member of a row {"text": ...} or {"ids": ...}. */
static nrl_status row_member(const source *s, arena *a, const char *key, nrl_node_type type,
                             const nrl_node **out)
{
    nrl_node *row;
    const char *place = arena_printf(a, "%s:%zu", s->name, s->number);
    NRL_TRY(json_parse(a, place, s->line.text ? s->line.text : "", s->line.size, &row));
    *out = nrl_node_find(row, key);
    if (nrl_node_kind(*out) == type) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "%s: expected a row {\"%s\": %s}", place, key,
                    type == NRL_NODE_STRING ? "\"...\"" : "[...]");
}

/* ---- encode ---- */

typedef struct {
    const arguments *a;
    tokenizer *tok;
    tokenizer_scratch *scratch;
    tokenizer_ids ids;
    arena memory; /* one row's tree */
    buffer out;
} work;

static void put_id(buffer *out, int32_t id)
{
    char digits[12];
    size_t n = sizeof digits;
    do digits[--n] = (char)('0' + id % 10);
    while ((id /= 10) > 0);
    buffer_add(out, digits + n, sizeof digits - n);
}

static nrl_status encode_line(work *w, const source *s)
{
    const char *text = s->line.text ? s->line.text : "";
    size_t size = s->line.size;
    if (w->a->jsonl) {
        const nrl_node *node;
        NRL_TRY(row_member(s, &w->memory, "text", NRL_NODE_STRING, &node));
        text = nrl_node_string(node, "");
        size = nrl_node_string_size(node);
    }
    w->ids.n = 0;
    unsigned flags = w->a->add_special ? TOKENIZER_ADD_SPECIAL : 0;
    NRL_TRY(tokenizer_encode(w->tok, w->scratch, text, size, flags, &w->ids));
    if (w->a->jsonl) buffer_puts(&w->out, "{\"ids\": [");
    for (size_t i = 0; i < w->ids.n; i++) {
        if (i) buffer_puts(&w->out, w->a->jsonl ? ", " : " ");
        put_id(&w->out, w->ids.ids[i]);
        NRL_TRY(flush_output(&w->out, false));
    }
    buffer_puts(&w->out, w->a->jsonl ? "]}\n" : "\n");
    return flush_output(&w->out, false);
}

/* ---- decode ---- */

static nrl_status push_id(work *w, const source *s, int64_t id)
{
    if (id < 0 || id >= tokenizer_vocab_size(w->tok))
        return nrl_fail(NRL_ERR_DATA, "%s:%zu: token id %lld, expected 0 to %d", s->name, s->number,
                        (long long)id, tokenizer_vocab_size(w->tok) - 1);
    tokenizer_ids_push(&w->ids, (int32_t)id, 0);
    return NRL_OK;
}

static nrl_status read_ids_line(work *w, const source *s)
{
    const char *p = s->line.text ? s->line.text : "", *end = p + s->line.size;
    while (p < end) {
        if (*p == ' ' || *p == '\t' || *p == '\r' || *p == ',') {
            p++;
            continue;
        }
        char *stop;
        errno = 0;
        long long id = strtoll(p, &stop, 10);
        if (stop == p || errno)
            return nrl_fail(NRL_ERR_DATA, "%s:%zu:%zu: expected token ids with spaces between", s->name,
                            s->number, (size_t)(p - s->line.text) + 1);
        NRL_TRY(push_id(w, s, id));
        p = stop;
    }
    return NRL_OK;
}

static nrl_status read_ids_row(work *w, const source *s)
{
    const nrl_node *list;
    NRL_TRY(row_member(s, &w->memory, "ids", NRL_NODE_LIST, &list));
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const nrl_node *id = nrl_node_at(list, i);
        if (nrl_node_kind(id) != NRL_NODE_INT)
            return nrl_fail(NRL_ERR_DATA, "%s:%zu: ids[%zu]: expected a whole number", s->name, s->number, i);
        NRL_TRY(push_id(w, s, nrl_node_int(id, -1)));
    }
    return NRL_OK;
}

static nrl_status decode_line(work *w, const source *s)
{
    w->ids.n = 0;
    NRL_TRY(w->a->jsonl ? read_ids_row(w, s) : read_ids_line(w, s));
    char *text;
    size_t size;
    nrl_status st = tokenizer_decode(w->tok, w->ids.ids, w->ids.n, w->a->skip_special, &text, &size);
    if (st != NRL_OK) {
        nrl_note("%s:%zu", s->name, s->number);
        return st;
    }
    if (w->a->jsonl) {
        char *quoted = json_quote(text, size);
        buffer_puts(&w->out, "{\"text\": ");
        buffer_puts(&w->out, quoted);
        buffer_puts(&w->out, "}\n");
        free(quoted);
    } else {
        buffer_add(&w->out, text, size);
        buffer_puts(&w->out, "\n");
    }
    free(text);
    return flush_output(&w->out, false);
}

/* ---- the verbs ---- */

static nrl_status each_line(work *w, const char *file, nrl_status (*line)(work *, const source *))
{
    source s;
    bool more = true;
    NRL_TRY(source_open(&s, file));
    nrl_status st = NRL_OK;
    for (;;) {
        st = source_next(&s, &more);
        if (st != NRL_OK || !more) break;
        st = line(w, &s);
        if (st != NRL_OK) break;
        arena_reset(&w->memory);
    }
    source_close(&s);
    return st;
}

static nrl_status run_lines(const arguments *a, nrl_status (*line)(work *, const source *))
{
    if (!a->tokenizer)
        return nrl_fail(NRL_ERR_CONFIG, "--tokenizer: expected a tokenizer's file or folder");
    work w = {.a = a};
    NRL_TRY(tokenizer_open(a->tokenizer, &w.tok));
    w.scratch = tokenizer_scratch_create();
    nrl_status st = NRL_OK;
    for (int i = 0; i < a->n_files && st == NRL_OK; i++) st = each_line(&w, a->files[i], line);
    if (st == NRL_OK) st = flush_output(&w.out, true);
    size_t dropped = tokenizer_scratch_dropped(w.scratch);
    if (dropped) nrl_warn("%zu characters have no token in %s and were left out", dropped, a->tokenizer);
    buffer_free(&w.out);
    arena_free(&w.memory);
    tokenizer_ids_free(&w.ids);
    tokenizer_scratch_destroy(w.scratch);
    tokenizer_close(w.tok);
    return st;
}

/* A place near the end where no word of the known patterns crosses: before a space between two
 * visible ASCII characters. */
static size_t safe_cut(const char *text, size_t size)
{
    for (size_t i = size - 1; i > size / 2; i--)
        if (text[i - 1] == ' ' && i > 1 && text[i - 2] > ' ' && text[i] > ' ') return i - 1;
    size_t i = size;
    while (i > 1 && ((unsigned char)text[i - 1] & 0xc0) == 0x80) i--;
    return i > 1 ? i - 1 : size;
}

/* A plain text is counted whole, in pieces of bounded size. */
static nrl_status count_file(tokenizer_trainer *t, source *s)
{
    char *text = mem_alloc(MAX_LINE);
    size_t n = 0, got;
    nrl_status st = NRL_OK;
    while (st == NRL_OK && (got = fread(text + n, 1, MAX_LINE - n, s->file)) > 0) {
        n += got;
        if (n < MAX_LINE) continue;
        size_t cut = safe_cut(text, n);
        st = tokenizer_trainer_add(t, text, cut);
        memmove(text, text + cut, n - cut);
        n -= cut;
    }
    if (st == NRL_OK && ferror(s->file))
        st = nrl_fail(NRL_ERR_IO, "%s cannot be read: %s", s->name, strerror(errno));
    if (st == NRL_OK && n) st = tokenizer_trainer_add(t, text, n);
    free(text);
    return st;
}

static nrl_status count_rows(tokenizer_trainer *t, source *s)
{
    arena memory = {0};
    bool more = true;
    nrl_status st = NRL_OK;
    while (st == NRL_OK) {
        const nrl_node *text = NULL;
        st = source_next(s, &more);
        if (st != NRL_OK || !more) break;
        st = row_member(s, &memory, "text", NRL_NODE_STRING, &text);
        if (st == NRL_OK)
            st = tokenizer_trainer_add(t, nrl_node_string(text, ""), nrl_node_string_size(text));
        arena_reset(&memory);
    }
    arena_free(&memory);
    return st;
}

static nrl_status count_files(const arguments *a, tokenizer_trainer *t)
{
    for (int i = 0; i < a->n_files; i++) {
        source s;
        NRL_TRY(source_open(&s, a->files[i]));
        nrl_status st = a->jsonl ? count_rows(t, &s) : count_file(t, &s);
        source_close(&s);
        NRL_TRY(st);
    }
    return NRL_OK;
}

/* "a,b" to {"a", "b"}; the texts live in `list`. */
static const char **split_list(char *list, size_t *n)
{
    const char **parts = mem_alloc((strlen(list) + 1) * sizeof *parts);
    for (char *save = NULL, *part = strtok_r(list, ",", &save); part; part = strtok_r(NULL, ",", &save))
        parts[(*n)++] = part;
    return parts;
}

static nrl_status train(const arguments *a)
{
    if (!a->vocab_size || !a->out)
        return nrl_fail(NRL_ERR_CONFIG, "tokenizer train: expected --vocab-size and --out");
    tokenizer_train_options o = {.pattern = a->pattern};
    NRL_TRY(whole_number(a->vocab_size, "--vocab-size", &o.vocab_size));
    if (a->min_frequency) NRL_TRY(whole_number(a->min_frequency, "--min-frequency", &o.min_frequency));
    char *list = mem_strdup(a->special ? a->special : "<|endoftext|>");
    const char **special = split_list(list, &o.n_special);
    o.special = special;
    tokenizer_trainer *t = NULL;
    int64_t n = 0;
    nrl_status st = tokenizer_trainer_create(&o, &t);
    if (st == NRL_OK) st = count_files(a, t);
    if (st == NRL_OK) st = tokenizer_trainer_save(t, a->out, &n);
    if (st == NRL_OK) {
        printf("%s: %lld tokens\n", a->out, (long long)n);
        if (n < o.vocab_size)
            nrl_warn("%lld tokens of the %lld asked for: no pair is left that occurs often enough",
                     (long long)n, (long long)o.vocab_size);
    }
    tokenizer_trainer_destroy(t);
    free(special);
    free(list);
    return st;
}

nrl_status cli_tokenizer(int argc, char **argv)
{
    arguments a = {0};
    NRL_TRY(read_arguments(argc, argv, &a));
    if (!strcmp(argv[1], "train")) return train(&a);
    if (!strcmp(argv[1], "encode")) return run_lines(&a, encode_line);
    if (!strcmp(argv[1], "decode")) return run_lines(&a, decode_line);
    return nrl_fail(NRL_ERR_CONFIG, "tokenizer: '%s', expected train, encode or decode", argv[1]);
}
