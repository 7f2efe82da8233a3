/*
 * collective.h - communication among a group of ranks.
 *
 * Strategies do not call this table. They use nrl_comm_* (comm.h), which stages device tensors for
 * host-only collectives, numbers the calls and records the latest ones. Every operation is asynchronous
 * and returns a request. Its buffers must live until the request is complete; the argument struct and its
 * arrays only until the call returns. All ranks of a group start the same operations in the same order;
 * send and recv are matched by peer and tag instead, and the core receives from a rank in the order in which
 * that rank sends. A reduction gives bitwise equal results on all ranks.
 */
#ifndef NRL_COLLECTIVE_H
#define NRL_COLLECTIVE_H
#include <nrl/backend.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The rendezvous store: keys and values, held by a rank, by the launcher or in a folder. */
typedef struct nrl_store nrl_store;
typedef struct nrl_request nrl_request; /* defined by the collective */

/* Sets a key. A key may be set once; the effect of a second set depends on the store. [any] */
NRL_API nrl_status nrl_store_set(nrl_store *s, const char *key, const void *value, size_t size);
/* Waits until the key is set. NRL_ERR_PEER after timeout_s. *value is malloc'd; the caller frees it. [any] */
NRL_API nrl_status nrl_store_get(nrl_store *s, const char *key, double timeout_s, void **value, size_t *size);
/* Adds to a counter (0 if absent) and returns its new value. NRL_ERR_CONFIG if the store is a folder, which
 * has no counters. [any] */
NRL_API nrl_status nrl_store_add(nrl_store *s, const char *key, int64_t amount, int64_t *result);

/* If the job has a secret, ranks prove to each other that they belong to the job. A proof is a keyed hash of a
 * message. The message should contain its purpose, the ranks involved, and a nonce of the other side, so that a
 * proof cannot be replayed. */
enum { NRL_PROOF_SIZE = 32 };
/* Returns false and writes no proof if the job has no secret; peers are then not authenticated. [any] */
NRL_API bool nrl_store_prove(const nrl_store *s, const void *message, size_t size, uint8_t proof[NRL_PROOF_SIZE]);
/* Returns false if the proof is wrong or the job has no secret. [any] */
NRL_API bool nrl_store_verify(const nrl_store *s, const void *message, size_t size,
                              const uint8_t proof[NRL_PROOF_SIZE]);

typedef enum {
    NRL_REDUCE_OP_NONE = 0,
    NRL_REDUCE_OP_SUM = 1,
    NRL_REDUCE_OP_AVERAGE = 2, /* the sum, divided by the number of ranks; floating types */
    NRL_REDUCE_OP_MAX = 3,
    NRL_REDUCE_OP_MIN = 4,
    NRL_REDUCE_OP_PRODUCT = 5
} nrl_reduce_op;

/* The operands of one operation; unused members are zero. Counts are in elements of dtype.
 *   all_reduce      count elements, send -> receive on every rank
 *   broadcast       count elements of `peer`'s receive (in place; send is NULL)
 *   all_gather      each rank contributes count (or counts[rank]) elements of send; receive holds all of
 *                   them in rank order (or at offsets[r]); send may be this rank's range of receive
 *   reduce_scatter  send holds the elements of all ranks; receive gets this rank's count (or
 *                   counts[rank]) elements, reduced; receive may be this rank's range of send
 *   reduce, gather  to `peer`; receive is NULL elsewhere
 *   scatter         from `peer`; send is NULL elsewhere
 *   all_to_all      send and receive hold count elements for each rank; or with counts/offsets (sent to
 *                   each rank) and receive_counts/receive_offsets
 *   send, recv      count elements to or from `peer`, matched by tag */
typedef struct {
    uint32_t size;
    uint32_t dtype;  /* nrl_dtype */
    uint32_t reduce; /* nrl_reduce_op */
    int32_t peer;    /* root, destination or source rank in the group */
    const void *send;
    void *receive; /* may equal send (in place) */
    int64_t count;
    const int64_t *counts, *offsets; /* [group size] for uneven operations, else NULL */
    const int64_t *receive_counts, *receive_offsets;
    uint64_t tag;       /* send and recv */
    nrl_stream *stream; /* device collectives run after the work queued here, */
    nrl_event *after;   /* or after this event; if both are NULL the operands are host memory, which they must stage */
} nrl_comm_args;

typedef struct {
    uint32_t size, reserved;
    int64_t bytes_sent, bytes_received; /* payload and headers, since open */
    const char *text;                   /* for the plan: "NAME, lo 127.0.0.1"; the plugin's */
    int64_t messages_sent;              /* with a payload, or the empty ones of a barrier; 0 = not counted */
} nrl_collective_info;

#define NRL_COMM_MEMBER(name) nrl_status (*name)(void *self, const nrl_comm_args *a, nrl_request **request)
/* reduce, gather, scatter, all_to_all, send, recv, connect and probe may be NULL, and fence if host_only. */
typedef struct {
    nrl_plugin plugin;
    bool host_only; /* takes host memory only; the core stages */
    nrl_status (*probe)(void);
    /* [main] connects `world` ranks through the store within timeout_s. NRL_ERR_PEER names the missing
     * ranks. */
    nrl_status (*open)(const void *options, nrl_store *store, int32_t rank, int32_t world, double timeout_s,
                       void **self);
    /* [step] every rank calls it: ranks of equal color form a group, ordered by key, then rank. color < 0:
     * the rank joins no group and *group is NULL. */
    nrl_status (*split)(void *self, int32_t color, int32_t key, void **group);
    void (*close)(void *self); /* [main] closes a group or the whole, after its requests */
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
    /* [any] the host waits at most timeout_s. NRL_OK with *done: complete. NRL_OK without *done: the time is
     * over and the request continues. NRL_ERR_PEER: failed or aborted; names the rank and the operation. */
    nrl_status (*wait)(void *self, nrl_request *request, double timeout_s, bool *done);
    nrl_status (*fence)(void *self, nrl_request *request, nrl_stream *stream); /* the device waits */
    void (*release)(void *self, nrl_request *request);                         /* [any] after it is done or aborted */
    /* [any] the rank of the group whose connection was lost, that sent invalid data, or that left while a call
     * needed it; -1 = none */
    int32_t (*failed_peer)(void *self);
    void (*info)(void *self, nrl_collective_info *fill); /* [any] */
    bool by_order; /* messages between two ranks are matched by their order, not by their tags */
    /* [main] optional: every rank of a group calls it before the first send or recv of the group. Afterwards messages
     * between neighbours (ranks r and r + 1, the last and the first) wait neither for the group's other calls nor for
     * messages of the other direction. NULL: send and recv never wait for other calls. */
    nrl_status (*connect)(void *self);
    /* Bytes of gradients that a strategy should sum in one call, so that the cost of starting a call is small. 0:
     * strategies choose. */
    int64_t bucket_bytes;
    /* [step] optional: device memory for operands of the group's calls, 64-byte aligned, which lives until the group is
     * closed. Every rank of the group makes the same calls. *out is NULL if there is none; the caller then takes memory
     * of the backend. */
    nrl_status (*alloc)(void *self, size_t bytes, void **out);
} nrl_collective;
#undef NRL_COMM_MEMBER

#ifdef __cplusplus
}
#endif
#endif
