/*
 * fsdp.h - shared by the files of this strategy: groups (flat units), their buffers, their state.
 *
 * A group is the parameters of one or more consecutive units of the model, laid end to end in a flat
 * buffer that is divided evenly over the R ranks of the shard axis. A parameter that several units use
 * belongs to the group of the first; the others gather that group.
 *
 *   units.c   which parameter lies where        slots.c   which groups may share a buffer
 *   plan.c    layouts, bytes, text              bind.c    tensors and views, created once
 *   gather.c  WEIGHT from shards                reduce.c  gradients to slices
 *   tree.c    the sum of slices in a fixed order
 *   hold.c    WEIGHT of all groups at once, while texts are generated
 */
#ifndef FSDP_H
#define FSDP_H
#include <nrl/nrl.h>
#include <stdio.h>

/* Offsets and shares are multiples of this, and of the optimizer's blocks: 64 bytes of bf16, so that kernels see the
 * same alignment, and add in the same order, as without a strategy. */
enum { FSDP_ALIGN = 32 };

enum { FSDP_FULL = 0, FSDP_GRADS, FSDP_OPTIMIZER };
enum { FSDP_REDUCE_F32 = 0, FSDP_REDUCE_BF16, FSDP_REDUCE_FP16 };
enum { FSDP_ON_DEVICE = 0, FSDP_ON_HOST, FSDP_ON_DISK };

typedef struct {
    int64_t shard; /* FSDP_FULL .. */
    bool hybrid;
    int64_t shard_size, replicas; /* 0 = not set */
    const nrl_node *units;
    int64_t prefetch;
    int64_t reduce_dtype; /* FSDP_REDUCE_F32 .. */
    int64_t reproducible; /* shards of the global batch; 0: one for each rank */
    int64_t offload;      /* FSDP_ON_DEVICE .. */
} fsdp_options;

/* How the model's units are grouped; 0 = not set. */
typedef struct {
    int64_t every, min_params;
    const nrl_node *begin; /* names of units; the config's */
} fsdp_units;

typedef struct {
    nrl_param *param;
    int64_t offset;                  /* elements, in the group's buffer */
    int64_t begin, end;              /* of the parameter, on this rank */
    nrl_tensor *work, *acc;          /* unsharded views of the group's buffers */
    nrl_tensor *other_work;          /* of the group's other_work */
    nrl_tensor *master, *low, *grad; /* [end - begin]; split16: HI16, and LO16, instead of MASTER */
} fsdp_param;

typedef enum { FSDP_NOTHING = 0, FSDP_COMING, FSDP_THERE } fsdp_presence;

typedef struct {
    char name[40], gather_text[56], reduce_text[56], replica_text[56];
    bool trained;
    int32_t first_unit;          /* the lowest unit of the model that uses the group: its backward is the last; -1:
                                  * none */
    int32_t first_run, last_run; /* flat units that use the group; n_runs: none */
    int32_t n_params;
    fsdp_param *params;
    int64_t numel;                          /* parameters end to end with alignment gaps */
    int64_t padded;                         /* R * share */
    int64_t share;                          /* elements per rank */
    int64_t whole, local;                   /* elements of the parameters without gaps: all, and on this rank */
    int32_t work_slot, acc_slot, wire_slot; /* -1: none, or a buffer of its own */

    nrl_tensor *shard;                  /* [share] MASTER, or HI16; for frozen parameters and models: compute dtype */
    nrl_tensor *low;                    /* [share] LO16; NULL without split16 */
    nrl_tensor *work, *work_own;        /* [padded], this rank's [share] of it */
    nrl_tensor *other_work, *other_own; /* while texts are generated: the slot's, in whose place work is; else NULL */
    nrl_tensor *acc, *acc_own;          /* GRAD likewise */
    nrl_tensor *wire, *wire_own; /* 16-bit buffer of the exchange; NULL: acc itself is exchanged. Reproducible: what is
                                  * received, f32 */
    nrl_tensor **parts;          /* reproducible: [R] of wire, [share] each */
    nrl_tensor **levels;         /* reproducible: [n_levels] [share] of tree.c; level 0 is grad */
    nrl_tensor *grad;            /* [share] GRAD_SHARD, f32 or (train.gradients) bf16 */

    fsdp_presence presence; /* state of WEIGHT */
    nrl_work *gathering, *reducing, *replicating;
    bool held;    /* GRAD is bound and not yet reduced */
    bool pending; /* reducing, or reduced and not yet added to GRAD_SHARD */
    bool final;   /* no further micro-batch of this step adds to GRAD */
    bool replicated;
    int32_t n_added; /* reductions added to GRAD_SHARD in this step */
    int32_t reduced; /* reproducible: the shard of the batch that is being reduced */
    int64_t wanted;  /* serial of the last prefetch window that included the group */
} fsdp_group;

/* Buffers that groups share in turns: members of a slot are never needed at the same time. */
typedef struct {
    int32_t n;
    int64_t *numel;        /* [n] */
    nrl_tensor **buffers;  /* [n] */
    fsdp_group **occupant; /* [n] */
} fsdp_slots;

typedef struct {
    int32_t n;
    fsdp_group **groups;
} fsdp_uses;

