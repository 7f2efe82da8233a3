/*
 * scalar.h - what a plain YAML scalar means: the core schema of YAML 1.2, with `5e-6` a number.
 * yes, no, on and off are text; an option of type bool reads them (options.c).
 */
#ifndef CONFIG_SCALAR_H
#define CONFIG_SCALAR_H
#include "base/node.h"

/* A node for the unquoted text: null, bool, int, float or string; keeps the text as written. */
nrl_node *scalar_node(arena *a, const char *text, size_t size);

/* Gives an existing node the meaning of this unquoted text; its place and key stay. */
void scalar_assign(arena *a, nrl_node *node, const char *text, size_t size);

#endif
