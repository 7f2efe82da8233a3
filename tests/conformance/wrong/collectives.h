/*
 * collectives.h - collectives that break one rule each, with the rule that must detect it. All are
 * the local collective (tests/support) with one defective member.
 */
#ifndef WRONG_COLLECTIVES_H
#define WRONG_COLLECTIVES_H
#include "support/local_collective.h"
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    void *inner; /* the local collective's; a group's too */
    void *whole; /* of a group: the inner one that it was split from */
    void *alone; /* a group of this rank alone */
    int32_t rank, world;
    int64_t calls, n_sent, n_received;
    const nrl_comm_args *late; /* a call that has not begun, and its request */
    nrl_request *late_request, *seen_done;
} spoiled;

static const nrl_collective *const inner = &local_collective;

/* ---- the right ones ---- */

static nrl_status right_open(const void *options, nrl_store *store, int32_t rank, int32_t world, double timeout,
                             void **self)
{
    void *in;
    NRL_TRY(inner->open(options, store, rank, world, timeout, &in));
    spoiled *s = *self = calloc(1, sizeof *s);
    *s = (spoiled){.inner = in, .rank = rank, .world = world};
    return inner->split(in, rank, 0, &s->alone);
}

static nrl_status right_split(void *self, int32_t color, int32_t key, void **group)
{
    const spoiled *s = self;
    void *in;
    *group = NULL;
    NRL_TRY(inner->split(s->inner, color, key, &in));
    if (!in) return NRL_OK;
    spoiled *g = *group = calloc(1, sizeof *g);
    *g = (spoiled){.inner = in, .whole = s->inner, .rank = s->rank, .world = s->world};
    return NRL_OK;
}

static void right_close(void *self)
{
    spoiled *s = self;
    if (s->alone) inner->close(s->alone);
    inner->close(s->inner);
    free(s);
}

static void right_abort(void *self)
{
    inner->abort(((spoiled *)self)->inner);
}

#define RIGHT(name)                                                                                                    \
    static nrl_status right_##name(void *self, const nrl_comm_args *a, nrl_request **request)                          \
    {                                                                                                                  \
        return inner->name(((spoiled *)self)->inner, a, request);                                                      \
    }
RIGHT(barrier)
RIGHT(broadcast)
RIGHT(all_reduce)
RIGHT(all_gather)
RIGHT(reduce)
RIGHT(reduce_scatter)
RIGHT(gather)
RIGHT(scatter)
RIGHT(all_to_all)
RIGHT(send)
RIGHT(recv)

static nrl_status right_wait(void *self, nrl_request *request, double timeout, bool *done)
{
    return inner->wait(((spoiled *)self)->inner, request, timeout, done);
}

static void right_release(void *self, nrl_request *request)
{
    inner->release(((spoiled *)self)->inner, request);
}

static int32_t right_failed_peer(void *self)
{
    return inner->failed_peer(((spoiled *)self)->inner);
}

static void right_info(void *self, nrl_collective_info *fill)
{
    inner->info(((spoiled *)self)->inner, fill);
}

/* ---- joining and groups ---- */

static nrl_status patient_open(const void *options, nrl_store *store, int32_t rank, int32_t world, double timeout,
                               void **self)
{
    return right_open(options, store, rank, world, timeout + 5.5, self);
}

static nrl_status mute_open(const void *options, nrl_store *store, int32_t rank, int32_t world, double timeout,
                            void **self)
{
    nrl_status st = right_open(options, store, rank, world, timeout, self);
    return st == NRL_OK ? st : nrl_fail(st, "somebody is missing");
}

static nrl_status keyless_split(void *self, int32_t color, int32_t key, void **group)
{
    (void)key;
    return right_split(self, color, 0, group);
}

static nrl_status mixing_all_reduce(void *self, const nrl_comm_args *a, nrl_request **request)
{
    const spoiled *s = self;
    return inner->all_reduce(s->whole ? s->whole : s->inner, a, request);
}

/* ---- what arrives ---- */

static nrl_status open_barrier(void *self, const nrl_comm_args *a, nrl_request **request)
{
    const spoiled *s = self;
    return inner->barrier(s->alone ? s->alone : s->inner, a, request);
}

static nrl_status rootless_broadcast(void *self, const nrl_comm_args *a, nrl_request **request)
{
    nrl_comm_args b = *a;
    b.peer = 0;
    return right_broadcast(self, &b, request);
}

