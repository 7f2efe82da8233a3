/*
 * json.h - the one home of JSON: text to nodes and nodes to text.
 * Strict: UTF-8, no duplicate keys, no trailing text, bounded depth; numbers keep 64-bit integers.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H
#include "base/node.h"

/* Parses size bytes. `source` names the file in errors and places and must outlive the arena's
 * tree. Errors (NRL_ERR_DATA) carry source:line:col. The tree lives in `a`. [any] */
nrl_status json_parse(arena *a, const char *source, const char *text, size_t size, nrl_node **out);

/* The same for text that begins at line:column of its source, so that errors name the place there.
 */
nrl_status json_parse_at(arena *a, const char *source, int64_t line, int64_t column, const char *text, size_t size,
                         nrl_node **out);

/* Reads a whole file (at most max_bytes, else NRL_ERR_DATA) and parses it. [any] */
nrl_status json_read_file(arena *a, const char *path, size_t max_bytes, nrl_node **out);

/* Compact text (indent 0) or indented; doubles round-trip; malloc'd, caller frees. Non-finite
 * values become the strings "NaN", "Infinity", "-Infinity". [any] */
char *json_write(const nrl_node *node, int indent);

/* Whether these bytes are UTF-8: what is not, json_write replaces by U+FFFD. [any] */
bool json_is_text(const char *text, size_t size);

/* `text` as a JSON string literal with its quotes, malloc'd. [any] */
char *json_quote(const char *text, size_t size);

const char *json_library(void); /* "jansson 2.14": what reads JSON here */

/* Bytes of the UTF-8 character at s[0..left), left > 0; 0 where it is none. */
size_t json_utf8_size(const unsigned char *s, size_t left);

#endif
