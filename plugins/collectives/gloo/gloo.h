/*
 * gloo.h - the parts of the plugin and what they share.
 *
 *   a call        makes a request (calls.c): a plan of sends and receives, step by step (plan_*.c)
 *   request.c     walks a plan: starts what may start, counts what is done, fails it whole
 *   pair.c        a connection to one rank; pair_write.c messages out, pair_read.c bytes in; slots.c
 *                 matches them
 *   engine.c      who does the work: the thread that waits, else the progress thread
 *   meet.c        finding and connecting all ranks; address.c, listener.c, wire.c serve it
 *
 * Everything of an engine is guarded by engine.lock unless its comment says otherwise.
 */
#ifndef GLOO_H
#define GLOO_H
#include "combine.h"
#include "wire.h"
#include <nrl/nrl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <uv.h>

typedef struct {
    int64_t dialect; /* WIRE_TCP22, .. */
    int64_t peers;   /* PEERS_NRL, PEERS_GLOO */
    int64_t family;  /* FAMILY_ANY, .. */
    const char *interface, *address;
    double timeout;        /* seconds, 0 = none */
    double rate_limit;     /* MB/s, 0 = none */
    int64_t spin;          /* microseconds */
    int64_t socket_buffer; /* KiB, 0 = the system's */
} gloo_options;
enum { PEERS_NRL = 0, PEERS_GLOO };
enum { FAMILY_ANY = 0, FAMILY_IPV4, FAMILY_IPV6 };

typedef struct gloo_engine gloo_engine;
typedef struct gloo_pair gloo_pair;
typedef struct gloo_item gloo_item;
typedef struct gloo_slot gloo_slot;

/* Ranks that talk; the whole is the first one. Immutable but for `calls`, which is the poster's. */
typedef struct gloo_group {
    gloo_engine *engine;
    struct gloo_group *next; /* of the engine, for close */
    uint32_t id;             /* 0 is the whole; the low bits of slots */
    int32_t rank, size;
    uint32_t calls;  /* collectives so far: the next one's tag */
    int32_t ranks[]; /* [size] of the whole */
} gloo_group;

/* ---- plans: what a call sends and receives ---- */

typedef struct {
    int32_t peer;     /* in the group */
    char *data;       /* bytes to send, or where they go */
    const char *with; /* data = with (reduce) received; NULL = received */
    size_t size;
    int64_t after_sends, after_receives; /* so many steps must be done before this one starts */
} gloo_step;

/* Steps start in order, and with one peer they end in order. A plan that speaks to several at once
 * may not use `after` counts, which count whatever ended, nor leave out empty steps. */
typedef struct {
    const char *name;
    bool skip_empty; /* steps of 0 bytes are omitted by both sides */
    void (*send)(const nrl_request *r, int64_t i, gloo_step *s);
    void (*receive)(const nrl_request *r, int64_t i, gloo_step *s);
    void (*sent)(nrl_request *r, int64_t i); /* optional */
    void (*received)(nrl_request *r, int64_t i);
    void (*done)(nrl_request *r);
} gloo_plan;

struct nrl_request {
    gloo_group *group;
    const gloo_plan *plan;
    nrl_request *next, *prev; /* inbox, live or free list */
    uint64_t slot;
    uint32_t number;    /* of the call, for messages; send and recv: the tag */
    bool collective;    /* not send or recv */
    bool live, dropped; /* in the live list; released before its end */
    bool ended;         /* for who holds the lock */
    atomic_bool done;   /* for all others: set when the lock is given back */
    nrl_status status;  /* with `error`, once done */
    char error[320];
    double started; /* seconds; last progress, for the time-out */

    /* progress */
    int64_t n_sends, n_receives;
    int64_t sends_started, receives_started;
    int64_t sends_done, receives_done;

    /* operands, as plans need them */
    const char *in;
    char *out;
    char *result;                   /* where the own part of `out` goes in the end */
    size_t total, element;          /* bytes */
    int64_t segments, per, segment; /* ring: all, a rank's, bytes of one */
    int64_t ring_steps;
    int32_t root;
    gloo_combine *combine;
    gloo_divide *divide; /* NULL = no average */
    int64_t *blocks;     /* [4 size] counts, offsets, receive counts, offsets in bytes; kept */
    size_t n_blocks;
    char *scratch; /* kept while small */
    size_t scratch_size;
};

