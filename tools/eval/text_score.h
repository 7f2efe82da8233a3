/*
 * text_score.h - how well a model predicts a text: `nrl eval SRC --text FILE`.
 */
#ifndef EVAL_TEXT_SCORE_H
#define EVAL_TEXT_SCORE_H
#include "base/arena.h"
#include <nrl/inference.h>

typedef struct {
    int64_t documents, tokens, bytes, window;
    double nll;      /* nats, of all tokens */
    double entropy;  /* of the predictions, nats, of all tokens */
    int64_t correct; /* tokens that were the most likely ones */
} text_scores;

/* A file is one document; the texts of a .jsonl file {"text": ...} are documents of their own. `-` is the standard
 * input, rows if it begins with a brace. `window`: tokens that are predicted at once, 0 = as many as the model has
 * positions, at most 2048, and at most 256 MiB of logits, with a warning if these reduce it. The windows follow
 * lm-evaluation-harness: each token is predicted once, the first one after BOS or EOS. */
nrl_status text_score(arena *a, nrl_inference *m, const char *file, int64_t window, text_scores *out);

/* The token in front of a text that nothing precedes: BOS, or else EOS; NRL_TOKEN_NONE: the tokenizer has neither. */
static inline int32_t text_score_prefix(const nrl_open_tokenizer *t)
{
    return t->info->bos != NRL_TOKEN_NONE ? t->info->bos : t->info->eos;
}

#endif
