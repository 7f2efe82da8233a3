/*
 * pack.h - which examples of a global batch share a micro-batch, from their lengths alone.
 *
 * 1. First-fit by falling length (ties: the earlier first) under the budget gives B bins; then
 *    A = ceil(B / R) micro-batches on each of R ranks.
 * 2. The budget is bisected down to the least under which first-fit still needs no more than R x A
 *    bins (MULTIFIT): the fullest micro-batch, which the others wait for, is then about as small
 *    as it can be.
 * 3. Bins by falling tokens go to micro-batch 0 of ranks 0..R-1, micro-batch 1 of ranks R-1..0,
 *    and so on: ranks run alike loads side by side, and alike sums. Empty bins come last.
 *
 * O(n log n log budget): some 20 ms for 10,000 examples.
 */
#ifndef DATA_PACK_H
#define DATA_PACK_H
#include <stdint.h>

/* Sets place[i] = micro-batch * ranks + rank for each of n lengths (1 .. budget); returns A. */
int64_t data_pack(const int64_t *lengths, int64_t n, int64_t budget, int64_t ranks, int64_t *place);

#endif
