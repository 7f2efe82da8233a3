/*
 * tiling.h - whether the shards of all files make up a tensor, each element exactly once. What is given
 * comes from files that may be hostile: the time is that of sorting, whatever the shards look like.
 */
#ifndef CHECKPOINT_TILING_H
#define CHECKPOINT_TILING_H
#include "mesh/layout.h"
#include <stddef.h>

/* Sound shards (piece.h) of one tensor; their order is changed. Strategies cut a box into flat ranges
 * that are all held by someone: so each box must be whole by its ranges, and the tensor by its boxes. [any] */
bool tiling_is_exact(const layout_shard **shards, size_t n);

#endif
