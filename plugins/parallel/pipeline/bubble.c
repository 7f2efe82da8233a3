/*
 * bubble.c - how long ranks wait for each other in a step, from the order of their turns and the costs of stages: every
 * rank runs its turns one after another, and each begins when the rank is free and what it reads is there. The time of
 * messages is not counted.
 */
#include "pipeline.h"
#include <stdlib.h>

/* Of a rank. */
typedef struct {
    pipeline_turn *turns;
    int64_t n, next;
    double free_at;
} lane;

typedef struct {
    const pipeline_shape *shape;
    const double *costs;
    int32_t n_micro_batches;
    double *done[2]; /* [P V][M] time at which the forward and the backward of a stage ended; 0: not yet */
    double busy;     /* of all ranks */
} simulation;

/* A third of a stage's products is the forward, a third each the gradients of inputs and of weights. */
static double cost_of(const simulation *s, uint32_t pass, int32_t stage)
{
    bool whole = pass == NRL_PASS_BACKWARD && s->shape->schedule != PIPELINE_ZERO_BUBBLE;
    return s->costs[stage] * (whole ? 2 : 1) / 3;
}

/* Runs the rank's next turn if what it reads is there. */
static bool advance(simulation *s, lane *l, int32_t rank)
{
    if (l->next == l->n) return false;
    const pipeline_turn *t = &l->turns[l->next];
    const int32_t stage = t->chunk * s->shape->n_ranks + rank, last = s->shape->n_ranks * s->shape->n_chunks - 1;
    const bool backward = t->pass != NRL_PASS_FORWARD;
    const int32_t from = backward ? stage + 1 : stage - 1;
    double *done = s->done[backward], ready = 0;
    if (t->pass != NRL_PASS_BACKWARD_WEIGHT && from >= 0 && from <= last) {
        ready = done[from * s->n_micro_batches + t->micro_batch];
        if (ready <= 0) return false;
    }
    const double cost = cost_of(s, t->pass, stage);
    l->free_at = (ready > l->free_at ? ready : l->free_at) + cost;
    s->busy += cost;
    if (t->pass != NRL_PASS_BACKWARD_WEIGHT) done[stage * s->n_micro_batches + t->micro_batch] = l->free_at;
    l->next++;
    return true;
}

double pipeline_wait(const pipeline_shape *shape, const double *costs, int32_t n_micro_batches)
{
    const size_t p = (size_t)shape->n_ranks, m = (size_t)n_micro_batches, n = p * (size_t)shape->n_chunks * m;
    simulation s = {shape, costs, n_micro_batches, {calloc(n + 1, sizeof(double)), calloc(n + 1, sizeof(double))}, 0};
    lane *lanes = calloc(p, sizeof *lanes);
    pipeline_turn *turns = calloc(3 * n + 1, sizeof *turns);
    double end = 0;
    bool moved = s.done[0] && s.done[1] && lanes && turns;
    for (int32_t r = 0; moved && r < shape->n_ranks; r++) {
        lanes[r].turns = turns + 3 * (n / p) * (size_t)r;
        lanes[r].n = pipeline_order(shape, r, n_micro_batches, lanes[r].turns);
    }
    while (moved) {
        moved = false;
        for (int32_t r = 0; r < shape->n_ranks; r++)
            while (advance(&s, &lanes[r], r))
                moved = true;
    }
    for (int32_t r = 0; lanes && r < shape->n_ranks; r++)
        if (lanes[r].free_at > end) end = lanes[r].free_at;
    free(s.done[0]);
    free(s.done[1]);
    free(lanes);
    free(turns);
    return s.busy > 0 ? shape->n_ranks * end / s.busy - 1 : 0;
}

double pipeline_bubble(void *self, int32_t n_micro_batches)
{
    const pipeline *p = self;
    const int32_t n = p->shape.n_ranks * p->shape.n_chunks;
    double *costs = calloc((size_t)n, sizeof *costs), wait = 0;
    for (int32_t stage = 0; costs && stage < n; stage++)
        for (int32_t u = p->first[stage]; u < p->first[stage + 1]; u++)
            costs[stage] += p->costs[u];
    /* a stage without products, such as an embedding alone, still has to be waited for */
    for (int32_t stage = 0; costs && stage < n; stage++)
        if (costs[stage] <= 0) costs[stage] = 1;
    if (costs) wait = pipeline_wait(&p->shape, costs, n_micro_batches);
    free(costs);
    return wait;
}