static nrl_status rootless_scatter(void *self, const nrl_comm_args *a, nrl_request **request)
{
    static const char zeros[1 << 21];
    nrl_comm_args b = *a;
    b.peer = 0;
    b.send = zeros;
    return right_scatter(self, &b, request);
}

static nrl_status backward_all_gather(void *self, const nrl_comm_args *a, nrl_request **request)
{
    const spoiled *s = self;
    int64_t counts[16], offsets[16];
    nrl_comm_args b = *a;
    if (a->counts || s->whole) return right_all_gather(self, a, request);
    for (int32_t r = 0; r < s->world; r++) {
        counts[r] = a->count;
        offsets[r] = (s->world - 1 - r) * a->count;
    }
    b.counts = counts;
    b.offsets = offsets;
    return right_all_gather(self, &b, request);
}

/* Of uneven shares the last is lost. */
static nrl_status short_all_gather(void *self, const nrl_comm_args *a, nrl_request **request)
{
    const spoiled *s = self;
    int64_t counts[16];
    nrl_comm_args b = *a;
    if (!a->counts) return right_all_gather(self, a, request);
    memcpy(counts, a->counts, (size_t)s->world * sizeof *counts);
    counts[s->world - 1] = 0;
    b.counts = counts;
    return right_all_gather(self, &b, request);
}

static nrl_status short_reduce_scatter(void *self, const nrl_comm_args *a, nrl_request **request)
{
    const spoiled *s = self;
    int64_t counts[16];
    nrl_comm_args b = *a;
    if (!a->counts) return right_reduce_scatter(self, a, request);
    for (int32_t r = 0; r < s->world; r++)
        counts[r] = a->counts[r] & ~INT64_C(1);
    b.counts = counts;
    return right_reduce_scatter(self, &b, request);
}

static nrl_status wide_reduce_scatter(void *self, const nrl_comm_args *a, nrl_request **request)
{
    size_t bytes = (size_t)a->count * nrl_dtype_size((nrl_dtype)a->dtype);
    if (!a->counts) memset((char *)a->receive + bytes, 0, 4);
    return right_reduce_scatter(self, a, request);
}

static nrl_status tagless_send(void *self, const nrl_comm_args *a, nrl_request **request)
{
    nrl_comm_args b = *a;
    b.tag = 0;
    return right_send(self, &b, request);
}

static nrl_status tagless_recv(void *self, const nrl_comm_args *a, nrl_request **request)
{
    nrl_comm_args b = *a;
    b.tag = 0;
    return right_recv(self, &b, request);
}

/* Matches messages by their order, but exchanges every two. */
static nrl_status swapping_send(void *self, const nrl_comm_args *a, nrl_request **request)
{
    nrl_comm_args b = *a;
    b.tag = (uint64_t)((spoiled *)self)->n_sent++;
    return right_send(self, &b, request);
}

static nrl_status swapping_recv(void *self, const nrl_comm_args *a, nrl_request **request)
{
    nrl_comm_args b = *a;
    b.tag = (uint64_t)((spoiled *)self)->n_received++ ^ 1;
    return right_recv(self, &b, request);
}

static nrl_status lonely_connect(void *self)
{
    (void)self;
    return nrl_fail(NRL_ERR_PEER, "there are no neighbours");
}

/* ---- sums ---- */

static nrl_status tailless_all_reduce(void *self, const nrl_comm_args *a, nrl_request **request)
{
    nrl_comm_args b = *a;
    b.count -= a->count % ((const spoiled *)self)->world;
    return right_all_reduce(self, &b, request);
}

static nrl_status summing_all_reduce(void *self, const nrl_comm_args *a, nrl_request **request)
{
    nrl_comm_args b = *a;
    if (a->reduce == NRL_REDUCE_OP_AVERAGE && a->dtype < NRL_DTYPE_I32) b.reduce = NRL_REDUCE_OP_SUM;
    return right_all_reduce(self, &b, request);
}

static nrl_status whole_all_reduce(void *self, const nrl_comm_args *a, nrl_request **request)
{
    nrl_comm_args b = *a;
    if (a->reduce == NRL_REDUCE_OP_AVERAGE && a->dtype >= NRL_DTYPE_I32) b.reduce = NRL_REDUCE_OP_SUM;
    return right_all_reduce(self, &b, request);
}

