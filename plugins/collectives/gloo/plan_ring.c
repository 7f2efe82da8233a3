/*
 * plan_ring.c - reductions around a ring, segment by segment: data moves from r + 1 to r to r - 1.
 * all_reduce and reduce send the same bytes as Gloo's; reduce_scatter, which Gloo does not have, is
 * the first half of its all_reduce. Rank c ends the first phase with chunk c, whose value is x[c] +
 * (x[c+1] + (x[c+2] + ... + x[c-1])) in this association, and all other ranks get copies, so all
 * results are bit-identical.
 *
 * P ranks, r this one, S bytes in all; indices of ranks modulo P, of segments modulo their number.
 */
#include "gloo.h"

enum {
    SEGMENT_MAX = 1 << 20,
    SCRATCH_SEGMENTS = 8, /* reduce_scatter: partial sums that wait on this rank */
    ROUND = SCRATCH_SEGMENTS / 2
};

static int32_t after(const nrl_request *r, int32_t n)
{
    return (r->group->rank + n) % r->group->size;
}

static int32_t before(const nrl_request *r)
{
    return (r->group->rank + r->group->size - 1) % r->group->size;
}

static size_t divide_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* Segment k, ending at S at most; size 0 beyond S. */
static void segment_at(const nrl_request *r, int64_t k, size_t *offset, size_t *size)
{
    *offset = (size_t)k * (size_t)r->segment;
    *size = 0;
    if (*offset >= r->total) return;
    size_t rest = r->total - *offset;
    *size = rest < (size_t)r->segment ? rest : (size_t)r->segment;
}

/* ---- all_reduce: reduce-scatter, then all-gather, ring_steps each ---- */

/* The data that step i sends was received in step i - per; `after_receives` says so in both phases. */
static void all_reduce_send(const nrl_request *r, int64_t i, gloo_step *s)
{
    bool second = i >= r->ring_steps;
    int64_t first = second ? r->group->rank * r->per - r->ring_steps : after(r, 1) * r->per;
    int64_t k = (first + i) % r->segments;
    size_t offset;
    if (k < 0) k += r->segments;
    segment_at(r, k, &offset, &s->size);
    s->peer = before(r);
    s->data = (i < r->per ? (char *)r->in : r->out) + offset;
    s->after_receives = i < r->per ? 0 : i - r->per + 1;
}

static int64_t received_segment(const nrl_request *r, int64_t i)
{
    if (i < r->ring_steps) return (after(r, 2) * r->per + i) % r->segments;
    return (after(r, 1) * r->per + i - r->ring_steps) % r->segments;
}

static void all_reduce_receive(const nrl_request *r, int64_t i, gloo_step *s)
{
    size_t offset;
    segment_at(r, received_segment(r, i), &offset, &s->size);
    s->peer = after(r, 1);
    s->data = r->out + offset;
    s->with = i < r->ring_steps ? r->in + offset : NULL;
}

static void average(const nrl_request *r, char *data, size_t size)
{
    if (r->divide && size) r->divide(data, size / r->element, r->group->size);
}

/* Ranks exchange sums; each rank divides its own copy as soon as no other rank needs the sum. */
static void all_reduce_sent(nrl_request *r, int64_t i)
{
    gloo_step s = {0};
    if (!r->divide || i < r->ring_steps) return;
    all_reduce_send(r, i, &s);
    average(r, s.data, s.size);
}

static void all_reduce_received(nrl_request *r, int64_t i)
{
    gloo_step s = {0};
    if (!r->divide || i < 2 * r->ring_steps - r->per) return; /* the sum must still be forwarded */
    all_reduce_receive(r, i, &s);
    average(r, s.data, s.size);
}

const gloo_plan plan_all_reduce = {
    .name = "all_reduce",
    .skip_empty = true,
    .send = all_reduce_send,
    .receive = all_reduce_receive,
    .sent = all_reduce_sent,
    .received = all_reduce_received,
};

