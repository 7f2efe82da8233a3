/*
 * data.h - from rows of text to packed micro-batches, in three parts, each of which uses only the one before it:
 *   dataset  rows -> tokens: a memory-mapped token cache, built once (dataset.c and its readers)
 *
 *   plan     lengths -> which examples form the global batch of step s, and the micro-batch and rank of each example;
 *            computed from seed, epoch and cached lengths only, and equal on all ranks
 *
 *   loader   plan -> nrl_batch, one step ahead on an io thread
 *
 * Step s is a function of (data, seed, options) only, so a resumed run continues exactly.
 */
#ifndef DATA_DATA_H
#define DATA_DATA_H
#include "base/node.h"
#include "tensor/batch.h"
#include "text/chat.h"
#include "tokens/encode.h"

/* ---- dataset ---- */
typedef struct {
    plugin_host *host;      /* has the dataset plugins */
    const nrl_node *source; /* data.train: a path, {path, weight, rows, ...}, or a list of these */
    double held_out; /* rows that are held out of the source by their hashes: a share below 1, or a number; 0 = none */
    double size_exponent;          /* multiplies the weight of an entry by n^this, n its samples; 0 = no change */
    bool is_held_out;              /* read these rows instead of the others, each once */
    const char *base_dir;          /* relative paths inside `source` start here; NULL = working dir */
    tokenizer *tokenizer;          /* NULL: only pre-tokenized rows can be read */
    const chat_template *template; /* NULL: rows of messages are an error */
    const char *template_problem;  /* the reason why template is NULL */
    int64_t max_length;            /* tokens per sample (each side of a pair); 0 = no limit */
    data_overlong overlong;
    bool train_on_all;          /* prompts are trained too */
    bool train_on_last;         /* only the last assistant turn of a conversation */
    bool generates;             /* answers are generated: see data_encode_options */
    bool pairs;                 /* examples are chosen/rejected pairs */
    bool labels;                /* examples have a desirable or an undesirable answer: extra "label" */
    bool kl_pairs;              /* with labels: side 1 is the prompt with the answer of the next row */
    bool prefix_sharing;        /* with two sides: the prompt is laid out once for both */
    const nrl_node *columns;    /* renames {prompt: question, ...}; may be NULL */
    const nrl_node *extra;      /* list of keys that become one float a sample; may be NULL */
    int64_t workers;            /* tokenizing threads */
    const char *cache_dir;      /* directory of token caches, created if missing; NULL = no cache is kept */
    int64_t vocab_size;         /* of the model: a larger id is an error that names the row; 0 = any */
    const char *role;           /* "train" or "eval", for messages; NULL = "train" */
    bool streaming;             /* rows are read during training, without a pass over all of them first */
    bool quiet;                 /* no warnings: ranks other than 0 */
    const volatile int *signal; /* number of the signal that requests a stop, 0 = none yet; may be NULL */
} dataset_options;

typedef struct dataset dataset;

typedef struct {
    int64_t n_examples, n_parts;
    int n_sides; /* segments per example: 1, or 2 for pairs and kl_pairs */
    bool has_pairs;
    int64_t n_extra;
    const char *extra[BATCH_MAX_EXTRA]; /* names of the columns of dataset_extra */
    char hash[HASH_TEXT];               /* of data, tokenizer, template, limits */
    int64_t rows; /* selected rows of the files. Rows that are dropped_overlong, untrainable or empty give no example; a
                     split row gives several */
    int64_t dropped_overlong, untrainable, empty;
    int64_t identical; /* examples, pairs with equal answers: they have no gradient */
    int64_t truncated; /* examples, cut to max_length */
    int64_t split;     /* rows that became several samples of max_length */
    int64_t tokens, trained_tokens;
    int64_t shared_tokens;                         /* tokens of prompts that are laid out once instead of twice */
    int64_t bytes;                                 /* of the files on disk */
    int64_t min_length, max_length, median_length; /* of samples; of each side of pairs */
    int64_t histogram[24];                         /* samples (sides) with length in [2^k, 2^(k+1)); last: and above */
    const char *format;                            /* "messages", "prompt/completion", ... as detected; borrowed */
    bool from_cache;                               /* the token cache existed */
} dataset_report;

