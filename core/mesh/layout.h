/*
 * layout.h - a part's layout (nrl/param.h) as ranges of elements: what a rank holds of a logical
 * tensor, in the tensor's own row-major order. Loading, checkpoints and export read layouts through
 * this file alone, so they work for any strategy.
 *
 * A mesh of NULL is one rank.
 *
 * A held piece is a box (placements of dimensions) of which a flat range is left (NRL_SHARD_FLAT, counted in
 * the box's own row-major order). Its elements lie in local memory in that order. [any]
 */
#ifndef MESH_LAYOUT_H
#define MESH_LAYOUT_H
#include "mesh/mesh.h"
#include "tensor/param.h"

typedef struct {
    int n_dims;
    int64_t dims[NRL_MAX_DIMS];                     /* of the whole part */
    int64_t begin[NRL_MAX_DIMS], end[NRL_MAX_DIMS]; /* the box */
    int64_t flat_begin, flat_end;                   /* of the box's elements */
} layout_shard;

/* Of a part in groups whose dimension 0 is cut, a rank holds a box of each, one behind the other in memory; else
 * one box. `k` counts them below. */
int layout_n_boxes(const nrl_part *part);
/* What rank `rank` holds of the part. */
layout_shard layout_shard_of(const nrl_mesh *m, int32_t rank, const nrl_part *part, int k);
/* The same without flat placements: what operations see. */
layout_shard layout_box_of(const nrl_mesh *m, int32_t rank, const nrl_part *part, int k);
int64_t layout_numel(const layout_shard *p); /* elements of the piece */

/* Contiguous ranges of the piece in the whole part's order, rising: begin with *at = 0 (elements of
 * the piece before the range); false when all were given. */
bool layout_next(const layout_shard *p, int64_t *at, int64_t *global_begin, int64_t *n);

/* Elements of all parts of a parameter on this rank, in order; what its local slots hold. */
int64_t layout_local_numel(const nrl_mesh *m, const nrl_param *p);
int64_t layout_whole_numel(const nrl_param *p);
bool layout_is_whole(const nrl_mesh *m, const nrl_param *p); /* nothing is cut where it is held */
bool layout_is_work(const nrl_mesh *m, const nrl_param *p);  /* nothing is cut flat: slices are what WEIGHT has */
/* The rank's stage has the parameter; what of it lies there is another question. */
bool layout_is_held(const nrl_mesh *m, int32_t rank, const nrl_param *p);
bool layout_holds_part(const nrl_mesh *m, int32_t rank, const nrl_part *part);
bool layout_is_everywhere(const nrl_mesh *m, const nrl_param *p); /* whole on every rank */
/* The lowest of the ranks that hold the same shards of p as `rank`: what it has counts, once. */
int32_t layout_owner(const nrl_mesh *m, int32_t rank, const nrl_param *p);
int32_t layout_work_owner(const nrl_mesh *m, int32_t rank, const nrl_param *p); /* the same boxes */
/* Gives p the dimensions of its boxes on this rank, once a strategy has cut them. [main] */
void layout_settle(const nrl_mesh *m, nrl_param *p);

#endif
