/*
 * group.h - one opened rank and its groups: what the files of this plugin share.
 *
 * A group is a communicator, a stream of its own (so that exchanges overlap with computing) and spare
 * events. A call fences the group's stream behind the caller's, starts NCCL and records an event:
 * the request. Operands without a stream are the host's (host.c). Communicators do not block: every
 * call into NCCL returns at once and its end is polled, so a rank that is gone costs a time-out and
 * not a hang. NCCL is entered under the engine's lock, since an abort may come from any thread and
 * frees communicators.
 */
#ifndef NCCL_GROUP_H
#define NCCL_GROUP_H
#include "api.h"
#include <nrl/collective.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct {
    double timeout; /* seconds for NCCL to take a call or to form a group */
    int64_t device; /* -1: the number among the ranks of this machine */
} nccl_options;

typedef struct nccl_engine nccl_engine;
typedef struct nccl_group nccl_group;

struct nrl_request {
    nrl_request *next; /* spare ones */
    void *event;
    const char *op; /* static */
    uint64_t number;
    int32_t peer;   /* of send and recv, else -1 */
    uintptr_t room; /* device memory of operands that are the host's, kept for the next ones */
    void *pinned;   /* the same size: copies of pageable memory might wait for the stream */
    size_t room_bytes;
    void *host; /* what the exchange writes belongs here; NULL: nothing */
    uintptr_t result;
    size_t result_bytes;
};

struct nccl_group {
    nccl_engine *engine;
    nccl_group *next;
    void *comm; /* NULL after an abort */
    void *stream;
    int32_t rank, size;
    uint64_t calls;
    nrl_request *spare;
    _Atomic int32_t failed_peer;
    bool is_world;
};

struct nccl_engine {
    const nccl_api *api; /* copies of what it was opened with */
    const nccl_driver *driver;
    nccl_api api_table;
    nccl_driver driver_table;
    nccl_options options;
    int device;
    void *context;
    uintptr_t word; /* f32 on the device, for barriers */
    pthread_mutex_t lock;
    atomic_bool aborted;
    nccl_group *groups; /* all, the world among them */
    _Atomic int64_t bytes_sent, bytes_received;
    char text[96];
};

/* ---- library.c ---- */
nrl_status nccl_library(nccl_api *api, nccl_driver *driver); /* opens both; they stay open */

/* ---- meet.c ---- */
/* Everybody is there and knows rank 0's id; *local is the number among the ranks of this machine. */
nrl_status nccl_meet(const nccl_api *api, nrl_store *store, int32_t rank, int32_t world, double timeout_s, nccl_id *id,
                     int32_t *local);
double nccl_clock(void);

/* ---- open.c ---- */
nrl_status nccl_open_with(const nccl_api *api, const nccl_driver *driver, const nccl_options *o, nrl_store *store,
                          int32_t rank, int32_t world, double timeout_s, void **self);
nrl_status nccl_split(void *self, int32_t color, int32_t key, void **group);
void nccl_close(void *self);
void nccl_abort(void *self);
int32_t nccl_failed_peer(void *self);
void nccl_info(void *self, nrl_collective_info *fill);
nrl_status nccl_enter(const nccl_engine *e); /* the device becomes the calling thread's */
nrl_status nccl_driver_check(int code, const char *what);
/* NRL_ERR_PEER with NCCL's words. */
nrl_status nccl_failed(const nccl_group *g, int code, const char *what);
/* Polls until comm has taken the call that gave `code`, or time is up. Not under the lock. */
nrl_status nccl_settle(nccl_group *g, int code, double timeout_s, const char *what);

/* ---- request.c ---- */
nrl_status nccl_request_take(nccl_group *g, const char *op, int32_t peer, nrl_request **out);
void nccl_requests_destroy(nccl_group *g);
nrl_status nccl_wait(void *self, nrl_request *r, double timeout_s, bool *done);
nrl_status nccl_fence(void *self, nrl_request *r, nrl_stream *stream);
void nccl_release(void *self, nrl_request *r);

/* ---- host.c: operands in host memory travel through the request's room ---- */
/* How much of an operand there is. OWN: this rank's share; ALL: everybody's; GIVEN: by receive_counts. */
typedef enum { NCCL_NOTHING = 0, NCCL_COUNT, NCCL_OWN, NCCL_ALL, NCCL_GIVEN } nccl_extent;
/* *a gets the addresses of copies that the group's stream makes. */
nrl_status nccl_host_in(const nccl_group *g, nrl_request *r, nccl_extent send, nccl_extent receive, nrl_comm_args *a);
nrl_status nccl_host_out(const nccl_group *g, nrl_request *r); /* the exchange has ended */
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
