/*
 * config.h - reads files and command line into one tree, and writes the tree as YAML.
 * Order of use: config_read (also reads the files in `defaults:`), config_override for each dotted assignment,
 * config_substitute for ${env:VAR}, then config_fill (schema.h). Mistakes after which reading can continue are added to
 * the list of problems.h.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H
#include "base/problems.h"

/* Reads a YAML config. It overrides the files in `defaults: other.yaml` (or a list, in which later files override
 * earlier ones): maps are merged key by key, other values are replaced. Every node keeps its file, line and column.
 * [main] */
nrl_status config_read(arena *a, const char *path, nrl_node **root);

/* The same from text. `source` must live as long as the tree. Paths in `defaults:` are relative to the working
 * directory. [main] */
nrl_status config_parse(arena *a, const char *source, const char *text, size_t size, nrl_node **root);

extern const char config_command_line[]; /* the source of nodes from the command line */

/* Applies "optimizer.lr=5e-6". [main] */
void config_override(arena *a, config_problems *problems, nrl_node *root, const char *assignment);

/* Replaces ${env:VAR} in every text; `lookup` returns the value of a variable (getenv). A value that is a single
 * variable is read like unquoted text, so it may be a number. Also replaces addresses of data on the
 * hub (lib/base/hub.h) by their paths in its local cache. [main] */
void config_substitute(arena *a, config_problems *problems, nrl_node *root, const char *(*lookup)(const char *name));

/* Merges `over` into `base` and returns the result; takes ownership of both. In a component slot a word means {name:
 * word}, and a value that names another component replaces the value of `base`, so that options of one plugin are
 * never passed to another. [main] */
nrl_node *config_merge(arena *a, nrl_node *base, nrl_node *over);

/* A path written at node `at` as a node of the resolved config: absolute, and written with the ${env:VAR} of `at`. */
nrl_node *config_path_node(arena *a, const nrl_node *at, const char *path);

#endif
