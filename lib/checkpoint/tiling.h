/*
 * tiling.h - checks that the shards of all files cover a tensor, each element exactly once. The shards come from files
 * that may be hostile, so the time never exceeds that of sorting them.
 */
#ifndef CHECKPOINT_TILING_H
#define CHECKPOINT_TILING_H
#include "base/piece.h"
#include <stddef.h>

/* Takes sound shards (lib/base/piece.h) of one tensor and reorders them. Strategies divide a box into flat ranges, so
 * the ranges must cover each box and the boxes must cover the tensor. NRL_ERR_MEMORY. [any] */
nrl_status tiling_check(const layout_shard **shards, size_t n, bool *exact);

#endif
