/*
 * checkpoint_verb.h - what the parts of `nrl checkpoint` share.
 */
#ifndef CHECKPOINT_VERB_H
#define CHECKPOINT_VERB_H
#include "cli/common/cli.h"
#include <nrl/checkpoint.h>

nrl_checkpoint_info checkpoint_verb_info(const nrl_checkpoint *c);
nrl_checkpoint_tensor checkpoint_verb_tensor(const nrl_checkpoint *c, int64_t i);
/* "[4,8]" */
const char *checkpoint_verb_shape(arena *a, const nrl_checkpoint_tensor *t);
const char *checkpoint_verb_bytes(arena *a, int64_t bytes); /* "12.3 MiB" */
/* Prints the node as JSON, one line. */
void checkpoint_verb_print(const nrl_node *node);
void checkpoint_verb_set(arena *a, nrl_node *map, const char *key, const char *text);

nrl_status checkpoint_inspect(int argc, char **argv, bool json);
nrl_status checkpoint_diff(int argc, char **argv, bool json);

#endif
