/*
 * cursor.h - reads JSON text without building a tree, for the two large members of tokenizer.json
 * (vocab, merges): a 10 MB file opens in tens of milliseconds, and keys may contain NUL. Smaller
 * members are extracted as text and parsed by lib/base/json.h.
 */
#ifndef TEXT_CURSOR_H
#define TEXT_CURSOR_H
#include "base/buffer.h"
#include <nrl/status.h>
#include <stdbool.h>

typedef struct {
    const char *source; /* file name in errors */
    const char *begin, *p, *end;
} cursor;

/* The next character after white space; 0 at the end. */
char cursor_peek(cursor *c);
/* Line and column of `at`, from 1, where `begin` is the start of the file. */
void cursor_place(const cursor *c, const char *at, int64_t *line, int64_t *column);
/* "FILE:line:col: expected WHAT". */
nrl_status cursor_fail(const cursor *c, const char *expected);
nrl_status cursor_enter(cursor *c, char bracket); /* '{' or '[' */
/* Moves to the next element of a map or list; *more is false after the last one, and the closing
 * bracket is then consumed. `first` starts as true and is updated here. In a map, the key and its
 * colon are consumed too. */
nrl_status cursor_next(cursor *c, char closing, bool *first, bool *more);
nrl_status cursor_key(cursor *c, buffer *key);
nrl_status cursor_string(cursor *c, buffer *text); /* replaces the content of `text`; checks UTF-8 */
nrl_status cursor_int(cursor *c, int64_t *value);
/* Skips one value; [*from, *from + *size) is its text. Depth is bounded. */
nrl_status cursor_skip(cursor *c, const char **from, size_t *size);

typedef struct {
    const char *text; /* the text of a value in the file; NULL if the key is absent */
    size_t size;
} cursor_member;
/* Extracts the n named members of a map; each may occur once. All other members are skipped or,
 * with `rest`, collected in `rest` as "{key: value, ..." without the closing bracket. */
nrl_status cursor_members(cursor *c, const char *const *names, int n, cursor_member *out, buffer *rest);

#endif