typedef struct {
    fsdp_options options;
    fsdp_units merge;
    nrl_mesh *mesh;
    const char *axis; /* the strategy's axis, or "shard" if that axis is split */
    int32_t n_ranks, rank, n_replicas;
    int32_t n_shards; /* reproducible: shards of the batch on this rank */
    nrl_comm *comm, *replica_comm;

    nrl_parallel_plan plan; /* as answered to the core */
    int64_t align;          /* FSDP_ALIGN, or the least multiple of it and of plan.block */
    bool idle;              /* nothing is sharded: one rank, or a model that is neither trained nor fully sharded */
    int32_t n_groups, n_runs;
    fsdp_group *groups;
    fsdp_uses *uses; /* [n_units] */
    int32_t *run_of; /* [n_units] flat unit */
    int64_t *ranges; /* begins and ends of all placements */
    fsdp_slots work_slots, acc_slots, wire_slots;
    nrl_tensor **tensors; /* all tensors that were created, for unbind */
    int64_t n_tensors, tensors_capacity;
    int64_t serial;
    bool holds;       /* no group needs the slot of another one */
    bool is_reported; /* that there was no memory for that */
    char text[240];
} fsdp;

/* ---- units.c ---- */
nrl_status fsdp_read_units(const nrl_node *node, fsdp_units *out);
/* Builds the groups of the plan's parameters: uses, offsets, shares. */
nrl_status fsdp_build_groups(fsdp *s);
void fsdp_free_groups(fsdp *s);

/* ---- slots.c ---- */
/* Assigns groups to slots of WEIGHT, GRAD and the exchange buffers, where the mode has such buffers. */
nrl_status fsdp_assign_slots(fsdp *s);
void fsdp_free_slots(fsdp_slots *slots);

/* ---- plan.c ---- */
nrl_status fsdp_plan(void *self, nrl_parallel_plan *plan);

/* ---- bind.c ---- */
nrl_status fsdp_bind(void *self, nrl_ctx *ctx);
void fsdp_unbind(void *self, nrl_ctx *ctx);

/* ---- gather.c ---- */
/* Waits for the WEIGHT that action i uses, and starts the gathers of the next runs. */
nrl_status fsdp_gather_for(fsdp *s, nrl_ctx *ctx, const nrl_action *actions, int64_t i);
/* MASTER changed; `wait`: MASTER may change again before the next action. */
nrl_status fsdp_gather_again(fsdp *s, nrl_ctx *ctx, bool wait);
nrl_status fsdp_gather_drop(fsdp *s, nrl_ctx *ctx);   /* full sharding: no group is gathered any more */
nrl_status fsdp_gather_settle(fsdp *s, nrl_ctx *ctx); /* waits for all gathers */

/* ---- hold.c ---- */
nrl_status fsdp_hold(void *self, nrl_ctx *ctx, bool begin);

/* ---- reduce.c ---- */
nrl_status fsdp_reduce_enter(fsdp *s, nrl_ctx *ctx, const nrl_action *actions, int64_t i);
nrl_status fsdp_reduce_leave(fsdp *s, nrl_ctx *ctx, const nrl_action *actions, int64_t i);
nrl_status fsdp_reduce_finish(fsdp *s, nrl_ctx *ctx);
nrl_status fsdp_reduce_settle(fsdp *s, nrl_ctx *ctx); /* waits for all reductions, adds nothing */

/* ---- tree.c: only with `reproducible` ---- */
int fsdp_tree_levels(const fsdp *s); /* slices of a group, GRAD_SHARD included */
/* What was received of the shard g->reduced is added to the levels. */
nrl_status fsdp_tree_add(fsdp *s, nrl_ctx *ctx, fsdp_group *g);

/* Whether GRAD is whole for the step, or for a shard of the batch, and reduced once. */
static inline bool fsdp_sums_whole(const fsdp *s)
{
    return s->options.shard == FSDP_OPTIMIZER || s->options.reproducible;
}

/* One rank that offloads continues the sum of earlier micro-batches in GRAD, which holds the elements that GRAD_SHARD
 * holds: the same additions as without a strategy. */
static inline bool fsdp_continues(const fsdp *s)
{
    return s->n_ranks == 1 && !s->plan.bf16_gradients && !s->options.reduce_dtype && !fsdp_sums_whole(s);
}

static inline nrl_dtype fsdp_wire_dtype(const fsdp *s)
{
    if (s->options.reproducible) return NRL_DTYPE_F32;
    return s->options.reduce_dtype == FSDP_REDUCE_FP16 ? NRL_DTYPE_F16 : NRL_DTYPE_BF16;
}

static inline nrl_dtype fsdp_shard_dtype(const fsdp *s, const fsdp_group *g)
{
    return g->trained && !s->plan.split16 ? NRL_DTYPE_F32 : (nrl_dtype)s->plan.compute;
}

static inline nrl_dtype fsdp_grad_dtype(const fsdp *s)
{
    return s->plan.bf16_gradients ? NRL_DTYPE_BF16 : NRL_DTYPE_F32;
}

static inline bool fsdp_casts(const fsdp *s, const fsdp_group *g)
{
    return fsdp_shard_dtype(s, g) != (nrl_dtype)s->plan.compute;
}

#endif
