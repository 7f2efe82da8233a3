/*
 * kl_pairs.h - the second side of labelled samples: the prompt with the answer of the next sample (for the last sample
 * of a file, of the first). A loss estimates from it how far the policy has moved from the reference on unrelated
 * answers (a KL term).
 *
 * The sides are concatenated from tokens, where an answer begins at its first trained token, so no token spans the
 * boundary. They are truncated to max_length. The prompt has at least one token: if a row has no prompt, it is the
 * first token of the answer. The sides are made once, in file order and with memory for three samples, so that the
 * lengths of an example, its place in a batch and its reference log-probs are the same in every step.
 */
#ifndef TOKENS_KL_PAIRS_H
#define TOKENS_KL_PAIRS_H
#include "tokens/cache.h"

/* One sample in the layout of the body of a cache. */
typedef struct {
    buffer body;             /* extra floats, tokens, marks */
    data_cache_segment head; /* the offset is relative to the start of the body */
} data_mismatch_sample;

/* Zero-initialise, set max_length (0 = no limit) and n_extra. */
typedef struct {
    int64_t max_length;
    int n_extra;
    bool any;                         /* first and last are set */
    data_mismatch_sample first, last; /* last waits for the answer of the next sample */
    buffer out;
} data_mismatch;

/* Takes examples with one side, in file order, and writes the completed examples with two sides. */
nrl_status data_mismatch_append(data_mismatch *m, data_cache_writer *w, const char *body,
                                const data_cache_segment *segments, size_t n);
/* From here on the sample that waits is the first one, whose answer the last one gets. */
nrl_status data_mismatch_restart(data_mismatch *m);
/* Writes the last example. */
nrl_status data_mismatch_finish(data_mismatch *m, data_cache_writer *w);
void data_mismatch_free(data_mismatch *m);

#endif