/* plan_ring.c, plan_move.c: fill n_sends, n_receives and operands; bytes everywhere. */
extern const gloo_plan plan_all_reduce, plan_reduce, plan_reduce_scatter, plan_reduce_scatter_foreign;
extern const gloo_plan plan_barrier, plan_broadcast, plan_all_gather, plan_all_gather_uneven, plan_gather, plan_scatter,
    plan_all_to_all, plan_send, plan_recv;
void plan_all_reduce_fill(nrl_request *r);
nrl_status plan_reduce_fill(nrl_request *r);
nrl_status plan_reduce_scatter_fill(nrl_request *r);
/* The others' steps depend on the group and root alone. */
void plan_fill(nrl_request *r, const gloo_plan *plan);

/* ---- requests ---- */
nrl_status request_take(gloo_group *g, const gloo_plan *plan, nrl_request **out); /* [any] */
void request_give_back(nrl_request *r);                                           /* [any] */
nrl_status request_scratch(nrl_request *r, size_t size);
nrl_status request_blocks(nrl_request *r, size_t n);
void request_start(nrl_request *r);
void request_sent(nrl_request *r, int64_t i);
void request_received(nrl_request *r, int64_t i);
void request_fail(nrl_request *r, nrl_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Whether the request cannot end without this pair; `lost`: it went away without a leave message. */
bool request_needs(const nrl_request *r, const gloo_pair *p, bool lost);
void request_destroy(nrl_request *r);

/* ---- pairs ---- */

/* A message on its way out, a transfer that waits in a slot, or a peer's note; from the pool. */
struct gloo_item {
    gloo_item *next;
    nrl_request *request; /* NULL: nobody's any more: received bytes are dropped */
    int64_t index;        /* step */
    char *data;
    const char *with;
    size_t size;
    size_t header_size;
    uint8_t header[WIRE_HEADER_MAX];
    bool last; /* out: the step is done when this is written */
};

typedef struct {
    gloo_item *head, *tail;
} gloo_queue;
void queue_push(gloo_queue *q, gloo_item *i);
gloo_item *queue_pop(gloo_queue *q);

struct gloo_slot {
    gloo_slot *next;
    uint64_t slot;
    gloo_queue sends, receives; /* ours that wait for the peer */
    gloo_queue notes;           /* the peer's RECV_READY that wait for a send */
};

enum {
    PAIR_STAGE = 16384,       /* read ahead: headers and small payloads */
    PAIR_WINDOW = 256 * 1024, /* where a part of a sum lands, in cache, before it is added */
    PAIR_TURN = 1024 * 1024,  /* bytes read or written before others have their turn */
    PAIR_NOTES_MAX = 65536,   /* a peer's notes kept */
    SLOT_BITS = 9,            /* of a bucket's number: chains of 128 when all notes have their own slot */
    SLOT_BUCKETS = 1 << SLOT_BITS
};
typedef enum { PAIR_NONE = 0, PAIR_AWAITED, PAIR_OPEN, PAIR_LEFT, PAIR_LOST } pair_state;

struct gloo_pair {
    gloo_engine *engine;
    int32_t rank; /* of the whole */
    pair_state state;
    bool has_left;    /* it said that it leaves */
    bool dirty;       /* in engine.dirty: has something to write */
    bool blocked;     /* the socket takes no more for now */
    char reason[200]; /* why it is lost */
    bool mute;        /* a message to it was broken off: nothing more can be said */
    gloo_pair *next_dirty;
    int fd;
    uv_poll_t poll;
    int events; /* watched */

    gloo_queue out;
    size_t out_offset;  /* written of the head */
    gloo_queue written; /* whose steps are about to be counted */

    gloo_item *receiving; /* whose payload comes next */
    size_t received;      /* of it, combined or in place */
    size_t window_fill;
    uint8_t *window;
    size_t stage_at, stage_end;
    uint8_t stage[PAIR_STAGE];

    gloo_slot *slots[SLOT_BUCKETS];
    size_t n_notes;
};

nrl_status pair_open(gloo_pair *p, int fd); /* takes fd */
void pair_read(gloo_pair *p);
void pair_flush(gloo_pair *p);
void pair_mark_dirty(gloo_pair *p);        /* it has something to write */
void pair_watch(gloo_pair *p);             /* for bytes, and while it is blocked for room */
void pair_close(gloo_pair *p);             /* stops watching, closes the socket */
void pair_closed(gloo_pair *p);            /* the peer has closed: in order after a leave message */
void pair_failed(gloo_pair *p, int error); /* the socket says so */
void pair_blame(const gloo_pair *p);       /* it is the failed peer, unless another one was before */
/* Fails every request that needs it. */
void pair_lose(gloo_pair *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Fails every request that waits for a mute pair. It stays open: closing it would tell the peer of
 * the wrong failure, before it sees the one that was the reason. */
void pair_mute(gloo_pair *p);
void pair_say(gloo_pair *p, uint64_t opcode, uint64_t slot, uint64_t length);
void pair_say_data(gloo_pair *p, uint64_t slot, gloo_item *send); /* takes it */

/* slots.c: Gloo's rules for matching sends and receives. */
nrl_status slot_send(gloo_pair *p, nrl_request *r, int64_t i, const gloo_step *s);
nrl_status slot_receive(gloo_pair *p, nrl_request *r, int64_t i, const gloo_step *s);
void slot_message(gloo_pair *p, const wire_header *h); /* a peer's header */
void slot_forget(gloo_pair *p, nrl_request *r);        /* leaves no pointer to it or its buffers */
bool slot_holds(const gloo_pair *p, const nrl_request *r);
void slot_clear(gloo_pair *p);

/* ---- engine: engine.c drives, life.c makes and ends ---- */

typedef struct listener listener;

struct gloo_engine {
    gloo_options options;
    const wire_dialect *dialect;
    int32_t rank, world;
    char text[160];
    const nrl_store *store; /* while ranks meet, where the job has a secret: connections are proved. Else NULL */
    uint8_t challenge[32];  /* PROOF_CHALLENGE: what others prove to this rank */

    pthread_mutex_t lock;
    atomic_int wanted; /* threads that wait for the lock */
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t tick;   /* time-outs, late ranks */
    uv_timer_t refill; /* of the rate limit */
    int loop_fd;
    int n_handles; /* open, for close */

    pthread_t thread;
    bool has_thread, stop;
    bool driven; /* a waiting thread does the work */
    uint64_t drives;
    bool napping; /* the progress thread leaves the work to a waiting one */
    int n_followers;
    pthread_cond_t followers, nap;
    nrl_request *ended; /* since the lock was taken */
    bool changed;       /* what is watched changed */
    int spin_losses;

    gloo_pair *pairs; /* [world] */
    gloo_pair *dirty;
    bool muted;     /* some pair has become mute */
    listener *late; /* ranks may still come: NULL = all are there */
    nrl_request *live;
    int n_live;
    gloo_item *free_items;
    gloo_slot *free_slots;
    struct gloo_slab *slabs;
    bool aborted;
    char dump[65536]; /* for payload that nobody wants any more */
    char abort_text[64];
    double tokens, tokens_at; /* rate limit: bytes that may leave */

    pthread_mutex_t pool_lock; /* guards the next three; taken inside lock */
    nrl_request *inbox_tail;
    nrl_request *free_requests;
    _Atomic(nrl_request *) inbox;

    gloo_group *groups;
    uint32_t next_group;
    atomic_int failed_peer; /* -1 = none */
    _Atomic(int64_t) bytes_sent, bytes_received;
};

void engine_lock(gloo_engine *e);
/* Gives the lock back. `drives`: the caller goes on to wait for the loop's descriptor itself. */
void engine_leave(gloo_engine *e, bool drives);
void engine_drain(gloo_engine *e);  /* starts what is in the inbox */
void engine_settle(gloo_engine *e); /* and writes what can be written */
void engine_turn(gloo_engine *e);   /* runs the loop once, without blocking */
void *engine_progress(void *engine);
nrl_status engine_create(const gloo_options *o, int32_t rank, int32_t world, gloo_engine **out);
nrl_status engine_start(gloo_engine *e); /* pairs are open: the progress thread */
void engine_destroy(gloo_engine *e);
void engine_submit(gloo_engine *e, nrl_request *r);
/* Drives until r is done or the time is up. */
void engine_wait(gloo_engine *e, nrl_request *r, double timeout_s);
void engine_abort(gloo_engine *e, const char *why);
void engine_send_leave(gloo_engine *e);
double engine_now(void);
/* Pools; NULL without memory. Under lock. */
gloo_item *engine_item(gloo_engine *e);
void engine_item_free(gloo_engine *e, gloo_item *i);
gloo_slot *engine_slot(gloo_engine *e);
void engine_slot_free(gloo_engine *e, gloo_slot *s);
void pool_destroy(gloo_engine *e);
/* rate.c: bytes that may leave now; 0 arms the refill. */
size_t rate_allowance(gloo_engine *e, size_t wanted);
void rate_spend(gloo_engine *e, size_t bytes);

/* ---- meeting ---- */

/* proof.c: where the job has a secret, e->store is set and a connection begins with proofs. */
enum { PROOF_CHALLENGE = 32, PROOF_HELLO = 8 + PROOF_CHALLENGE + NRL_PROOF_SIZE };
nrl_status proof_open(gloo_engine *e, const nrl_store *store);
/* What rank `to`, whose challenge is given, is sent, and what it will answer if it is that rank. */
nrl_status proof_hello(const gloo_engine *e, int32_t to, const uint8_t challenge[PROOF_CHALLENGE],
                       uint8_t hello[PROOF_HELLO], uint8_t answer[NRL_PROOF_SIZE]);
/* The rank that proves to be it, with what it is answered; -1 = none. */
int64_t proof_check(const gloo_engine *e, const uint8_t hello[PROOF_HELLO], uint8_t answer[NRL_PROOF_SIZE]);
bool proof_equal(const uint8_t a[NRL_PROOF_SIZE], const uint8_t b[NRL_PROOF_SIZE]);

nrl_status meet(gloo_engine *e, nrl_store *store, double timeout_s);
nrl_status address_find(const gloo_options *o, struct sockaddr_storage *out, char *text, size_t size);
socklen_t address_length(const struct sockaddr_storage *a);
void address_text(const struct sockaddr_storage *a, char *out, size_t size);

/* listener.c: listening sockets, and connections that have not said yet who they are. */
nrl_status listener_open(gloo_engine *e, const struct sockaddr_storage *at, struct sockaddr_storage *published,
                         listener **out);
/* Accepts and reads for at most timeout_ms; whoever is known becomes a pair. NRL_ERR_IO: there is no descriptor for
 * a connection. */
nrl_status listener_turn(listener *l, int timeout_ms);
/* Takes fd: a connection to `peer`, which is a pair once it has given this answer. */
void listener_expect(listener *l, int32_t peer, int fd, const uint8_t answer[NRL_PROOF_SIZE]);
void listener_unlisten(listener *l, int32_t peer); /* tcp22: this side connects */
void listener_close(listener *l);
void listener_missing(const gloo_engine *e, char *out, size_t size); /* "rank 2, rank 5" */

/* calls.c: the members of the table. */
#define GLOO_CALL(name) nrl_status gloo_##name(void *self, const nrl_comm_args *a, nrl_request **request)
GLOO_CALL(barrier);
GLOO_CALL(broadcast);
GLOO_CALL(all_reduce);
GLOO_CALL(all_gather);
GLOO_CALL(reduce);
GLOO_CALL(reduce_scatter);
GLOO_CALL(gather);
GLOO_CALL(scatter);
GLOO_CALL(all_to_all);
GLOO_CALL(send);
GLOO_CALL(recv);

#endif