static nrl_status forgetful_all_reduce(void *self, const nrl_comm_args *a, nrl_request **request)
{
    static const char zeros[1 << 22];
    const spoiled *s = self;
    nrl_comm_args b = *a;
    if (s->rank == s->world - 1 && a->reduce == NRL_REDUCE_OP_SUM) b.send = zeros;
    return right_all_reduce(self, &b, request);
}

static nrl_status clearing_all_reduce(void *self, const nrl_comm_args *a, nrl_request **request)
{
    if (a->send == a->receive && a->count)
        memset(a->receive, 0, (size_t)a->count * nrl_dtype_size((nrl_dtype)a->dtype));
    return right_all_reduce(self, a, request);
}

/* Sums of f32 in an order of one's own: from rank `first` on. */
static nrl_status sum_from(spoiled *s, int32_t first, const nrl_comm_args *a, nrl_request **request)
{
    float *all = calloc((size_t)(a->count * s->world + 1), sizeof *all), *to = a->receive;
    nrl_comm_args gather = {
        .size = sizeof gather, .dtype = a->dtype, .send = a->send, .receive = all, .count = a->count};
    nrl_comm_args nothing = {.size = sizeof nothing};
    bool done;
    NRL_TRY(inner->all_gather(s->inner, &gather, request));
    NRL_TRY(inner->wait(s->inner, *request, 2, &done));
    if (!done) return NRL_OK; /* others do not call: only this one's part of the sum */
    inner->release(s->inner, *request);
    for (int64_t i = 0; i < a->count; i++) {
        float sum = all[first * a->count + i];
        for (int32_t r = 1; r < s->world; r++)
            sum += all[(first + r) % s->world * a->count + i];
        to[i] = sum;
    }
    free(all);
    return inner->barrier(s->inner, &nothing, request);
}

static nrl_status own_all_reduce(void *self, const nrl_comm_args *a, nrl_request **request)
{
    spoiled *s = self;
    if (s->whole || a->dtype != NRL_DTYPE_F32 || a->reduce != NRL_REDUCE_OP_SUM)
        return right_all_reduce(self, a, request);
    return sum_from(s, s->rank, a, request);
}

static nrl_status unsteady_all_reduce(void *self, const nrl_comm_args *a, nrl_request **request)
{
    spoiled *s = self;
    if (s->whole || a->dtype != NRL_DTYPE_F32 || a->reduce != NRL_REDUCE_OP_SUM)
        return right_all_reduce(self, a, request);
    return sum_from(s, (int32_t)(s->calls++ % s->world), a, request);
}

/* ---- requests ---- */

static nrl_status blocking_all_reduce(void *self, const nrl_comm_args *a, nrl_request **request)
{
    bool done;
    NRL_TRY(right_all_reduce(self, a, request));
    return right_wait(self, *request, 6, &done);
}

/* A message that nobody sends. */
static nrl_status endless_broadcast(void *self, const nrl_comm_args *a, nrl_request **request)
{
    const spoiled *s = self;
    nrl_comm_args b = {.size = sizeof b, .peer = (s->rank + 1) % s->world, .tag = 999, .dtype = NRL_DTYPE_U8};
    (void)a;
    return right_recv(self, &b, request);
}

static nrl_status stubborn_wait(void *self, nrl_request *request, double timeout, bool *done)
{
    return right_wait(self, request, timeout + 6, done);
}

static nrl_status impatient_wait(void *self, nrl_request *request, double timeout, bool *done)
{
    NRL_TRY(right_wait(self, request, timeout, done));
    return *done ? NRL_OK : nrl_fail(NRL_ERR_PEER, "rank 1 is late");
}

static nrl_status forgetting_wait(void *self, nrl_request *request, double timeout, bool *done)
{
    spoiled *s = self;
    if (s->seen_done == request) return nrl_fail(NRL_ERR_BUG, "rank 1: no such request");
    NRL_TRY(right_wait(self, request, timeout, done));
    if (*done) s->seen_done = request;
    return NRL_OK;
}

static void forgetting_release(void *self, nrl_request *request)
{
    ((spoiled *)self)->seen_done = NULL;
    right_release(self, request);
}

