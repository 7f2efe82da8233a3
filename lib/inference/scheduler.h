/*
 * scheduler.h - generates tokens for many sequences at once (continuous batching): ids in, ids out; text is
 * generator.c's. Each step is one forward of all sequences that run: the next part of a prompt, or the last token.
 * Sequences join when there is room and leave when they end. The cached tokens of a sequence that has ended are kept
 * until the room is needed, and a new sequence takes over the longest prefix that it shares with any other.
 */
#ifndef INFERENCE_SCHEDULER_H
#define INFERENCE_SCHEDULER_H
#include "inference/choose.h"
#include "run/walk/work.h"

typedef struct scheduler scheduler;
typedef struct sequence sequence;

typedef struct {
    int64_t max_sequences; /* that run at once; 0 = 128 */
    int64_t max_cached;    /* tokens in the key/value cache, unless one sequence alone needs more; 0 = 131072 */
    int32_t vocab_size;    /* ids beyond (a padded head) are never chosen; 0 = the head's size */
} scheduler_options;

typedef struct {
    int32_t id; /* NRL_TOKEN_NONE: a logit is not finite, so the sequence ends */
    float logp; /* of the model's distribution; 0 unless sequence_options.wants_logps */
    int32_t n_top;
    const int32_t *top_ids; /* [n_top] the most likely tokens, descending */
    const float *top_logps;
} scheduler_token;

typedef struct {
    choose_options choose;
    int64_t max_tokens; /* new tokens, at most; >= 1 */
    bool fits_context;  /* max_tokens is lowered to what the positions of the model leave */
    bool wants_logps;
    int32_t n_top; /* with wants_logps: so many of the most likely tokens */
    /* Called for each token. *is_last says whether the sequence ends with it; the function may set it. The function
     * must not call the scheduler. Its error ends the sequence, and the step returns it at its end; for NRL_TOKEN_NONE
     * the error, whose text is set, is NRL_ERR_DATA. */
    nrl_status (*token)(void *user, const scheduler_token *t, bool *is_last);
    void *user;
} sequence_options;

/* The work must outlive the scheduler; its weights must not change, or scheduler_forget must follow. */
nrl_status scheduler_create(work *w, const scheduler_options *options, scheduler **out);
void scheduler_destroy(scheduler *s); /* NULL is allowed; ends all sequences */
/* Drops what is cached of sequences that have ended. */
void scheduler_forget(scheduler *s);

/* Copies the prompt's n ids. *out is valid until the sequence has ended. NRL_ERR_CONFIG: an empty prompt, or more
 * tokens than the model has positions; NRL_ERR_MEMORY. */
nrl_status scheduler_add(scheduler *s, const int32_t *ids, int64_t n, const sequence_options *o, sequence **out);
void scheduler_remove(scheduler *s, sequence *q);

/* One token each of the sequences that run. */
nrl_status scheduler_step(scheduler *s);
typedef struct {
    int64_t n_waiting, n_running;
    int64_t n_computed, n_reused; /* tokens of prompts so far: computed, or taken from the cache */
} scheduler_counts;
scheduler_counts scheduler_count(const scheduler *s);
int64_t scheduler_vocab(const scheduler *s); /* ids that can be chosen */

#endif
