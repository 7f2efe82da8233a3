/*
 * gloo.h - shared by the files of the plugin.
 *
 *   a call        makes a request (calls.c): a plan of sends and receives, step by step (plan_*.c)
 *   request.c     runs a plan: starts steps, counts completed steps, fails the request
 *   pair.c        a connection to one rank; pair_write.c messages out, pair_read.c bytes in; slots.c
 *                 matches them
 *   engine.c      which thread does the work: the waiting thread, else the progress thread
 *   meet.c        finds and connects all ranks, with address.c, listener.c, wire.c
 *
 * engine.lock guards every member of an engine unless the member's comment says otherwise.
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

/* Ranks that communicate; the first group is the world. Immutable except `calls`, which only the posting
 * thread uses. */
typedef struct gloo_group {
    gloo_engine *engine;
    struct gloo_group *next; /* in the engine's list, for close */
    uint32_t id;             /* 0 is the world; the low bits of slots */
    int32_t rank, size;
    uint32_t calls;  /* number of collective calls so far: the next call's tag */
    int32_t ranks[]; /* [size] ranks in the world */
} gloo_group;

/* ---- plans: what a call sends and receives ---- */

typedef struct {
    int32_t peer;     /* rank in the group */
    char *data;       /* bytes to send, or the destination */
    const char *with; /* data = with (reduce) received; NULL = received */
    size_t size;
    int64_t after_sends, after_receives; /* steps that must be complete before this step starts */
} gloo_step;

/* Steps start in order, and the steps with one peer end in order. A plan that communicates with several
 * peers at once may not use `after` counts, which count completions in any order, and may not skip empty
 * steps. */
typedef struct {
    const char *name;
    bool skip_empty; /* both sides skip steps of 0 bytes */
    void (*send)(const nrl_request *r, int64_t i, gloo_step *s);
    void (*receive)(const nrl_request *r, int64_t i, gloo_step *s);
    void (*sent)(nrl_request *r, int64_t i); /* optional */
    void (*received)(nrl_request *r, int64_t i);
    void (*done)(nrl_request *r);
} gloo_plan;

struct nrl_request {
    gloo_group *group;
    const gloo_plan *plan;
    nrl_request *next, *prev; /* link in the inbox, the live list or the free list */
    uint64_t slot;
    uint32_t number;    /* the call's number, for messages; send and recv: the tag */
    bool collective;    /* not send or recv */
    bool live, dropped; /* in the live list; released before it ended */
    bool ended;         /* read and written by the lock's holder */
    atomic_bool done;   /* for all other threads: set when the lock is released */
    nrl_status status;  /* with `error`, once done */
    char error[320];
    double started; /* seconds: when the call started */

    /* progress */
    int64_t n_sends, n_receives;
    int64_t sends_started, receives_started;
    int64_t sends_done, receives_done;

    /* operands of the plan */
    const char *in;
    char *out;
    char *result;                   /* destination of this rank's part of `out` */
    size_t total, element;          /* bytes */
    int64_t segments, per, segment; /* ring: number of segments, segments per rank, bytes of a segment */
    int64_t ring_steps;
    int32_t root;
    gloo_combine *combine;
    gloo_divide *divide; /* NULL = no average */
    int64_t *blocks;     /* [4 size] counts, offsets, receive counts, offsets in bytes; reused */
    size_t n_blocks;
    char *scratch; /* reused while small */
    size_t scratch_size;
};

/* plan_ring.c, plan_move.c: set n_sends, n_receives and operands; all sizes are bytes. */
extern const gloo_plan plan_all_reduce, plan_reduce, plan_reduce_scatter, plan_reduce_scatter_foreign;
extern const gloo_plan plan_barrier, plan_broadcast, plan_all_gather, plan_all_gather_uneven, plan_gather, plan_scatter,
    plan_all_to_all, plan_send, plan_recv;
void plan_all_reduce_fill(nrl_request *r);
nrl_status plan_reduce_fill(nrl_request *r);
nrl_status plan_reduce_scatter_fill(nrl_request *r);
/* The steps of the other plans depend only on the group and the root. */
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
/* Whether the request cannot end without this pair; `lost`: the peer disconnected without a leave message. */
bool request_needs(const nrl_request *r, const gloo_pair *p, bool lost);
void request_destroy(nrl_request *r);

/* ---- pairs ---- */

/* A message to send, a transfer that waits in a slot, or a peer's note; taken from the pool. */
struct gloo_item {
    gloo_item *next;
    nrl_request *request; /* NULL: no owner any more, received bytes are dropped */
    int64_t index;        /* step */
    char *data;
    const char *with;
    size_t size;
    size_t header_size;
    uint8_t header[WIRE_HEADER_MAX];
    bool last; /* to send: the step is complete when this message is written */
};

