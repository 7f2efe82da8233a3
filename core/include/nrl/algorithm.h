/*
 * algorithm.h - what is learned: a loss over a packed batch.
 *
 * The core runs every forward; `loss` starts none. It returns terms, each a *sum*; the core divides
 * sum k by weight k added up over all micro-batches and ranks of the step:
 *     step loss = sum_k  sums[k] / W[k]
 * So gradient accumulation and data parallelism cannot change what is learned.
 */
#ifndef NRL_ALGORITHM_H
#define NRL_ALGORITHM_H
#include <nrl/batch.h>
#include <nrl/op.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { NRL_MAX_TERMS = 4 };

typedef enum {
    NRL_REDUCE_NONE = 0,
    NRL_REDUCE_MEAN, /* sum of values / sum of weights, over the whole global batch */
    NRL_REDUCE_SUM,
    NRL_REDUCE_MAX,
    NRL_REDUCE_MIN,
    NRL_REDUCE_DIFFERENCE /* takes no values: the row two above less the row above (margins) */
} nrl_reduce;

/* Which values of a metric are better, for checkpoint.metric. */
typedef enum {
    NRL_BETTER_NONE = 0, /* not declared: checkpoint.metric_mode must say */
    NRL_BETTER_SMALLER,
    NRL_BETTER_LARGER
} nrl_better;

/* A number the algorithm reports each step; "rewards/chosen" and the like. */
typedef struct {
    const char *name; /* NULL ends the list */
    const char *unit; /* "" or "nats", "1" ... */
    uint32_t reduce;  /* nrl_reduce */
    uint32_t better;  /* nrl_better; was padding in earlier headers, so that rows keep their size */
} nrl_metric;
NRL_STATIC_ASSERT(sizeof(nrl_metric) == 24, "plugins lay rows of nrl_metric out as an array");

/* Named tensors and scalars that are saved and restored with the run (see `state`). */
typedef struct nrl_visitor nrl_visitor;
NRL_API nrl_status nrl_visit_f64(nrl_visitor *v, const char *name, double *values, int64_t n);
NRL_API nrl_status nrl_visit_i64(nrl_visitor *v, const char *name, int64_t *values, int64_t n);
/* A tensor of this rank alone (error feedback of a compression): a restart on as many ranks gives it
 * back bit for bit; on another number of ranks, or where none was saved, *found is false and t is
 * left as it is. */
NRL_API nrl_status nrl_visit_tensor(nrl_visitor *v, nrl_ctx *ctx, const char *name, nrl_tensor *t,
                                    bool *found);

typedef struct {
    nrl_plugin plugin;
    /* Columns the core must fill before loss, NULL-ended: "logps", "ref_logps", ... */
    const char *const *needs;
    const nrl_metric *metrics; /* ended by a NULL name; NULL = none */
    uint32_t n_terms;          /* 1 .. NRL_MAX_TERMS */
    /* The loss is a sum over scored rows, so the core may call it on parts of a batch; lets the
     * head compute its backward while a chunk of logits is at hand. */
    bool separable;
    /* The unit of data: 0 = one sample a block, 1 = a chosen/rejected pair a block, 2 = a sample
     * and its column "label" [S] (1 = its answer is wanted, 0 = it is not), from rows with a
     * true/false label. Kind 2 whose needs have the word "mismatched": side 1 of a block is its
     * prompt with the answer of the next row of the file. */
    uint32_t block_kind;
    /* [main] optional: without it self is the filled options struct */
    nrl_status (*create)(const void *options, void **self);
    void (*destroy)(void *self); /* [main] present if create is */
    /* [any] from counts alone, before any forward: weight[k] of this micro-batch. A term whose weight
     * is 0 everywhere joins neither loss nor gradient; its sum still reaches step_end. */
    void (*weight)(void *self, const nrl_batch *batch, double *weight);
    /* [step] sums[k] are [1] f32 tensors; runs no forward; metric values by nrl_metric_add */
    nrl_status (*loss)(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums);
    /* [step] optional: after the update; totals[k] = the step's global sums and weights */
    nrl_status (*step_end)(void *self, const double *sums, const double *weights);
    /* [main] optional: names each value that must survive a restart; called to save and to load */
    nrl_status (*state)(void *self, nrl_visitor *visitor);
    /* [main] optional: what this instance needs, in the place of `needs`, where that depends on
     * options. Words beside columns: "prompt_rows" = prompt tokens are scored rows of weight 0,
     * "mismatched" (block_kind). */
    const char *const *(*instance_needs)(void *self);
    /* [main] optional: the loss when policy = reference (ln 2 for sigmoid); NaN = not known */
    double (*start_loss)(void *self);
    /* [main] optional: how many consecutive blocks of the global batch this instance's loss couples
     * (aot sorts K pairs): the first K, the next K, ..., a rest. They share a micro-batch, in order:
     * pairs K i .. K i + K - 1 of every micro-batch are such a group. Without it 1. */
    int64_t (*group)(void *self);
} nrl_algorithm;

/* Inside `loss`: adds a [1] f32 tensor and its weight to metric row `index`. [step] */
NRL_API nrl_status nrl_metric_add(nrl_ctx *ctx, uint32_t index, nrl_tensor *value, double weight);

#ifdef __cplusplus
}
#endif
#endif
