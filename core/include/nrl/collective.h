/*
 * collective.h - communication among the ranks of one mesh axis.
 * Strategies never call this table: they use nrl_comm_* (parallel.h), which stages host-only
 * collectives, numbers calls and keeps a record of them. Every operation is asynchronous and returns
 * a work handle; buffers live until the work is done. All ranks call in the same order.
 */
#ifndef NRL_COLLECTIVE_H
#define NRL_COLLECTIVE_H
#include <nrl/backend.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct nrl_store nrl_store; /* rendezvous: set, get with time-out, add */
typedef struct nrl_work nrl_work;

NRL_API nrl_status nrl_store_set(nrl_store *s, const char *key, const void *value, size_t size);
/* Waits until the key is there. NRL_ERR_PEER on time-out; *value is malloc'd, caller frees. [any] */
NRL_API nrl_status nrl_store_get(nrl_store *s, const char *key, double timeout_s, void **value,
                                 size_t *size);
NRL_API nrl_status nrl_store_add(nrl_store *s, const char *key, int64_t amount, int64_t *result);

typedef enum {
    NRL_SUM_NONE = 0,
    NRL_SUM_SUM,
    NRL_SUM_AVERAGE,
    NRL_SUM_MAX,
    NRL_SUM_MIN,
    NRL_SUM_PRODUCT
} nrl_sum;

/* One operation's operands; unused members are zero. Counts are in elements of dtype. */
typedef struct {
    uint32_t size;
    uint32_t dtype;  /* nrl_dtype */
    uint32_t reduce; /* nrl_sum */
    int32_t peer;    /* root, destination or source rank on the axis */
    const void *send;
    void *receive;           /* may equal send (in place) */
    int64_t count;           /* elements each rank gives (all_gather) or gets (reduce_scatter) */
    const int64_t *counts;   /* [world] for uneven operations, else NULL */
    const int64_t *offsets;  /* [world] */
    uint64_t tag;            /* send and recv */
    nrl_stream *stream;      /* device collectives run after what is queued here */
    nrl_event *after;        /* or after this event */
} nrl_comm_args;

#define NRL_COMM_MEMBER(name)                                                                      \
    nrl_status (*name)(void *self, const nrl_comm_args *a, nrl_work **work)
typedef struct {
    nrl_plugin plugin;
    bool host_only; /* takes host memory only; the core stages */
    nrl_status (*probe)(void);
    /* [main] joins `world` ranks through the store within timeout_s */
    nrl_status (*open)(const void *options, nrl_store *store, int32_t rank, int32_t world,
                       double timeout_s, void **self);
    /* [main] ranks of equal colour form a group, ordered by key */
    nrl_status (*split)(void *self, int32_t color, int32_t key, void **group);
    void (*close)(void *self);
    void (*abort)(void *self); /* [any] ends all work in flight with NRL_ERR_PEER */
    NRL_COMM_MEMBER(barrier);
    NRL_COMM_MEMBER(broadcast);
    NRL_COMM_MEMBER(all_reduce);
    NRL_COMM_MEMBER(all_gather);
    NRL_COMM_MEMBER(reduce);
    NRL_COMM_MEMBER(reduce_scatter);
    NRL_COMM_MEMBER(gather);
    NRL_COMM_MEMBER(scatter);
    NRL_COMM_MEMBER(all_to_all);
    NRL_COMM_MEMBER(send);
    NRL_COMM_MEMBER(recv);
    /* [any] the host waits; NRL_ERR_PEER names the rank and the operation */
    nrl_status (*wait)(void *self, nrl_work *work, double timeout_s);
    bool (*is_done)(void *self, nrl_work *work);
    nrl_status (*fence)(void *self, nrl_work *work, nrl_stream *stream); /* the device waits */
    void (*release)(void *self, nrl_work *work);
} nrl_collective;
#undef NRL_COMM_MEMBER

#ifdef __cplusplus
}
#endif
#endif
