/*
 * internal.h - the structure of a mesh. For the files of core/mesh only.
 */
#ifndef MESH_INTERNAL_H
#define MESH_INTERNAL_H
#include "mesh/control.h"
#include "mesh/mesh.h"
#include "mesh/record.h"
#include <pthread.h>

enum { MESH_MAX_AXES = MESH_MAX_GIVEN + 4 };

/* An axis and this rank's group along it: coordinate c of the group is world rank base + c stride. */
struct nrl_comm {
    nrl_mesh *mesh;
    char name[MESH_AXIS_NAME];
    uint32_t divides; /* nrl_divides; none for axes into which a strategy split its own */
    int32_t size, coord, stride, base;
    void *group;     /* of the collective; NULL if size is 1 */
    bool owns_group; /* false: the group of the whole mesh */
    uint64_t n_calls;
};

/* Host memory that replaces device memory in a call; kept for later calls. */
typedef struct mesh_staged mesh_staged;
struct mesh_staged {
    mesh_staged *next;
    void *memory;
    size_t size;
    bool used;
};

struct nrl_work {
    nrl_comm *comm;
    nrl_request *request;
    uint64_t record;
    nrl_tensor *receive; /* to be filled from staged_receive */
    mesh_staged *staged_send, *staged_receive;
    double fenced_at;
    nrl_work *next; /* in the list of spare or of fenced work */
};

struct nrl_mesh {
    mesh_rank_info place;
    secret_key secret; /* if place has one */
    store_kind store_kind;
    nrl_collective table; /* members that the plugin does not have are NULL */
    void *self;           /* the collective of all ranks */
    int64_t bucket_bytes; /* of the setup */
    double timeout_init, timeout_step;
    const volatile int *signal; /* of mesh_setup */
    store_server *server;       /* owned; NULL if the session owns it */
    mesh_session *session;
    nrl_store *store, *keys, *meeting; /* connection; "nrl/<run>/"; the collective's */
    control *control;
    char **names;                  /* [world] "rank 2 (host, pid 77)" */
    char **hosts;                  /* [world] */
    int32_t n_nodes, node_divisor; /* the latter divides the number of ranks of each node; 0 = not known */
    record calls;
    nrl_comm axes[MESH_MAX_AXES], solo, all; /* all: every rank, whatever its axes */
    int n_axes;
    nrl_work *spare_works;
    nrl_work *fenced, **fenced_end; /* work for which the device waits, oldest first; call.c */
    mesh_staged *staged;
    _Atomic int64_t step; /* written by the step thread, read by the watching one too */
    double wait_seconds;
    bool planned;        /* did not join other ranks */
    bool loss_by_tokens; /* mesh_set_loss_by_tokens */
    bool is_member;      /* its join request is in the store, so its failures concern the other ranks */
    bool dead;           /* a call failed; the collective is aborted */
    pthread_mutex_t abort_lock;
    bool can_abort; /* the collective is open, so that the watching thread may abort it; under abort_lock */
    char *reason;   /* the error text of all further calls */
    char *text, *address, *origin, *run_id;
};

/* ---- join.c ---- */
/* Sends the join request of this rank, reads those of all ranks, and fills m->names. */
nrl_status mesh_join(nrl_mesh *m, const char *fingerprint, double deadline);

/* ---- failure.c ---- */
/* Sets the failure cause as this rank's error, after it waited for `call` (NULL = between calls). */
nrl_status mesh_failure_cause_error(nrl_mesh *m, const record_call *call, double waited);
/* A call failed: by a time-out, or with `st` and the text in the error record. Finds the culprit, ends the collective
 * and returns the error that all later calls return too. */
nrl_status mesh_broken(nrl_mesh *m, nrl_comm *c, const record_call *call, nrl_status st, double waited);
nrl_status mesh_dead_error(const nrl_mesh *m);

/* ---- call.c: operands are in host memory, or in device memory if the collective supports it ---- */
typedef enum {
    MESH_BARRIER = 0,
    MESH_BROADCAST,
    MESH_ALL_REDUCE,
    MESH_ALL_GATHER,
    MESH_REDUCE_SCATTER,
    MESH_ALL_TO_ALL,
    MESH_SEND,
    MESH_RECV
} mesh_op;
/* The axis has more than one rank. */
nrl_status call_start(nrl_comm *c, mesh_op op, const nrl_comm_args *a, const char *what, nrl_work **work);
/* Waits until the call has ended; the handle stays valid until call_release. */
nrl_status call_wait(nrl_work *w);
void call_release(nrl_work *w);
/* Makes work that is queued on `stream` from now on wait on the device; the host continues. The mesh owns the handle:
 * each later call checks whether the work has ended, and call_settle waits for it. */
nrl_status call_fence(nrl_work *w, nrl_stream *stream);
/* Waits until all fenced work has ended, with the timeout and the failure checks of call_wait. Waiting for the device
 * afterwards cannot block forever. */
nrl_status call_settle(nrl_mesh *m);
void call_forget(nrl_mesh *m); /* drops fenced work, because the collective is about to end */

/* ---- axis.c ---- */
/* Creates the axes of the run, and their groups if the collective is open. All ranks call it. */
nrl_status mesh_open_axes(nrl_mesh *m, const mesh_axis *axes, int32_t n);
/* The name under which calls of all ranks are recorded: that of the axis with all ranks, if there is one. */
nrl_comm *mesh_all(nrl_mesh *m);

#endif
