/*
 * parallel.h - what the files of the strategy suite share: ranks that are threads of this process
 * with a mesh each; a small model with made-up gradients, whose values follow from a number; and
 * the core's part in a step.
 *
 * Each rank counts checks in a report of its own. A rank whose call failed is `over`; the mesh
 * informs the other ranks. Values are small multiples of 1/16 and gradients are small integers, so
 * that they are exact in 16 bits and sums do not depend on their order.
 */
#ifndef CONFORMANCE_PARALLEL_H
#define CONFORMANCE_PARALLEL_H
#include "compute.h"
#include "mesh/layout.h"
#include "tensor/ctx.h"
#include "tensor/param.h"

enum { PARALLEL_RANKS = 4, TOY_PARAMS = 11, TOY_PARTS = 13, TOY_UNITS = 4, TOY_MICRO = 6, TOY_LARGEST = 138 };

/* ---- parallel_toy.c: the model and the core's part ---- */

/* The shape of a step. */
typedef struct {
    int64_t step;            /* gradients depend on it */
    int32_t n_micro_batches; /* 1 .. TOY_MICRO */
    bool recompute;          /* backward actions follow a recompute */
    bool split;              /* gradients of some parameters come in later actions of a micro-batch */
    bool empty_rank;         /* the last rank's micro-batches are empty: run, without gradients */
    bool fractions;          /* gradients whose sums round: compared bit for bit with those of one rank */
} toy_course;

/* An action of a later nrl, whose struct is larger: strategies find actions by the stride. */
typedef struct {
    nrl_action action;
    unsigned char surplus[32];
} wide_action;

/* Shared by the ranks of a part. */
typedef struct {
    const nrl_parallel *table;
    const conformance_setup *setup;
    const nrl_mesh_axis *axis;
    int32_t world;
    bool staged; /* ranks are stages: all work on the same batches, each with its own units */
} parallel_group;

typedef struct {
    const parallel_group *g;
    conformance_report *report;
    nrl_mesh *mesh;
    int32_t rank, world; /* along the strategy's axis */
    bool over;

    compute compute;
    uint32_t dtype; /* of WEIGHT */
    nrl_param params[TOY_PARAMS];
    nrl_part parts[TOY_PARTS];
    nrl_param *list[TOY_PARAMS];
    nrl_unit_uses units[TOY_UNITS];
    nrl_param *final[TOY_UNITS][TOY_PARAMS];
    int32_t n_final[TOY_UNITS];
    nrl_action actions[4 * TOY_UNITS * TOY_MICRO];
    int32_t n_actions;
    wide_action wide[4 * TOY_UNITS * TOY_MICRO]; /* the same, as the strategy receives them */
    int32_t n_shards, shard;                     /* of the batch, on this rank; the current one */
    bool strided;
    nrl_parallel_plan plan;
    void *self;
    bool bound;
    nrl_tensor *made[TOY_PARAMS * 6]; /* bound by the toy */
    int n_made;
    int64_t version, loaded; /* the version of the values, and that of frozen parameters; see toy_load */
    size_t live_bytes;       /* before bind */
} toy;

typedef struct {
    bool train;
    nrl_dtype work;
} toy_kind;
/* Shards of a batch that the strategy asks for, as nrl_parallel.shards; 0: one for each rank. */
int32_t parallel_shards(const parallel_group *g, bool *strided);
/* Creates a model and a plan; the caller checks the layouts. False: over. */
bool toy_open(toy *t, const toy_kind *kind);
/* Lets the strategy bind, then binds the remaining slots, as the core does. */
bool toy_bind(toy *t);
void toy_close(toy *t);

/* Sets masters to the values of `version` and passes `step` to updated. step 0: a load, after which
 * the strategy must refresh WEIGHT. Otherwise an update, which also writes WEIGHT if it is
 * unsharded. */
bool toy_load(toy *t, int64_t version, int64_t step);
/* The indices in the full parameter of a rank's local elements; returns their number. */
int64_t toy_local(const toy *t, int32_t rank, const nrl_param *p, int64_t *global);
float toy_value(const nrl_param *p, int64_t i, int64_t version);
/* ---- parallel_walk.c: a step ---- */

/* Walks a step, checks WEIGHT at each enter, and checks the gradients afterwards. */
bool toy_step(toy *t, const toy_course *c);
/* A pass without gradients. */
bool toy_forward(toy *t);
bool toy_ok(toy *t, nrl_status st, const char *rule); /* a call that must succeed; else over */

/* ---- parallel_ranks.c ---- */

/* Runs a part on `world` ranks; checks that all ranks made the same calls and released all
 * requests. */
bool parallel_run(const parallel_group *g, conformance_report *report, const char *name, void (*part)(toy *t));

/* ---- parallel_record.c: a collective that counts ---- */

enum { RECORD_GROUPS = 16 };

typedef struct {
    int32_t color;
    uint64_t digest; /* of the calls so far, in order */
    int64_t n_calls;
} record_group;

typedef struct {
    const nrl_collective *real;
    const void *options;
    record_group groups[RECORD_GROUPS]; /* 0: all ranks; then in order of split */
    int32_t n_groups;
    int64_t started, released;
} record;

/* A collective that passes every call to r->real; open it with `r` as its options. */
nrl_collective record_collective(const nrl_collective *real);

/* ---- parallel_tp_regions.c ---- */
/* A part: layers divided among ranks, compared with the same layers on one rank. */
void parallel_tp_regions(toy *t);

/* ---- parallel_tokens.c ---- */
/* A part: attention and sums of ranks that divide the tokens of a micro-batch. */
void parallel_tokens(toy *t);

/* ---- parallel_experts.c ---- */
/* A part: rows travel between ranks. Only for strategies that divide the experts. */
void parallel_experts(toy *t);

/* ---- parallel_stages.c: strategies with stages ---- */
bool toy_check_stages(toy *t);
/* Sets the toy's actions to those of this rank in the order of the strategy; checks the orders of
 * all ranks. */
bool toy_schedule_stage(toy *t, int32_t n_micro_batches, bool train);
bool toy_is_held(const toy *t, const nrl_param *p);

/* ---- parallel_layout.c ---- */
void toy_check_layouts(toy *t);

#endif