/* One file of data.train: examples [first, first + n). */
typedef struct {
    const char *path; /* as opened; borrowed */
    int64_t first, n;
    double weight;
    size_t entry;             /* of the list; a directory is one entry */
    int64_t bytes;            /* of the file */
    const char *hash;         /* of the content of the file, hex digits; borrowed */
    const nrl_plugin *reader; /* the dataset plugin; borrowed */
    const char *reader_name;  /* "NAME VERSION"; borrowed */
    uint64_t tokens_hash;     /* of its tokens */
} dataset_part;

/* Reads or builds the cache. Errors in rows name file and line (NRL_ERR_DATA); an invalid path or option is
 * NRL_ERR_CONFIG. Warns once about each kind of omitted rows and about unused keys. [main] */
nrl_status dataset_open(const dataset_options *options, dataset **out);
void dataset_close(dataset *d);
int64_t dataset_example_tokens(const dataset *d, int64_t example); /* the number of its tokens in a batch */
/* Returns the number of first tokens that both sides of an example share; 0 without prefix_sharing. */
int64_t dataset_shared_tokens(const dataset *d, int64_t example);
const dataset_report *dataset_info(const dataset *d);
dataset_part dataset_part_at(const dataset *d, int64_t i);
/* Returns the parts from *i on that belong to one entry, such as the files of a directory, as one part, which has the
 * path, hash and reader of the first. *i becomes the number of the part behind them. */
dataset_part dataset_entry_at(const dataset *d, int64_t *i);
/* Writes the place of an example, such as "data/train.json:12", to out. */
void dataset_place(const dataset *d, int64_t example, char *out, size_t room);
float dataset_extra(const dataset *d, int64_t example, int64_t i);
/* Returns example i as malloc'd text, with each range of trained tokens between U+27E6 and U+27E7 (white square
 * brackets), or its ids if t is NULL. NULL: NRL_ERR_MEMORY. */
char *dataset_sample_text(const dataset *d, int64_t i, const tokenizer *t);
/* Returns the tokens of segment j of example i (0; pairs: 0 chosen, 1 rejected; 1 kl_pairs), borrowed. *trained [n] is
 * 1 for each token that is a trained target; the first token of a segment never is. [any] */
int64_t dataset_segment(const dataset *d, int64_t example, int segment, const int32_t **tokens,
                        const uint8_t **trained);
/* Compares an example with the checksum stored when it was tokenized. NRL_ERR_CORRUPT, with the name of the file to
 * remove, if the cache file was damaged since. [any] */
nrl_status dataset_verify(const dataset *d, int64_t example);

/* ---- plan ----
 * An epoch takes round(w n) examples from each entry with n examples and weight w: all of them floor(w) times, and for
 * the rest a window of a permutation that depends on seed and entry. The window moves on with each epoch, so that over
 * several epochs all examples are used equally often. With `shuffle` the list of the epoch is then permuted
 * (Fisher-Yates, with the counter-based generator of order.h keyed by seed and epoch); otherwise it is in file order.
 * With `even` the examples of each entry, in that order, are then spread evenly over the epoch.
 * Step k of the epoch takes examples [k G, k G + G), G = global_batch. An incomplete last batch is kept or dropped; no
 * step spans two epochs.
 *
 * The examples of a step are divided into R x A micro-batches (R ranks, A on each). With a token budget, first-fit by
 * decreasing length gives the number of micro-batches, and the examples are then balanced by tokens (pack.h). Without a
 * budget each micro-batch has `micro_batch` consecutive examples. Examples K i .. K i + K - 1 of the global batch
 * (K = group; fewer at its end) stay together. Inside a micro-batch examples keep the order of the global batch.
 * Everything follows from the seed and the lengths, so every rank computes the same plan. */
