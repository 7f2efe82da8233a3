/*
 * options.h - fills a C struct from a map of the config, according to the rows that describe the struct, and validates
 * the values. Used for the core's own sections and for every plugin.
 *
 * The text of a default is parsed like a value of the config. An option that is absent or null has its default.
 * Defaults of PATH and STR may be ""; a NODE whose default is "" is NULL when unset.
 */
#ifndef CONFIG_OPTIONS_H
#define CONFIG_OPTIONS_H
#include "base/problems.h"
#include <nrl/plugin.h>

/* A struct and its rows. One map of the config may fill several structs (an optimizer's own options and the core's
 * lr). */
typedef struct {
    const nrl_option *rows;
    size_t n_rows;
    size_t stride; /* bytes from row to row: a plugin's rows may be longer than the core's */
    void *out;
} option_part;

#define OPTION_PART(table, struct_pointer)                                                                             \
    {                                                                                                                  \
        (table), sizeof(table) / sizeof *(table), sizeof *(table), (struct_pointer)                                    \
    }

const char *option_range(arena *a, const nrl_option *row); /* the valid range of a number, "1 to 64" */
const char *option_text(const nrl_node *n); /* of a scalar: `name: 123` is the name "123"; NULL for lists and maps */
/* Reads a truth value: yes, no, on and off are strings in YAML, but accepted here. False: it is none. */
bool option_bool(const nrl_node *n, bool *out);
/* Fills every part; adds mistakes to `problems` as "section.key: ..." (section "": the top level).
 * `node` may be NULL: defaults only. Strings and nodes live as long as `a` and the tree. [main] */

void options_fill(arena *a, config_problems *problems, const char *section, const nrl_node *node,
                  const option_part *parts, size_t n_parts);

/* The two halves of options_fill: keys that no part has; and the rest. */
void options_check_keys(arena *a, config_problems *problems, const char *section, const nrl_node *node,
                        const option_part *parts, size_t n_parts);
void options_fill_known(arena *a, config_problems *problems, const char *section, const nrl_node *node,
                        const option_part *parts, size_t n_parts);

/* Appends every option's final value to the map `resolved`: absolute paths, ${env:} as written. */
void options_resolve(arena *a, const nrl_node *node, const option_part *parts, size_t n_parts, nrl_node *resolved);

/* A component slot: a word, or a map with `name` and the plugin's options. */
typedef struct {
    const char *name;        /* NULL = unset */
    const nrl_node *at;      /* for messages */
    const nrl_node *options; /* a map without `name`, or NULL */
    nrl_node *resolved;      /* {name: ...} in the resolved config; its options are appended */
} config_component;

/* Reads a component slot. `fallback` is the default name; NULL = the slot may stay unset. */
void component_read(arena *a, config_problems *problems, const char *section, const nrl_node *node,
                    const char *fallback, config_component *out);

/* A component that opens a path: a path or a word, whose plugin is found by probing, or a map with `name`, `path` and
 * the plugin's options. */
typedef struct {
    const char *name;        /* of the plugin; NULL = found by probing */
    const char *source;      /* a path relative to the working directory, or a word; NULL = none */
    const nrl_node *at;      /* for messages */
    const nrl_node *options; /* a map without `name` and `path`, or NULL */
    nrl_node *resolved;      /* the map in the resolved config, to add the options to; NULL = the slot has a word */
} config_choice;

/* Reads such a slot. `is_path`: every text is a path; else only a text with a slash or a dot. Sets `key` of the map
 * `resolved` to the value with an absolute path. */
void choice_read(arena *a, config_problems *problems, const char *section, const nrl_node *node, bool is_path,
                 config_choice *out, nrl_node *resolved, const char *key);

/* The i-th of rows that are `stride` bytes apart. */
const nrl_option *option_row(const nrl_option *rows, size_t i, size_t stride);

#endif