/* Begins when it is waited for. */
static nrl_status lazy_all_gather(void *self, const nrl_comm_args *a, nrl_request **request)
{
    spoiled *s = self;
    if (s->whole) return right_all_gather(self, a, request);
    s->late = a;
    *request = s->late_request = malloc(1);
    return NRL_OK;
}

static nrl_status lazy_wait(void *self, nrl_request *request, double timeout, bool *done)
{
    spoiled *s = self;
    nrl_request *real;
    if (request != s->late_request) return right_wait(self, request, timeout, done);
    NRL_TRY(right_all_gather(self, s->late, &real));
    NRL_TRY(right_wait(self, real, timeout, done));
    right_release(self, real);
    return NRL_OK;
}

static void lazy_release(void *self, nrl_request *request)
{
    spoiled *s = self;
    if (request != s->late_request) {
        right_release(self, request);
        return;
    }
    free(request);
    s->late_request = NULL;
}

/* ---- failure ---- */

static void deaf_abort(void *self)
{
    (void)self;
}

static nrl_status groupless_wait(void *self, nrl_request *request, double timeout, bool *done)
{
    nrl_status st = right_wait(self, request, timeout, done);
    *done = *done && st == NRL_OK;
    return ((const spoiled *)self)->whole ? NRL_OK : st;
}

static int32_t blind_failed_peer(void *self)
{
    (void)self;
    return -1;
}

static void empty_info(void *self, nrl_collective_info *fill)
{
    (void)self;
    fill->text = "";
}

