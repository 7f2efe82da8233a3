/*
 * scalar.h - the types of plain YAML scalars: the core schema of YAML 1.2, in which `5e-6` is a number.
 * yes, no, on and off are strings; options of type bool accept them (options.c).
 */
#ifndef BASE_SCALAR_H
#define BASE_SCALAR_H
#include "base/node.h"

/* Creates a node for unquoted text: null, bool, int, float or string. The node keeps the text as written. */
nrl_node *scalar_node(arena *a, const char *text, size_t size);

/* Sets an existing node to the value of unquoted text; keeps its place and key. */
void scalar_assign(arena *a, nrl_node *node, const char *text, size_t size);

/* NRL_ERR_CONFIG if LC_NUMERIC of this thread has another decimal point than '.', with which numbers would be read and
 * written wrong. [any] */
nrl_status scalar_check_locale(void);

#endif
