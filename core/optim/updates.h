/*
 * updates.h - the states of an optimizer, and the calls of its update.
 *
 * Plain states (f32, of the shape of the parameter, zero at the start) are in the parameters' slots STATE0 .., where
 * strategies and checkpoints find them. For all other declarations (nrl_optimizer.declare) this file keeps a unit for
 * each part of a trained parameter, with the part's states. A unit is updated where its elements are, unless a strategy
 * has divided what the optimizer needs together; then one rank, its owner, updates it (gather.c).
 *
 * Order of calls: updates_declare, then strategies write layouts, updates_place, updates_bind, updates_step.
 */
#ifndef OPTIM_UPDATES_H
#define OPTIM_UPDATES_H
#include "optim/slices.h"

/* What one rank has of a gathered unit. */
typedef struct {
    int64_t n;     /* elements there; copies of other ranks' count */
    bool is_first; /* n > 0, and no lower rank has the same elements */
} update_share;

typedef struct {
    nrl_param *param;
    int part; /* index in the parameter */
    nrl_declaration what;
    int64_t at, n;                      /* elements on this rank: n from `at` in the parameter's local slots */
    bool is_here;                       /* this rank has its states and updates it */
    bool is_saved_here;                 /* and no lower rank has the same */
    int64_t begin;                      /* granularity BLOCK, not gathered: first element here, of the part */
    bool is_gathered;                   /* divided by layouts: the fields below */
    int32_t owner;                      /* rank */
    int32_t round;                      /* of gather.c */
    update_share *shares;               /* [world] */
    nrl_slice local;                    /* of the elements here; after updates_bind */
    nrl_tensor *states[NRL_MAX_STATES]; /* of what this rank updates */
} update_unit;

typedef struct {
    const nrl_optimizer *table;
    void *self;
    bool is_plain;
    uint32_t n_states; /* plain: in slots; else 0 */
    const char *const *state_names;
    int64_t block; /* 1, or what strategies should not divide: elements of a block */
    nrl_mesh *mesh;
    update_unit *units; /* [n_units] in the model's order; none if plain */
    int64_t n_units;
    int32_t n_rounds;
    int64_t state_bytes;      /* on this rank; after updates_place; 0 if plain */
    double *moved;            /* updates add the sum of squares of what they change; NULL = not wanted */
    const bool *counts;       /* plain: the slices that count for it, because no lower rank has them */
    struct update_host *host; /* updates on another backend; NULL = on that of the context */
    arena memory;
    nrl_tensor **tensors; /* [n_tensors] to release */
    int64_t n_tensors;
} update_plan;

/* Asks the optimizer about every trained part. NRL_ERR_PLUGIN if an answer makes no sense. [main] */
nrl_status updates_declare(const nrl_optimizer *table, void *self, const model *m, update_plan *out);
/* Decides from the layouts which rank updates what, the same on all ranks. mesh NULL: one rank. [main] */
void updates_place(update_plan *u, nrl_mesh *mesh);
/* Allocates the states, with their initial values; the slots of all parameters are bound. [main] */
nrl_status updates_bind(update_plan *u, nrl_ctx *ctx);
/* Releases states and slices; updates_bind may follow again. [main] */
void updates_unbind(update_plan *u, nrl_ctx *ctx);
void updates_close(update_plan *u);

/* Updates everything that is trained; `slices` are those of slices_build, which plain states need. All ranks call it
 * together. [step] */
nrl_status updates_step(update_plan *u, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices, const nrl_step_params *step);

/* ---- for saving and loading ---- */

/* The shape in which checkpoints hold state k of a unit. */
void updates_state_dims(const update_unit *unit, uint32_t k, int *n_dims, int64_t dims[NRL_MAX_DIMS]);
/* A piece of a state: of the whole state as a checkpoint has it, and its first entry in the local tensor. Call with
 * *at = 0; false after the last piece. Only where unit->is_here. */
typedef struct {
    layout_shard shard;
    int64_t begin, n; /* entries, in the local tensor */
} update_piece;
bool updates_next_piece(const update_plan *u, const update_unit *unit, uint32_t k, int *at, update_piece *piece);

/* ---- elements of a slice ---- */
enum { UPDATES_RANGE = 1 << 20 }; /* elements that are updated at a time in a slice that is partly elsewhere */
enum { UPDATES_GRAD, UPDATES_WORK, UPDATES_MASTER, UPDATES_LOW, UPDATES_STATES, UPDATES_TENSORS = 4 + NRL_MAX_STATES };
nrl_tensor **updates_tensor(nrl_slice *s, int k); /* of UPDATES_GRAD .. */
/* *out: views of n elements from `at` on, a multiple of `block`, the elements of an entry of a state of shape BLOCK.
 * updates_release is called after a failure, too. */
nrl_status updates_view(nrl_ctx *ctx, const nrl_slice *s, int64_t at, int64_t n, int64_t block, nrl_slice *out);
void updates_release(nrl_ctx *ctx, nrl_slice *views);
/* The step of a parameter, with its learning rate (optimizer.lr_ratios). */
nrl_step_params updates_step_of(const nrl_param *p, const nrl_step_params *step);
/* Updates one slice, inside a scope of its own. [step] */
nrl_status updates_one(update_plan *u, nrl_ctx *ctx, nrl_slice *slice, bool counts, const nrl_step_params *step);

/* ---- host.c ---- */
enum {
    UPDATE_HOST_RANGES = 4,   /* two arrive, one is updated, one returns */
    UPDATE_HOST_ELEMENT = 12, /* bytes of gradient, master and weight, or of gradient and both halves of split16 */
    UPDATE_HOST_BYTES = UPDATE_HOST_RANGES * UPDATES_RANGE * UPDATE_HOST_ELEMENT /* of pinned memory */
};
/* Opens `table`, a backend in host memory, for updates of what the device `of` keeps elsewhere. [main] */
nrl_status update_host_open(device *of, const nrl_backend *table, const void *options, struct update_host **out);
void update_host_close(struct update_host *h); /* NULL is allowed */
/* Whether a unit is updated there. Matrices are not: their updates are products of matrices. */
bool update_host_takes(const update_plan *u, const update_unit *x);
/* Updates all slices if states are plain, else the units that it takes. [step] */
nrl_status update_host_step(update_plan *u, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                            const nrl_step_params *step);

/* ---- gather.c ---- */
/* Updates the gathered units of one round: gradients and masters go to the owners, masters come back. */
nrl_status updates_gather_round(update_plan *u, nrl_ctx *ctx, int32_t round, const nrl_step_params *step);

#endif
