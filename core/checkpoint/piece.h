/*
 * piece.h - arithmetic on shards of tensors (mesh/layout.h): what two of them have in common, and how
 * ranks that hold the same one share the work of writing it. No memory, no files. [any]
 */
#ifndef CHECKPOINT_PIECE_H
#define CHECKPOINT_PIECE_H
#include "mesh/layout.h"

layout_shard piece_of_whole(int n_dims, const int64_t *dims);
bool piece_is_whole(const layout_shard *p);
/* Whether box and range lie inside dims, and dims can be multiplied; for what comes from files. */
bool piece_is_sound(const layout_shard *p);
bool piece_is_same(const layout_shard *a, const layout_shard *b);

/* Share i of n of the piece: nearly equal numbers of elements, cut at multiples of `grain`. */
layout_shard piece_share(const layout_shard *p, int32_t i, int32_t n, int64_t grain);

/* Elements of the piece whose place in the whole tensor is below `global`. */
int64_t piece_below(const layout_shard *p, int64_t global);

/* Runs of elements that both shards of one tensor hold, rising: begins with piece_meet; false when all
 * were given. a_at, b_at: the run's first element in each piece. */
typedef struct {
    const layout_shard *a, *b;
    int64_t a_next, b_next;             /* behind the current ranges */
    int64_t a_begin, a_n, b_begin, b_n; /* what is left of them, in the whole tensor */
} piece_meeting;
piece_meeting piece_meet(const layout_shard *a, const layout_shard *b);
bool piece_next_run(piece_meeting *m, int64_t *a_at, int64_t *b_at, int64_t *n);

#endif
