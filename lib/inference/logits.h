/*
 * logits.h - logits and log-probs of sequences that are given as ids: one forward without a tape for some thousand
 * tokens at a time, and no more logits on the device than a chunk of rows.
 */
#ifndef RUN_LOGITS_H
#define RUN_LOGITS_H
#include "run/walk/work.h"

/* `logits` [T,V] or `logps` [T] of nrl/inference.h; the other is NULL. */
nrl_status logits_compute(work *w, const int32_t *ids, const int64_t *lengths, size_t n, float *logits, float *logps);
int32_t logits_vocab(const work *w); /* V, of the whole vocabulary */

/* scores[n]: the product of `weight` [1,D] and the hidden state of the last token of each sequence that is not `pad`.
 */
nrl_status scores_compute(work *w, nrl_param *weight, int32_t pad, const int32_t *ids, const int64_t *lengths, size_t n,
                          float *scores);

/* Sends small host memory of the stage with the head, such as chosen tokens, to all stages. */
nrl_status logits_share(stage_link *s, nrl_ctx *ctx, int32_t *values, int64_t n);

#endif