typedef struct {
    gloo_item *head, *tail;
} gloo_queue;
void queue_push(gloo_queue *q, gloo_item *i);
gloo_item *queue_pop(gloo_queue *q);

struct gloo_slot {
    gloo_slot *next;
    uint64_t slot;
    gloo_queue sends, receives; /* this rank's, waiting for the peer */
    gloo_queue notes;           /* the peer's RECV_READY that wait for a send */
};

enum {
    PAIR_STAGE = 16384,       /* read buffer for headers and small payloads */
    PAIR_WINDOW = 256 * 1024, /* received operands of a sum land here, in cache, before they are added */
    PAIR_TURN = 1024 * 1024,  /* bytes read or written before another pair has its turn */
    PAIR_NOTES_MAX = 65536,   /* limit of a peer's stored notes */
    SLOT_BITS = 9,            /* log2 of the number of buckets: chains of 128 if every note has its own slot */
    SLOT_BUCKETS = 1 << SLOT_BITS
};
typedef enum { PAIR_NONE = 0, PAIR_AWAITED, PAIR_OPEN, PAIR_LEFT, PAIR_LOST } pair_state;

struct gloo_pair {
    gloo_engine *engine;
    int32_t rank; /* in the world */
    pair_state state;
    double moved;     /* seconds: when payload last came, or any bytes left; 0 = never */
    bool has_left;    /* the peer sent a leave message */
    bool dirty;       /* in engine.dirty: has something to write */
    bool blocked;     /* the socket accepts no more for now */
    char reason[200]; /* why the peer is lost */
    bool mute;        /* a message to the peer was cut off: no further message can be sent */
    gloo_pair *next_dirty;
    int fd;
    int64_t n_written;      /* bytes, since the pair opened */
    int64_t acknowledged;   /* of them by the peer's TCP, when last checked */
    double acknowledged_at; /* seconds: when they last became more, or none were outstanding */
    uv_poll_t poll;
    int events; /* watched */

    gloo_queue out;
    size_t out_offset;  /* bytes of the head item that are written */
    gloo_queue written; /* items whose steps are about to be counted */

