/*
 * plan_move.c - calls that move data without computing: which rank sends what to which, as in Gloo.
 * blocks: [size] counts, [size] offsets of what is sent or gathered, and the same for what all_to_all
 * receives; in bytes. A rank's own blocks are copied before a request starts (calls.c).
 */
#include "gloo.h"

static int32_t at(const nrl_request *r, int64_t distance)
{
    int64_t size = r->group->size;
    return (int32_t)((r->group->rank + distance % size + size) % size);
}

static int64_t count_of(const nrl_request *r, int32_t rank)
{
    return r->blocks[rank];
}

static int64_t offset_of(const nrl_request *r, int32_t rank)
{
    return r->blocks[r->group->size + rank];
}

/* ---- barrier: empty messages to and from the ranks at distance 1, 2, 4, .., one after the other ---- */

static void barrier_send(const nrl_request *r, int64_t i, gloo_step *s)
{
    s->peer = at(r, (int64_t)1 << i);
    s->after_receives = s->after_sends = i;
}

static void barrier_receive(const nrl_request *r, int64_t i, gloo_step *s)
{
    s->peer = at(r, -((int64_t)1 << i));
    s->after_receives = s->after_sends = i;
}

const gloo_plan plan_barrier = {.name = "barrier", .send = barrier_send, .receive = barrier_receive};

static int64_t rounds(const nrl_request *r)
{
    int64_t n = 0;
    while (((int64_t)1 << n) < r->group->size)
        n++;
    return n;
}

/* ---- broadcast: a binomial tree of the ranks counted from root ---- */

/* Virtual rank v receives in the round of its highest bit, from v without that bit, and sends to
 * v + 2^i in every later round i that has such a rank. */
static int64_t first_round(int64_t v)
{
    int64_t i = 0;
    while (v >> i)
        i++;
    return i;
}

static void broadcast_send(const nrl_request *r, int64_t i, gloo_step *s)
{
    int64_t v = at(r, -r->root);
    s->peer = at(r, (int64_t)1 << (first_round(v) + i));
    s->data = (char *)r->in;
    s->size = r->total;
    s->after_receives = v ? 1 : 0;
}

static void broadcast_receive(const nrl_request *r, int64_t i, gloo_step *s)
{
    (void)i;
    int64_t v = at(r, -r->root);
    s->peer = at(r, -((int64_t)1 << (first_round(v) - 1)));
    s->data = r->out;
    s->size = r->total;
}

const gloo_plan plan_broadcast = {.name = "broadcast", .send = broadcast_send, .receive = broadcast_receive};

static void broadcast_fill(nrl_request *r)
{
    int64_t v = at(r, -r->root);
    r->n_receives = v != 0;
    for (int64_t i = first_round(v); v + ((int64_t)1 << i) < r->group->size; i++)
        r->n_sends++;
}

/* ---- all_gather: around a ring to r + 1, every block in two halves ---- */

static void half(const nrl_request *r, int64_t i, int32_t block, gloo_step *s)
{
    size_t n = (size_t)count_of(r, block), first = n / 2;
    s->data = r->out + offset_of(r, block) + (i % 2 ? first : 0);
    s->size = i % 2 ? n - first : first;
}

static void all_gather_send(const nrl_request *r, int64_t i, gloo_step *s)
{
    half(r, i, at(r, -(i / 2)), s);
    s->peer = at(r, 1);
    s->after_receives = i < 2 ? 0 : i - 1;
}

static void all_gather_receive(const nrl_request *r, int64_t i, gloo_step *s)
{
    half(r, i, at(r, -(i / 2) - 1), s);
    s->peer = at(r, -1);
}

const gloo_plan plan_all_gather = {.name = "all_gather", .send = all_gather_send, .receive = all_gather_receive};

static void uneven_send(const nrl_request *r, int64_t i, gloo_step *s)
{
    int32_t block = at(r, -i);
    s->peer = at(r, 1);
    s->data = r->out + offset_of(r, block);
    s->size = (size_t)count_of(r, block);
    s->after_receives = i;
}

