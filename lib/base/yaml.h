/*
 * yaml.h - YAML text to nodes with line and column; no other file uses libyaml.
 * Reads configs written by people, and is safe with hostile input: one document in UTF-8 of at most YAML_MAX_BYTES,
 * with nesting of at most YAML_MAX_DEPTH and at most YAML_MAX_VALUES values after expanding aliases; no tags,
 * directives or duplicate keys.
 */
#ifndef BASE_YAML_H
#define BASE_YAML_H
#include "base/node.h"

enum { YAML_MAX_BYTES = 1 << 20, YAML_MAX_DEPTH = 64, YAML_MAX_VALUES = 100000 };

/* Reads one document; empty text is an empty map. The place of a map's entry is the place of its key. `source` must
 * outlive the tree. Errors are NRL_ERR_CONFIG and start with source:line:column. [any] */
nrl_status yaml_parse(arena *a, const char *source, const char *text, size_t size, nrl_node **out);

/* The same from a file; the source of its nodes is a copy of path. */
nrl_status yaml_read_file(arena *a, const char *path, nrl_node **out);

/* Reads a value of the command line or an option's default. Text that starts like a quoted string, list or map is YAML;
 * other text is one plain scalar, even with `#` or `: ` in it. The nodes have `source`, but no line. */
nrl_status yaml_parse_value(arena *a, const char *source, const char *text, nrl_node **out);

/* Writes YAML that parses to the same tree, malloc'd; ${env:VAR} is written, not its value. [any] */
char *yaml_write(const nrl_node *root);

#endif
