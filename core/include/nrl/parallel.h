/*
 * parallel.h - a strategy: what lives where, and what happens around each action of a unit.
 *
 * A strategy serves one axis of the mesh, which it declares (nrl_mesh_axis). A run composes any axes that plugins
 * serve, each with one strategy; a strategy knows its own axis alone and never the name of another.
 *
 * The core expands a step's schedule into an array of actions and walks it. A strategy writes each
 * parameter's layout once (`plan`), then gathers and reduces in `enter` and `leave`. The walk knows
 * no strategy; with none, nothing is called. There is one instance of a strategy for each model of a
 * run (the policy, and an on-line reference, which is not trained); they share the mesh.
 *
 * Who allocates: `bind` binds what the strategy wants in a place of its own; the core then binds every
 * slot that is still empty, with as many elements as the layout leaves on this rank. So a strategy
 * that replicates binds nothing but, perhaps, its gradient buckets.
 */
#ifndef NRL_PARALLEL_H
#define NRL_PARALLEL_H
#include <nrl/algorithm.h>
#include <nrl/comm.h>
#ifdef __cplusplus
extern "C" {
#endif

/* What the ranks along an axis divide. */
typedef enum {
    NRL_DIVIDES_NONE = 0,
    NRL_DIVIDES_DEPTH, /* the list of units: each stage actions its own units of the same micro-batches, and the last
                          stage has the loss. One such axis a run */
    NRL_DIVIDES_WIDTH, /* each unit: the same micro-batches everywhere; dimensions of parameters are cut, `tp_region`
                          joins what the placements part; loss and metrics are equal on all ranks of the axis */
    NRL_DIVIDES_BATCH  /* the global batch: micro-batches of their own; parameters are whole or cut flat, gradients
                          are sums over the axis after `finish` */
} nrl_divides;

/* An axis, as the strategy that serves it declares it. Several plugins may serve one axis; of those that a run
 * has, the chosen one's declaration counts. */
typedef struct {
    uint32_t size;    /* of this struct */
    uint32_t divides; /* nrl_divides */
    const char *name; /* the key in `parallel:`; at most 23 bytes */
    int32_t order;    /* place in the mesh: ranks that are neighbours differ in the axis of the highest order, so an
                         axis that talks most has the highest. docs/plugins/parallel.md lists those of the tree */
    bool takes_rest;  /* the size may be left open: the ranks that other axes leave. `parallel: NAME` is a
                         strategy of such an axis, `parallel: auto` the one of the highest priority (nrl/plugin.h).
                         Of any axis, where the config gives it a size and no name, the plugin of the highest
                         priority serves it */
} nrl_mesh_axis;

typedef enum {
    NRL_PASS_NONE = 0,
    NRL_PASS_FORWARD,
    NRL_PASS_RECOMPUTE, /* forward again, before its backward */
    NRL_PASS_BACKWARD
} nrl_pass;

/* A pass without gradients (evaluation, generation, reference) has FORWARD actions only; each ends
 * with the last unit of this rank, and the next action of the array is the next that will be made, if any. In a
 * pass with gradients the last unit's FORWARD, which its BACKWARD follows, holds the loss, and may add
 * to gradients of what it uses already (the head's, of a tokenwise loss). */
typedef struct {
    uint32_t pass;       /* nrl_pass */
    int32_t instance;    /* 0 the policy, 1 the reference */
    int32_t unit;        /* of the model */
    int32_t micro_batch; /* micro-batch of this step */
    int32_t stage;       /* pipeline stage, 0 without one */
    int32_t n_uses;      /* parameters this action reads */
    int32_t n_final;     /* parameters whose gradient of this step is complete after this action */
    int32_t n_actions;   /* of the array */
    nrl_param *const *uses;
    nrl_param *const *final;
} nrl_action;

typedef struct {
    const char *name;
    int32_t n_uses, reserved;
    nrl_param *const *uses; /* each once, in order of declaration */
} nrl_unit_uses;

/* What a strategy plans for, and what it answers. Arrays live as long as the model. */
typedef struct {
    uint32_t size;
    int32_t instance; /* 0 the policy, 1 the reference */
    bool train;       /* false: WEIGHT only, no gradients and no states */
    bool quiet;       /* say nothing: not the first rank */
    uint32_t compute; /* nrl_dtype of WEIGHT; MASTER is f32 */
    uint32_t n_states;
    uint32_t granularity; /* nrl_optimizer_granularity: MATRIX forbids flat placements */
    int32_t n_params, n_units, reserved;
    nrl_param *const *params;   /* of the model, each once */
    const nrl_unit_uses *units; /* in order of execution */
    /* answers; zero before the call */
    bool gathers_weights; /* WEIGHT is bound by enter alone: the core binds none */
    bool reduces_grads;   /* GRAD is bound by enter alone; the sums end up in GRAD_SHARD */
    bool local_steps;     /* each rank steps on its own batch: the core weighs by the rank's own weights */
    int64_t buffer_bytes; /* taken at most beside the slices that layouts describe */
    const char *text;     /* for the plan: "full shard over 4 ranks, 6 units"; the strategy's */
    /* asked for, where true: masters as HI16 and LO16 of nrl/param.h; GRAD_SHARD in bf16. GRAD is f32 in either
     * case: where the strategy does not reduce it, the core binds it around actions, and what `leave` finds is
     * GRAD_SHARD, with nrl_param_grad_is_empty saying whether anything flowed into it */
    bool split16, bf16_gradients;
    /* answers, false before the call: what is asked for can be had. A strategy that knows better says why not
     * by an error of its own */
    bool takes_split16, takes_bf16_gradients;
    const double *unit_flops; /* [n_units] strict matrix operations of one token's forward and backward */
    /* answer of a strategy that divides the depth: the coordinate on its axis whose ranks action each unit,
     * [n_units], from 0, rising by at most 1. Layouts' `owner_stages` say the same of parameters. */
    const int32_t *stages;
    int64_t n_heads, n_kv_heads; /* of the model: what placements of attention must divide; 0 = not known */
} nrl_parallel_plan;

/* Elements of a part that the placements written so far leave on this rank. Strategies plan in the order of what they
 * divide, depth, width, batch, and by `order` where that is the same: each adds its placements behind those that are
 * there. `bind`, `leave` and `updated` are called in this order too, `enter` and `finish` in the opposite one: what
 * is planned last gathers first, and its sums are done when the others look at GRAD_SHARD. [main] */
NRL_API int64_t nrl_part_numel(const nrl_mesh *mesh, const nrl_part *part);

typedef struct {
    nrl_plugin plugin;
    const nrl_mesh_axis *axis;                                              /* that it serves; static */
    nrl_status (*create)(const void *options, nrl_mesh *mesh, void **self); /* [main] */
    void (*destroy)(void *self);                                            /* [main] */
    /* [main] writes the layouts of all parts and the answers; allocates no tensor. Called once. */
    nrl_status (*plan)(void *self, nrl_parallel_plan *plan);
    /* [main] optional: binds what the core shall not */
    nrl_status (*bind)(void *self, nrl_ctx *ctx);
    void (*unbind)(void *self, nrl_ctx *ctx); /* [main] optional: gives all tensors back; before destroy */
    nrl_status (*enter)(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i); /* [step] */
    nrl_status (*leave)(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i); /* [step] */
    /* [step] after the last action of a step: gradients of the global batch are whole afterwards, in
     * GRAD_SHARD (GRAD where the two are one) */
    nrl_status (*finish)(void *self, nrl_ctx *ctx);
    /* [step] after MASTER changed: an update (`step` of those done, from 1), or values loaded from
     * elsewhere (step 0). Copies of it in WEIGHT are made here, and local steps averaged. What is
     * under way on MASTER afterwards is done when all actions of a pass are; at step 0 when this returns,
     * since more may be loaded. */
    nrl_status (*updated)(void *self, nrl_ctx *ctx, int64_t step);
    /* [main] what survives a restart, this rank's own; see nrl_state_io_tensor */
    nrl_status (*state)(void *self, nrl_ctx *ctx, nrl_state_io *state_io);
    /* [step] optional, for a strategy with stages: the order in which this rank actions its units in a step of
     * n_micro_batches micro-batches. Writes pass (FORWARD, BACKWARD), unit, micro_batch and stage of each action, the
     * rest is the core's, as are RECOMPUTE actions; there is room for 2 * plan.n_units * n_micro_batches. Of each
     * micro-batch the units come forward in order, then back in reverse; neighbours pass micro-batches on
     * in one order. NULL: one micro-batch after another. */
    nrl_status (*schedule)(void *self, int32_t n_micro_batches, nrl_action *actions, int64_t *n);
    /* [step] optional: answers the tp_regions of nrl/op.h, inside a action. Forward (`back` false): *y from x, the same
     * tensor where it is to stay as it is, or was summed in place; x is nobody else's. Back: the gradient of a
     * tp_region's input, *y, from that of its output, x, likewise. HEAD_STATS has no way back. */
    nrl_status (*tp_region)(void *self, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x, nrl_tensor **y);
    /* [step] optional, for a strategy with local steps: `begin` replaces MASTER and WEIGHT of this rank by the
     * mean over ranks, for an evaluation, a sample, a save or an export; the call without it brings this
     * rank's own values back, to the bit, also after a `begin` that failed. Every rank makes both calls.
     * In between no update is made, and `state` still saves the rank's own values. NULL: all ranks have
     * equal weights after every update. */
    nrl_status (*average)(void *self, nrl_ctx *ctx, bool begin);
} nrl_parallel;

#ifdef __cplusplus
}
#endif
#endif
