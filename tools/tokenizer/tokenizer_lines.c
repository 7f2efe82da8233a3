/*
 * tokenizer_lines.c - input lines and output of `nrl tokenizer`.
 */
#include "base/json.h"
#include "tokenizer_verb.h"
#include <errno.h>
#include <string.h>

enum { READ_SIZE = 1 << 16, WRITE_SIZE = 1 << 18 };

nrl_status cli_lines_open(cli_lines *s, const char *name)
{
    *s = (cli_lines){.name = !strcmp(name, "-") ? "standard input" : name};
    s->file = strcmp(name, "-") ? fopen(name, "rb") : stdin;
    if (!s->file) return nrl_fail(NRL_ERR_CONFIG, "cannot read %s: %s", name, strerror(errno));
    return NRL_OK;
}

void cli_lines_close(cli_lines *s)
{
    if (s->file && s->file != stdin) fclose(s->file);
    buffer_free(&s->line);
}

/* The next line without its end; false at the end of the file. */
nrl_status cli_lines_next(cli_lines *s, bool *more)
{
    char piece[READ_SIZE];
    s->line.size = 0;
    size_t n = 0;
    int c = 0;
    s->number++;
    flockfile(s->file);
    while (s->line.size + n <= CLI_MAX_LINE && (c = getc_unlocked(s->file)) != EOF && c != '\n') {
        piece[n++] = (char)c;
        if (n == sizeof piece) {
            buffer_add(&s->line, piece, n);
            n = 0;
        }
    }
    funlockfile(s->file);
    buffer_add(&s->line, piece, n);
    if (ferror(s->file)) return nrl_fail(NRL_ERR_IO, "cannot read %s: %s", s->name, strerror(errno));
    if (s->line.size > CLI_MAX_LINE)
        return nrl_fail(NRL_ERR_DATA,
                        "%s:%zu: the line has more than %d bytes\n"
                        "hint: use --jsonl with shorter rows, or break the line",
                        s->name, s->number, CLI_MAX_LINE);
    *more = c == '\n' || s->line.size > 0;
    return NRL_OK;
}

nrl_status cli_flush(buffer *out, bool all)
{
    if (out->size < WRITE_SIZE && !all) return NRL_OK;
    bool ok = !out->size || fwrite(out->text, 1, out->size, stdout) == out->size;
    out->size = 0;
    if (all && fflush(stdout)) ok = false;
    if (ok) return NRL_OK;
    return nrl_fail(errno == ENOSPC || errno == EFBIG ? NRL_ERR_FULL : NRL_ERR_IO,
                    "cannot write to standard output: %s", strerror(errno));
}

/* The member of a row {"text": ...} or {"ids": ...}. */
nrl_status cli_row_member(const cli_lines *s, arena *a, const char *key, nrl_node_type type, const nrl_node **out)
{
    nrl_node *row;
    const char *place = arena_printf(a, "%s:%zu", s->name, s->number);
    NRL_TRY(json_parse(a, place, s->line.text ? s->line.text : "", s->line.size, &row));
    *out = nrl_node_find(row, key);
    if (nrl_node_kind(*out) == type) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "%s: expected a row {\"%s\": %s}", place, key,
                    type == NRL_NODE_STRING ? "\"...\"" : "[...]");
}
