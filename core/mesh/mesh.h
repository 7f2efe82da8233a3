/*
 * mesh.h - the ranks of a run, as the core sees them: coordinates, joining, small exchanges of host memory, and the
 * loss of a rank. Strategies use nrl/comm.h.
 *
 *   place     the rank of this process; the cli reads it from the environment
 *   store     the key-value store where ranks meet (store.h), held by one rank or by the launcher
 *   control   a thread that sends heartbeats to the store and watches those of other ranks (control.h)
 *   comm      a collective along an axis, with a record of its last calls (comm.c)
 *
 * A run of one process has a mesh with one rank and without store, thread or collective; every exchange is a copy.
 * Functions are [step] unless stated otherwise.
 */
#ifndef MESH_MESH_H
#define MESH_MESH_H
#include "mesh/store.h"
#include <nrl/comm.h>
#include <nrl/run.h>

typedef nrl_rank_info mesh_rank_info;

/* State that outlives a mesh; zero-initialise. */
typedef struct nrl_session {
    int32_t n_runs;       /* number of runs opened so far, equal on all ranks */
    store_server *server; /* if this rank holds the store; opened by the first mesh */
} mesh_session;

/* An axis of the run. The last axis varies fastest: neighbouring ranks differ in it. */
typedef struct {
    const char *name;
    int32_t size;
    uint32_t divides; /* nrl_divides */
} mesh_axis;

enum { MESH_MAX_GIVEN = 6, MESH_AXIS_NAME = 24 };

typedef struct {
    mesh_rank_info place;
    mesh_axis axes[MESH_MAX_GIVEN]; /* outermost first, their product is place.world; */
    int32_t n_axes;
    mesh_session *session;            /* NULL: this is the only mesh of the process */
    bool planned;                     /* `nrl check`, dry runs: axes and coordinates; does not join other ranks */
    const nrl_collective *collective; /* NULL if world is 1; if planned, called with the nrl_comm, or NULL: no calls */
    const void *collective_options;
    int64_t bucket_bytes;              /* nrl_collective.bucket_bytes of the configured one, also if planned */
    store_kind store;                  /* the plugin that serves place.store; unset like the collective */
    double timeout_init, timeout_step; /* seconds */
    const volatile int *signal;        /* not 0: joining stops; may be NULL */
    const char *fingerprint; /* "key: value" lines about config, script and versions, which must be equal on all
                                ranks; an error names the differing lines with their values and ranks */
} mesh_setup;

/* Joins all ranks: checks that their fingerprints are equal, starts the control thread, opens the collective and
 * creates the groups of the axes. NRL_ERR_PEER lists the ranks that joined and that are missing, NRL_ERR_CONFIG the
 * differences. [main] */
nrl_status mesh_open(const mesh_setup *setup, nrl_mesh **out);
/* Sends the leave message of this rank, so that the other ranks do not treat it as lost. After mesh_report_failure,
 * waits a moment for the ranks that read the reason from the store in this process. [main] */
void mesh_close(nrl_mesh *m);
/* Call before closing a device that waits for queued work: waits until the work has ended, or aborts the collective.
 * Keeps the error record. NULL is allowed. [main] */
void mesh_settle(nrl_mesh *m);

/* Reports to all other ranks why this rank is about to end; the first report of all ranks counts. Does nothing with one
 * rank or if the mesh has already failed. */
void mesh_report_failure(nrl_mesh *m, nrl_status code, const char *text);

/* NRL_ERR_PEER with the rank's name if a rank is lost; for a thread that waits for other ranks itself. [any] */
nrl_status mesh_check(nrl_mesh *m);

/* Whether the process that joined as `rank` is not the process `pid` of this machine; false if none has joined. `keys`
 * is the store of the run (store_run_prefix). [any] */
bool mesh_rank_is_other(nrl_store *keys, int32_t rank, int32_t pid);

/* ---- small exchanges ---- */

