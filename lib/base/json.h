/*
 * json.h - JSON text to nodes and nodes to JSON text; no other file parses or writes JSON.
 * Parsing is strict: UTF-8, no duplicate keys, no trailing text, bounded depth. Integers have 64 bits;
 * larger ones become doubles, and all numbers of that text then have the precision of doubles.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H
#include "base/buffer.h"
#include "base/node.h"

/* Parses size bytes into a tree allocated in `a`. `source` is the file name in errors and must live as long as the
 * tree. Errors (NRL_ERR_DATA) start with source:line:column; NRL_ERR_MEMORY. [any] */
nrl_status json_parse(arena *a, const char *source, const char *text, size_t size, nrl_node **out);

/* The same for text that begins at line:column of its source; errors give the position in the source. */
nrl_status json_parse_at(arena *a, const char *source, int64_t line, int64_t column, const char *text, size_t size,
                         nrl_node **out);

/* Reads a whole file (at most max_bytes, else NRL_ERR_DATA) and parses it. [any] */
nrl_status json_read_file(arena *a, const char *path, size_t max_bytes, nrl_node **out);

/* Writes compact (indent 0) or indented text, malloc'd; the caller frees it. Doubles round-trip. Non-finite
 * values become the strings "NaN", "Infinity", "-Infinity". [any] */
char *json_write(const nrl_node *node, int indent);
void json_add(buffer *b, const nrl_node *node, int indent); /* the same to the end of a text */
/* Reads a number that json_write wrote: NaN and infinities are texts in JSON. Returns false if the node is not one.
 * [any] */
bool json_read_f64(const nrl_node *node, double *value);
/* Adds a string literal. Invalid UTF-8, for example of a Lua string, becomes U+FFFD. */
void json_add_string(buffer *b, const char *text, size_t size);

/* Whether the bytes are valid UTF-8; json_write replaces invalid sequences by U+FFFD. [any] */
bool json_is_text(const char *text, size_t size);

/* `text` as a JSON string literal with its quotes, malloc'd. [any] */
char *json_quote(const char *text, size_t size);

const char *json_library(void); /* name and version of the JSON library: "jansson 2.14" */

/* Size in bytes of the UTF-8 character at s[0..left), left > 0; 0 if the bytes are not a valid character. */
size_t json_utf8_size(const unsigned char *s, size_t left);

#endif
