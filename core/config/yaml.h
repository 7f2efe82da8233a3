/*
 * yaml.h - YAML text to nodes that know their place; the one home of libyaml.
 * Made for configs written by people, and safe with hostile ones: one document of at most
 * YAML_MAX_BYTES, YAML_MAX_DEPTH deep and YAML_MAX_VALUES large after expanding aliases, UTF-8, no
 * tags, directives or duplicate keys.
 */
#ifndef CONFIG_YAML_H
#define CONFIG_YAML_H
#include "base/node.h"

enum { YAML_MAX_BYTES = 1 << 20, YAML_MAX_DEPTH = 64, YAML_MAX_VALUES = 100000 };

/* Reads one document; empty text is an empty map. The place of a map's entry is its key's. `source`
 * must outlive the tree. Errors are NRL_ERR_CONFIG with source:line:col. [any] */
nrl_status yaml_parse(arena *a, const char *source, const char *text, size_t size, nrl_node **out);

/* The same from a file; its nodes' source is a copy of path. */
nrl_status yaml_read_file(arena *a, const char *path, nrl_node **out);

/* A value as given on a command line or as an option's default: text that starts like a quoted
 * string, list or map is YAML, anything else is one plain scalar, `#` and `: ` included. Its nodes
 * have `source` as their place, without lines. */
nrl_status yaml_parse_value(arena *a, const char *source, const char *text, nrl_node **out);

#endif
