/*
 * config.h - from files and command line to one tree, and back to YAML text.
 * Order of use: config_read (with what its `defaults:` names), config_override for each dotted
 * assignment, config_substitute for ${env:VAR}; then config_fill (schema.h). Mistakes that do not
 * stop the reading go to the collector of problems.h.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H
#include "config/problems.h"

/* Reads a YAML config. `defaults: other.yaml` (or a list, later ones win) is merged below it: maps
 * key by key, everything else whole. Every node keeps the place it was written at. [main] */
nrl_status config_read(arena *a, const char *path, nrl_node **root);

/* The same from text; `source` lives as long as the tree, and paths of its `defaults:` start at the working
 * directory. [main] */
nrl_status config_parse(arena *a, const char *source, const char *text, size_t size, nrl_node **root);

extern const char config_command_line[]; /* the source of what was typed there */

/* Applies "optimizer.lr=5e-6". [main] */
void config_override(arena *a, config_problems *problems, nrl_node *root, const char *assignment);

/* Replaces ${env:VAR} in every text; `lookup` is getenv of the command line. A value that is one
 * variable alone is read like unquoted text: it may be a number. [main] */
void config_substitute(arena *a, config_problems *problems, nrl_node *root, const char *(*lookup)(const char *name));

/* The tree with `over` laid on `base`; takes both. In a component slot a word counts as {name:
 * word}, and what names another component than the one below replaces it: options of one plugin
 * never reach another. [main] */
nrl_node *config_merge(arena *a, nrl_node *base, nrl_node *over);

/* A path as written at `at`: relative to the file that holds it, else to the working directory. */
const char *config_path(arena *a, const nrl_node *at, const char *path);
/* The same made absolute, without touching the file system's links. */
const char *config_absolute(arena *a, const char *path);

/* YAML that reads back as the same tree; ${env:VAR} is written as it was. malloc'd. [any] */
char *config_write(const nrl_node *root);

#endif
