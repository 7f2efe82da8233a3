/*
 * checkpoint_verb.h - what the parts of `nrl checkpoint` share.
 */
#ifndef CHECKPOINT_VERB_H
#define CHECKPOINT_VERB_H
#include "checkpoint/checkpoint.h"
#include "cli/common/cli.h"

/* Opens what `path` names: a checkpoint, or a run, which stands for its newest. */
nrl_status checkpoint_verb_open(const char *path, checkpoint **out);
/* "[4,8]" */
const char *checkpoint_verb_shape(arena *a, const checkpoint_tensor *t);
const char *checkpoint_verb_bytes(arena *a, int64_t bytes); /* "12.3 MiB" */
/* Prints the node as JSON, one line. */
void checkpoint_verb_print(const nrl_node *node);
void checkpoint_verb_set(arena *a, nrl_node *map, const char *key, const char *text);

nrl_status checkpoint_inspect(int argc, char **argv, bool json);
nrl_status checkpoint_diff(int argc, char **argv, bool json);

#endif
