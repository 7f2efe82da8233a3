/*
 * order.c - the order of turns on a rank: a turn is one pass of one of its stages on one micro-batch.
 *
 * gpipe (Huang et al. 2019): all forwards, then all backwards, with all M micro-batches in flight; the last stage,
 * which has the loss, runs each backward at once in every schedule.
 *
 * 1f1b (PipeDream-flush, Narayanan et al. 2021, arXiv:2104.04473): rank r of P begins with P - 1 - r forwards, then
 * alternates one forward and one backward, and ends the step with the remaining backwards. So at most P - r
 * micro-batches are in flight. In gpipe and 1f1b, a rank waits for (P - 1) / M of the time that it computes.
 *
 * interleaved (the same authors): stage k of P V is on rank k mod P. Micro-batches pass through the stages in groups of
 * P: a rank runs its first stage on the P micro-batches of a group, then its second stage on them, and so on. It begins
 * with 2 (P - 1 - r) + (V - 1) P forwards. The wait is 1 / V of that of 1f1b.
 *
 * zero_bubble (ZB-H1, Qi et al. 2023, arXiv:2401.10241): the same order, with each backward split. Other stages wait
 * only for the gradient of the input; the gradients of the weights follow r backwards later and fill the end of a step,
 * in which ranks would otherwise wait. With passes of equal cost the wait is a third of that of 1f1b. At most P
 * micro-batches (V = 1) are on a rank, in flight or waiting for their gradients of weights.
 *
 * If P does not divide M, the last group lacks some micro-batches, and their turns are skipped. In all of these orders
 * a rank sends to another rank in the order in which that rank uses what it receives.
 */
#include "pipeline.h"
#include <stdlib.h>

typedef struct {
    const pipeline_shape *shape;
    int32_t n_micro_batches;
    pipeline_turn *turns;
    int64_t n;
} order;

/* Adds number i of the forwards, of the backwards or of the gradients of weights of this rank. */
static void add(order *o, nrl_pass pass, int64_t i)
{
    const int64_t p = o->shape->n_ranks, v = o->shape->n_chunks, in_group = i % (p * v);
    const int32_t chunk = (int32_t)(in_group / p), micro_batch = (int32_t)(i / (p * v) * p + in_group % p);
    if (micro_batch >= o->n_micro_batches) return;
    o->turns[o->n++] = (pipeline_turn){.pass = pass,
                                       .chunk = pass == NRL_PASS_FORWARD ? chunk : o->shape->n_chunks - 1 - chunk,
                                       .micro_batch = micro_batch};
}

int64_t pipeline_order(const pipeline_shape *shape, int32_t rank, int32_t n_micro_batches, pipeline_turn *turns)
{
    const int64_t p = shape->n_ranks, v = shape->n_chunks, behind = p - 1 - rank;
    const int64_t n = v == 1 ? n_micro_batches : (n_micro_batches + p - 1) / p * p * v;
    const int64_t late = shape->schedule == PIPELINE_ZERO_BUBBLE ? rank : n; /* gradients of weights */
    int64_t ahead = v == 1 ? behind : 2 * behind + (v - 1) * p;
    order o = {shape, n_micro_batches, turns, 0};
    if (shape->schedule == PIPELINE_GPIPE && behind) ahead = n;
    if (ahead > n) ahead = n;
    for (int64_t i = 0; i < ahead; i++)
        add(&o, NRL_PASS_FORWARD, i);
    for (int64_t i = 0; i < n; i++) {
        if (i + ahead < n) add(&o, NRL_PASS_FORWARD, i + ahead);
        add(&o, NRL_PASS_BACKWARD, i);
        if (i >= late) add(&o, NRL_PASS_BACKWARD_WEIGHT, i - late);
    }
    if (shape->schedule != PIPELINE_ZERO_BUBBLE) return o.n;
    for (int64_t i = n > late ? n - late : 0; i < n; i++)
        add(&o, NRL_PASS_BACKWARD_WEIGHT, i);
    return o.n;
}

nrl_status pipeline_schedule(void *self, int32_t n_micro_batches, nrl_action *actions, int64_t *n)
{
    const pipeline *p = self;
    pipeline_turn *turns = calloc(3 * (size_t)n_micro_batches * (size_t)p->shape.n_chunks + 1, sizeof *turns);
    if (!turns) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a schedule of %d micro-batches", n_micro_batches);
    const int64_t n_turns = pipeline_order(&p->shape, p->index, n_micro_batches, turns);
    *n = 0;
    for (int64_t i = 0; i < n_turns; i++) {
        const int32_t stage = turns[i].chunk * p->shape.n_ranks + p->index;
        const int32_t first = p->first[stage], end = p->first[stage + 1];
        for (int32_t k = 0; k < end - first; k++) {
            nrl_action *a = nrl_action_at(actions, (*n)++);
            a->pass = turns[i].pass;
            a->unit = turns[i].pass == NRL_PASS_FORWARD ? first + k : end - 1 - k;
            a->micro_batch = turns[i].micro_batch;
            a->stage = stage;
        }
    }
    free(turns);
    return NRL_OK;
}
