/*
 * traffic.c - see traffic.h. The exact counts are those of the rings and trees of plugins/collectives/gloo: reductions
 * send pieces of a MiB at most, so the number of messages depends on the size of the operand.
 */
#include "profiling/traffic.h"
#include <math.h>

enum { PIECE = 1 << 20 };

const char *const call_names[N_CALLS] = {[CALL_BARRIER] = "barrier",
                                         [CALL_BROADCAST] = "broadcast",
                                         [CALL_ALL_REDUCE] = "all_reduce",
                                         [CALL_ALL_GATHER] = "all_gather",
                                         [CALL_REDUCE_SCATTER] = "reduce_scatter",
                                         [CALL_ALL_TO_ALL] = "all_to_all",
                                         [CALL_SEND] = "send",
                                         [CALL_RECV] = "recv"};

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Rounds of a tree of `ranks` ranks. */
static int32_t tree_rounds(int32_t ranks)
{
    int32_t n = 0;
    while (((int64_t)1 << n) < ranks)
        n++;
    return n;
}

/* Two passes around the ring: in the first a rank sends all chunks but its own, in the second all but that of the rank
 * before it. A chunk has `per` pieces. */
static traffic all_reduce(int64_t total, int64_t element, int32_t at, int32_t ranks)
{
    traffic t = {0};
    if (!total) return t;
    int64_t pieces = divide_up(total, PIECE / element * element);
    pieces = pieces < 2 * (int64_t)ranks ? 2 * (int64_t)ranks : divide_up(pieces, ranks) * ranks;
    const int64_t piece = divide_up(divide_up(total, pieces), element) * element, per = pieces / ranks;
    for (int32_t c = 0; c < ranks; c++) {
        const int64_t begin = c * per * piece, left = total - begin;
        const int64_t bytes = left < 0 ? 0 : left < per * piece ? left : per * piece;
        const int64_t messages = divide_up(bytes, piece);
        const int sends = (c != at) + (c != (at + ranks - 1) % ranks), receives = (c != (at + 1) % ranks) + (c != at);
        t.bytes += (double)(sends * bytes);
        t.messages += (double)(sends * messages);
        t.received += (double)(receives * messages);
    }
    return t;
}

static int64_t share(const nrl_comm_args *a, int32_t rank, int64_t element)
{
    return (a->counts ? a->counts[rank] : a->count) * element;
}

static traffic reduce_scatter(const nrl_comm_args *a, int64_t element, int32_t at, int32_t ranks)
{
    traffic t = {0};
    for (int32_t c = 0; c < ranks; c++) {
        const int64_t bytes = share(a, c, element);
        if (c != at) t.bytes += (double)bytes;
        if (c != at) t.messages += (double)divide_up(bytes, PIECE);
        if (c != (at + 1) % ranks) t.received += (double)divide_up(bytes, PIECE);
    }
    return t;
}

/* Each share passes around the ring; equal shares in two halves. */
static traffic all_gather(const nrl_comm_args *a, int64_t element, int32_t at, int32_t ranks)
{
    traffic t = {0};
    int64_t total = 0;
    for (int32_t c = 0; c < ranks; c++)
        total += share(a, c, element);
    if (!total) return t;
    t.bytes = (double)(total - share(a, (at + 1) % ranks, element));
    t.messages = t.received = (a->counts ? 1 : 2) * (double)(ranks - 1);
    return t;
}

static traffic all_to_all(const nrl_comm_args *a, int64_t element, int32_t at, int32_t ranks)
{
    traffic t = {.messages = ranks - 1, .received = ranks - 1};
    for (int32_t c = 0; c < ranks; c++)
        if (c != at) t.bytes += (double)share(a, c, element);
    return t;
}

/* Ranks are counted from the root: rank v receives in the round of its highest bit, and sends in all later ones. */
static traffic broadcast(int64_t total, int32_t v, int32_t ranks)
{
    traffic t = {.received = v != 0};
    for (int64_t step = 1; step < ranks; step *= 2)
        if (step > v && v + step < ranks) t.messages++;
    t.bytes = t.messages * (double)total;
    return t;
}

traffic traffic_of(call_kind kind, const nrl_comm_args *a, int32_t at, int32_t ranks)
{
    const int64_t element = (int64_t)nrl_dtype_size((nrl_dtype)a->dtype), total = a->count * element;
    switch (kind) {
    case CALL_BARRIER:
        return (traffic){.messages = tree_rounds(ranks), .received = tree_rounds(ranks)};
    case CALL_BROADCAST:
        return broadcast(total, (at - a->peer + ranks) % ranks, ranks);
    case CALL_ALL_REDUCE:
        return all_reduce(total, element, at, ranks);
    case CALL_ALL_GATHER:
        return all_gather(a, element, at, ranks);
    case CALL_REDUCE_SCATTER:
        return reduce_scatter(a, element, at, ranks);
    case CALL_ALL_TO_ALL:
        return all_to_all(a, element, at, ranks);
    case CALL_SEND:
        return (traffic){.bytes = (double)total, .messages = 1};
    default:
        return (traffic){.received = 1};
    }
}

void traffic_rounds(call_kind kind, double bytes, int32_t ranks, double *rounds, double *through)
{
    const double others = ranks - 1, part = others / ranks;
    const bool tree = kind == CALL_BARRIER || kind == CALL_BROADCAST;
    *rounds = kind == CALL_SEND || kind == CALL_RECV ? 1 : tree ? tree_rounds(ranks) : others;
    *through = kind == CALL_SEND || kind == CALL_RECV ? bytes : tree ? *rounds * bytes : part * bytes;
    if (kind == CALL_ALL_REDUCE) *rounds *= 2;
    if (kind == CALL_ALL_REDUCE) *through *= 2;
}
