/*
 * kl_pairs.h - the second side of labelled samples: the prompt with the answer of the next one, and
 * the first sample's answer for the last of a file. A loss reads off it how far the policy has
 * moved from the reference on answers that nobody gave (a KL term).
 *
 * Sides are joined from tokens, an answer being all from its first trained one on, so no merge
 * spans the joint; they are cut to max_length. The prompt has at least one token: where a row has
 * none, that is the first token of its answer. It is made once, in file order and in the memory of
 * three samples, so that an example's lengths, its place in a batch and its reference log-probs are
 * the same in every step.
 */
#ifndef DATA_KL_PAIRS_H
#define DATA_KL_PAIRS_H
#include "data/cache.h"

/* One sample as it lies in a body. */
typedef struct {
    buffer body;             /* extra floats, tokens, marks */
    data_cache_segment head; /* offset counts from the body's start */
} data_mismatch_sample;

/* Zero-initialise, set max_length (0 = no limit) and n_extra. */
typedef struct {
    int64_t max_length;
    int n_extra;
    bool any;                         /* first and last are set */
    data_mismatch_sample first, last; /* last: waits for the next one's answer */
    buffer out;
} data_mismatch;

/* Takes examples of one side, in file order, and writes those that are complete with two. */
nrl_status data_mismatch_append(data_mismatch *m, data_cache_writer *w, const char *body,
                                const data_cache_segment *segments, size_t n);
/* Writes the last example. */
nrl_status data_mismatch_finish(data_mismatch *m, data_cache_writer *w);
void data_mismatch_free(data_mismatch *m);

#endif
