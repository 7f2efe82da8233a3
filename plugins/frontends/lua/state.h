/*
 * state.h - run.state as the JSON text that a checkpoint keeps, and back. JSON has no NaN, no infinities and no bytes
 * that are not UTF-8; a script's state may have all of them and gets them back as they were:
 *   {"$number": "NaN"}    NaN, Infinity or -Infinity
 *   {"$bytes": "ff00"}    a string that is not UTF-8, in hex
 *   "$$name", "$ff00"     keys: one that begins with $, and one that is not UTF-8
 */
#ifndef SCRIPT_STATE_H
#define SCRIPT_STATE_H
#include "base/node.h"

/* malloc'd. */
char *script_state_write(const nrl_node *state);
/* NRL_ERR_CORRUPT if the text is not an output of script_state_write. `a` owns the tree. */
nrl_status script_state_read(arena *a, const char *text, nrl_node **out);

#endif
