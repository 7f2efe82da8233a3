/*
 * layout.h - the layout of a part (nrl/param.h) as ranges of elements: the elements of a logical tensor that a rank
 * holds, in the row-major order of the tensor. Loading, checkpoints and export use layouts only through this file, so
 * they work with any strategy.
 *
 * A NULL mesh means one rank.
 *
 * A shard is a box (from placements of dimensions) and a flat range of that box (NRL_SHARD_FLAT, in the row-major order
 * of the box). Its elements are in local memory in that order. [any]
 */
#ifndef MESH_LAYOUT_H
#define MESH_LAYOUT_H
#include "base/piece.h"
#include "mesh/mesh.h"
#include "tensor/param.h"

/* If dimension 0 of a part with groups is sharded, a rank holds one box per group, consecutive in memory; otherwise one
 * box. `k` is the index of the box. */
int layout_n_boxes(const nrl_part *part);
/* Returns the shard of the part that rank `rank` holds. */
layout_shard layout_shard_of(const nrl_mesh *m, int32_t rank, const nrl_part *part, int k);
/* The same without flat placements, as operations see it. */
layout_shard layout_box_of(const nrl_mesh *m, int32_t rank, const nrl_part *part, int k);

/* Returns the number of elements of all parts of a parameter on this rank, which its local slots hold in order. */
int64_t layout_local_numel(const nrl_mesh *m, const nrl_param *p);
int64_t layout_whole_numel(const nrl_param *p);
bool layout_is_whole(const nrl_mesh *m, const nrl_param *p); /* a rank that holds it holds all of it */
bool layout_is_work(const nrl_mesh *m, const nrl_param *p);  /* no flat placements: local slices equal WEIGHT */
/* Whether the stage of the rank owns the parameter, whatever shard of it the rank holds. */
bool layout_is_held(const nrl_mesh *m, int32_t rank, const nrl_param *p);
bool layout_holds_part(const nrl_mesh *m, int32_t rank, const nrl_part *part);
bool layout_is_everywhere(const nrl_mesh *m, const nrl_param *p); /* complete on every rank */
/* Returns the lowest of the ranks that hold the same shards of p as `rank`; sums over ranks count the shards there. */
int32_t layout_owner(const nrl_mesh *m, int32_t rank, const nrl_param *p);
int32_t layout_work_owner(const nrl_mesh *m, int32_t rank, const nrl_param *p); /* the same boxes */
/* Sets the dimensions of p to those of its boxes on this rank, after a strategy has sharded them. [main] */
void layout_settle(const nrl_mesh *m, nrl_param *p);

#endif