void plan_all_reduce_fill(nrl_request *r)
{
    size_t ranks = (size_t)r->group->size;
    size_t n = divide_up(r->total, SEGMENT_MAX / r->element * r->element);
    n = n < 2 * ranks ? 2 * ranks : divide_up(n, ranks) * ranks;
    size_t segment = divide_up(r->total, n);
    r->segments = (int64_t)n;
    r->per = (int64_t)(n / ranks);
    r->segment = (int64_t)(divide_up(segment, r->element) * r->element);
    r->ring_steps = r->segments - r->per;
    r->n_sends = r->n_receives = r->total ? 2 * r->ring_steps : 0;
}

/* ---- reduce: the ring, then every rank sends its chunk to root ---- */

/* Gloo's ring takes segments - 2 steps, although segments - per would suffice: the data received after
 * those is complete already and not used, but the neighbours expect the messages. */
static void reduce_chunk(const nrl_request *r, int32_t rank, size_t *offset, size_t *size)
{
    size_t chunk = (size_t)r->per * (size_t)r->segment;
    *offset = (size_t)rank * chunk;
    *size = *offset >= r->total ? 0 : r->total - *offset < chunk ? r->total - *offset : chunk;
}

static void reduce_send(const nrl_request *r, int64_t i, gloo_step *s)
{
    size_t offset;
    if (i == r->ring_steps) { /* not on root */
        reduce_chunk(r, r->group->rank, &offset, &s->size);
        s->peer = r->root;
        s->after_sends = s->after_receives = r->ring_steps; /* another peer: its messages could overtake */
    } else {
        segment_at(r, (after(r, 1) * r->per + i) % r->segments, &offset, &s->size);
        s->peer = before(r);
        s->after_receives = i < r->per ? 0 : i - r->per + 1;
    }
    s->data = (i < r->per ? (char *)r->in : r->out) + offset;
}

static void reduce_receive(const nrl_request *r, int64_t i, gloo_step *s)
{
    size_t offset;
    if (i < r->ring_steps) {
        segment_at(r, (after(r, 2) * r->per + i) % r->segments, &offset, &s->size);
        s->peer = after(r, 1);
        s->with = r->in + offset;
    } else { /* root only, one rank after the other */
        int32_t from = (int32_t)(i - r->ring_steps);
        from += from >= r->root;
        reduce_chunk(r, from, &offset, &s->size);
        s->peer = from;
        s->after_receives = i;
        s->after_sends = r->ring_steps;
    }
    s->data = r->out + offset;
}

static void reduce_done(nrl_request *r)
{
    if (r->group->rank == r->root) average(r, r->out, r->total);
}

const gloo_plan plan_reduce = {
    .name = "reduce",
    .skip_empty = true,
    .send = reduce_send,
    .receive = reduce_receive,
    .done = reduce_done,
};

nrl_status plan_reduce_fill(nrl_request *r)
{
    size_t ranks = (size_t)r->group->size, limit = SEGMENT_MAX / r->element * r->element;
    bool root = r->group->rank == r->root;
    if (!r->total) return NRL_OK;
    size_t segment = divide_up(r->total, 2 * ranks);
    segment = divide_up(segment < limit ? segment : limit, r->element) * r->element;
    size_t n = divide_up(r->total, segment);
    n = n < 2 * ranks ? 2 * ranks : divide_up(n, ranks) * ranks;
    r->segments = (int64_t)n;
    r->per = (int64_t)(n / ranks);
    r->segment = (int64_t)segment;
    r->ring_steps = r->segments - 2;
    r->n_sends = r->ring_steps + !root;
    r->n_receives = r->ring_steps + (root ? r->group->size - 1 : 0);
    if (root) return NRL_OK;
    NRL_TRY(request_scratch(r, r->total));
    r->out = r->scratch;
    return NRL_OK;
}

/* ---- reduce_scatter ---- */

/* Rounds of ROUND segments of every chunk: a whole chunk would have to wait in scratch, because all ranks
 * send one before any forwards one. Within a round chunks pass in order: r + 1 is sent first, and r
 * arrives last. All chunks count as long as the longest; both sides skip segments beyond a chunk's end.
 * blocks: counts, then offsets, in bytes. `place`: index of the chunk, from r; `width`: segments of each
 * chunk in this round. */
