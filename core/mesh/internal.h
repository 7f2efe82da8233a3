/*
 * internal.h - what a mesh is made of. For the files of core/mesh only.
 */
#ifndef MESH_INTERNAL_H
#define MESH_INTERNAL_H
#include "mesh/control.h"
#include "mesh/mesh.h"
#include "mesh/record.h"

enum { MESH_MAX_AXES = MESH_MAX_GIVEN + 4 };

/* An axis and this rank's group along it: coordinate c of the group is world rank base + c stride. */
struct nrl_comm {
    nrl_mesh *mesh;
    char name[MESH_AXIS_NAME];
    uint32_t divides; /* nrl_divides; none of axes that a strategy split its own into */
    int32_t size, coord, stride, base;
    void *group;     /* the collective's; NULL where size is 1 */
    bool owns_group; /* not the whole mesh's own */
    uint64_t n_calls;
};

/* Host memory in the place of a device's, kept for the next call: as many as were ever under way. */
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
    nrl_work *next; /* among spare ones, or fenced ones */
};

struct nrl_mesh {
    mesh_rank_info place;
    secret_key secret; /* where place has one */
    store_kind store_kind;
    nrl_collective table; /* members the plugin lacks are NULL */
    void *self;           /* the collective of all ranks */
    double timeout_init, timeout_step;
    const volatile int *signal; /* of mesh_setup */
    store_server *server;       /* its own; NULL where the session has it */
    mesh_session *session;
    nrl_store *store, *keys, *meeting; /* connection; "nrl/<run>/"; the collective's */
    control *control;
    char **names; /* [world] "rank 2 (host, pid 77)" */
    char **hosts; /* [world] */
    int32_t n_nodes;
    record calls;
    nrl_comm axes[MESH_MAX_AXES], solo, all; /* all: every rank, whatever its axes */
    int n_axes;
    nrl_work *spare_works;
    nrl_work *fenced, **fenced_end; /* work that the device waits for, oldest first; call.c */
    mesh_staged *staged;
    _Atomic int64_t step; /* written by the step thread, read by the watching one too */
    double wait_seconds;
    bool planned;   /* nobody was joined */
    bool is_member; /* its join_request stands in the store: what it reports concerns the others */
    bool dead;      /* a call failed; the collective is aborted */
    char *reason;   /* what every further call says */
    char *text, *address, *origin, *run_id;
};

/* ---- open_store.c ---- */
nrl_status mesh_open_store(nrl_mesh *m, double deadline); /* m->store and m->keys */
bool mesh_holds_store(const nrl_mesh *m);                 /* the ranks' store is in this process */
int32_t mesh_store_holder(const nrl_mesh *m);             /* the rank that holds it; -1 = none of them */

/* ---- join.c ---- */
/* Says join_request, reads everybody's; fills m->names. */
nrl_status mesh_join(nrl_mesh *m, const char *fingerprint, double deadline);

/* ---- failure.c ---- */
/* Sets the failure cause as this rank's error, after it waited for `call` (NULL = between calls). */
nrl_status mesh_failure_cause_error(nrl_mesh *m, const record_call *call, double waited);
/* A call failed: by a time-out, or with `st` and the text in the error record. Finds the culprit, ends the collective
 * and returns the error that all later calls return too. */
nrl_status mesh_broken(nrl_mesh *m, nrl_comm *c, const record_call *call, nrl_status st, double waited);
nrl_status mesh_dead_error(const nrl_mesh *m);

/* ---- call.c: operands in host memory, or a device's where the collective takes them ---- */
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
/* Waits to the end; the handle lives on until call_release. */
nrl_status call_wait(nrl_work *w);
void call_release(nrl_work *w);
/* What is queued on `stream` from here on waits on the device; the host goes on. The handle is the mesh's:
 * it looks for the work's end with every later call, and waits for it in call_settle. */
nrl_status call_fence(nrl_work *w, nrl_stream *stream);
/* Waits, with the time-out and ears of call_wait, until all fenced work has ended: what a device gives
 * afterwards can be waited for without end. */
nrl_status call_settle(nrl_mesh *m);
void call_forget(nrl_mesh *m); /* fenced work is over, as the collective is about to be */

/* ---- axis.c ---- */
/* The run's axes, and their groups once the collective is open; all ranks call it. */
nrl_status mesh_open_axes(nrl_mesh *m, const mesh_axis *axes, int32_t n);
/* How calls of all ranks are recorded: by the name of the axis that holds them, if one does. */
nrl_comm *mesh_all(nrl_mesh *m);

#endif