static void uneven_receive(const nrl_request *r, int64_t i, gloo_step *s)
{
    int32_t block = at(r, -i - 1);
    s->peer = at(r, -1);
    s->data = r->out + offset_of(r, block);
    s->size = (size_t)count_of(r, block);
}

const gloo_plan plan_all_gather_uneven = {.name = "all_gather", .send = uneven_send, .receive = uneven_receive};

/* ---- gather, scatter: all ranks to or from root, in rank order ---- */

static int32_t other(const nrl_request *r, int64_t i)
{
    return (int32_t)(i + (i >= r->root));
}

static void to_root(const nrl_request *r, int64_t i, gloo_step *s)
{
    (void)i;
    s->peer = r->root;
    s->data = (char *)r->in;
    s->size = (size_t)count_of(r, r->group->rank);
}

static void to_others(const nrl_request *r, int64_t i, gloo_step *s)
{
    s->peer = other(r, i);
    s->data = (char *)r->in + offset_of(r, s->peer);
    s->size = (size_t)count_of(r, s->peer);
}

static void from_others(const nrl_request *r, int64_t i, gloo_step *s)
{
    s->peer = other(r, i);
    s->data = r->out + offset_of(r, s->peer);
    s->size = (size_t)count_of(r, s->peer);
}

static void from_root(const nrl_request *r, int64_t i, gloo_step *s)
{
    (void)i;
    s->peer = r->root;
    s->data = r->out;
    s->size = (size_t)count_of(r, r->group->rank);
}

const gloo_plan plan_gather = {.name = "gather", .send = to_root, .receive = from_others};
const gloo_plan plan_scatter = {.name = "scatter", .send = to_others, .receive = from_root};

/* ---- all_to_all: to r + i, from r - i, all at once ---- */

static void all_to_all_send(const nrl_request *r, int64_t i, gloo_step *s)
{
    s->peer = at(r, i + 1);
    s->data = (char *)r->in + offset_of(r, s->peer);
    s->size = (size_t)count_of(r, s->peer);
}

static void all_to_all_receive(const nrl_request *r, int64_t i, gloo_step *s)
{
    const int64_t *blocks = r->blocks + 2 * r->group->size;
    s->peer = at(r, -i - 1);
    s->data = r->out + blocks[r->group->size + s->peer];
    s->size = (size_t)blocks[s->peer];
}

const gloo_plan plan_all_to_all = {.name = "all_to_all", .send = all_to_all_send, .receive = all_to_all_receive};

/* ---- send, recv ---- */

static void point(const nrl_request *r, int64_t i, gloo_step *s)
{
    (void)i;
    s->peer = r->root;
    s->data = r->plan == &plan_send ? (char *)r->in : r->out;
    s->size = r->total;
}

const gloo_plan plan_send = {.name = "send", .send = point};
const gloo_plan plan_recv = {.name = "recv", .receive = point};

void plan_fill(nrl_request *r, const gloo_plan *plan)
{
    int64_t others = r->group->size - 1;
    bool root = r->group->rank == r->root;
    if (plan == &plan_barrier) {
        r->n_sends = r->n_receives = rounds(r);
    } else if (plan == &plan_broadcast) {
        broadcast_fill(r);
    } else if (plan == &plan_all_gather) {
        r->n_sends = r->n_receives = r->total ? 2 * others : 0;
    } else if (plan == &plan_all_gather_uneven) {
        r->n_sends = r->n_receives = r->total ? others : 0;
    } else if (plan == &plan_all_to_all) {
        r->n_sends = r->n_receives = others;
    } else if (plan == &plan_gather) {
        r->n_sends = !root;
        r->n_receives = root ? others : 0;
    } else if (plan == &plan_scatter) {
        r->n_sends = root ? others : 0;
        r->n_receives = !root;
    } else {
        r->n_sends = plan == &plan_send;
        r->n_receives = plan == &plan_recv;
    }
}
