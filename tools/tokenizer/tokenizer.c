/*
 * tokenizer.c - the verb `nrl tokenizer train|encode|decode`. Files are read line by line, so
 * memory is bounded by the longest line, which CLI_MAX_LINE limits, whatever the size of the file.
 */
#include "base/json.h"
#include "cli/common/experiment.h"
#include "tokenizer_verb.h"
#include <errno.h>
#include <nrl/inference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arguments ---- */

static nrl_status read_arguments(int argc, char **argv, tokenizer_verb *a)
{
    const struct {
        const char *flag;
        const char **value;
    } values[] = {{"--tokenizer", &a->tokenizer},
                  {"--out", &a->out},
                  {"--pattern", &a->pattern},
                  {"--plugin", &a->plugin},
                  {"--special", &a->special},
                  {"--vocab-size", &a->vocab_size},
                  {"--min-frequency", &a->min_frequency}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        NRL_TRY(cli_take_value(&argc, argv, values[i].flag, values[i].value));
    a->jsonl = cli_take_flag(&argc, argv, "--jsonl");
    a->overwrite = cli_take_flag(&argc, argv, "--overwrite");
    a->add_special = cli_take_flag(&argc, argv, "--add-special");
    a->skip_special = cli_take_flag(&argc, argv, "--skip-special");
    NRL_TRY(cli_expect(argc, argv, 2, -1)); /* the verb and at least one file */
    a->files = argv + 2;
    a->n_files = argc - 2;
    return NRL_OK;
}

/* ---- encode ---- */

typedef struct {
    const tokenizer_verb *a;
    const nrl_open_tokenizer *tok;
    void *scratch;
    nrl_token_ids ids;
    arena memory; /* the parsed row */
    buffer out;
} work;

static void put_id(buffer *out, int32_t id)
{
    char digits[12];
    size_t n = sizeof digits;
    do
        digits[--n] = (char)('0' + id % 10);
    while ((id /= 10) > 0);
    buffer_add(out, digits + n, sizeof digits - n);
}

static nrl_status encode_line(work *w, const cli_lines *s)
{
    const char *text = s->line.text ? s->line.text : "";
    size_t size = s->line.size;
    if (w->a->jsonl) {
        const nrl_node *node;
        NRL_TRY(cli_row_member(s, &w->memory, "text", NRL_NODE_STRING, &node));
        text = nrl_node_string(node, "");
        size = nrl_node_string_size(node);
    }
    w->ids.n = 0;
    uint32_t flags = w->a->add_special ? NRL_ENCODE_ADD_SPECIAL : 0;
    NRL_TRY(nrl_tokenizer_encode(w->tok, w->scratch, text, size, flags, &w->ids));
    if (w->a->jsonl) buffer_puts(&w->out, "{\"ids\": [");
    for (size_t i = 0; i < w->ids.n; i++) {
        if (i) buffer_puts(&w->out, w->a->jsonl ? ", " : " ");
        put_id(&w->out, w->ids.ids[i]);
        NRL_TRY(cli_flush(&w->out, false));
    }
    buffer_puts(&w->out, w->a->jsonl ? "]}\n" : "\n");
    return cli_flush(&w->out, false);
}

/* ---- decode ---- */

static nrl_status push_id(work *w, const cli_lines *s, int64_t id)
{
    if (id < 0 || id >= w->tok->info->vocab_size)
        return nrl_fail(NRL_ERR_DATA, "%s:%zu: token id %lld, expected 0 to %d", s->name, s->number, (long long)id,
                        w->tok->info->vocab_size - 1);
    nrl_token_ids_push(&w->ids, (int32_t)id, 0);
    return NRL_OK;
}

static nrl_status read_ids_line(work *w, const cli_lines *s)
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
            return nrl_fail(NRL_ERR_DATA, "%s:%zu:%zu: expected token ids with spaces between", s->name, s->number,
                            (size_t)(p - s->line.text) + 1);
        NRL_TRY(push_id(w, s, id));
        p = stop;
    }
    return NRL_OK;
}

static nrl_status read_ids_row(work *w, const cli_lines *s)
{
    const nrl_node *list;
    NRL_TRY(cli_row_member(s, &w->memory, "ids", NRL_NODE_LIST, &list));
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const nrl_node *id = nrl_node_at(list, i);
        if (nrl_node_kind(id) != NRL_NODE_INT)
            return nrl_fail(NRL_ERR_DATA, "%s:%zu: ids[%zu]: expected a whole number", s->name, s->number, i);
        NRL_TRY(push_id(w, s, nrl_node_int(id, -1)));
    }
    return NRL_OK;
}

static nrl_status decode_line(work *w, const cli_lines *s)
{
    w->ids.n = 0;
    NRL_TRY(w->a->jsonl ? read_ids_row(w, s) : read_ids_line(w, s));
    char *text;
    size_t size;
    nrl_status st = nrl_tokenizer_decode(w->tok, w->ids.ids, w->ids.n, w->a->skip_special, &text, &size);
    if (st != NRL_OK) {
        nrl_add_context("%s:%zu", s->name, s->number);
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
    nrl_free(text);
    return cli_flush(&w->out, false);
}

/* ---- the verbs ---- */

static nrl_status each_line(work *w, const char *file, nrl_status (*line)(work *, const cli_lines *))
{
    cli_lines s;
    bool more = true;
    NRL_TRY(cli_lines_open(&s, file));
    nrl_status st = NRL_OK;
    for (;;) {
        st = cli_lines_next(&s, &more);
        if (st != NRL_OK || !more) break;
        st = line(w, &s);
        if (st != NRL_OK) break;
        arena_reset(&w->memory);
    }
    cli_lines_close(&s);
    return st;
}

static nrl_status run_lines(const tokenizer_verb *a, nrl_status (*line)(work *, const cli_lines *))
{
    if (!a->tokenizer) return nrl_fail(NRL_ERR_CONFIG, "--tokenizer: expected the file or directory of a tokenizer");
    work w = {.a = a};
    arena memory = {0};
    nrl_environment env;
    experiment_environment(&memory, &env);
    nrl_status st = nrl_tokenizer_open(a->tokenizer, a->plugin, &env, &w.tok);
    const nrl_tokenizer *table = st == NRL_OK ? w.tok->table : NULL;
    if (table && table->scratch_create) w.scratch = table->scratch_create(w.tok->self);
    for (int i = 0; i < a->n_files && st == NRL_OK; i++)
        st = each_line(&w, a->files[i], line);
    if (st == NRL_OK) st = cli_flush(&w.out, true);
    size_t dropped = table && table->scratch_dropped ? table->scratch_dropped(w.scratch) : 0;
    if (dropped) nrl_warn("%zu characters have no token in %s and were skipped", dropped, a->tokenizer);
    buffer_free(&w.out);
    arena_free(&w.memory);
    nrl_token_ids_free(&w.ids);
    if (table && table->scratch_create) table->scratch_destroy(w.scratch);
    nrl_tokenizer_close(w.tok);
    arena_free(&memory);
    return st;
}

static nrl_status run_tokenizer(int argc, char **argv)
{
    tokenizer_verb a = {0};
    NRL_TRY(read_arguments(argc, argv, &a));
    if (!strcmp(argv[1], "train")) return cli_tokenizer_train(&a);
    if (!strcmp(argv[1], "encode")) return run_lines(&a, encode_line);
    if (!strcmp(argv[1], "decode")) return run_lines(&a, decode_line);
    return nrl_fail(NRL_ERR_CONFIG, "tokenizer: '%s', expected train, encode or decode", argv[1]);
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "tokenizer", run_tokenizer);
}
