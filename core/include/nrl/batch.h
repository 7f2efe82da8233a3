/*
 * batch.h - one packed micro-batch: documents laid end to end, no padding.
 *
 * Legend: N tokens, S segments (one document or one side of a pair each), P scored rows, B blocks.
 * A segment is [cu_seqlens[s], cu_seqlens[s+1]); positions restart at 0 in each. A scored row says:
 * the log-probability of `target` is read off token row `row`, belongs to `segment` and counts with
 * `weight` (1 trained, 0 < w < 1 weighed, 0 prompt). Log-probs are [P], not [N].
 * A block is what a loss couples: a sample, a pair, a group; blocks are never split.
 *
 * With data.prefix_sharing the prompt of two sides is computed once: its tokens lie behind the last
 * segment, in none of the S, and a segment's own range is what follows the prompt. Rows, segments,
 * sides, columns and counts are the same with and without; only token ranges are shorter.
 *
 * Columns are named values that the core fills because an algorithm `needs` them.
 * Host arrays are borrowed and live as long as the batch. [step] unless said.
 */
#ifndef NRL_BATCH_H
#define NRL_BATCH_H
#include <nrl/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct nrl_batch nrl_batch;

NRL_API int64_t nrl_batch_n_tokens(const nrl_batch *b);
NRL_API int64_t nrl_batch_n_rows(const nrl_batch *b);     /* P */
NRL_API int64_t nrl_batch_n_segments(const nrl_batch *b); /* S, without shared prompts */
NRL_API int64_t nrl_batch_n_blocks(const nrl_batch *b);   /* B */

NRL_API const int32_t *nrl_batch_tokens(const nrl_batch *b);        /* [N] */
NRL_API const int32_t *nrl_batch_cu_seqlens(const nrl_batch *b);    /* [S+1] */
NRL_API const int32_t *nrl_batch_row_target(const nrl_batch *b);    /* [P] token id */
NRL_API const int32_t *nrl_batch_row_segment(const nrl_batch *b);   /* [P] ascending */
NRL_API const float *nrl_batch_row_weight(const nrl_batch *b);      /* [P] */
NRL_API const int32_t *nrl_batch_segment_block(const nrl_batch *b); /* [S] ascending */
NRL_API const int32_t *nrl_batch_segment_side(const nrl_batch *b);  /* [S] 0, or 1 = rejected */

/* Counts that weights are made of: "answer_tokens" (sum of row weights), "prompt_tokens" (rows of
 * weight 0), "sequences" (segments with a trained row), "pairs", "blocks", "desirable" (blocks
 * whose "label" is not 0), "tokens" (of whole sequences: a shared prompt counts for each of them);
 * NaN for any other word. [any] */
NRL_API double nrl_batch_count(const nrl_batch *b, const char *what);

/* A column by name: "logps" [P] f32 (log p(target | prefix), on the tape), "weights" [P] f32,
 * "ref_logps" [P], "entropy" [P], a row's data.extra key [S]. NRL_ERR_CONFIG names the columns
 * there are when this one was not asked for in `needs`. The tensor is the batch's. */
NRL_API nrl_status nrl_batch_column(nrl_ctx *ctx, const nrl_batch *b, const char *name,
                                    nrl_tensor **column);

#ifdef __cplusplus
}
#endif
#endif
