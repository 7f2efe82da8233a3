/*
 * tokenizer_verb.h - what the files of the verb `nrl tokenizer` share: its arguments, and reading
 * and writing line by line, so that the longest line bounds the memory whatever the size of the
 * file.
 */
#ifndef TOKENIZER_VERB_H
#define TOKENIZER_VERB_H
#include "base/buffer.h"
#include "cli/common/cli.h"
#include <stdio.h>

enum { CLI_MAX_LINE = 16 << 20 }; /* bytes; a longer line is refused with its number */

typedef struct {
    const char *tokenizer, *plugin, *out, *pattern, *special, *vocab_size, *min_frequency;
    bool jsonl, overwrite, add_special, skip_special;
    char **files; /* [n_files] */
    int n_files;
} tokenizer_verb;

typedef struct {
    const char *name;
    FILE *file;
    buffer line;
    size_t number;
} cli_lines;

/* "-" is standard input. */
nrl_status cli_lines_open(cli_lines *s, const char *name);
/* The next line without its end, in s->line; *more is false at the end of the file. */
nrl_status cli_lines_next(cli_lines *s, bool *more);
void cli_lines_close(cli_lines *s);

/* The member `key` of the line, a row {"text": ...} or {"ids": ...}; NRL_ERR_DATA if the row has no
 * such member of that type. */
nrl_status cli_row_member(const cli_lines *s, arena *a, const char *key, nrl_node_type type, const nrl_node **out);

/* Writes `out` to standard output and empties it once it has grown, or always if `all` is true. */
nrl_status cli_flush(buffer *out, bool all);

nrl_status cli_tokenizer_train(const tokenizer_verb *a);

#endif
