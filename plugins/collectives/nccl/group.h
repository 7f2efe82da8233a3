/*
 * group.h - an opened rank and its groups, shared by the files of this plugin.
 *
 * A group is a communicator, a stream of its own (so that exchanges overlap with computation) and
 * spare events. A call makes the group's stream wait for the caller's, starts NCCL and records an
 * event: the request. Operands without a stream are in host memory (host.c). Communicators are
 * non-blocking: every call into NCCL but an abort returns at once and its completion is polled, so a lost rank
 * causes a time-out instead of a hang. NCCL is called under the engine's lock, because an abort may
 * come from any thread and frees communicators.
 *
 * NCCL has no tags, and the calls of a communicator run one after another, so a receive that waits
 * would hold up every later call. Stages therefore exchange messages on ways (nccl_connect): groups of
 * two ranks, one for each direction, whose messages match in their order, which the schedule gives.
 */
#ifndef NCCL_GROUP_H
#define NCCL_GROUP_H
#include "api.h"
#include <nrl/collective.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct {
    double timeout;                 /* seconds for NCCL to take a call or to form a group */
    int64_t device;                 /* -1: this rank's number among the ranks of this machine */
    int64_t max_ctas, message_ctas; /* of a call, and of a message on a way; 0: NCCL chooses */
    bool register_buffers;
} nccl_options;

typedef struct nccl_engine nccl_engine;
typedef struct nccl_group nccl_group;

struct nrl_request {
    nrl_request *next; /* in the list of spare requests */
    nccl_group *group; /* whose communicator and stream it runs on: the one called, or a way of it */
    void *event;
    const char *op; /* static */
    uint64_t number;
    int32_t peer;   /* of send and recv, in the group that was called; otherwise -1 */
    uintptr_t room; /* device memory for host operands, kept for later calls */
    void *pinned;   /* host staging memory of the same size: copies of pageable memory might wait for the stream */
    size_t room_bytes;
    void *host; /* destination of the results in host memory; NULL: none */
    uintptr_t result;
    size_t result_bytes;
};

/* Device memory that was allocated for operands, registered with the group's communicator. */
typedef struct nccl_buffer nccl_buffer;
struct nccl_buffer {
    nccl_buffer *next;
    void *memory, *handle;
};

struct nccl_group {
    nccl_engine *engine;
    nccl_group *next;
    void *comm; /* NULL after an abort */
    void *stream;
    int32_t rank, size;
    uint64_t calls;
    nrl_request *spare;
    nccl_buffer *buffers; /* until the group is closed */
    _Atomic int32_t failed_peer;
    bool is_world, has_aborter;
    pthread_t aborter; /* while all are aborted */
    /* Groups of two ranks for messages of one direction: [0] with the next rank, [1] with the one before, unless that
     * is the same; [side][0] from it, [side][1] to it. NULL before nccl_connect. */
    nccl_group *ways[2][2];
};

struct nccl_engine {
    const nccl_api *api; /* the two tables below */
    const nccl_driver *driver;
    nccl_api api_table;
    nccl_driver driver_table;
    nccl_options options;
    int device;
    void *context;
    uintptr_t word; /* f32 on the device, for barriers */
    pthread_mutex_t lock;
    atomic_bool aborted;
    nccl_group *groups; /* all groups, including the world */
    _Atomic int64_t bytes_sent, bytes_received;
    bool registers; /* NCCL can, and the options ask for it; false after the first failure */
    char text[128];
};

/* ---- library.c ---- */
nrl_status nccl_library(nccl_api *api, nccl_driver *driver); /* opens both libraries; they stay open */

/* ---- meet.c ---- */
/* Waits until all ranks have joined and gives rank 0's id; *local is this rank's number on its machine. */
nrl_status nccl_meet(const nccl_api *api, nrl_store *store, int32_t rank, int32_t world, double timeout_s, nccl_id *id,
                     int32_t *local);
double nccl_clock(void);

/* ---- open.c ---- */
nrl_status nccl_open_with(const nccl_api *api, const nccl_driver *driver, const nccl_options *o, nrl_store *store,
                          int32_t rank, int32_t world, double timeout_s, void **self);
nrl_status nccl_split(void *self, int32_t color, int32_t key, void **group);
nrl_status nccl_connect(void *self);
/* The way for messages to or from a rank; NULL: they go through the group itself. */
nccl_group *nccl_way(const nccl_group *g, int32_t peer, bool sends);
nrl_status nccl_alloc(void *self, size_t bytes, void **out);
void nccl_close(void *self);
void nccl_abort(void *self);
int32_t nccl_failed_peer(void *self);
void nccl_info(void *self, nrl_collective_info *fill);
nrl_status nccl_enter(const nccl_engine *e); /* makes the device current in the calling thread */
nrl_status nccl_driver_check(int code, const char *what);
/* NRL_ERR_PEER with NCCL's text. */
nrl_status nccl_failed(const nccl_group *g, int code, const char *what);
/* Polls until comm has accepted the call that returned `code`, or the time is up. Without the lock. */
nrl_status nccl_settle(nccl_group *g, int code, double timeout_s, const char *what);

/* ---- request.c ---- */
nrl_status nccl_request_take(nccl_group *g, const char *op, int32_t peer, nrl_request **out);
void nccl_requests_destroy(nccl_group *g);
nrl_status nccl_wait(void *self, nrl_request *r, double timeout_s, bool *done);
nrl_status nccl_fence(void *self, nrl_request *r, nrl_stream *stream);
void nccl_release(void *self, nrl_request *r);

/* ---- host.c: operands in host memory are copied through the request's room ---- */
/* Size of an operand. OWN: this rank's share; ALL: the shares of all ranks; GIVEN: by receive_counts. */
typedef enum { NCCL_NOTHING = 0, NCCL_COUNT, NCCL_OWN, NCCL_ALL, NCCL_GIVEN } nccl_extent;
/* Queues copies of the operands on the group's stream and sets *a to the copies. */
nrl_status nccl_host_in(const nccl_group *g, nrl_request *r, nccl_extent send, nccl_extent receive, nrl_comm_args *a);
nrl_status nccl_host_out(const nccl_group *g, nrl_request *r); /* after the exchange has ended */
void nccl_host_free(const nccl_group *g, nrl_request *r);

/* ---- calls.c ---- */
int64_t nccl_count_at(const int64_t *counts, int64_t count, int32_t r);
int64_t nccl_offset_at(const int64_t *counts, const int64_t *offsets, int64_t count, int32_t r);
#define NCCL_OPERATIONS(X)                                                                                             \
    X(barrier)                                                                                                         \
    X(broadcast)                                                                                                       \
    X(all_reduce) X(all_gather) X(reduce) X(reduce_scatter) X(gather) X(scatter) X(all_to_all) X(send) X(recv)
#define NCCL_DECLARE(name) nrl_status nccl_##name(void *self, const nrl_comm_args *a, nrl_request **request);
NCCL_OPERATIONS(NCCL_DECLARE)

#endif