/* Gathers `size` bytes of every rank to `all`, in rank order, on every rank. */
nrl_status mesh_exchange(nrl_mesh *m, const char *what, const void *mine, size_t size, void *all);
/* Copies the bytes of rank `from` to all ranks. */
nrl_status mesh_broadcast(nrl_mesh *m, const char *what, int32_t from, void *bytes, size_t size);
nrl_status mesh_barrier(nrl_mesh *m, const char *what);
/* An exchange of tensors between all ranks, complete for everything that is queued on ctx afterwards: counts[r]
 * elements of `send` go to rank r, receive_counts[r] elements of `receive` come from it, each in rank order. Tensors
 * are contiguous, of one dtype, and may hold more than that. */
nrl_status mesh_all_to_all(nrl_mesh *m, nrl_ctx *ctx, const char *what, nrl_tensor *send, const int64_t *counts,
                           nrl_tensor *receive, const int64_t *receive_counts);
/* Checks that `lines`, any number of "key: value" lines, are equal on all ranks. If they are not, every rank gets the
 * same NRL_ERR_CONFIG with the differing keys, their values and ranks. `hint` is the last line of the message, or NULL.
 */
nrl_status mesh_compare(nrl_mesh *m, const char *what, const char *lines, const char *hint);

/* ---- properties ---- */
const mesh_rank_info *mesh_where(const nrl_mesh *m);
/* Returns the name of a rank that has joined, such as "rank 2 (host, process 77)"; borrowed. */
const char *mesh_rank_name(const nrl_mesh *m, int32_t rank);
/* Whether a receive may be posted long before its message is sent. On a device that executes calls in order, an early
 * receive blocks everything behind it until the message comes, and the sender may be waiting for something that is
 * blocked in this way. */
bool mesh_receives_early(const nrl_comm *c);
/* The ranks of a call: base, base + stride, ...; returns their number. */
int32_t mesh_comm_ranks(const nrl_comm *c, int32_t *base, int32_t *stride);
/* Returns the coordinate of rank r on an axis; 0 for unknown axes. */
int32_t mesh_coord_of(const nrl_mesh *m, int32_t rank, const char *axis);
/* The number of groups of ranks with different batches, and the group of this rank, from its coordinates on all axes
 * that divide the batch or the experts. NULL: one rank. */
int32_t mesh_n_batches(const nrl_mesh *m);
int32_t mesh_batch(const nrl_mesh *m);
/* Ranks of one group have the same batches; values that all of them have count on the first of them. NULL: one rank. */
bool mesh_counts(const nrl_mesh *m);
/* Whether another rank of the group, which differs from this rank only on axes that divide the width or tokens, has the
 * same log-probs; whether it has the same loss; and whether it has the same values of the model's terms. Each rank of
 * an axis that divides the tokens has a part of the terms, and of a loss that is a sum over target positions. */
bool mesh_is_copy(const nrl_mesh *m);
bool mesh_copies_loss(const nrl_mesh *m);
bool mesh_copies_terms(const nrl_mesh *m);
void mesh_set_loss_by_tokens(nrl_mesh *m, bool by_tokens);
/* Returns the coordinate of rank r on the axis that divides the depth; 0 if there is none. */
int32_t mesh_stage_of(const nrl_mesh *m, int32_t rank);
void mesh_set_step(nrl_mesh *m, int64_t step);       /* for records and errors */
double mesh_wait_seconds(const nrl_mesh *m);         /* of the step thread in all calls so far */
nrl_collective_info mesh_traffic(const nrl_mesh *m); /* since it was opened, all axes */
/* The store for messages outside the calls of the step thread (checkpoints written in the background): when the mesh
 * fails, waiting gets end with NRL_ERR_PEER. NULL with one rank. [any] */
nrl_store *mesh_store(const nrl_mesh *m);
const char *mesh_text(const nrl_mesh *m); /* for the plan: "4 ranks on 1 node (nrl launch), ..." */

#endif
