/*
 * strategy.h - the parallel strategies of one model of a run, one per axis: their plans, what they bind, and their
 * calls in the walk. Without strategies every function does nothing.
 *
 * Strategies plan in the order of what their axes divide (nrl/parallel.h): depth, width, experts, tokens, batch.
 * plan, bind, leave and updated are called in that order: an axis of the batch divides what the others leave (its flat
 * placements count elements of that), and sums gradients that they have completed. enter and finish are called in the
 * opposite order: parameters are gathered before other strategies need them, and sums over the batch are done before
 * the others read GRAD_SHARD. Unbind and destroy are called in the opposite order of bind.
 *
 * A strategy that divides the depth plans the whole model, and the others each stage's part of it:
 * units of another stage use nothing, parameters are the stage's. Every rank must know every layout, so it
 * has an instance of the others for every stage, of which only its own stage's is bound and called.
 */
#ifndef RUN_STRATEGY_H
#define RUN_STRATEGY_H
#include "data/data.h"
#include "model/model.h"
#include "run/walk/stage.h"
#include "run/walk/storage.h"
#include <nrl/parallel.h>

enum { STRATEGY_MAX = MESH_MAX_GIVEN };

/* What the config chose for an axis. */
typedef struct {
    const nrl_parallel *table;
    const nrl_mesh_axis *axis; /* that it serves */
    const void *options;
    const nrl_node *at; /* in the config; NULL: chosen by default */
} strategy_choice;

/* Of all axes, in the order of planning. */
typedef struct {
    int32_t n;
    strategy_choice of[STRATEGY_MAX];
} strategy_choices;

typedef struct {
    const nrl_parallel *table;
    const nrl_mesh_axis *axis;
    void *self;
    nrl_parallel_plan plan; /* with its answers */
} strategy_member;

typedef struct {
    int32_t n;
    strategy_member of[STRATEGY_MAX];
    nrl_parallel_plan plan;  /* the answers of all: true if one is true, bytes summed; its text is empty */
    int32_t n_stages, index; /* ranks along the axis that divides the depth; this one */
    nrl_mesh *mesh;
    int32_t n_elsewhere;
    strategy_member *elsewhere; /* [n_elsewhere] those that planned other stages */
    arena memory;
} strategy;

typedef struct {
    const strategy_choices *choices;
    nrl_mesh *mesh;
    const model *m;
    int32_t instance; /* 0 the policy, 1 the reference */
    bool train, quiet;
    nrl_dtype compute;
    bool split16, bf16_gradients;          /* of what is trained, see nrl/param.h */
    bool repeats;                          /* steps that lacked memory */
    bool two_passes;                       /* of the optimizer, in each step */
    const nrl_backend *backend, *delegate; /* backend NULL: the policy has been planned for it; delegate NULL: none */
    uint32_t n_states, block;              /* of the optimizer, see nrl_parallel_plan */
} strategy_setup;

/* Adds a choice at its place in the order of planning. */
void strategy_choose(strategy_choices *all, strategy_choice one);
/* Asks the strategies how the global batch is divided. NRL_ERR_CONFIG: not possible among these ranks. */
nrl_status strategy_shards(const strategy_choices *all, const nrl_mesh *mesh, data_shards *out);
/* Creates the instances and lets them plan: layouts are written afterwards, nothing is allocated. */
nrl_status strategy_open(const strategy_setup *setup, strategy *out);
/* Before storage_bind. */
nrl_status strategy_bind(const strategy *s, nrl_ctx *ctx);
/* Tells the strategies that MASTER has changed: by update `step` (from 1), or by loading (0). */
nrl_status strategy_updated(const strategy *s, nrl_ctx *ctx, int64_t step);
typedef enum {
    /* Around everything that uses the weights outside of steps: an evaluation, a sample, a save, an export. With local
     * steps every rank then has the mean of the ranks' weights. */
    STRATEGY_AVERAGE,
    /* Around the forward passes of a generation: gathered weights stay, if memory allows. */
    STRATEGY_HOLD,
} strategy_state;

/* Between the two calls all strategies are in that state. The second call is made also when the first one failed. */
nrl_status strategy_begin(const strategy *s, strategy_state state, nrl_ctx *ctx);
/* `st` is the status of what was done in between; it is returned unless this call is the first one that fails. */
nrl_status strategy_end(const strategy *s, strategy_state state, nrl_ctx *ctx, nrl_status st);
void strategy_close(strategy *s, nrl_ctx *ctx); /* ctx NULL: nothing was bound */

/* The strategy of the axis that divides `what`, if it has several ranks; else NULL. */
const strategy_member *strategy_dividing(const strategy *s, nrl_divides what);

/* Returns what storage_bind needs to know of the strategies. */
storage_spec strategy_storage(const strategy *s, const strategy_setup *setup);

/* For the walk: the units of this rank, and the strategy that orders their passes; *scheduler NULL: none does. */
stage_link strategy_stage(const strategy *s, const strategy_setup *setup);
void strategy_scheduler(const strategy *s, const nrl_parallel **scheduler, void **self);

/* The number of rows that a carry of n tokens has on this rank. */
int64_t strategy_rows(const strategy *s, int64_t n);

/* Around each action of the walk, and after the last of a step; s may be NULL. */
nrl_status strategy_enter(const strategy *s, nrl_ctx *ctx, const nrl_action *actions, int64_t i);
nrl_status strategy_leave(const strategy *s, nrl_ctx *ctx, const nrl_action *actions, int64_t i);
nrl_status strategy_finish(const strategy *s, nrl_ctx *ctx);

/* Divides the tokens of a micro-batch among the ranks of the axis that does so, if there is one (batch_own). */
nrl_status strategy_divide(const strategy *s, nrl_batch *batch);
/* *x, values of the n rows `number` of `rows`, becomes the values of all of them on every rank of that axis; recorded
 * on the tape, where the gradient of each rank's values is that of its own loss. */
nrl_status strategy_whole(const strategy *s, nrl_ctx *ctx, const int32_t *number, int64_t n, int64_t rows,
                          nrl_tensor **x);

#endif