/* The shards of each global batch on a rank (nrl_parallel.shards). */
typedef struct {
    int32_t n;           /* 0 is 1 */
    bool fixed, strided; /* as the strategy says; without it shards depend on the number of ranks */
} data_shards;

typedef struct {
    int64_t global_batch;       /* examples per step */
    int64_t micro_batch_tokens; /* packing: budget of a micro-batch, 0 = unset */
    int64_t micro_batch;        /* samples per micro-batch if micro_batch_tokens is 0 */
    int64_t group;              /* consecutive examples that share a micro-batch; 0 = 1 */
    bool shuffle, drop_last;
    bool even;  /* spreads the examples of each entry evenly over the epoch */
    bool whole; /* an epoch has each example once, whatever the weights of entries are */
    uint64_t seed;
    int32_t ranks, rank; /* of the data axis */
    data_shards shards;  /* of each global batch on this rank; zero: one */
} data_plan_options;

typedef struct data_plan data_plan;
/* NRL_ERR_CONFIG: an example or a possible group exceeds the budget (names file:line), there are fewer examples than
 * one global batch with drop_last, or an option is out of range. `d` must outlive the plan. Only one thread uses a plan
 * at a time. [main] */
nrl_status data_plan_create(const dataset *d, const data_plan_options *options, data_plan **out);
nrl_status data_plan_copy(const data_plan *p, data_plan **out); /* NRL_ERR_MEMORY */
void data_plan_destroy(data_plan *p);
int64_t data_plan_entry_examples(const dataset_part *entry); /* in an epoch */
int64_t data_plan_steps_per_epoch(const data_plan *p);
double data_plan_epoch_after(const data_plan *p, int64_t step); /* epochs that are finished after step `step` */
/* Returns the number of micro-batches of each rank in step s (from 0): equal on all ranks, at least 1; those of its
 * first shard come first, as many as of each other shard. */
int64_t data_plan_n_micro_batches(data_plan *p, int64_t step);
/* Returns the number of examples in micro-batch m of step s on this rank; it may be 0. *examples is valid until the
 * next call. */
int64_t data_plan_micro_batch(data_plan *p, int64_t step, int64_t m, const int64_t **examples);
/* Returns how often the i-th example of micro-batch m of step s comes before it in the global batch: entries with a
 * weight above 1 repeat examples. */
int64_t data_plan_repeats(data_plan *p, int64_t step, int64_t m, int64_t i);
/* Returns which of the first n_steps steps has this rank's micro-batch with the most tokens. */
int64_t data_plan_largest_step(data_plan *p, int64_t n_steps);

/* ---- loader ---- */

/* Packs examples into a micro-batch. n = 0 gives a padding micro-batch: one segment with one token and one target
 * position of weight 0. NRL_ERR_CORRUPT if the cache is damaged. [any] */
nrl_status data_assemble(const dataset *d, const int64_t *examples, int64_t n, bool prompt_targets, nrl_batch **out);

typedef struct {
    nrl_batch **micro_batch; /* [n_micro_batches] of this rank; a padding micro-batch if there are no examples */
    int64_t n_micro_batches;
    int64_t step;
    double epoch; /* finished epochs after this step, fractional */
} data_step;

typedef struct data_loader data_loader;
/* An io thread builds `prefetch` steps in advance (0: the caller builds them). Target positions are the trained
 * targets, and with `prompt_targets` also prompt targets with weight 0. The loader copies the plan, so the caller can
 * still use it. [main] */
nrl_status data_loader_create(const dataset *d, data_plan *p, int64_t prefetch, bool prompt_targets, data_loader **out);
void data_loader_destroy(data_loader *l);
/* Returns the batches of step s (from 0). Steps can be requested in any order; ascending order is fast. *out belongs to
 * the loader and is valid until the next call. Returns errors of the io thread. [step] */
nrl_status data_loader_step(data_loader *l, int64_t step, data_step *out);
double data_loader_wait_seconds(const data_loader *l); /* time the step thread spent waiting */

#endif