#define RIGHT_TABLE(nm, rule)                                                                                          \
    NRL_PLUGIN_PLAIN(NRL_KIND_COLLECTIVE, nrl_collective, #nm, "0", rule),                                             \
        .host_only = true, .barrier = right_barrier, .reduce = right_reduce, .gather = right_gather,                   \
        .all_to_all = right_all_to_all, .info = right_info
#define JOINING(o, s) .open = o, .split = s, .close = right_close
#define MOVING(b, g, s) .broadcast = b, .all_gather = g, .scatter = s
#define SUMMING(a, s) .all_reduce = a, .reduce_scatter = s
#define SENDING(s, r) .send = s, .recv = r
#define WAITING(w, r) .wait = w, .release = r
#define FAILING(a, f) .abort = a, .failed_peer = f
#define OPEN JOINING(right_open, right_split)
#define MOVES MOVING(right_broadcast, right_all_gather, right_scatter)
#define SUMS SUMMING(right_all_reduce, right_reduce_scatter)
#define SENDS SENDING(right_send, right_recv)
#define WAITS WAITING(right_wait, right_release)
#define FAILS FAILING(right_abort, right_failed_peer)
#define REDUCES(name) SUMMING(name##_all_reduce, right_reduce_scatter)

#define WRONG(nm, rule, ...)                                                                                           \
    {                                                                                                                  \
        RIGHT_TABLE(nm, rule), __VA_ARGS__                                                                             \
    }
/* clang-format off */
#pragma GCC diagnostic ignored "-Woverride-init"
static const nrl_collective wrong[] = {
    WRONG(right, "nothing is wrong with it", OPEN, MOVES, SUMS, SENDS, WAITS, FAILS),
    WRONG(lacks_abort, "abort is NULL", OPEN, MOVES, SUMS, SENDS, WAITS, FAILING(NULL, right_failed_peer)),
    WRONG(patient, "joining fails in time and names the missing rank",
          JOINING(patient_open, right_split), MOVES, SUMS, SENDS, WAITS, FAILS),
    WRONG(mute, "joining fails in time and names the missing rank",
          JOINING(mute_open, right_split), MOVES, SUMS, SENDS, WAITS, FAILS),
    WRONG(keyless, "split makes groups by colour, ordered by key, then rank",
          JOINING(right_open, keyless_split), MOVES, SUMS, SENDS, WAITS, FAILS),
    WRONG(mixing, "a group and the whole work side by side",
          OPEN, MOVES, REDUCES(mixing), SENDS, WAITS, FAILS),
    WRONG(open_gate, "a barrier holds until the last rank comes",
          OPEN, MOVES, SUMS, SENDS, WAITS, FAILS, .barrier = open_barrier),
    WRONG(rootless, "broadcast gives every rank the root's elements",
          OPEN, MOVING(rootless_broadcast, right_all_gather, right_scatter), SUMS, SENDS, WAITS, FAILS),
    WRONG(sprinkler, "scatter gives each rank its share",
          OPEN, MOVING(right_broadcast, right_all_gather, rootless_scatter), SUMS, SENDS, WAITS, FAILS),
    WRONG(backward, "all_gather holds the shares rank after rank",
          OPEN, MOVING(right_broadcast, backward_all_gather, right_scatter), SUMS, SENDS, WAITS, FAILS),
    WRONG(short_gather, "all_gather takes uneven shares",
          OPEN, MOVING(right_broadcast, short_all_gather, right_scatter), SUMS, SENDS, WAITS, FAILS),
    WRONG(short_shares, "reduce_scatter takes uneven shares",
          OPEN, MOVES, SUMMING(right_all_reduce, short_reduce_scatter), SENDS, WAITS, FAILS),
    WRONG(wide, "a call writes only its result",
          OPEN, MOVES, SUMMING(right_all_reduce, wide_reduce_scatter), SENDS, WAITS, FAILS),
    WRONG(tagless, "messages match by peer and tag",
          OPEN, MOVES, SUMS, SENDING(tagless_send, tagless_recv), WAITS, FAILS),
    WRONG(swapping, "messages keep their order, whatever their tags",
          OPEN, MOVES, SUMS, SENDING(swapping_send, swapping_recv), WAITS, FAILS, .by_order = true),
    WRONG(lonely, "a group connects before its first message",
          OPEN, MOVES, SUMS, SENDS, WAITS, FAILS, .connect = lonely_connect),
    WRONG(tailless, "a sum includes every element of every rank",
          OPEN, MOVES, REDUCES(tailless), SENDS, WAITS, FAILS),
    WRONG(forgetful, "a sum includes every element of every rank",
          OPEN, MOVES, REDUCES(forgetful), SENDS, WAITS, FAILS),
    WRONG(summing, "an average is the sum divided by the number of ranks",
          OPEN, MOVES, REDUCES(summing), SENDS, WAITS, FAILS),
    WRONG(whole, "an average of whole numbers is refused",
          OPEN, MOVES, REDUCES(whole), SENDS, WAITS, FAILS),
    WRONG(clearing, "all_reduce works in place",
          OPEN, MOVES, REDUCES(clearing), SENDS, WAITS, FAILS),
    WRONG(own_order, "all ranks get bit-identical sums",
          OPEN, MOVES, REDUCES(own), SENDS, WAITS, FAILS),
    WRONG(unsteady, "a repeated sum is bit-identical",
          OPEN, MOVES, REDUCES(unsteady), SENDS, WAITS, FAILS),
    WRONG(blocking, "a call starts without waiting for other ranks",
          OPEN, MOVES, REDUCES(blocking), SENDS, WAITS, FAILS),
    WRONG(endless, "a call that all ranks make completes",
          OPEN, MOVING(endless_broadcast, right_all_gather, right_scatter), SUMS, SENDS, WAITS, FAILS),
    WRONG(stubborn, "a wait times out, and the request continues",
          OPEN, MOVES, SUMS, SENDS, WAITING(stubborn_wait, right_release), FAILS),
    WRONG(impatient, "a wait times out, and the request continues",
          OPEN, MOVES, SUMS, SENDS, WAITING(impatient_wait, right_release), FAILS),
    WRONG(forgetting, "a request that is done stays done",
          OPEN, MOVES, SUMS, SENDS, WAITING(forgetting_wait, forgetting_release), FAILS),
    WRONG(lazy, "operands may be freed when the call returns",
          OPEN, MOVING(right_broadcast, lazy_all_gather, right_scatter), SUMS, SENDS,
          WAITING(lazy_wait, lazy_release), FAILS),
    WRONG(deaf, "abort ends requests in flight",
          OPEN, MOVES, SUMS, SENDS, WAITS, FAILING(deaf_abort, right_failed_peer)),
    WRONG(groupless, "abort ends requests of groups too",
          OPEN, MOVES, SUMS, SENDS, WAITING(groupless_wait, right_release), FAILS),
    WRONG(blind, "calls that need a lost rank fail and name it",
          OPEN, MOVES, SUMS, SENDS, WAITS, FAILING(right_abort, blind_failed_peer)),
    WRONG(factless, "info gives the traffic and a line for the plan",
          OPEN, MOVES, SUMS, SENDS, WAITS, FAILS, .info = empty_info),
};
/* clang-format on */
#undef WRONG

#endif
