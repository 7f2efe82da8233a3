/*
 * strategy.h - one instance of a parallel strategy for one model of a run: its plan, what it binds, and
 * its place in the walk. Without a strategy every function does nothing.
 */
#ifndef RUN_STRATEGY_H
#define RUN_STRATEGY_H
#include "run/storage.h"
#include "run/work.h"
#include <nrl/parallel.h>

/* What the config chose; table NULL = none. */
typedef struct {
    const nrl_parallel *table;
    const void *options;
} strategy_choice;

typedef struct {
    strategy_choice choice;
    void *self;
    nrl_parallel_plan plan; /* with the strategy's answers */
    nrl_unit_uses *units;
} strategy;

typedef struct {
    strategy_choice choice;
    nrl_mesh *mesh;
    const model *m;
    int32_t instance; /* 0 the policy, 1 the reference */
    bool train, quiet;
    nrl_dtype compute;
    bool split16, bf16_gradients; /* of what is trained, see nrl/param.h */
    uint32_t n_states, reach; /* of the optimizer */
} strategy_setup;

/* Creates the instance and lets it plan: layouts are written afterwards, nothing is allocated. */
nrl_status strategy_open(const strategy_setup *setup, strategy *out);
/* Before storage_bind. */
nrl_status strategy_bind(const strategy *s, nrl_ctx *ctx);
/* MASTER changed: by update `step` (from 1), or by loading (0). */
nrl_status strategy_updated(const strategy *s, nrl_ctx *ctx, int64_t step);
void strategy_close(strategy *s, nrl_ctx *ctx); /* ctx NULL: nothing was bound */

/* What storage_bind needs to know of it. */
storage_spec strategy_storage(const strategy *s, const strategy_setup *setup);
/* The walk calls it from here on. */
void strategy_attach(const strategy *s, work *w);

#endif
