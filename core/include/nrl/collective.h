/*
 * collective.h - communication among a group of ranks.
 *
 * Strategies never call this table: they use nrl_comm_* (comm.h), which stages device tensors for
 * host-only collectives, numbers every call and keeps a record of the last ones. Every operation is
 * asynchronous and returns a request; its buffers live until the request is done, its operands and
 * their arrays only until the call returns. All ranks of a group start the same operations in the
 * same order; send and recv match by peer and tag instead. Reductions of equal inputs give bitwise
 * equal results on all ranks.
 */
#ifndef NRL_COLLECTIVE_H
#define NRL_COLLECTIVE_H
#include <nrl/backend.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Where ranks meet: keys and values, on one of them, at the launcher, or in a folder. */
typedef struct nrl_store nrl_store;
typedef struct nrl_request nrl_request; /* a collective's own */

/* A key is set once; what a second set does depends on the store. [any] */
NRL_API nrl_status nrl_store_set(nrl_store *s, const char *key, const void *value, size_t size);
/* Waits until the key is there. NRL_ERR_PEER on time-out; *value is malloc'd, caller frees. [any] */
NRL_API nrl_status nrl_store_get(nrl_store *s, const char *key, double timeout_s, void **value,
                                 size_t *size);
/* Adds to a counter (absent = 0) and gives its new value; NRL_ERR_CONFIG where the store is a plain
 * folder, which cannot count. [any] */
NRL_API nrl_status nrl_store_add(nrl_store *s, const char *key, int64_t amount, int64_t *result);

/* Ranks of a job that has a secret prove to each other that they are ranks: a proof is a keyed hash of a message,
 * which only they can make and check. The message should say what is proved to whom and hold what the other side
 * chose at random, so that no proof serves twice. */
enum { NRL_PROOF_SIZE = 32 };
/* False, and no proof, where the job has no secret: then ranks are believed. [any] */
NRL_API bool nrl_store_prove(const nrl_store *s, const void *message, size_t size, uint8_t proof[NRL_PROOF_SIZE]);
/* False also where the job has no secret. [any] */
NRL_API bool nrl_store_verify(const nrl_store *s, const void *message, size_t size,
                              const uint8_t proof[NRL_PROOF_SIZE]);

typedef enum {
    NRL_SUM_NONE = 0,
    NRL_SUM_SUM,
    NRL_SUM_AVERAGE, /* the sum, divided by the number of ranks; floating types */
    NRL_SUM_MAX,
    NRL_SUM_MIN,
    NRL_SUM_PRODUCT
} nrl_sum;

/* One operation's operands; unused members are zero. Counts are in elements of dtype.
 *   all_reduce      count elements, send -> receive on every rank
 *   broadcast       count elements of `peer`'s receive (in place; send is NULL)
 *   all_gather      each rank gives count (or counts[rank]) from send; receive holds all, rank after
 *                   rank (or at offsets[r]); send may be the own place in receive
 *   reduce_scatter  send holds all ranks' shares, receive gets the own count (or counts[rank]);
 *                   receive may be the own place in send
 *   reduce, gather  to `peer`; receive is NULL elsewhere
 *   scatter         from `peer`; send is NULL elsewhere
 *   all_to_all      send and receive hold `size` blocks of count elements; or with counts/offsets
 *                   (what is sent to each) and receive_counts/receive_offsets
 *   send, recv      count elements to or from `peer`, matched by tag */
typedef struct {
    uint32_t size;
    uint32_t dtype;  /* nrl_dtype */
    uint32_t reduce; /* nrl_sum */
    int32_t peer;    /* root, destination or source rank in the group */
    const void *send;
    void *receive; /* may equal send (in place) */
    int64_t count;
    const int64_t *counts, *offsets; /* [group size] for uneven operations, else NULL */
    const int64_t *receive_counts, *receive_offsets;
    uint64_t tag;       /* send and recv */
    nrl_stream *stream; /* device collectives run after what is queued here, */
    nrl_event *after;   /* or after this event; where both are NULL the operands are host memory, theirs to stage */
} nrl_comm_args;

typedef struct {
    uint32_t size, reserved;
    int64_t bytes_sent, bytes_received; /* payload and headers, since open */
    const char *text;                   /* for the plan: "NAME, lo 127.0.0.1"; the plugin's */
} nrl_collective_facts;

#define NRL_COMM_MEMBER(name)                                                                      \
    nrl_status (*name)(void *self, const nrl_comm_args *a, nrl_request **request)
/* reduce, gather, scatter, all_to_all, send, recv and probe may be NULL, fence where host_only. */
typedef struct {
    nrl_plugin plugin;
    bool host_only; /* takes host memory only; the core stages */
    nrl_status (*probe)(void);
    /* [main] joins `world` ranks through the store within timeout_s; NRL_ERR_PEER names who is
     * missing */
    nrl_status (*open)(const void *options, nrl_store *store, int32_t rank, int32_t world,
                       double timeout_s, void **self);
    /* [step] collective: ranks of equal colour form a group, ordered by key, then rank; colour < 0
     * joins none (*group NULL) */
    nrl_status (*split)(void *self, int32_t color, int32_t key, void **group);
    void (*close)(void *self); /* [main] of a group or of the whole, after its requests */
    void (*abort)(void *self); /* [any] ends all requests in flight, of groups too: NRL_ERR_PEER */
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
    /* [any] the host waits at most timeout_s. NRL_OK: done; NRL_ERR_PEER: failed or aborted, names
     * the rank and the operation; *done false with NRL_OK: time is up, and the request goes on. */
    nrl_status (*wait)(void *self, nrl_request *request, double timeout_s, bool *done);
    nrl_status (*fence)(void *self, nrl_request *request, nrl_stream *stream); /* the device waits */
    void (*release)(void *self, nrl_request *request); /* [any] after it is done or aborted */
    /* [any] rank of the group whose connection was lost, that sent nonsense or has left while a call
     * needed it, -1 = none */
    int32_t (*failed_peer)(void *self);
    void (*facts)(void *self, nrl_collective_facts *fill); /* [any] */
    bool by_order; /* messages of two ranks are told apart by their order, whatever their tags */
} nrl_collective;
#undef NRL_COMM_MEMBER

#ifdef __cplusplus
}
#endif
#endif
