/*
 * options.h - the one validator: fills a C struct from the rows that describe it and a map of the
 * config. Used for the core's own sections and for every plugin.
 *
 * The text of a default is read like a config value. An absent option and one that is null have
 * their default. Defaults of PATH and STR may be ""; a NODE whose default is "" is NULL when unset.
 */
#ifndef CONFIG_OPTIONS_H
#define CONFIG_OPTIONS_H
#include "config/problems.h"
#include <nrl/plugin.h>

/* A struct and its rows. A map of the config may fill several (an optimizer's own options and the
 * core's lr). */
typedef struct {
    const nrl_option *rows;
    size_t n_rows;
    size_t stride; /* bytes from row to row: a plugin's rows may be longer than ours */
    void *out;
} option_part;

#define OPTION_PART(table, struct_pointer)                                                                             \
    {                                                                                                                  \
        (table), sizeof(table) / sizeof *(table), sizeof *(table), (struct_pointer)                                    \
    }

/* Fills every part; mistakes go to `problems` as "section.key: ..." (section "": the top level).
 * `node` may be NULL: defaults only. Strings and nodes live as long as `a` and the tree. [main] */
const char *option_range(arena *a, const nrl_option *row); /* "1 to 64": what a number may be, with both bounds */

void options_fill(arena *a, config_problems *problems, const char *section, const nrl_node *node,
                  const option_part *parts, size_t n_parts);

/* Appends every option's final value to the map `resolved`: absolute paths, ${env:} as written. */
void options_resolve(arena *a, const nrl_node *node, const option_part *parts, size_t n_parts, nrl_node *resolved);

/* One component slot: a word, or a map with `name` and that plugin's options. */
typedef struct {
    const char *name;        /* NULL = unset */
    const nrl_node *at;      /* for messages */
    const nrl_node *options; /* a map without `name`, or NULL */
    nrl_node *resolved;      /* {name: ...} in the resolved config; its options are appended */
} config_component;

/* `fallback` is the name when none is given; NULL = the slot stays unset. */
void component_read(arena *a, config_problems *problems, const char *section, const nrl_node *node,
                    const char *fallback, config_component *out);

/* A component that opens something: a path or a word alone, whose plugin is found by asking; or a map with
 * `name`, `path` and that plugin's options. */
typedef struct {
    const char *name;        /* of the plugin; NULL = found by asking */
    const char *source;      /* a path ready to open, or a word; NULL = none */
    const nrl_node *at;      /* for messages */
    const nrl_node *options; /* a map without `name` and `path`, or NULL */
    nrl_node *resolved;      /* the map in the resolved config, which gains the options; NULL = a word was written */
} config_choice;

/* `is_path`: every text is a path; else one with a / or a dot. `key` of the map `resolved` becomes what was
 * written, with an absolute path. */
void choice_read(arena *a, config_problems *problems, const char *section, const nrl_node *node, bool is_path,
                 config_choice *out, nrl_node *resolved, const char *key);

/* The row called `name`, or NULL; rows as in option_part. */
const nrl_option *option_row(const nrl_option *rows, size_t i, size_t stride);

#endif
