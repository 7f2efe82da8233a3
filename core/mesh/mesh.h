/*
 * mesh.h - the ranks of a run, as the core sees them: who is where, joining, small exchanges of host
 * memory, and what happens when a rank is lost. Strategies see nrl/comm.h.
 *
 *   place     who this process is among the ranks; read from the environment by the cli
 *   store     where ranks meet (store.h): key and value, at one rank or at the launcher
 *   control   a thread that heartbeats in the store and watches the others' heartbeats (control.h)
 *   comm      a collective along an axis, with a record of its last calls (comm.c)
 *
 * A run of one process has a mesh too: of one rank, without store, thread or collective; every
 * exchange is a copy. [step] unless said otherwise.
 */
#ifndef MESH_MESH_H
#define MESH_MESH_H
#include "mesh/store.h"
#include <nrl/comm.h>
#include <nrl/run.h>

typedef nrl_rank_info mesh_rank_info;

/* Zero at first. */
typedef struct nrl_session {
    int32_t n_runs;       /* counted by whoever opens, alike on all ranks: the newest's number */
    store_server *server; /* where this rank holds the store; opened by the first mesh */
} mesh_session;

/* An axis of the run. Ranks are counted along the last axis first: neighbours differ in it. */
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
    mesh_session *session;            /* NULL: this mesh is the process's only one */
    bool planned;                     /* `nrl check`: axes and coordinates; nobody is joined and no call is made */
    const nrl_collective *collective; /* NULL with world 1, and where planned */
    const void *collective_options;
    store_kind store;                  /* the plugin that serves place.store; as the collective */
    double timeout_init, timeout_step; /* seconds */
    const volatile int *signal;        /* not 0: who waits for others to join stops; NULL = none is looked at */
    const char *fingerprint;           /* of config, script and versions, equal on all ranks; "key: value" lines: a
                                          differing line is named with both values and ranks */
} mesh_setup;

/* Joins everybody: all ranks are there with the same fingerprint, the control thread heartbeats, the
 * collective is open, and axes have their groups. NRL_ERR_PEER lists who joined and who is missing,
 * NRL_ERR_CONFIG what differs. [main] */
nrl_status mesh_open(const mesh_setup *setup, nrl_mesh **out);
/* Says leave message: the others go on without suspecting anything. After mesh_tell_failure: waits a moment
 * for those who read the reason from here. [main] */
void mesh_close(nrl_mesh *m);
/* Before a device is closed that waits for work itself: the work has ended, or the collective is aborted.
 * The error record stays as it is. NULL is fine. [main] */
void mesh_settle(nrl_mesh *m);

/* Why this rank is about to leave, for all others; the first reason told wins. Harmless on one rank
 * and when the mesh has failed already. */
void mesh_tell_failure(nrl_mesh *m, nrl_status code, const char *text);

/* NRL_ERR_PEER and who, where a rank is lost: for a thread that waits for other ranks by itself. [any] */
nrl_status mesh_check(nrl_mesh *m);

/* Whether the rank that joined under `rank` is another process than this machine's `pid`; false where nobody has
 * joined. `keys`: of the run (store_run_prefix). [any] */
bool mesh_rank_is_other(nrl_store *keys, int32_t rank, int32_t pid);

/* ---- small exchanges ---- */

/* all receives `size` bytes of every rank, in rank order, on every rank. */
nrl_status mesh_exchange(nrl_mesh *m, const char *what, const void *mine, size_t size, void *all);
/* Copies rank `from`'s bytes to everybody. */
nrl_status mesh_broadcast(nrl_mesh *m, const char *what, int32_t from, void *bytes, size_t size);
nrl_status mesh_barrier(nrl_mesh *m, const char *what);
/* Makes sure that `lines`, "key: value" of any number, are the same on all ranks. Where they are not every
 * rank gets the same NRL_ERR_CONFIG: the keys that differ, their values and whose they are. `hint` ends
 * the message; NULL = none. */
nrl_status mesh_compare(nrl_mesh *m, const char *what, const char *lines, const char *hint);

/* ---- info ---- */
const mesh_rank_info *mesh_where(const nrl_mesh *m);
/* "rank 2 (host, process 77)", of ranks that have joined; borrowed. */
const char *mesh_rank_name(const nrl_mesh *m, int32_t rank);
/* Rank r's coordinate on an axis; 0 for unknown axes. */
int32_t mesh_coord_of(const nrl_mesh *m, int32_t rank, const char *axis);
/* Groups of ranks that work on batches of their own, and this rank's group: its coordinates on all axes that divide
 * the batch. NULL: one rank. */
int32_t mesh_n_batches(const nrl_mesh *m);
int32_t mesh_batch(const nrl_mesh *m);
/* Ranks of one group work on the same batches; what they all know counts on the first of them. NULL: one rank. */
bool mesh_counts(const nrl_mesh *m);
/* Another rank of the group, which this one differs from on axes that divide the width alone, has the same loss. */
bool mesh_is_copy(const nrl_mesh *m);
/* Rank r's coordinate on the axis that divides the depth; 0 without one. */
int32_t mesh_stage_of(const nrl_mesh *m, int32_t rank);
void mesh_set_step(nrl_mesh *m, int64_t step);                          /* for records and errors */
double mesh_wait_seconds(const nrl_mesh *m);                            /* the step thread's, in all calls so far */
void mesh_traffic(const nrl_mesh *m, int64_t *sent, int64_t *received); /* bytes, all axes */
/* For words beside the step thread's calls (checkpoints written in the background): once the mesh is
 * dead, gets that wait end with NRL_ERR_PEER. NULL with one rank. [any] */
nrl_store *mesh_store(const nrl_mesh *m);
const char *mesh_text(const nrl_mesh *m); /* for the plan: "4 ranks on 1 node (nrl launch), ..." */

#endif