static void passing(const nrl_request *r, int64_t i, int32_t *place, int64_t *width, int64_t *segment)
{
    int64_t passes = r->group->size - 1, round = i / (ROUND * passes), in_round = i % (ROUND * passes);
    *width = r->per - round * ROUND < ROUND ? r->per - round * ROUND : ROUND;
    *place = (int32_t)(in_round / *width);
    *segment = round * ROUND + in_round % *width;
}

/* Bytes of a chunk's segment; 0 beyond its end. */
static size_t chunk_segment(const nrl_request *r, int32_t chunk, int64_t segment, size_t *offset)
{
    size_t all = (size_t)r->blocks[chunk];
    *offset = (size_t)segment * SEGMENT_MAX;
    if (*offset >= all) return 0;
    return all - *offset < SEGMENT_MAX ? all - *offset : SEGMENT_MAX;
}

static char *scratch_at(const nrl_request *r, int64_t i)
{
    return r->scratch + (size_t)(i % SCRATCH_SEGMENTS) * SEGMENT_MAX;
}

/* What step i receives is sent in step i + width. */
static void reduce_scatter_send(const nrl_request *r, int64_t i, gloo_step *s)
{
    int32_t place;
    int64_t width, segment;
    size_t offset;
    passing(r, i, &place, &width, &segment);
    int32_t chunk = after(r, 1 + place);
    s->size = chunk_segment(r, chunk, segment, &offset);
    s->peer = before(r);
    if (place == 0) {
        s->data = (char *)r->in + r->blocks[r->group->size + chunk] + offset;
    } else {
        s->data = scratch_at(r, i - width);
        s->after_receives = i - width + 1;
    }
}

/* With foreign ranks: after an all_reduce of everything into scratch. */
static void keep_own_part(nrl_request *r)
{
    const int64_t *blocks = r->blocks;
    int32_t rank = r->group->rank, size = r->group->size;
    if (blocks[rank]) memcpy(r->result, r->out + blocks[size + rank], (size_t)blocks[rank]);
}

const gloo_plan plan_reduce_scatter_foreign = {
    .name = "reduce_scatter",
    .skip_empty = true,
    .send = all_reduce_send,
    .receive = all_reduce_receive,
    .sent = all_reduce_sent,
    .received = all_reduce_received,
    .done = keep_own_part,
};

/* Partial sums wait in scratch until they are forwarded; the last chunk is the result. A place in scratch
 * is free once its last content, of SCRATCH_SEGMENTS steps before, was sent: at most ROUND steps after it
 * arrived, so always before this step, and ranks cannot deadlock in a circle. */
static void reduce_scatter_receive(const nrl_request *r, int64_t i, gloo_step *s)
{
    int32_t place;
    int64_t width, segment;
    size_t offset;
    passing(r, i, &place, &width, &segment);
    int32_t chunk = after(r, 2 + place);
    s->size = chunk_segment(r, chunk, segment, &offset);
    s->peer = after(r, 1);
    s->with = r->in + r->blocks[r->group->size + chunk] + offset;
    if (chunk == r->group->rank) {
        s->data = r->out + offset;
    } else {
        s->data = scratch_at(r, i);
        s->after_sends = i < SCRATCH_SEGMENTS ? 0 : i - SCRATCH_SEGMENTS + ROUND + 1;
    }
}

static void reduce_scatter_done(nrl_request *r)
{
    average(r, r->out, (size_t)r->blocks[r->group->rank]);
}

const gloo_plan plan_reduce_scatter = {
    .name = "reduce_scatter",
    .skip_empty = true,
    .send = reduce_scatter_send,
    .receive = reduce_scatter_receive,
    .done = reduce_scatter_done,
};

nrl_status plan_reduce_scatter_fill(nrl_request *r)
{
    int32_t ranks = r->group->size;
    for (int32_t chunk = 0; chunk < ranks; chunk++) {
        int64_t n = (int64_t)divide_up((size_t)r->blocks[chunk], SEGMENT_MAX);
        if (n > r->per) r->per = n;
    }
    r->n_sends = r->n_receives = r->per * (ranks - 1);
    if (ranks <= 2) return NRL_OK;
    return request_scratch(r, (size_t)SCRATCH_SEGMENTS * SEGMENT_MAX);
}
