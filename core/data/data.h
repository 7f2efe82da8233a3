/*
 * data.h - from rows of text to packed micro-batches, in three parts that know only the next one:
 *   dataset  rows -> tokens: a memory-mapped token cache, built once (dataset.c and its readers)
 *
 *   plan     lengths -> which examples form the global batch of step s, and which micro-batch and
 *            rank each goes to; pure arithmetic on seed, epoch and cached lengths, equal on all
 *            ranks
 *
 *   loader   plan -> nrl_batch, one step ahead on an io thread
 *
 * Step s is a function of (data, seed, options) alone, so a resumed run continues exactly.
 */
#ifndef DATA_DATA_H
#define DATA_DATA_H
#include "base/node.h"
#include "tensor/batch.h"
#include "text/chat.h"

/* ---- dataset ---- */
typedef enum { DATA_OVERLONG_ERROR = 0, DATA_OVERLONG_DROP, DATA_OVERLONG_TRUNCATE } data_overlong;

typedef struct {
    plugin_host *host;             /* has the dataset plugins */
    const nrl_node *source;        /* data.train: a path, {path, weight, reader}, or a list of these */
    const char *base_dir;          /* relative paths inside `source` start here; NULL = working dir */
    tokenizer *tokenizer;          /* NULL: only pre-tokenized rows can be read */
    const chat_template *template; /* NULL: rows of messages are an error */
    const char *template_problem;  /* why there is none */
    int64_t max_length;            /* tokens a sample (each side of a pair); 0 = no limit */
    data_overlong overlong;
    bool train_on_all;          /* prompts are trained too */
    bool train_on_last;         /* of a conversation, the last assistant turn alone */
    bool pairs;                 /* examples are chosen/rejected pairs */
    bool labels;                /* examples are samples whose answer is wanted or not: extra "label" */
    bool kl_pairs;              /* of labels: side 1 is the prompt with the next row's answer */
    bool prefix_sharing;        /* of two sides: the prompt is laid out once for both */
    const nrl_node *columns;    /* renames {prompt: question, ...}; may be NULL */
    const nrl_node *extra;      /* list of keys that become one float a sample; may be NULL */
    int64_t workers;            /* tokenising threads */
    const char *cache_dir;      /* where token caches live, made if absent; NULL = nothing is kept */
    int64_t vocab_size;         /* of the model: ids beyond it are an error naming the row; 0 = any */
    const char *role;           /* "train" or "eval", for messages; NULL = "train" */
    bool quiet;                 /* no warnings: ranks other than 0 */
    const volatile int *signal; /* number of a signal that asks to stop, 0 = none yet; NULL = nobody asks */
} dataset_options;

typedef struct dataset dataset;

typedef struct {
    int64_t rows, kept; /* rows = kept + dropped_overlong + untrainable + empty */
    int64_t dropped_overlong, untrainable, empty;
    int64_t identical; /* kept, pairs whose two answers are the same: they teach nothing */
    int64_t truncated; /* kept, cut to max_length */
    int64_t tokens, trained_tokens;
    int64_t shared_tokens;                         /* of prompts laid out once instead of twice */
    int64_t bytes;                                 /* of the files on disk */
    int64_t min_length, max_length, median_length; /* of samples; of each side of pairs */
    int64_t histogram[24];                         /* samples (sides) with length in [2^k, 2^(k+1)); last: and above */
    const char *format;                            /* "messages", "prompt/completion", ... as detected; borrowed */
    bool from_cache;                               /* nothing was tokenised */
} dataset_report;

/* One entry of data.train: examples [first, first + n). */
typedef struct {
    const char *path; /* as opened; borrowed */
    int64_t first, n;
    double weight;
    int64_t bytes;            /* of the file */
    const char *hash;         /* of what the rows are made of, hex digits; borrowed */
    const nrl_plugin *reader; /* the dataset plugin; borrowed */
    const char *reader_name;  /* "NAME VERSION"; borrowed */
    uint64_t tokens_hash;     /* of the tokens made of it */
} dataset_part;

/* Reads or builds the cache. Errors name file and line (NRL_ERR_DATA); a path or option that cannot
 * be is NRL_ERR_CONFIG. Rows omitted and keys not used are warned of, once each kind. [main] */
