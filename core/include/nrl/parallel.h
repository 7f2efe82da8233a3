/*
 * parallel.h - a parallel strategy: how parameters are distributed over ranks, and communication before and after each
 * action of a unit.
 *
 * A strategy serves one axis of the mesh, which it declares (nrl_mesh_axis). A run composes any axes that plugins
 * serve, each with one strategy; a strategy knows only its own axis and never the name of another.
 *
 * The core expands a step's schedule into an array of actions and executes it. A strategy writes each
 * parameter's layout once (`plan`), then gathers and reduces in `enter` and `leave`. There is one instance of a
 * strategy for each model of a run (the policy, and an online reference, which is not trained); they share the mesh.
 *
 * Allocation: `bind` binds slots that need storage of the strategy's own; the core then binds every slot that is still
 * empty, with as many elements as the layout leaves on this rank. So a strategy that replicates binds nothing but,
 * perhaps, its gradient buckets.
 */
#ifndef NRL_PARALLEL_H
#define NRL_PARALLEL_H
#include <nrl/algorithm.h>
#include <nrl/comm.h>
#include <nrl/op.h>
#ifdef __cplusplus
extern "C" {
#endif

/* What the ranks along an axis divide. */
typedef enum {
    NRL_DIVIDES_NONE = 0,
    NRL_DIVIDES_DEPTH = 1,  /* the list of units: each stage runs its own units on the same micro-batches, and the last
                           stage has the loss. At most one such axis in a run */
    NRL_DIVIDES_WIDTH = 2,  /* each unit: all ranks have the same micro-batches; dimensions of parameters are sharded,
                           and `tp_region` communicates; loss and metrics are equal on all ranks of the axis */
    NRL_DIVIDES_BATCH = 3,  /* the global batch: each rank has its own micro-batches; parameters are replicated or have
                           flat  shards; gradients are sums over the axis after `finish` */
    NRL_DIVIDES_TOKENS = 4, /* each micro-batch: all ranks have the same micro-batches, and each computes the
                          activations of some of their tokens (`tokens`), with attention over all of them
                          (`attention`). Parameters are replicated; gradients are sums over the axis after `finish`. At
                          most one such axis */
    NRL_DIVIDES_EXPERTS = 5 /* the experts of a mixture, and the global batch: each rank has its own micro-batches and
                          the parameters of some experts (nrl_param_expert), to which tokens of all ranks of the axis
                          travel (`exchange`); all other parameters are replicated, and their gradients are sums over
                          the axis after `finish`. At most one such axis */
} nrl_divides;

/* An axis, declared by the strategy that serves it. Several plugins may serve one axis; the declaration of the chosen
 * plugin counts. */
typedef struct {
    uint32_t size;    /* of this struct */
    uint32_t divides; /* nrl_divides */
    const char *name; /* the key in `parallel:`; at most 23 bytes */
    int32_t order;    /* position in the mesh: consecutive ranks differ in the axis of the highest order, so the axis
                         that communicates most has the highest. docs/plugins/parallel.md lists the orders in use */
    bool takes_rest;  /* the size may be left open; the axis then takes the remaining ranks. `parallel: NAME` is a
                         strategy of such an axis, `parallel: auto` the one with the highest priority (nrl/plugin.h).
                         If the config gives any axis a size and no name, the plugin with the highest priority
                         serves it */
} nrl_mesh_axis;

typedef enum {
    NRL_PASS_NONE = 0,
    NRL_PASS_FORWARD = 1,
    NRL_PASS_RECOMPUTE = 2, /* forward again, before its backward */
    NRL_PASS_BACKWARD = 3,
    NRL_PASS_BACKWARD_WEIGHT = 4 /* the rest of a BACKWARD that was split: gradients of weights */
} nrl_pass;

/* A pass without gradients (evaluation, generation, reference) has only FORWARD actions and ends with the last unit of
 * this rank; the next action of the array, if any, is the next that is executed. In a pass with gradients, the FORWARD
 * of the last unit is followed by its BACKWARD. This FORWARD includes the loss, and may already add to gradients of
 * parameters that it uses (of the head, for a tokenwise loss). */
typedef struct {
    uint32_t size;       /* the stride of the array: nrl_action_at finds an action */
    uint32_t pass;       /* nrl_pass */
    int32_t instance;    /* 0 the policy, 1 the reference */
    int32_t unit;        /* of the model */
    int32_t micro_batch; /* micro-batch of this step, or of the shard */
    int32_t stage;       /* pipeline stage, 0 without one */
    int32_t n_uses;      /* number of parameters that this action reads */
    int32_t n_final;     /* number of parameters whose gradient of this step, or of the shard, is complete after this
                            action */
    int32_t n_actions;   /* length of the array of actions */
    int32_t shard;       /* number of the shard among those of this rank, from 0; see `shards` of nrl_parallel */
    nrl_param *const *uses;
    nrl_param *const *final;
    bool splits; /* of a BACKWARD: a BACKWARD_WEIGHT of the same unit and micro-batch follows later. This one computes
                    the gradient of the unit's input, and those of the parameters that take part in no matrix product */
} nrl_action;

/* Action i of the array `actions`. */
static inline nrl_action *nrl_action_at(const nrl_action *actions, int64_t i)
{
    return (nrl_action *)((uintptr_t)actions + (uintptr_t)(i * (int64_t)actions->size));
}

typedef struct {
    const char *name;
    int32_t n_uses, reserved;
    nrl_param *const *uses; /* each once, in order of declaration */
} nrl_unit_uses;
NRL_STATIC_ASSERT(sizeof(nrl_unit_uses) == 24, "nrl_unit_uses is frozen: plans contain an array");

/* The input of a strategy's plan, and its answers. Arrays live as long as the model. */
typedef struct {
    uint32_t size;
    int32_t instance; /* 0 the policy, 1 the reference */
    bool train;       /* false: WEIGHT only, no gradients and no states */
    bool quiet;       /* print nothing: this is not the first rank */
    uint32_t compute; /* nrl_dtype of WEIGHT; MASTER is f32 */
    uint32_t n_states;
    uint32_t block; /* flat shards should begin at multiples of this many elements of a part; 1: anywhere. If placements
                       divide what the optimizer needs as a whole, the core gathers it */
    int32_t n_params, n_units, reserved;
    nrl_param *const *params;   /* of the model, each once */
    const nrl_unit_uses *units; /* in order of execution */
    /* answers; zero before the call */
    bool gathers_weights; /* `enter` binds WEIGHT; the core does not */
    bool reduces_grads;   /* `enter` binds GRAD; the reduced gradients are in GRAD_SHARD */
    bool local_steps;     /* each rank steps on its own batch: the core divides by the rank's own loss weights */
    int64_t buffer_bytes; /* largest size of buffers in addition to the slices that layouts describe */
    const char *text;     /* for the plan: "full shard over 4 ranks, 6 units"; owned by the strategy */
    /* requests: masters as HI16 and LO16 of nrl/param.h; GRAD_SHARD in bf16. GRAD is f32 in both cases: if the strategy
     * does not reduce it, the core binds it during actions, and `leave` finds GRAD_SHARD, with nrl_param_grad_is_empty
     * telling whether it has contents */
    bool split16, bf16_gradients;
    /* answers, false before the call: the strategy supports the request. A strategy may instead return an error that
     * gives the reason */
    bool takes_split16, takes_bf16_gradients;
    const double *unit_flops; /* [n_units] FLOPs of matrix products for one token's forward and backward */
    /* answer of a strategy that divides the depth: for each unit the coordinate on its axis whose ranks run the unit,
     * [n_units], from 0, rising by at most 1, and from the last coordinate to 0 again if ranks have several stages.
     * Must agree with `owner_stages` of the parameters' layouts. */
    const int32_t *stages;
    int64_t n_heads, n_kv_heads; /* of the model: sharded attention must divide them; 0 = unknown */
    bool repeats; /* a step that lacked memory may be repeated after `finish`; a strategy whose exchanges change state
                     that later steps read returns an error */
    bool shards_tokens;      /* answer: `tokens` applies. The core refuses models that do not declare token_shards */
    int64_t offloaded_bytes; /* answer: the bytes of the slices in layouts that nrl_tensor_elsewhere holds */
    bool overlaps;           /* answer: `tp_region_begin` applies */
    bool merges_attention;   /* answer: `attention` calls nrl_attention_merge, which the backend must compute */
    bool two_passes; /* each step computes and sums two gradients, the second at other weights (nrl_optimizer.perturb);
                        a strategy that carries a residual from one sum to the next returns an error */
} nrl_parallel_plan;

/* Elements of a part that the placements so far leave on this rank. Strategies plan in the order of what they divide
 * (depth, width, experts, tokens, batch), then by `order`; each appends its placements to the existing ones. `bind`,
 * `leave` and `updated` are called in the same order, `enter` and `finish` in reverse: the strategy that plans last
 * gathers first, and its sums are complete when the others read GRAD_SHARD. [main] */
NRL_API int64_t nrl_part_numel(const nrl_mesh *mesh, const nrl_part *part);

/* Attention of consecutive tokens of a micro-batch over consecutive tokens, for a strategy whose ranks have the queries
 * of some tokens and pass on the keys of others: scores are those of nrl_op_capped_attention over the whole
 * micro-batch, for the given queries and keys. Not recorded on the tape. Legend: H query heads, G key/value heads of
 * width K. */
typedef struct {
    uint32_t size, reserved;
    const nrl_batch *batch; /* nrl_ctx_batch when `attention` was called, which outlives the tape */
    const nrl_attention_spec *spec;
    double soft_cap;
    int64_t q_begin, k_begin; /* numbers of the first tokens, of n and of m */
    nrl_tensor *q, *k, *v;    /* [n,H*K], [m,G*K], [m,G*K] */
    nrl_tensor *y, *lse;      /* [n,H*K] the result; f32 [H,n] the log-sum-exp of scores */
    nrl_tensor *dy;           /* [n,H*K] */
    nrl_tensor *dq, *dk, *dv; /* f32, of the shapes of q, k and v */
} nrl_attention_part;
/* y (f32) and lse, which hold the result over other keys (0 and -inf for none), become the result over these keys too.
 * [step] */
NRL_API nrl_status nrl_attention_merge(nrl_ctx *ctx, const nrl_attention_part *part);
/* Adds this part's gradients to dq, dk and dv; y (of q's dtype) and lse are those over all keys. [step] */
NRL_API nrl_status nrl_attention_merge_grad(nrl_ctx *ctx, const nrl_attention_part *part);

typedef struct {
    nrl_plugin plugin;
    const nrl_mesh_axis *axis;                                              /* the axis that it serves; static */
    nrl_status (*create)(const void *options, nrl_mesh *mesh, void **self); /* [main] */
    void (*destroy)(void *self);                                            /* [main] */
    /* [main] writes the layouts of all parts and the answers; allocates no tensor. Called once. */
    nrl_status (*plan)(void *self, nrl_parallel_plan *plan);
    /* [main] optional: binds slots that the core must not bind */
    nrl_status (*bind)(void *self, nrl_ctx *ctx);
    void (*unbind)(void *self, nrl_ctx *ctx); /* [main] optional: frees all tensors; called before destroy */
    nrl_status (*enter)(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i); /* [step] */
    nrl_status (*leave)(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i); /* [step] */
    /* [step] after the last action of a step: completes the gradients of the global batch, in GRAD_SHARD (in GRAD if
     * they are the same) */
    nrl_status (*finish)(void *self, nrl_ctx *ctx);
    /* [step] after MASTER has changed: by update number `step`, from 1, or by loading values (step 0). Copies MASTER to
     * WEIGHT, and averages local steps. Communication that reads MASTER must be complete after all actions of a pass;
     * at step 0 when this function returns, because more values may be loaded. */
    nrl_status (*updated)(void *self, nrl_ctx *ctx, int64_t step);
    /* [main] saves and restores this rank's state for a restart; see nrl_state_io_tensor */
    nrl_status (*state)(void *self, nrl_ctx *ctx, nrl_state_io *state_io);
    /* [step] optional, for a strategy with stages: the order in which this rank runs its units in a step of
     * n_micro_batches micro-batches. Writes pass (FORWARD, BACKWARD, BACKWARD_WEIGHT), unit, micro_batch and stage of
     * each action, whose `size` is set; the core sets the other members and adds RECOMPUTE actions. `actions` has room
     * for 3 * plan.n_units * n_micro_batches. The FORWARDs of a micro-batch come in order of units, then its BACKWARDs
     * in reverse; a rank sends to another rank in the order in which that rank uses what it receives. A BACKWARD_WEIGHT
     * is optional; it follows the BACKWARD of its unit and micro-batch at any distance. NULL: one micro-batch after
     * another. */
    nrl_status (*schedule)(void *self, int32_t n_micro_batches, nrl_action *actions, int64_t *n);
    /* [step] optional: handles the tp_regions of nrl/op.h, during an action. Forward (`back` false): computes *y from
     * x; *y may be x, unchanged or modified in place, because no other code uses x. Backward: computes the gradient *y
     * of the region's input from the gradient x of its output, likewise. HEAD_STATS has no backward. Where the number
     * of rows changes, *y is on entry the tensor to fill if the core has one, else x: then create one, with a row for
     * each token of nrl_ctx_batch or for those of `tokens`. Forward may be called again for the same x during backward.
     */
    nrl_status (*tp_region)(void *self, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x, nrl_tensor **y);
    /* [step] optional, for a strategy with local steps: with `begin`, replaces MASTER and WEIGHT of this rank by the
     * mean over ranks, for an evaluation, a sample, a save or an export; without `begin`, restores this rank's own
     * values bit for bit, also after a call with `begin` that failed. Every rank makes both calls. Between them there
     * is no update, and `state` still saves the rank's own values. NULL: all ranks have equal weights after every
     * update. */
    nrl_status (*average)(void *self, nrl_ctx *ctx, bool begin);
    /* [main] optional, for a strategy that divides the batch: the number of shards into which every global batch is
     * divided, whatever the number of ranks; 0: one for each rank. Called before `create`. Each of R ranks works on k =
     * shards / R of them, one after another: on shards k r to k r + k - 1, or with *strided on r, r + R, r + 2 R ...
     * A step then has an array of actions for each shard, numbered in nrl_action.shard, each with its own `final`, and
     * one `finish`. A shard has the same micro-batches on any number of ranks; sums of losses, weights and metrics are
     * added in the order of the shards, and the norm of the gradient does not depend on its division. So if a strategy
     * adds the gradients of the shards in one order for all numbers of ranks, a run has the same bits on all of them.
     * The strategy decides what GRAD holds when a shard ends, and what nrl_param_grad_is_empty then returns. */
    int32_t (*shards)(const void *options, bool *strided);
    /* [step] if the plan has answered shards_tokens: the tokens [*begin, *end) of a micro-batch of n whose rows this
     * rank has outside of tp_regions. In the order of ranks the ranges cover all tokens; a range may be empty. */
    void (*tokens)(void *self, int64_t n, int64_t *begin, int64_t *end);
    /* [main] optional, for a strategy with stages: the time that ranks are expected to wait for each other in a step of
     * n_micro_batches, per time that they compute; for the plan of a run */
    double (*bubble)(void *self, int32_t n_micro_batches);
    /* The next three: for a strategy that divides the tokens, with more than one rank. [step] */
    /* Writes the numbers of this rank's tokens of a micro-batch of n, ascending; each token belongs to one rank, and
     * each rank has at least one. Returns their number; 0, on all ranks: too few to divide, so every rank computes
     * all. */
    int64_t (*divide)(void *self, int64_t n, int32_t *own);
    /* Attention of this rank's queries over the keys of all ranks, recorded on the tape: q, k, v and y have the rows of
     * this rank's tokens of n. With matrices of all n rows nrl_op_capped_attention computes attention
     * over its segments. Called in units, not for a micro-batch that is not divided. */
    nrl_status (*attention)(void *self, nrl_ctx *ctx, int64_t n, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                            const nrl_attention_spec *spec, double soft_cap, nrl_tensor **y);
    /* x, in place, becomes its sum over the ranks of the axis: values of target positions or tokens, which are zero on
     * ranks that have not computed them. */
    nrl_status (*sum)(void *self, nrl_ctx *ctx, nrl_tensor *x);
    /* [step] of a strategy that divides the experts, for nrl_op_exchange_rows: y becomes, in the order of ranks,
     * received[r] rows from each rank r, and sent[r] rows of x go to rank r, in this order. Not recorded. */
    nrl_status (*exchange)(void *self, nrl_ctx *ctx, nrl_tensor *x, const int64_t *sent, nrl_tensor *y,
                           const int64_t *received);
    /* [step] if the plan has answered overlaps: as tp_region, but may return before the exchange is complete, and leave
     * it in *work: until nrl_work_wait x belongs to the exchange and *y has no contents. In the backward of COLUMN_IN,
     * the gathered rows thus arrive while gradients of activations are computed, and the gradients are summed while
     * those of the parameters that read the gathered rows are computed. Two such exchanges may be in progress. */
    nrl_status (*tp_region_begin)(void *self, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x,
                                  nrl_tensor **y, nrl_work **work);
    /* [step] optional, for a strategy that gathers WEIGHT: with `begin`, many forward passes with the same weights
     * follow, each of a token or a few (generation). What `enter` gathers may stay until the call without `begin`,
     * which frees it and is made also after a call with `begin` that failed. If memory does not allow that, the
     * strategy says so once and gathers as before. Every rank makes both calls; between them there is no update. */
    nrl_status (*hold)(void *self, nrl_ctx *ctx, bool begin);
} nrl_parallel;

#ifdef __cplusplus
}
#endif
#endif
