/*
 * piece.h - shards of tensors and arithmetic on them: their ranges in the whole tensor, the elements that two shards
 * have in common, and the share that each rank writes of a shard that several ranks hold. Allocates nothing. [any]
 *
 * A shard is a box and a range of the box's elements, in its row-major order.
 */
#ifndef BASE_PIECE_H
#define BASE_PIECE_H
#include <nrl/tensor.h>

typedef struct {
    int n_dims;
    int64_t dims[NRL_MAX_DIMS];                     /* of the whole tensor */
    int64_t begin[NRL_MAX_DIMS], end[NRL_MAX_DIMS]; /* the box */
    int64_t flat_begin, flat_end;                   /* of the box's elements */
} layout_shard;

int64_t piece_numel(const layout_shard *p); /* elements of the shard */
/* Iterates over the contiguous ranges of the shard in the order of the whole tensor, ascending. Start with *at = 0; *at
 * is the number of elements of the shard before the range. Returns false after the last range. */
bool piece_next(const layout_shard *p, int64_t *at, int64_t *global_begin, int64_t *n);

layout_shard piece_of_whole(int n_dims, const int64_t *dims);
bool piece_is_whole(const layout_shard *p);
/* Whether the box and the range lie inside dims and the product of dims does not overflow; for shards read from files.
 */
bool piece_is_sound(const layout_shard *p);
bool piece_is_same(const layout_shard *a, const layout_shard *b);

/* Returns share i of n: nearly equal numbers of elements, with boundaries at multiples of `grain`. */
layout_shard piece_share(const layout_shard *p, int32_t i, int32_t n, int64_t grain);

/* Returns the number of elements of the shard whose index in the whole tensor is below `global`. */
int64_t piece_below(const layout_shard *p, int64_t global);

/* Iterates over the runs of elements that both shards of a tensor hold, in ascending order. Start with piece_meet;
 * piece_next_run returns false after the last run. a_at and b_at are the first element of the run in each shard. */
typedef struct {
    const layout_shard *a, *b;
    int64_t a_next, b_next;             /* end of the current range of each shard */
    int64_t a_begin, a_n, b_begin, b_n; /* the rest of the current ranges, in the whole tensor */
} piece_meeting;
piece_meeting piece_meet(const layout_shard *a, const layout_shard *b);
bool piece_next_run(piece_meeting *m, int64_t *a_at, int64_t *b_at, int64_t *n);

#endif
