/*
 * rollout.h - for algorithms that learn from completions of the policy: completions of the prompts of a step, with the
 * current weights, inside nrl_algorithm.rollout.
 *
 *     static nrl_status rollout(void *self, nrl_rollout *r)
 *     {
 *         nrl_rollout_options o = {.size = sizeof o, .n = 8, .max_tokens = 256, .temperature = 1, .top_p = 1};
 *         NRL_TRY(nrl_rollout_generate(r, &o));
 *         ... one number for each sequence, from nrl_rollout_sequence_fill and nrl_rollout_text ...
 *         const nrl_rollout_column columns[] = {{"advantages", advantages}};
 *         return nrl_rollout_replace(r, columns, 1);
 *     }
 *
 * The functions are in the library libnrl-inference. The prompt of an example is everything before its last answer; a
 * pair has the prompt of its chosen side. Each rank has the prompts of its own batches, and ranks that share a batch
 * have the same sequences. What is sampled depends on the weights, the seed of the run, the step, and the example
 * alone, so a run that is resumed samples the same tokens as one that was not interrupted, up to the rounding of the
 * device's matrix products. If the strategy divides batches into reproducible shards, each of them is generated alone,
 * with the same bits on any number of ranks.
 *
 * Threads: all functions are [step], and only valid inside nrl_algorithm.rollout. Functions marked [collective] are
 * called by all ranks in the same order. Growth: the caller sets `size` of a struct to its sizeof.
 */
#ifndef NRL_ROLLOUT_H
#define NRL_ROLLOUT_H
#include <nrl/algorithm.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint32_t size;
    bool trains;         /* false: in an evaluation */
    int64_t step;        /* finished optimizer steps; in an evaluation the batch of the set, from 0 */
    int64_t n_prompts;   /* examples of this rank; 0 is possible */
    int64_t n_sequences; /* generated so far: n_prompts * options.n */
    bool has_text;       /* there is a tokenizer for nrl_rollout_text */
    int64_t update;      /* the number of this step among those on the same batch, 0 .. nrl_algorithm.updates - 1 */
} nrl_rollout_info;
NRL_API void nrl_rollout_info_fill(const nrl_rollout *r, nrl_rollout_info *fill);

/* A number in [0, 1) that depends only on the seed of the run, the step and `key`; equal on all ranks. */
NRL_API double nrl_rollout_uniform(const nrl_rollout *r, uint64_t key);

typedef struct {
    uint32_t size;
    int64_t n;           /* completions of each prompt */
    int64_t max_tokens;  /* new tokens, at most; fewer where the model has no more positions */
    double temperature;  /* 0 = greedy */
    double top_p, min_p; /* as in nrl_sample_options: 1 and 0 = all tokens */
    int64_t top_k;       /* 0 = all */
} nrl_rollout_options;
/* Generates; replaces what was generated before. A completion ends with an end token, which it contains, or after
 * max_tokens. End tokens are those of the tokenizer and of the chat template, without a tokenizer eos_token_id of
 * config.json. NRL_ERR_CONFIG: data.train_on: all, which leaves no prompts, or an option out of range; NRL_ERR_DATA: a
 * prompt fills all positions of the model; NRL_ERR_MEMORY. [collective] */
NRL_API nrl_status nrl_rollout_generate(nrl_rollout *r, const nrl_rollout_options *options);

/* Arrays are borrowed and valid until the next nrl_rollout_generate. */
typedef struct {
    uint32_t size;
    bool is_finished;      /* it ends with an end token */
    int64_t prompt;        /* 0 .. n_prompts - 1 */
    const int32_t *ids;    /* [n_prompt + n_completion] */
    const int32_t *answer; /* [n_answer] the answer of the data, with its end token */
    int64_t n_prompt, n_completion, n_answer;
    const float *logps;   /* [n_completion] log-probs of the tokens in the policy's own distribution, in nats */
    const double *values; /* [n_values] of nrl_rollout_keep; NULL for a sequence that was not kept */
    int32_t shard; /* ascending from 0: of the batch, where the strategy divides it into reproducible shards. Results
                      that are computed for several sequences at once have the same bits on any number of ranks only if
                      the sequences are of one shard. */
} nrl_rollout_sequence;
/* Sequence i: completion i % n of prompt i / n. */
NRL_API void nrl_rollout_sequence_fill(const nrl_rollout *r, int64_t i, nrl_rollout_sequence *fill);
/* As nrl_metric_report_f64, of sequence i, or, if i is -1, a value of the batch that is the same on all ranks: sums of
 * values that were reported so have the same bits on any number of ranks if the strategy's shards are reproducible. */
