/*
 * generate.h - tokens after tokens: continues prompts in groups through the key/value cache. Ids in, ids
 * out: text is sample.c's.
 */
#ifndef RUN_GENERATE_H
#define RUN_GENERATE_H
#include "run/walk/work.h"

typedef struct {
    int64_t max_tokens;
    double temperature;               /* 0 = greedy: the largest logit, smallest id on ties */
    double top_p;                     /* smallest set of tokens with at least this probability */
    int64_t top_k;                    /* 0 = all */
    double min_p, repetition_penalty; /* as in nrl/inference.h */
    uint64_t seed;                    /* token t of prompt i depends on (seed, i, t) alone, not on the grouping */
    bool (*is_end)(void *user, int32_t id);
    /* Called for each token of prompt i. *is_last says whether the generation ends with it; the function may set it.
     * NULL = not called. */
    nrl_status (*token)(void *user, size_t i, int32_t id, bool *is_last);
    void *user;
    int32_t vocab_size; /* ids beyond (a padded head) are never chosen; 0 = the head's size */
} generate_options;

typedef struct {
    int32_t *ids; /* malloc'd by generate; includes the end token where one was chosen */
    int64_t n;
} generate_result;

/* NRL_ERR_CONFIG: an empty prompt, or prompt + max_tokens beyond the model's positions. */
nrl_status generate(work *w, const int32_t *const *prompts, const int64_t *lengths, size_t n,
                    const generate_options *options, generate_result *results);

#endif
