/*
 * rules.h - rules that option rows cannot express: short forms, and options that depend on each other. Private to
 * core/config.
 */
#ifndef CONFIG_RULES_H
#define CONFIG_RULES_H
#include "config/schema.h"

/* Turns `train: path`, {path, weight, rows, ...} or a list of these into a list of maps with paths to open;
 * writes the same with absolute paths to the resolved section under the last part of `name`. */
void rules_sources(arena *a, config_problems *problems, const char *name, const nrl_node **sources, nrl_node *resolved);
/* data.eval: such a list, a number or share of rows to hold out of data.train, or a map of names to these. */
void rules_evals(arena *a, config_problems *problems, config_data *data, nrl_node *resolved);
void rules_data(arena *a, config_problems *problems, config_data *data);
void rules_offload(arena *a, config_problems *problems, const nrl_node *node, config_offload *out);
void rules_recompute(arena *a, config_problems *problems, const nrl_node *node, config_recompute *out);
void rules_loss_scale(arena *a, config_problems *problems, const nrl_node *node, bool is_fp16, config_loss_scale *out);
void rules_fp8(arena *a, config_problems *problems, const nrl_node *node, bool is_fp8, config_fp8 *out);

/* Adds a mistake for each key that says `auto`; returns the tree without them. */
const nrl_node *rules_auto(arena *a, config_problems *problems, const nrl_node *root);

/* Checks options against each other; `root` gives the places for messages. May set defaults that depend on other
 * options. */
void rules_run(arena *a, config_problems *problems, const nrl_node *root, config_run *run);

#endif