    gloo_item *receiving; /* the item whose payload comes next */
    size_t received;      /* bytes of its payload, combined or in place */
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
void pair_mark_dirty(gloo_pair *p);        /* the pair has something to write */
void pair_watch(gloo_pair *p);             /* watches for readable, and while blocked for writable */
void pair_close(gloo_pair *p);             /* stops watching, closes the socket */
void pair_closed(gloo_pair *p);            /* the peer closed the connection: in order after a leave message */
void pair_failed(gloo_pair *p, int error); /* the socket reported an error */
/* Called every second. A path may carry a watcher's small packets and lose all large ones (if its MTU is smaller than
 * that of its ends). A connection whose data is not acknowledged for 8 s, although it was sent again five times, is
 * lost; so the rank is named long before a call's own time-out. */
void pair_check_acknowledged(gloo_pair *p, double now);
void pair_blame(const gloo_pair *p); /* records the peer as the failed one unless another was recorded before */
/* Fails every request that needs the pair. */
void pair_lose(gloo_pair *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Fails every request that waits for a mute pair. The pair stays open: closing it would report the wrong
 * failure to the peer before the peer sees the original one. */
void pair_mute(gloo_pair *p);
void pair_say(gloo_pair *p, uint64_t opcode, uint64_t slot, uint64_t length);
void pair_say_data(gloo_pair *p, uint64_t slot, gloo_item *send); /* takes it */

/* slots.c: Gloo's rules for matching sends and receives. */
nrl_status slot_send(gloo_pair *p, nrl_request *r, int64_t i, const gloo_step *s);
nrl_status slot_receive(gloo_pair *p, nrl_request *r, int64_t i, const gloo_step *s);
void slot_message(gloo_pair *p, const wire_header *h); /* handles a header from the peer */
void slot_forget(gloo_pair *p, nrl_request *r);        /* removes every pointer to the request and its buffers */
bool slot_holds(const gloo_pair *p, const nrl_request *r);
void slot_clear(gloo_pair *p);

/* ---- engine: engine.c drives, life.c makes and ends ---- */

typedef struct listener listener;

struct gloo_engine {
    gloo_options options;
    const wire_dialect *dialect;
    int32_t rank, world;
    char text[160];
    const nrl_store *store; /* set while ranks meet if the job has a secret, so that connections are proved;
                             * otherwise NULL */
    uint8_t challenge[32];  /* PROOF_CHALLENGE bytes: what other ranks prove to this rank */

    pthread_mutex_t lock;
    atomic_int wanted; /* threads that wait for the lock */
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t tick;    /* time-outs, and ranks that join late */
    uv_timer_t refill;  /* of the rate limit */
    uv_timer_t silence; /* pair_check_acknowledged */
    int loop_fd;
    int n_handles; /* open handles, counted for close */

    pthread_t thread;
    bool has_thread, stop;
    bool driven; /* a waiting thread does the work */
    uint64_t drives;
    bool napping; /* the progress thread leaves the work to a waiting thread */
    int n_followers;
    pthread_cond_t followers, nap;
    nrl_request *ended; /* requests that ended since the lock was taken */
    bool changed;       /* the set of watched events changed */
    int spin_losses;

    gloo_pair *pairs; /* [world] */
    gloo_pair *dirty;
    bool muted;     /* some pair has become mute */
    listener *late; /* ranks may still join; NULL = all have joined */
    nrl_request *live;
    int n_live;
    gloo_item *free_items;
    gloo_slot *free_slots;
    struct gloo_slab *slabs;
    bool aborted;
    char dump[65536]; /* sink for payload without an owner */
    char abort_text[64];
    double tokens, tokens_at; /* rate limit: bytes that may be sent, and when that was computed */

    pthread_mutex_t pool_lock; /* guards the next three; taken while lock is held */
    nrl_request *inbox_tail;
    nrl_request *free_requests;
    _Atomic(nrl_request *) inbox;

    gloo_group *groups;
    uint32_t next_group;
    atomic_int failed_peer; /* -1 = none */
    _Atomic(int64_t) bytes_sent, bytes_received, messages_sent;
};

void engine_lock(gloo_engine *e);
/* Releases the lock. `drives`: the caller then waits for the loop's descriptor itself. */
void engine_leave(gloo_engine *e, bool drives);
void engine_drain(gloo_engine *e);  /* starts the requests in the inbox */
void engine_settle(gloo_engine *e); /* drains, and writes what can be written */
void engine_turn(gloo_engine *e);   /* runs the loop once, without blocking */
void *engine_progress(void *engine);
nrl_status engine_create(const gloo_options *o, int32_t rank, int32_t world, gloo_engine **out);
nrl_status engine_start(gloo_engine *e); /* pairs are open: starts the progress thread */
void engine_destroy(gloo_engine *e);
void engine_submit(gloo_engine *e, nrl_request *r);
/* Drives until r is done or the time is up. */
void engine_wait(gloo_engine *e, nrl_request *r, double timeout_s);
void engine_abort(gloo_engine *e, const char *why);
void engine_send_leave(gloo_engine *e);
double engine_now(void);
/* Pools; NULL if out of memory. Under the lock. */
gloo_item *engine_item(gloo_engine *e);
void engine_item_free(gloo_engine *e, gloo_item *i);
gloo_slot *engine_slot(gloo_engine *e);
void engine_slot_free(gloo_engine *e, gloo_slot *s);
void pool_destroy(gloo_engine *e);
/* rate.c: bytes that may be sent now; 0 arms the refill timer. */
size_t rate_allowance(gloo_engine *e, size_t wanted);
void rate_spend(gloo_engine *e, size_t bytes);

/* ---- meeting ---- */

/* proof.c: if the job has a secret, e->store is set and a connection begins with proofs. */
enum { PROOF_CHALLENGE = 32, PROOF_HELLO = 8 + PROOF_CHALLENGE + NRL_PROOF_SIZE };
nrl_status proof_open(gloo_engine *e, const nrl_store *store);
/* Builds the hello to rank `to`, whose challenge is given, and the answer that only that rank can give. */
nrl_status proof_hello(const gloo_engine *e, int32_t to, const uint8_t challenge[PROOF_CHALLENGE],
                       uint8_t hello[PROOF_HELLO], uint8_t answer[NRL_PROOF_SIZE]);
/* The rank that the hello proves, and the answer to send; -1 = none. */
int64_t proof_check(const gloo_engine *e, const uint8_t hello[PROOF_HELLO], uint8_t answer[NRL_PROOF_SIZE]);
bool proof_equal(const uint8_t a[NRL_PROOF_SIZE], const uint8_t b[NRL_PROOF_SIZE]);

nrl_status meet(gloo_engine *e, nrl_store *store, double timeout_s);
nrl_status address_find(const gloo_options *o, struct sockaddr_storage *out, char *text, size_t size);
socklen_t address_length(const struct sockaddr_storage *a);
void address_text(const struct sockaddr_storage *a, char *out, size_t size);

/* listener.c: listening sockets, and connections whose rank is not known yet. */
nrl_status listener_open(gloo_engine *e, const struct sockaddr_storage *at, struct sockaddr_storage *published,
                         listener **out);
/* Accepts and reads for at most timeout_ms; a connection whose rank becomes known becomes a pair.
 * NRL_ERR_IO: no file descriptor is left for a connection. */
nrl_status listener_turn(listener *l, int timeout_ms);
/* Takes fd, a connection to `peer`, which becomes a pair once it has sent this answer. */
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
