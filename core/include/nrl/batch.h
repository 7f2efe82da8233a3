/*
 * batch.h - one packed micro-batch: sequences laid end to end, without padding between them.
 *
 * Legend: N tokens, S segments (a segment is one document or one side of a pair), P target positions,
 * B examples.
 * Segment s covers tokens [cu_seqlens[s], cu_seqlens[s+1]); positions restart at 0 in each segment.
 * A target position names the token row that predicts it, its target id, its segment, and its weight in
 * the loss (1 = trained, 0 < w < 1 = weighted, 0 = prompt). Log-probs are [P], not [N].
 * An example is the unit that a loss couples: a sample, a pair, or a group. Examples are never split
 * over micro-batches.
 *
 * With data.prefix_sharing the prompt of both sides is computed once. Its tokens follow the last segment
 * and belong to none of the S segments; a segment then covers only what follows the prompt. Target
 * positions, segments, sides, columns and counts are the same with and without prefix sharing.
 *
 * Columns are named values that the core computes because the algorithm's `needs` lists them.
 * Host arrays are borrowed and live as long as the batch. Functions are [step] unless marked otherwise.
 */
#ifndef NRL_BATCH_H
#define NRL_BATCH_H
#include <nrl/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct nrl_batch nrl_batch;

NRL_API int64_t nrl_batch_n_tokens(const nrl_batch *b);
NRL_API int64_t nrl_batch_n_targets(const nrl_batch *b);  /* P */
NRL_API int64_t nrl_batch_n_segments(const nrl_batch *b); /* S, without shared prompts */
NRL_API int64_t nrl_batch_n_examples(const nrl_batch *b); /* B */

NRL_API const int32_t *nrl_batch_tokens(const nrl_batch *b);          /* [N] */
NRL_API const int32_t *nrl_batch_cu_seqlens(const nrl_batch *b);      /* [S+1] */
NRL_API const int32_t *nrl_batch_target_ids(const nrl_batch *b);      /* [P] token id */
NRL_API const int32_t *nrl_batch_target_segments(const nrl_batch *b); /* [P] ascending */
NRL_API const float *nrl_batch_target_weights(const nrl_batch *b);    /* [P] */
NRL_API const int32_t *nrl_batch_segment_example(const nrl_batch *b); /* [S] ascending */
NRL_API const int32_t *nrl_batch_segment_side(const nrl_batch *b);    /* [S] 0, or 1 = rejected */

/* Counts from which an algorithm computes its loss weights: "answer_tokens" (sum of the targets' weights),
 * "prompt_tokens" (targets of weight 0), "sequences" (segments with a trained target), "pairs", "examples",
 * "desirable" (examples whose "label" is not 0), "tokens" (of whole sequences; a shared prompt counts once
 * for each of its sequences). NaN for any other word. [any] */
NRL_API double nrl_batch_count(const nrl_batch *b, const char *what);

/* Returns a column by name: "logps" [P] f32 (log p(target | prefix), recorded on the tape), "weights" [P]
 * f32, "ref_logps" [P], "entropy" [P], "sum_p2" [P] (log sum_v p_v^2, no gradient), "lse" [P] (the logarithm of the
 * softmax's denominator), "logits" [P,V] f32 (of tokenwise losses, which get a chunk of target positions at a time),
 * "hidden" [N,D] in the compute dtype (the input of the head), or a key of data.extra [S]. The batch owns the tensor.
 * NRL_ERR_CONFIG if `needs` does not list this column; the message lists the available ones. */
NRL_API nrl_status nrl_batch_column(nrl_ctx *ctx, const nrl_batch *b, const char *name, nrl_tensor **column);

#ifdef __cplusplus
}
#endif
#endif
