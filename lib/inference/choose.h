/*
 * choose.h - a token from a row of logits, and its log-probs.
 */
#ifndef INFERENCE_CHOOSE_H
#define INFERENCE_CHOOSE_H
#include <nrl/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    double temperature;               /* 0 = greedy: the largest logit, smallest id on ties */
    double top_p;                     /* smallest set of tokens with at least this probability */
    int64_t top_k;                    /* 0 = all */
    double min_p, repetition_penalty; /* as in nrl/inference.h */
    uint64_t seed, stream;            /* token t of a text depends on (seed, stream, t) alone, not on other texts */
} choose_options;

typedef struct chooser chooser;

/* For rows of `vocab` logits. NULL: NRL_ERR_MEMORY. */
chooser *chooser_create(int64_t vocab);
void chooser_destroy(chooser *c); /* NULL is allowed */

/* Chooses token number t of a text from a row; `ids` [n] are the tokens of its prompt and of the text so far. false:
 * the logit of token *out is NaN or positive infinity. */
bool chooser_token(chooser *c, const choose_options *o, const float *row, const int32_t *ids, int64_t n, int64_t t,
                   int32_t *out);
/* The log-prob of token `id`, and ids and log-probs of the `n` most likely tokens that can be chosen, descending, of
 * the model's distribution without the options above: that of all n_row logits. n <= vocab <= n_row. */
float chooser_logps(chooser *c, const float *row, int64_t n_row, int32_t id, int32_t *top_ids, float *top_logps,
                    int64_t n);

#endif
