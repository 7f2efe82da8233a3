/*
 * algorithm.h - the objective: a loss over a packed batch.
 *
 * The core runs every forward pass; `loss` runs none. It returns terms, each a *sum* over the micro-batch.
 * The core divides sum k by W[k], the weight of term k summed over all micro-batches and ranks of the step:
 *     step loss = sum_k  sums[k] / W[k]
 * Gradient accumulation and data parallelism therefore do not change the result.
 */
#ifndef NRL_ALGORITHM_H
#define NRL_ALGORITHM_H
#include <nrl/batch.h>
#include <nrl/model.h>
#include <nrl/op.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { NRL_MAX_TERMS = 4 };

/* Saves and restores named tensors and scalars with the run; see `state`. */
typedef struct nrl_state_io nrl_state_io;
/* While loading, values that the checkpoint lacks are an error. With checkpoint.mismatch: warn they stay as they are,
 * with a warning. */
NRL_API nrl_status nrl_state_io_f64(nrl_state_io *v, const char *name, double *values, int64_t n);
NRL_API nrl_status nrl_state_io_i64(nrl_state_io *v, const char *name, int64_t *values, int64_t n);
/* A tensor of this rank only, such as the error feedback of a compression. A restart with the same number of
 * ranks restores it bit for bit. With another number of ranks, or if none was saved, *found is false and t is
 * unchanged. */
NRL_API nrl_status nrl_state_io_tensor(nrl_state_io *v, nrl_ctx *ctx, const char *name, nrl_tensor *t, bool *found);

/* The batches of a step before it is computed; see nrl/rollout.h. */
typedef struct nrl_rollout nrl_rollout;

/* Parameters that an algorithm adds to the model: a value head, or a score head instead of the output layer. The
 * parameters belong to the last unit: strategies divide them, checkpoints save them, an export writes them under their
 * names beside the model's. They start from the initial weights of the run if these contain them, otherwise from their
 * initialiser. */
typedef struct {
    uint32_t size; /* of this struct, set by the caller */
    int32_t n_params;
    const nrl_param_spec *params; /* [n_params] names that the model does not have; see nrl_algorithm_param */
    uint32_t param_size;          /* stride of params: sizeof(nrl_param_spec) */
    bool drops_head;    /* the output layer is neither read, trained nor exported, unless it is the embedding */
    const char *config; /* JSON map: these keys replace those of config.json in exports; NULL = none */
} nrl_algorithm_model;

/* Parameter i of `m`, found by the stride. */
static inline const nrl_param_spec *nrl_algorithm_param(const nrl_algorithm_model *m, int32_t i)
{
    return (const nrl_param_spec *)(const void *)((const char *)m->params + (size_t)i * m->param_size);
}

/* What an algorithm may read of its run, which borrows all of it as long as it is open. */
typedef struct {
    uint32_t size;          /* of this struct, set by the caller */
    bool only_checks;       /* `nrl check` or a dry run: nothing will be computed, so nothing large has to be read */
    const nrl_node *config; /* resolved: every option has its value */
    const struct nrl_environment *environment;  /* nrl/run.h, which most functions that open something take */
    const struct nrl_open_tokenizer *tokenizer; /* nrl/tokenizer.h; NULL = none */
} nrl_algorithm_run;