nrl_status dataset_open(const dataset_options *options, dataset **out);
void dataset_close(dataset *d);
int64_t dataset_n_examples(const dataset *d);
int64_t dataset_example_tokens(const dataset *d, int64_t example); /* all that a batch holds of it */
/* First tokens that both sides of a example see in one place; 0 without prefix_sharing. */
int64_t dataset_shared_tokens(const dataset *d, int64_t example);
const dataset_report *dataset_info(const dataset *d);
int64_t dataset_n_parts(const dataset *d);
dataset_part dataset_part_at(const dataset *d, int64_t i);
int dataset_n_sides(const dataset *d); /* segments a example: 1, or 2 for pairs and kl_pairs */
bool dataset_has_pairs(const dataset *d);
/* "data/train.json:12", into out. */
void dataset_place(const dataset *d, int64_t example, char *out, size_t room);
int64_t dataset_n_extra(const dataset *d);
const char *dataset_extra_name(const dataset *d, int64_t i);
float dataset_extra(const dataset *d, int64_t example, int64_t i);
const char *dataset_hash(const dataset *d); /* 32 hex digits: data, tokenizer, template, limits */
/* The first sample as text, each range of trained tokens between U+27E6 and U+27E7 (white square
 * brackets), for the plan; ids where t is NULL; malloc'd. */
char *dataset_first_sample(const dataset *d, const tokenizer *t);
/* Tokens of example i, segment j (0; pairs: 0 chosen, 1 rejected; 1 kl_pairs), borrowed; *trained
 * is [n] bytes, 1 = the token is a target that counts. The first of a segment never is. [any] */
int64_t dataset_segment(const dataset *d, int64_t example, int segment, const int32_t **tokens,
                        const uint8_t **trained);
/* Compares a example with the sum that was stored when it was tokenised: a cache file damaged since
 * is NRL_ERR_CORRUPT naming the file to remove. [any] */
nrl_status dataset_verify(const dataset *d, int64_t example);

/* ---- plan ----
 * An epoch: each part of n examples and weight w gives round(w n) of them: all floor(w) times, and
 * for the rest a window of a permutation fixed by seed and part that moves on each epoch, so that
 * over epochs all its examples are seen equally often. With `shuffle` the epoch's list is then
 * permuted (Fisher-Yates, from the counter-based generator in order.h keyed by seed and epoch),
 * else it is in file order. Step k of the epoch takes examples [k G, k G + G), G = global_batch; a
 * short last batch stays or is dropped; no step spans two epochs.
 *
 * A step's examples become R x A micro-batches (R ranks, A on each). With a token budget, first-fit
 * by falling length says how many are needed, then they are evened out by tokens (pack.h). Without
 * one they are runs of `micro_batch` consecutive examples. Blocks K i .. K i + K - 1 of the global batch
 * (K = group; fewer at its end) are dealt as one. Inside a micro-batch examples keep the order of the
 * global batch. All of it follows from seed and lengths: every rank computes the same. */
typedef struct {
    int64_t global_batch;       /* examples a step */
    int64_t micro_batch_tokens; /* packing: budget of a micro-batch, 0 = unset */
    int64_t micro_batch;        /* samples a micro-batch, where micro_batch_tokens is 0 */
    int64_t group;              /* consecutive examples that share a micro-batch; 0 = 1 */
    bool shuffle, drop_last;
    uint64_t seed;
    int32_t ranks, rank; /* of the data axis */
} data_plan_options;

typedef struct data_plan data_plan;
/* NRL_ERR_CONFIG: a example over the budget (names file:line), groups that may be, fewer examples than
 * one global batch with drop_last, an option out of range. `d` must outlive the plan. A plan belongs to one thread
 * at a time. [main] */
nrl_status data_plan_create(const dataset *d, const data_plan_options *options, data_plan **out);
void data_plan_destroy(data_plan *p);
int64_t data_plan_steps_per_epoch(const data_plan *p);
/* Micro-batches every rank runs in step s (from 0): equal on all ranks, at least 1. */
int64_t data_plan_n_micro_batches(data_plan *p, int64_t step);
/* Blocks of this rank's micro-batch m of step s, 0 where it is empty; *examples is the plan's until
 * the next call. */
int64_t data_plan_micro_batch(data_plan *p, int64_t step, int64_t m, const int64_t **examples);

/* ---- loader ---- */
typedef struct {
    nrl_batch **micro_batch; /* [n_micro_batches] this rank's; an empty one is a padding micro-batch */
    int64_t n_micro_batches;
    int64_t step;
    double epoch; /* finished epochs after this step, fractional */
} data_step;

typedef struct data_loader data_loader;
/* `prefetch` steps are built ahead by an io thread (0 = in the caller). Target positions: targets whose
 * token counts; with `prompt_targets` also prompt targets with weight 0. The loader copies the plan:
 * the caller's may be asked meanwhile. [main] */
nrl_status data_loader_create(const dataset *d, data_plan *p, int64_t prefetch, bool prompt_targets, data_loader **out);
void data_loader_destroy(data_loader *l);
/* The batches of step s (0-based). Any order is allowed; rising order is fast. *out belongs to the
 * loader until the next call. Errors of the io thread are returned here. [step] */
nrl_status data_loader_step(data_loader *l, int64_t step, data_step *out);
double data_loader_wait_seconds(const data_loader *l); /* time the step thread spent waiting */

#endif