NRL_API nrl_status nrl_rollout_report(const nrl_rollout *r, int64_t i, const nrl_metric *row, double value,
                                      double weight);
/* The text of n ids without special tokens, allocated (nrl_free). NRL_ERR_CONFIG without a tokenizer. */
NRL_API nrl_status nrl_rollout_text(const nrl_rollout *r, const int32_t *ids, int64_t n, char **text);
/* Key k of data.extra; NULL behind the last one. */
NRL_API const char *nrl_rollout_extra_name(const nrl_rollout *r, int32_t k);
/* The number of a key of data.extra of the example of sequence i; NaN if data.extra has no such key. */
NRL_API double nrl_rollout_extra(const nrl_rollout *r, int64_t i, const char *key);
/* The place of the example of sequence i, such as "data/train.json:12", written to out. */
NRL_API void nrl_rollout_place(const nrl_rollout *r, int64_t i, char *out, size_t room);

/* The sequences of all ranks, with numbers of the algorithm for each, for several updates on one batch of the data:
 * the first generates and keeps, each one takes a part. Every rank holds all of it. */
typedef struct nrl_rollout_kept nrl_rollout_kept;
/* Keeps the generated completions and values [n_sequences][n_values], instead of what *kept held before (NULL =
 * nothing). The prompts are divided into n_parts of about the same size, at random, but equally on any number of ranks.
 * [collective] */
NRL_API nrl_status nrl_rollout_keep(nrl_rollout *r, const double *values, int64_t n_values, int64_t n_parts,
                                    nrl_rollout_kept **kept);
/* The sequences become those of this rank's prompts that are in a part, as if they had just been generated. `kept` has
 * to live until the step is over. NRL_ERR_CONFIG: a prompt of this batch is missing in `kept`. */
NRL_API nrl_status nrl_rollout_take(nrl_rollout *r, const nrl_rollout_kept *kept, int64_t part);

typedef struct {
    uint32_t size;
    bool is_finished;
    int64_t prompt; /* equal for the completions of a prompt, which are neighbours */
    int64_t part, n_completion;
    const double *values; /* [n_values] */
} nrl_rollout_kept_sequence;
NRL_API int64_t nrl_rollout_kept_n(const nrl_rollout_kept *kept); /* on all ranks together */
NRL_API int64_t nrl_rollout_kept_n_values(const nrl_rollout_kept *kept);
NRL_API void nrl_rollout_kept_fill(const nrl_rollout_kept *kept, int64_t i, nrl_rollout_kept_sequence *fill);
/* Inside nrl_algorithm.state: saves or restores *kept, which may be NULL. */
NRL_API nrl_status nrl_rollout_kept_io(nrl_rollout_kept **kept, nrl_state_io *io);
NRL_API void nrl_rollout_kept_free(nrl_rollout_kept *kept); /* NULL is allowed */

typedef struct {
    const char *name;    /* one of nrl_algorithm.rollout_columns */
    const float *values; /* [n_sequences] the loss gets the number of a sequence for each of its target positions */
} nrl_rollout_column;
/* The step trains on the sequences instead of the data: every token of a completion is a target of weight 1, or, if
 * "weights" is one of the columns, of that weight. Each sequence is an example; ranks pack theirs into micro-batches by
 * train.micro_batch_tokens or train.micro_batch. Each column of nrl_algorithm.rollout_columns is given. NRL_ERR_PLUGIN:
 * nothing was generated, or a column is missing or not declared. [collective] */
NRL_API nrl_status nrl_rollout_replace(nrl_rollout *r, const nrl_rollout_column *columns, size_t n_columns);

#ifdef __cplusplus
}
#endif
#endif
