/*
 * @NAME@.c - a collective over shared memory, for ranks on one machine: replace the segment by your
 * own transport. Each group has one segment and two threads per rank: one runs the calls in order, the
 * other moves messages.
 *
 * A call is a number of rounds. In each round every rank posts the next chunk of what it sends, waits
 * until all ranks have posted, and takes from their chunks what it needs. A rank posts round n + 1 only
 * after it has read round n, so two chunks per rank are enough. Every rank adds up all chunks in the
 * order of the ranks: the results are bit-identical, and the work suits few ranks. A rank is lost to the
 * others when it aborts or closes; the core detects killed ranks and then calls abort.
 *
 * Messages (send, recv) pass through a box for each pair of ranks and direction, chunk after chunk, in
 * their order: the tag is not looked at, which `by_order` declares. They wait for no call, and those to
 * one rank do not wait for those to another.
 */
#include <nrl/nrl.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    CHUNK = 256 << 10, /* bytes; a multiple of every element */
    BOX = 64 << 10,    /* bytes of a message that are on their way */
    BLOCK = 1024,      /* elements that are added up at once */
    SPINS = 2000,      /* looks at a counter before the thread sleeps */
    NAP_NS = 20000000  /* after which a sleeping thread looks for an abort */
};

/* ---- shared memory ---- */

/* What a chunk belongs to; it must be the same on all ranks, except for total. */
typedef struct {
    uint32_t kind, dtype, reduce;
    int32_t peer;
    uint64_t total; /* bytes that this rank sends in all rounds */
} @NAME@_post;

typedef struct {
    _Alignas(64) _Atomic uint64_t posted; /* rounds */
    _Atomic int32_t lost;                 /* 1 + the rank that ended this rank's calls; 0 = none */
    @NAME@_post posts[2];
    _Alignas(64) unsigned char chunks[2][CHUNK];
} @NAME@_place;

/* From one rank to another. */
typedef struct {
    _Alignas(64) _Atomic uint64_t posted, taken; /* chunks; equal: the box is empty */
    uint64_t total, size;                        /* bytes of the message and of this chunk */
    unsigned char chunk[BOX];
} @NAME@_box;

typedef struct {
    _Alignas(64) _Atomic uint32_t bell; /* rung when a place or a box changes */
    _Atomic uint32_t sleepers;
    @NAME@_place places[]; /* [ranks], then the boxes [ranks][ranks], sender first */
} @NAME@_segment;

/* ---- memory of this rank ---- */

/* Of what a rank posts, or of what is taken from a rank. */
typedef struct {
    unsigned char *at;
    uint64_t from, size, total; /* bytes: position in what the rank sends, length, all that the rank sends */
} @NAME@_span;

struct nrl_request {
    nrl_request *next;
    @NAME@_post call;
    bool done, dropped;
    nrl_status status;
    uint64_t moved; /* bytes of a message */
    char error[256];
    @NAME@_span *out; /* [ranks], only the first unless the call is an all_to_all */
    @NAME@_span in[]; /* [ranks], then out */
};

typedef struct @NAME@_group {
    struct @NAME@_group *whole, *next; /* next: of the groups of the whole */
    @NAME@_segment *segment;
    size_t bytes; /* of the segment */
    int32_t rank, size, *members; /* members: ranks in the whole */
    double timeout_s;
    uint64_t round;
    uint32_t splits;
    atomic_int failed; /* rank, -1 = none */
    bool broken, closing;
    pthread_t thread, messenger;
    bool has_thread, has_messenger;
    pthread_mutex_t lock; /* of the queue; that of the list is in the whole */
    pthread_mutex_t list;
    pthread_cond_t changed;
    nrl_request *head, **tail, *messages; /* messages: oldest first */
    char name[96]; /* of the segment */
    /* only in the whole */
    atomic_bool aborted;
    _Atomic int64_t sent, received;
} @NAME@_group;

enum { BARRIER, BROADCAST, ALL_REDUCE, ALL_GATHER, REDUCE, REDUCE_SCATTER, GATHER, SCATTER, ALL_TO_ALL, SEND, RECV };
static const char *const @NAME@_names[] = {"barrier", "broadcast", "all_reduce", "all_gather", "reduce",
                                           "reduce_scatter", "gather", "scatter", "all_to_all", "send", "recv"};

static double @NAME@_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- arithmetic: f64 holds every float, so a sum is rounded once; integers wrap ---- */

static float @NAME@_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static double @NAME@_get_bf16(uint16_t b)
{
    return (double)@NAME@_float((uint32_t)b << 16);
}

static uint16_t @NAME@_put_bf16(double d)
{
    float f = (float)d;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return f != f ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double @NAME@_get_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, rest = h & 1023;
    double denormal = rest * 0x1p-24;
    if (!exponent) return sign ? -denormal : denormal;
    return (double)@NAME@_float(sign | (exponent == 31 ? 0x7f800000 : (exponent + 112) << 23) | rest << 13);
}

