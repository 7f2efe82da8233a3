/*
 * cursor.h - walking over JSON text without a tree, for the two huge members of tokenizer.json
 * (vocab, merges): a 10 MB file opens in tens of milliseconds, and keys may hold NUL. Smaller
 * members are cut out as text and given to base/json.h.
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

/* What stands next, without white space: a JSON punctuation or first character, 0 at the end. */
char cursor_peek(cursor *c);
/* "FILE:line:col: expected WHAT". */
nrl_status cursor_fail(const cursor *c, const char *expected);
nrl_status cursor_enter(cursor *c, char bracket); /* '{' or '[' */
/* Moves to the next element of a map or list: false after the last one, whose bracket is eaten.
 * `first` starts true and is kept by the caller. In a map the key and its colon are read too. */
nrl_status cursor_next(cursor *c, char closing, bool *first, bool *more);
nrl_status cursor_key(cursor *c, buffer *key);
nrl_status cursor_string(cursor *c, buffer *text); /* replaces text; UTF-8 is checked */
nrl_status cursor_int(cursor *c, int64_t *value);
/* Skips one value; [*from, *from + *size) is its text. Depth is bounded. */
nrl_status cursor_skip(cursor *c, const char **from, size_t *size);

typedef struct {
    const char *text; /* a value, as it stands in the file; NULL if the key is absent */
    size_t size;
} cursor_member;
/* Cuts a map into the n named members; each may be there once. All others are skipped, or, with
 * `rest`, collected there as "{key: value, ..." without the closing bracket. */
nrl_status cursor_members(cursor *c, const char *const *names, int n, cursor_member *out, buffer *rest);

#endif
