/*
 * data.h - from rows of text to packed micro-batches, in three parts that know only the next one:
 *   dataset  rows -> tokens: a memory-mapped token cache, built once (dataset.c and its readers)
 *   plan     lengths -> which blocks form the global batch of step s, and which micro-batch and rank
 *            each goes to; pure arithmetic on seed, epoch and cached lengths, equal on every rank
 *   loader   plan -> nrl_batch, one step ahead on an io thread
 * Step s is a function of (data, seed, options) alone, so a resumed run continues exactly.
 */
#ifndef DATA_DATA_H
#define DATA_DATA_H
#include "base/node.h"
#include "tensor/batch.h"
#include "text/tokenizer.h"

/* ---- dataset ---- */
typedef enum { DATA_OVERLONG_ERROR = 0, DATA_OVERLONG_DROP, DATA_OVERLONG_TRUNCATE } data_overlong;

typedef struct {
    const nrl_node *source;     /* data.train: a path, {path}, or a list of {path, weight} */
    const char *base_dir;       /* relative paths inside `source` start here; NULL = working dir */
    tokenizer *tokenizer;       /* NULL: only pre-tokenized rows can be read */
    const char *template;       /* "auto" or a built-in's name */
    int64_t max_length;         /* tokens a sample (each side of a pair); 0 = no limit */
    data_overlong overlong;
    bool train_on_all;          /* prompts are trained too */
    bool pairs;                 /* blocks are chosen/rejected pairs */
    const nrl_node *columns;    /* renames {prompt: question, ...}; may be NULL */
    const nrl_node *extra;      /* list of keys that become one float a sample; may be NULL */
    int64_t workers;            /* tokenising threads */
    const char *cache_dir;      /* where token caches live */
    int64_t vocab_size;         /* of the model: ids beyond it are an error naming the row */
    uint64_t seed;              /* for sampling by weight */
    const char *role;           /* "train" or "eval", for messages */
} dataset_options;

typedef struct dataset dataset;

typedef struct {
    int64_t rows, kept, dropped_overlong, truncated, untrainable, empty;
    int64_t tokens, trained_tokens, bytes;
    int64_t min_length, max_length, median_length;
    int64_t histogram[24]; /* samples with length in [2^k, 2^(k+1)) */
    const char *format;    /* "messages", "prompt/completion", ... as detected; borrowed */
    bool from_cache;
} dataset_report;

/* Reads or builds the cache. Errors name file and line (NRL_ERR_DATA). [main] */
nrl_status dataset_open(const dataset_options *options, dataset **out);
void dataset_close(dataset *d);
int64_t dataset_n_blocks(const dataset *d);
int64_t dataset_block_tokens(const dataset *d, int64_t block); /* all segments of the block */
const dataset_report *dataset_facts(const dataset *d);
const char *dataset_hash(const dataset *d);      /* 32 hex digits: data, tokenizer, template, limits */
/* The first sample as text with its trained tokens marked, for the plan; malloc'd. */
char *dataset_first_sample(const dataset *d, const tokenizer *t);
/* Tokens of block i, segment j (0; pairs: 0 chosen, 1 rejected), borrowed; *trained is [n] bytes, 1 =
 * the token is a target that counts. */
int64_t dataset_segment(const dataset *d, int64_t block, int segment, const int32_t **tokens,
                        const uint8_t **trained);

/* ---- plan ---- */
typedef struct {
    int64_t global_batch;        /* blocks a step */
    int64_t micro_batch_tokens;  /* packing: budget of a micro-batch, 0 = unset */
    int64_t micro_batch;         /* samples a micro-batch, where micro_batch_tokens is 0 */
    bool shuffle, drop_last;
    uint64_t seed;
    int32_t ranks, rank;         /* of the data axis */
} data_plan_options;

typedef struct data_plan data_plan;
/* NRL_ERR_CONFIG: a block over the budget (names file:line), an empty data set. [main] */
nrl_status data_plan_create(const dataset *d, const data_plan_options *options, data_plan **out);
void data_plan_destroy(data_plan *p);
int64_t data_plan_steps_per_epoch(const data_plan *p);
/* Micro-batches every rank runs in step s (from 0): equal on all ranks, at least 1. */
int64_t data_plan_n_micro(data_plan *p, int64_t step);
/* Blocks of this rank's micro-batch m of step s; *blocks is the plan's until the next call. */
int64_t data_plan_micro(data_plan *p, int64_t step, int64_t m, const int64_t **blocks);

/* ---- loader ---- */
typedef struct {
    nrl_batch **micro; /* [n_micro] this rank's; an empty one is a tail batch */
    int64_t n_micro;
    int64_t step;
    double epoch; /* finished epochs after this step, fractional */
} data_step;

typedef struct data_loader data_loader;
/* `prefetch` steps are built ahead by an io thread (0 = in the caller). Scored rows: targets whose
 * token counts; with `prompt_rows` also prompt targets with weight 0. [main] */
nrl_status data_loader_create(const dataset *d, data_plan *p, int64_t prefetch, bool prompt_rows,
                              data_loader **out);
void data_loader_destroy(data_loader *l);
/* The batches of step s (0-based). Any order is allowed; rising order is fast. *out belongs to the
 * loader until the next call. Errors of the io thread are returned here. [step] */
nrl_status data_loader_step(data_loader *l, int64_t step, data_step *out);
double data_loader_wait_seconds(const data_loader *l); /* time the step thread spent waiting */

#endif