/* Nearest, ties to even. Denormal numbers: adding 1/2 leaves multiples of 2^-24. */
static uint16_t @NAME@_put_f16(double d)
{
    float f = (float)d;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (size >= 0x38800000) return (uint16_t)(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
    f = @NAME@_float(size) + 0.5f;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(sign | (bits - 0x3f000000));
}

#define SAME(x) (x)
#define MAXIMUM(a, b) ((a) < (b) ? (b) : (a))
#define MINIMUM(a, b) ((b) < (a) ? (b) : (a))
#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define EACH(n, step) \
    for (uint64_t i = 0; i < (n); i++) \
    step

/* Reduces n <= BLOCK elements at byte `at` of the chunks of all ranks. `sum` is the type of results, `whole` one that
 * may overflow. */
#define REDUCER(name, type, sum, whole, get, put) \
    static void @NAME@_reduce_##name(const @NAME@_group *g, uint32_t op, uint64_t at, uint64_t n, void *to) \
    { \
        sum all[BLOCK]; \
        type *out = to; \
        for (int32_t r = 0; r < g->size; r++) { \
            const type *x = (const type *)(g->segment->places[r].chunks[g->round & 1] + at); \
            if (!r) \
                EACH(n, all[i] = (sum)get(x[i])); \
            else if (op == NRL_REDUCE_OP_MAX) \
                EACH(n, all[i] = MAXIMUM(all[i], (sum)get(x[i]))); \
            else if (op == NRL_REDUCE_OP_MIN) \
                EACH(n, all[i] = MINIMUM(all[i], (sum)get(x[i]))); \
            else if (op == NRL_REDUCE_OP_PRODUCT) \
                EACH(n, all[i] = (sum)MULTIPLY((whole)all[i], (whole)get(x[i]))); \
            else \
                EACH(n, all[i] = (sum)ADD((whole)all[i], (whole)get(x[i]))); \
        } \
        if (op == NRL_REDUCE_OP_AVERAGE) EACH(n, all[i] /= (sum)g->size); \
        EACH(n, out[i] = (type)put(all[i])); \
    }
REDUCER(f32, float, double, double, SAME, SAME)
REDUCER(f64, double, double, double, SAME, SAME)
REDUCER(bf16, uint16_t, double, double, @NAME@_get_bf16, @NAME@_put_bf16)
REDUCER(f16, uint16_t, double, double, @NAME@_get_f16, @NAME@_put_f16)
REDUCER(i32, int32_t, int64_t, uint64_t, SAME, SAME)
REDUCER(i64, int64_t, int64_t, uint64_t, SAME, SAME)
REDUCER(u8, uint8_t, int64_t, uint64_t, SAME, SAME)

static void (*const @NAME@_reducers[])(const @NAME@_group *g, uint32_t op, uint64_t at, uint64_t n, void *to) = {
    [NRL_DTYPE_F32] = @NAME@_reduce_f32,   [NRL_DTYPE_F64] = @NAME@_reduce_f64, [NRL_DTYPE_BF16] = @NAME@_reduce_bf16,
    [NRL_DTYPE_F16] = @NAME@_reduce_f16,   [NRL_DTYPE_I32] = @NAME@_reduce_i32, [NRL_DTYPE_I64] = @NAME@_reduce_i64,
    [NRL_DTYPE_U8] = @NAME@_reduce_u8,
};

/* ---- rounds, in the group's thread ---- */

static void @NAME@_ring(@NAME@_segment *s)
{
    atomic_fetch_add(&s->bell, 1);
    if (atomic_load(&s->sleepers)) syscall(SYS_futex, &s->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Marks this rank as lost, unless it is marked already. */
static void @NAME@_leave(@NAME@_group *g, int32_t because_of)
{
    int32_t none = 0;
    atomic_compare_exchange_strong(&g->segment->places[g->rank].lost, &none, 1 + because_of);
    @NAME@_ring(g->segment);
}

static void @NAME@_post_chunk(@NAME@_group *g, const nrl_request *q, const @NAME@_span *out, uint64_t at)
{
    @NAME@_place *p = &g->segment->places[g->rank];
    uint64_t left = out->size > at ? out->size - at : 0, n = left < CHUNK ? left : CHUNK;
    g->round++;
    p->posts[g->round & 1] = q->call;
    p->posts[g->round & 1].total = out->size;
    if (n) memcpy(p->chunks[g->round & 1], out->at + at, n);
    atomic_store(&p->posted, g->round);
    @NAME@_ring(g->segment);
    atomic_fetch_add(&g->whole->sent, (int64_t)n);
}

/* Sleeps until the bell rings, unless it has rung since `bell` was read. */
static void @NAME@_sleep(@NAME@_segment *s, uint32_t bell)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    atomic_fetch_add(&s->sleepers, 1);
    syscall(SYS_futex, &s->bell, FUTEX_WAIT, bell, &nap, NULL, 0);
    atomic_fetch_sub(&s->sleepers, 1);
}

/* An error if the request waits for a rank in vain; `lost` is that of its place. */
static nrl_status @NAME@_look(@NAME@_group *g, nrl_request *q, int32_t lost)
{
    if (atomic_load(&g->whole->aborted)) {
        snprintf(q->error, sizeof q->error, "%s: aborted by this rank", @NAME@_names[q->call.kind]);
        return NRL_ERR_PEER;
    }
    if (lost <= 0 || lost > g->size) return NRL_OK;
    atomic_store(&g->failed, lost - 1);
    snprintf(q->error, sizeof q->error, "%s: rank %d has left", @NAME@_names[q->call.kind], g->members[lost - 1]);
    return NRL_ERR_PEER;
}

/* Waits until the rank has posted this round. */
static nrl_status @NAME@_await(@NAME@_group *g, nrl_request *q, int32_t r)
{
    @NAME@_segment *s = g->segment;
    @NAME@_place *p = &s->places[r];
    for (int spins = 0;; spins++) {
        uint32_t bell = atomic_load(&s->bell);
        int32_t lost = atomic_load(&p->lost); /* before posted: a rank may leave after its last call */
        if (atomic_load(&p->posted) >= g->round) return NRL_OK;
        NRL_TRY(@NAME@_look(g, q, lost));
        if (spins >= SPINS) @NAME@_sleep(s, bell);
    }
}

/* Takes what the span wants of the chunk that begins at byte `at` of all that a rank sends. */
static void @NAME@_take(@NAME@_group *g, const nrl_request *q, int32_t r, uint64_t at)
{
    const @NAME@_span *s = &q->in[r];
    uint64_t end = s->from + s->size < at + CHUNK ? s->from + s->size : at + CHUNK;
    uint64_t width = nrl_dtype_size((nrl_dtype)q->call.dtype);
    const unsigned char *chunk = g->segment->places[r].chunks[g->round & 1];
    for (uint64_t i = s->from > at ? s->from : at; i < end;) {
        uint64_t n = end - i;
        if (!q->call.reduce) {
            memcpy(s->at + (i - s->from), chunk + (i - at), n);
        } else {
            if (n > BLOCK * width) n = BLOCK * width;
            @NAME@_reducers[q->call.dtype](g, q->call.reduce, i - at, n / width, s->at + (i - s->from));
        }
        atomic_fetch_add(&g->whole->received, (int64_t)n);
        i += n;
    }
}

static nrl_status @NAME@_compare(@NAME@_group *g, nrl_request *q, int32_t r, uint64_t expected)
{
    const @NAME@_post *p = &g->segment->places[r].posts[g->round & 1], *c = &q->call;
    bool same = p->kind == c->kind && p->dtype == c->dtype && p->reduce == c->reduce && p->peer == c->peer;
    if (same && p->total == expected) return NRL_OK;
    snprintf(q->error, sizeof q->error,
             "rank %d made another call: %s, dtype %u, peer %d, %" PRIu64 " bytes; expected %s, dtype %u, peer %d, %" PRIu64
             " bytes",
             g->members[r], p->kind <= ALL_TO_ALL ? @NAME@_names[p->kind] : "?", p->dtype, p->peer, p->total,
             @NAME@_names[c->kind], c->dtype, c->peer, expected);
    return NRL_ERR_PEER;
}

/* A phase sends one block of each rank: in phase k of an all_to_all that for the k-th rank after it. */
static nrl_status @NAME@_phase(@NAME@_group *g, nrl_request *q, int32_t k)
{
    bool to_one = q->call.kind == ALL_TO_ALL;
    int32_t source = (g->rank - k + g->size) % g->size;
    uint64_t most = 1;
    for (uint64_t at = 0; at < most; at += CHUNK) {
        nrl_status st = NRL_OK;
        @NAME@_post_chunk(g, q, &q->out[to_one ? (g->rank + k) % g->size : 0], at);
        for (int32_t r = 0; r < g->size && !st; r++) {
            st = @NAME@_await(g, q, r);
            uint64_t total = g->segment->places[r].posts[g->round & 1].total;
            if (!st) st = @NAME@_compare(g, q, r, to_one && r != source ? total : q->in[r].total);
            if (total > most) most = total;
        }
        if (st) return st;
        for (int32_t r = 0; r < g->size; r++)
            if (!to_one || r == source) @NAME@_take(g, q, r, at);
    }
    return NRL_OK;
}

static void @NAME@_run(@NAME@_group *g, nrl_request *q)
{
    if (g->broken) {
        q->status = NRL_ERR_PEER;
        snprintf(q->error, sizeof q->error, "%s: an earlier call has failed", @NAME@_names[q->call.kind]);
    }
    for (int32_t k = 0; k < (q->call.kind == ALL_TO_ALL ? g->size : 1) && !q->status; k++)
        q->status = @NAME@_phase(g, q, k);
    if (!q->status || g->broken) return;
    int failed = atomic_load(&g->failed);
    g->broken = true; /* the ranks are no longer in step */
    @NAME@_leave(g, failed < 0 ? g->rank : failed);
}

static void *@NAME@_work(void *user)
{
    @NAME@_group *g = user;
    pthread_mutex_lock(&g->lock);
    for (;;) {
        nrl_request *q = g->head;
        if (!q && g->closing) break;
        if (!q) {
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        pthread_mutex_unlock(&g->lock);
        @NAME@_run(g, q);
        pthread_mutex_lock(&g->lock);
        g->head = q->next;
        if (!g->head) g->tail = &g->head;
        q->done = true;
        if (q->dropped) free(q);
        pthread_cond_broadcast(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* ---- messages, in the messenger's thread ---- */

static @NAME@_box *@NAME@_box_of(const @NAME@_group *g, int32_t from, int32_t to)
{
    return (@NAME@_box *)(g->segment->places + g->size) + from * g->size + to;
}

/* Puts the next chunk of a message into its box, if that is empty. A message has one chunk at least. */
static bool @NAME@_put_chunk(@NAME@_group *g, nrl_request *q)
{
    @NAME@_box *b = @NAME@_box_of(g, g->rank, q->call.peer);
    uint64_t left = q->out->size - q->moved;
    if (atomic_load(&b->posted) != atomic_load(&b->taken)) return false;
    b->total = q->out->size;
    b->size = left < BOX ? left : BOX;
    if (b->size) memcpy(b->chunk, q->out->at + q->moved, b->size);
    q->moved += b->size;
    q->done = q->moved == q->out->size;
    atomic_fetch_add(&b->posted, 1);
    atomic_fetch_add(&g->whole->sent, (int64_t)(left < BOX ? left : BOX));
    return true;
}

/* Takes what is in its box. */
static bool @NAME@_get_chunk(@NAME@_group *g, nrl_request *q)
{
    @NAME@_box *b = @NAME@_box_of(g, q->call.peer, g->rank);
    uint64_t left = q->in->size - q->moved;
    if (atomic_load(&b->posted) == atomic_load(&b->taken)) return false;
    if (b->total != q->in->size || b->size > left) {
        snprintf(q->error, sizeof q->error, "recv: rank %d sent %" PRIu64 " bytes, expected %" PRIu64,
                 g->members[q->call.peer], b->total, q->in->size);
        q->status = NRL_ERR_PEER;
        q->done = true;
        return true;
    }
    if (b->size) memcpy(q->in->at + q->moved, b->chunk, b->size);
    q->moved += b->size;
    q->done = q->moved == q->in->size;
    atomic_fetch_add(&g->whole->received, (int64_t)b->size);
    atomic_fetch_add(&b->taken, 1);
    return true;
}

/* Moves the oldest message to each rank and from each rank on; returns whether one has moved. Under the lock. */
static bool @NAME@_carry(@NAME@_group *g)
{
    bool moved = false;
    for (nrl_request **at = &g->messages, *q; (q = *at);) {
        const nrl_request *older = g->messages;
        while (older != q && (older->call.kind != q->call.kind || older->call.peer != q->call.peer))
            older = older->next;
        if (older == q) {
            int32_t lost = atomic_load(&g->segment->places[q->call.peer].lost); /* before the box, as in a call */
            bool moves = q->call.kind == SEND ? @NAME@_put_chunk(g, q) : @NAME@_get_chunk(g, q);
            if (!moves && (q->status = @NAME@_look(g, q, lost))) q->done = true;
            moved = moved || moves || q->done;
        }
        if (!q->done) {
            at = &q->next;
            continue;
        }
        *at = q->next;
        if (q->dropped) free(q);
    }
    return moved;
}

static void *@NAME@_carry_all(void *user)
{
    @NAME@_group *g = user;
    pthread_mutex_lock(&g->lock);
    while (g->messages || !g->closing) {
        uint32_t bell = atomic_load(&g->segment->bell);
        if (!g->messages) {
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        if (@NAME@_carry(g)) {
            @NAME@_ring(g->segment);
            pthread_cond_broadcast(&g->changed);
            continue;
        }
        pthread_mutex_unlock(&g->lock);
        @NAME@_sleep(g->segment, bell);
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* ---- requests ---- */

static uint64_t @NAME@_offset(const int64_t *counts, const int64_t *offsets, int64_t count, int32_t r)
{
    int64_t at = counts ? 0 : count * r;
    if (counts && offsets) return (uint64_t)offsets[r];
    for (int32_t i = 0; i < r && counts; i++)
        at += counts[i];
    return (uint64_t)at;
}

static @NAME@_span @NAME@_block(const void *base, const int64_t *counts, const int64_t *offsets, int64_t count,
                                int32_t r, uint64_t width)
{
    uint64_t size = (uint64_t)(counts ? counts[r] : count) * width;
    uint64_t at = @NAME@_offset(counts, offsets, count, r) * width;
    return (@NAME@_span){base ? (unsigned char *)base + at : NULL, 0, size, size};
}

/* What each rank sends and what this rank takes of it. */
static void @NAME@_plan(const @NAME@_group *g, nrl_request *q, const nrl_comm_args *a)
{
    uint64_t width = nrl_dtype_size((nrl_dtype)a->dtype), bytes = (uint64_t)a->count * width, extent = 0;
    bool is_root = g->rank == a->peer;
    for (int32_t r = 0; r < g->size; r++) {
        @NAME@_span b = @NAME@_block(NULL, a->counts, a->offsets, a->count, r, width);
        uint64_t end = @NAME@_offset(a->counts, a->offsets, a->count, r) * width + b.size;
        if (end > extent) extent = end;
    }
    @NAME@_span mine = @NAME@_block(NULL, a->counts, a->offsets, a->count, g->rank, width);
    uint64_t from = @NAME@_offset(a->counts, a->offsets, a->count, g->rank) * width;
    unsigned char *send = (unsigned char *)a->send, *receive = a->receive;
    switch (q->call.kind) {
    case ALL_REDUCE:
    case REDUCE:
        for (int32_t r = 0; r < g->size; r++)
            q->in[r].total = bytes;
        q->in[0] = (@NAME@_span){receive, 0, q->call.kind == REDUCE && !is_root ? 0 : bytes, bytes};
        q->out[0] = (@NAME@_span){send, 0, bytes, bytes};
        break;
    case REDUCE_SCATTER:
        for (int32_t r = 0; r < g->size; r++)
            q->in[r].total = extent;
        q->in[0] = (@NAME@_span){receive, from, mine.size, extent};
        q->out[0] = (@NAME@_span){send, 0, extent, extent};
        break;
    case ALL_GATHER:
    case GATHER:
        for (int32_t r = 0; r < g->size; r++) {
            q->in[r] = @NAME@_block(receive, a->counts, a->offsets, a->count, r, width);
            if (q->call.kind == GATHER && !is_root) q->in[r].size = 0;
        }
        q->out[0] = (@NAME@_span){send, 0, mine.size, mine.size};
        break;
    case BROADCAST:
        q->in[a->peer] = (@NAME@_span){receive, 0, is_root ? 0 : bytes, bytes};
        if (is_root) q->out[0] = (@NAME@_span){receive, 0, bytes, bytes};
        break;
    case SCATTER:
        q->in[a->peer] = (@NAME@_span){receive, from, mine.size, extent};
        if (is_root) q->out[0] = (@NAME@_span){send, 0, extent, extent};
        break;
    case SEND:
        q->out[0] = (@NAME@_span){send, 0, bytes, bytes};
        break;
    case RECV:
        q->in[0] = (@NAME@_span){receive, 0, bytes, bytes};
        break;
    case ALL_TO_ALL:
        for (int32_t r = 0; r < g->size; r++) {
            q->out[r] = @NAME@_block(send, a->counts, a->offsets, a->count, r, width);
            q->in[r] = @NAME@_block(receive, a->counts ? a->receive_counts : NULL, a->receive_offsets, a->count, r, width);
        }
        break;
    default:
        break;
    }
}

static nrl_status @NAME@_start(void *self, uint32_t kind, const nrl_comm_args *a, nrl_request **request)
{
    @NAME@_group *g = self;
    bool is_message = kind == SEND || kind == RECV;
    bool reduces = kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER;
    *request = NULL;
    if (a->dtype > (reduces ? NRL_DTYPE_U8 : NRL_DTYPE_U16) || (reduces && !a->dtype))
        return nrl_fail(NRL_ERR_CONFIG, "%s of dtype %u is not possible", @NAME@_names[kind], a->dtype);
    if (a->count < 0 || a->peer < 0 || a->peer >= g->size || (is_message && a->peer == g->rank))
        return nrl_fail(NRL_ERR_CONFIG, "%" PRId64 " elements, peer %d of %d ranks", a->count, a->peer, g->size);
    if (reduces && (a->reduce < NRL_REDUCE_OP_SUM || a->reduce > NRL_REDUCE_OP_PRODUCT))
        return nrl_fail(NRL_ERR_CONFIG, "reduction %u is not a reduction", a->reduce);
    if (reduces && a->reduce == NRL_REDUCE_OP_AVERAGE && a->dtype >= NRL_DTYPE_I32)
        return nrl_fail(NRL_ERR_CONFIG, "an average of %s; expected a floating type", nrl_dtype_name((nrl_dtype)a->dtype));
    nrl_request *q = calloc(1, sizeof *q + 2 * (size_t)g->size * sizeof *q->in);
    if (!q) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a request");
    q->call = (@NAME@_post){kind, a->dtype, reduces ? a->reduce : 0, a->peer, 0};
    q->out = q->in + g->size;
    @NAME@_plan(g, q, a);
    pthread_mutex_lock(&g->lock);
    nrl_request **end = is_message ? &g->messages : g->tail;
    while (*end)
        end = &(*end)->next;
    *end = q;
    if (!is_message) g->tail = &q->next;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (is_message) @NAME@_ring(g->segment); /* the messenger may sleep for another one */
    *request = q;
    return NRL_OK;
}

#define STARTER(name, kind) \
    static nrl_status @NAME@_##name(void *self, const nrl_comm_args *a, nrl_request **request) \
    { \
        return @NAME@_start(self, kind, a, request); \
    }
STARTER(barrier, BARRIER)
STARTER(broadcast, BROADCAST)
STARTER(all_reduce, ALL_REDUCE)
STARTER(all_gather, ALL_GATHER)
STARTER(reduce, REDUCE)
STARTER(reduce_scatter, REDUCE_SCATTER)
STARTER(gather, GATHER)
STARTER(scatter, SCATTER)
STARTER(all_to_all, ALL_TO_ALL)
STARTER(send, SEND)
STARTER(recv, RECV)

static nrl_status @NAME@_wait(void *self, nrl_request *q, double timeout_s, bool *done)
{
    @NAME@_group *g = self;
    double until = @NAME@_seconds() + (timeout_s < 1e6 ? timeout_s : 1e6);
    struct timespec end = {.tv_sec = (time_t)until};
    end.tv_nsec = (long)((until - (double)end.tv_sec) * 1e9);
    pthread_mutex_lock(&g->lock);
    while (!q->done && pthread_cond_timedwait(&g->changed, &g->lock, &end) == 0)
        ;
    *done = q->done;
    pthread_mutex_unlock(&g->lock);
    return *done && q->status ? nrl_fail(q->status, "%s", q->error) : NRL_OK;
}

static void @NAME@_release(void *self, nrl_request *q)
{
    @NAME@_group *g = self;
    if (!q) return;
    pthread_mutex_lock(&g->lock);
    if (q->done)
        free(q);
    else
        q->dropped = true; /* the thread frees it */
    pthread_mutex_unlock(&g->lock);
}

/* ---- groups ---- */

static void @NAME@_close_group(@NAME@_group *g)
{
    pthread_mutex_lock(&g->lock);
    g->closing = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (g->has_thread) pthread_join(g->thread, NULL);
    if (g->has_messenger) pthread_join(g->messenger, NULL);
    if (g->segment) {
        @NAME@_leave(g, g->rank);
        munmap(g->segment, g->bytes);
    }
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->list);
    free(g->members);
    free(g);
}

static void @NAME@_close(void *self)
{
    @NAME@_group *g = self, *whole;
    if (!g) return;
    whole = g->whole;
    pthread_mutex_lock(&whole->list);
    for (@NAME@_group **at = &whole->next; *at && g != whole; at = &(*at)->next)
        if (*at == g) {
            *at = g->next;
            break;
        }
    pthread_mutex_unlock(&whole->list);
    for (@NAME@_group *next = g == whole ? g->next : NULL, *one; (one = next);) {
        next = one->next;
        @NAME@_close_group(one);
    }
    @NAME@_close_group(g);
}

/* When it returns, no thread uses operands of requests any more. */
static void @NAME@_abort(void *self)
{
    @NAME@_group *whole = ((@NAME@_group *)self)->whole;
    atomic_store(&whole->aborted, true);
    pthread_mutex_lock(&whole->list);
    for (@NAME@_group *g = whole; g; g = g->next) {
        @NAME@_leave(g, g->rank);
        pthread_mutex_lock(&g->lock);
        while (g->head || g->messages)
            pthread_cond_wait(&g->changed, &g->lock);
        pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_unlock(&whole->list);
}

static nrl_status @NAME@_new(@NAME@_group *whole, int32_t rank, int32_t size, double timeout_s, @NAME@_group **out)
{
    pthread_condattr_t monotonic;
    @NAME@_group *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a group");
    g->whole = whole ? whole : g;
    g->rank = rank;
    g->size = size;
    g->timeout_s = timeout_s;
    g->tail = &g->head;
    atomic_store(&g->failed, -1);
    g->bytes = sizeof *g->segment + (size_t)size * sizeof *g->segment->places + (size_t)size * (size_t)size * sizeof(@NAME@_box);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&g->lock, NULL);
    pthread_mutex_init(&g->list, NULL);
    g->members = calloc((size_t)size, sizeof *g->members);
    if (g->members) {
        *out = g;
        return NRL_OK;
    }
    @NAME@_close_group(g);
    return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a group");
}

/* The first rank creates the segment g->name, and the others map it. Only this user can open it. */
static nrl_status @NAME@_map(@NAME@_group *g)
{
    bool creates = g->rank == 0;
    int fd = shm_open(g->name, O_RDWR | O_CLOEXEC | (creates ? O_CREAT | O_EXCL : 0), 0600);
    if (fd < 0)
        return nrl_fail(NRL_ERR_IO, "cannot open the shared memory '%s': %s%s", g->name, strerror(errno),
                        creates ? "" : "\nhint: all ranks must be on one machine and share its /dev/shm");
    int error = creates ? posix_fallocate(fd, 0, (off_t)g->bytes) : 0; /* memory that is missing fails here, not later */
    struct stat s;
    if (!error && (fstat(fd, &s) || s.st_uid != geteuid() || s.st_size != (off_t)g->bytes)) error = EPERM;
    void *at = error ? MAP_FAILED : mmap(NULL, g->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && at == MAP_FAILED) error = errno;
    close(fd);
    if (error && creates) shm_unlink(g->name);
    if (error) return nrl_fail(NRL_ERR_IO, "cannot map %zu bytes of shared memory: %s", g->bytes, strerror(error));
    g->segment = at;
    return NRL_OK;
}

static nrl_status @NAME@_start_threads(@NAME@_group *g)
{
    sigset_t all, old;
    sigfillset(&all); /* other threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&g->thread, NULL, @NAME@_work, g);
    g->has_thread = !error;
    if (!error) error = pthread_create(&g->messenger, NULL, @NAME@_carry_all, g);
    g->has_messenger = !error;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error ? nrl_fail(NRL_ERR_IO, "cannot start a thread: %s", strerror(error)) : NRL_OK;
}

/* ---- joining ---- */

/* The first rank tells the name of the segment; every rank waits until all have mapped it. */
static nrl_status @NAME@_meet(@NAME@_group *g, nrl_store *store)
{
    double deadline = @NAME@_seconds() + g->timeout_s;
    char key[64], missing[200] = "";
    uint64_t id;
    void *value;
    size_t size, n = 0;
    if (g->rank == 0) {
        if (getrandom(&id, sizeof id, 0) != sizeof id) return nrl_fail(NRL_ERR_IO, "cannot get random bytes");
        snprintf(g->name, sizeof g->name, "/nrl-%016" PRIx64, id);
        NRL_TRY(@NAME@_map(g));
        NRL_TRY(nrl_store_set(store, "@NAME@/name", g->name, strlen(g->name)));
    } else {
        if (nrl_store_get(store, "@NAME@/name", g->timeout_s, &value, &size))
            return nrl_fail(NRL_ERR_PEER, "rank 0 did not come in %g s", g->timeout_s);
        snprintf(g->name, sizeof g->name, "%.*s", (int)(size < 60 ? size : 60), (const char *)value);
        free(value);
        NRL_TRY(@NAME@_map(g));
    }
    snprintf(key, sizeof key, "@NAME@/mapped/%d", g->rank);
    NRL_TRY(nrl_store_set(store, key, "1", 1));
    for (int32_t r = 0; r < g->size; r++) {
        double left = deadline - @NAME@_seconds();
        snprintf(key, sizeof key, "@NAME@/mapped/%d", r);
        if (nrl_store_get(store, key, left > 0 ? left : 0, &value, &size) == NRL_OK)
            free(value);
        else if (n < sizeof missing - 20)
            n += (size_t)snprintf(missing + n, sizeof missing - n, "%s%d", n ? ", " : "", r);
    }
    return n ? nrl_fail(NRL_ERR_PEER, "did not come in %g s: rank %s", g->timeout_s, missing) : NRL_OK;
}

static nrl_status @NAME@_open(const void *options, nrl_store *store, int32_t rank, int32_t world, double timeout_s,
                              void **self)
{
    @NAME@_group *g;
    (void)options;
    *self = NULL;
    NRL_TRY(@NAME@_new(NULL, rank, world, timeout_s, &g));
    for (int32_t r = 0; r < world; r++)
        g->members[r] = r;
    nrl_status st = @NAME@_meet(g, store);
    if (rank == 0 && g->segment) shm_unlink(g->name); /* the memory lives as long as its mappings */
    if (!st) st = @NAME@_start_threads(g);
    if (st)
        @NAME@_close_group(g);
    else
        *self = g;
    return st;
}

typedef struct {
    int32_t color, key, rank;
} @NAME@_word;

static int @NAME@_by_key(const void *a, const void *b)
{
    const @NAME@_word *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static nrl_status @NAME@_exchange(@NAME@_group *g, const @NAME@_word *mine, @NAME@_word *all)
{
    const nrl_comm_args a = {
        .size = sizeof a, .dtype = NRL_DTYPE_U8, .send = mine, .receive = all, .count = sizeof *mine};
    bool done;
    nrl_request *q;
    NRL_TRY(@NAME@_all_gather(g, &a, &q));
    nrl_status st = @NAME@_wait(g, q, g->timeout_s, &done);
    if (!st && !done) {
        st = nrl_fail(NRL_ERR_PEER, "split: not all ranks came in %g s", g->timeout_s);
        @NAME@_abort(g); /* the request uses memory of this function's caller */
    }
    @NAME@_release(g, q);
    return st;
}

/* Reports this rank's status to all, and fails if any rank has failed. */
static nrl_status @NAME@_agree(@NAME@_group *g, nrl_status mine, @NAME@_word *all)
{
    const @NAME@_word word = {.color = (int32_t)mine};
    NRL_TRY(@NAME@_exchange(g, &word, all));
    for (int32_t r = 0; r < g->size && !mine; r++)
        if (all[r].color) return nrl_fail(NRL_ERR_PEER, "rank %d could not make a group", g->members[r]);
    return mine;
}

/* The first rank of a group maps its segment before the others do; then it removes the name. */
static nrl_status @NAME@_split(void *self, int32_t color, int32_t key, void **out)
{
    @NAME@_group *g = self, *made = NULL;
    const @NAME@_word mine = {color, key, g->rank};
    int32_t n = 0, place = 0;
    *out = NULL;
    @NAME@_word *all = calloc((size_t)g->size * 2, sizeof *all), *said = all + g->size;
    if (!all) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a group");
    g->splits++;
    nrl_status st = @NAME@_exchange(g, &mine, all);
    if (st) {
        free(all);
        return st;
    }
    for (int32_t r = 0; r < g->size; r++)
        if (all[r].color == color) all[n++] = all[r];
    qsort(all, (size_t)n, sizeof *all, @NAME@_by_key);
    while (all[place].rank != g->rank)
        place++;
    if (color >= 0) st = @NAME@_new(g->whole, place, n, g->timeout_s, &made);
    for (int32_t r = 0; made && !st && r < n; r++)
        made->members[r] = g->members[all[r].rank];
    if (made && !st) {
        snprintf(made->name, sizeof made->name, "%.60s-%u-%d", g->name, g->splits, made->members[0]);
        if (place == 0) st = @NAME@_map(made);
    }
    st = @NAME@_agree(g, st, said);
    if (!st) {
        if (made && place > 0) st = @NAME@_map(made);
        if (made && !st) st = @NAME@_start_threads(made);
        st = @NAME@_agree(g, st, said);
    }
    if (made && place == 0 && made->segment) shm_unlink(made->name);
    free(all);
    if (st) {
        if (made) @NAME@_close_group(made);
        return st;
    }
    if (!made) return NRL_OK;
    pthread_mutex_lock(&g->whole->list);
    made->next = g->whole->next;
    g->whole->next = made;
    pthread_mutex_unlock(&g->whole->list);
    *out = made;
    return NRL_OK;
}

/* ---- what the core asks ---- */

static int32_t @NAME@_failed_peer(void *self)
{
    return atomic_load(&((@NAME@_group *)self)->failed);
}

static void @NAME@_info(void *self, nrl_collective_info *fill)
{
    @NAME@_group *whole = ((@NAME@_group *)self)->whole;
    fill->bytes_sent = atomic_load(&whole->sent);
    fill->bytes_received = atomic_load(&whole->received);
    fill->text = "@NAME@, shared memory";
}

static const nrl_collective @NAME@ = {
    NRL_PLUGIN_PLAIN(NRL_KIND_COLLECTIVE, nrl_collective, "@NAME@", "1.0", "shared memory of the ranks of one machine"),
    .host_only = true,
    .open = @NAME@_open,
    .split = @NAME@_split,
    .close = @NAME@_close,
    .abort = @NAME@_abort,
    .barrier = @NAME@_barrier,
    .broadcast = @NAME@_broadcast,
    .all_reduce = @NAME@_all_reduce,
    .all_gather = @NAME@_all_gather,
    .reduce = @NAME@_reduce,
    .reduce_scatter = @NAME@_reduce_scatter,
    .gather = @NAME@_gather,
    .scatter = @NAME@_scatter,
    .all_to_all = @NAME@_all_to_all,
    .send = @NAME@_send,
    .recv = @NAME@_recv,
    .wait = @NAME@_wait,
    .release = @NAME@_release,
    .failed_peer = @NAME@_failed_peer,
    .info = @NAME@_info,
    .by_order = true,
};
NRL_EXPORT(@NAME@)