typedef struct {
    nrl_plugin plugin;
    /* Columns that the core must compute before `loss`, NULL-ended: "logps", "ref_logps", ... */
    const char *const *needs;
    const nrl_metric *metrics; /* those of nrl_metric_add; ended by a NULL name; NULL = none */
    uint32_t n_terms;          /* 1 .. NRL_MAX_TERMS */
    /* The loss is a sum over target positions, so the core may call it on parts of a batch. The head then
     * computes its backward for each chunk of logits without storing it. */
    bool tokenwise;
    /* What one example is: 0 = one sample, 1 = a chosen/rejected pair, 2 = a sample with the column "label" [S]
     * (1 = desirable answer, 0 = undesirable), from rows with a true/false label. With kind 2 and "kl_pairs" in
     * `needs`, side 1 of an example is its prompt with the answer of the next row of the file (TRL's KL data). */
    uint32_t example_kind;
    /* [main] optional; if NULL, self is the filled options struct */
    nrl_status (*create)(const void *options, void **self);
    void (*destroy)(void *self); /* [main] required if create is set */
    /* [any] computes weight[k] of this micro-batch, only from counts, before any forward pass. A term whose weight is 0
     * in the whole step contributes neither loss nor gradient; step_end still receives its sum. */
    void (*weight)(void *self, const nrl_batch *batch, double *weight);
    /* [step] creates sums[k], [1] f32 tensors; reports metrics by nrl_metric_add */
    nrl_status (*loss)(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums);
    /* [step] optional: called after the update with the step's global sums and weights */
    nrl_status (*step_end)(void *self, const double *sums, const double *weights);
    /* [main] optional: passes each value that must survive a restart to nrl_state_io_*; called to save and to load */
    nrl_status (*state)(void *self, nrl_state_io *state_io);
    /* [main] optional: replaces `needs` if the columns depend on options. Words besides columns: "prompt_targets" =
     * prompt tokens are target positions of weight 0; "kl_pairs", see example_kind. */
    const char *const *(*instance_needs)(void *self);
    /* [main] optional: the loss while the policy equals the reference (ln 2 for sigmoid); NaN = unknown */
    double (*initial_loss)(void *self);
    /* [main] optional: the number K of consecutive examples of the global batch that this loss couples (aot sorts
     * K pairs). Each group of K stays in one micro-batch, in order: examples K i .. K i + K - 1 of every micro-batch
     * form a group; the last group of the global batch may be smaller. NULL: 1. */
    int64_t (*group)(void *self);
    /* [main] optional: whether the gradient is not the slope of the loss on purpose, because the loss detaches a value
     * that depends on log-probs (a weight, a baseline). NULL: no; `nrl plugins test` compares them */
    bool (*detaches)(void *self);
    /* [main] optional, both or none. `model` fills *out, which stays valid as long as self, for a model with this
     * config.json and these sizes; `bind` passes the parameters in the same order, valid until destroy. */
    nrl_status (*model)(void *self, const nrl_node *config, const nrl_model_info *info, nrl_algorithm_model *out);
    void (*bind)(void *self, nrl_param *const *params);
    /* [step] optional: called with the batches of a step before `weight`, in training and in evaluations, on all ranks.
     * It may generate completions of their prompts with the current weights and train on these instead: the functions
     * of nrl/rollout.h (libnrl-inference). NULL: the batches of the data. */
    nrl_status (*rollout)(void *self, nrl_rollout *rollout);
    /* Columns [P] that `rollout` sets for the loss, NULL-ended ("weights": those of the targets), beside
     * "sampled_logps" [P], the log-probs with which the targets were sampled; see nrl_rollout_replace. NULL = none. */
    const char *const *rollout_columns;
    /* The row of `metrics` that ranks evaluations with checkpoint.metric: auto, if the loss does not measure how good
     * the model is; the row declares `better`. NULL: the loss. */
    const nrl_metric *best;
    /* [main] optional: how many steps are taken on each batch of the data, so that an epoch has that many times as many
     * steps; `rollout` gets the same batch in all of them and counts them in nrl_rollout_info.update. NULL: 1. */
    int64_t (*updates)(void *self);
    /* [main] optional: whether the loss of this instance couples the target positions of a segment, so that it is not
     * called on parts of a batch even if `tokenwise` is set. NULL: no. */
    bool (*couples)(void *self);
    /* [main] optional: replaces `metrics` if they depend on options: the same rows, and more behind them. Valid as long
     * as self. All ranks must have the same. */
    const nrl_metric *(*instance_metrics)(void *self);
    /* [main] optional: called once the config, the model's shape and the data of a run are known and before its device
     * is opened, on all ranks, to check the config and to open what the algorithm needs in addition to the model. */
    nrl_status (*open)(void *self, const nrl_algorithm_run *run);
} nrl_algorithm;

/* Inside `loss`: adds a [1] f32 tensor and its weight to metric `index` of the table. NRL_ERR_PLUGIN elsewhere. [step]
 */
NRL_API nrl_status nrl_metric_add(nrl_ctx *ctx, uint32_t index, nrl_tensor *value, double weight);

#ifdef __cplusplus
}
#endif
#endif
