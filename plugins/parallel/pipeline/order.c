/*
 * order.c - the order of actions on a stage.
 *
 * 1f1b (PipeDream-flush, Narayanan et al. 2021, arXiv:2104.04473): stage s of P begins with P - 1 - s
 * forwards, then alternates one forward and one backward, and ends the step with the remaining
 * backwards. So at most P - s micro-batches are in flight. gpipe (Huang et al. 2019): all forwards,
 * then all backwards, with all M micro-batches in flight; the last stage, which has the loss, runs
 * each backward at once in either schedule. In both, a stage waits for at least (P - 1) / M of the
 * time that it computes.
 */
#include "pipeline.h"
#include <stdlib.h>

void pipeline_order(int64_t schedule, int32_t n_stages, int32_t index, int32_t n_micro_batches, pipeline_turn *turns)
{
    int32_t ahead = n_stages - 1 - index, n = 0;
    if (schedule == PIPELINE_GPIPE && ahead) ahead = n_micro_batches;
    if (ahead > n_micro_batches) ahead = n_micro_batches;
    for (int32_t m = 0; m < ahead; m++)
        turns[n++] = (pipeline_turn){false, m};
    for (int32_t m = 0; m < n_micro_batches; m++) {
        if (m + ahead < n_micro_batches) turns[n++] = (pipeline_turn){false, m + ahead};
        turns[n++] = (pipeline_turn){true, m};
    }
}

nrl_status pipeline_schedule(void *self, int32_t n_micro_batches, nrl_action *actions, int64_t *n)
{
    const pipeline *p = self;
    pipeline_turn *turns = calloc(2 * (size_t)n_micro_batches + 1, sizeof *turns);
    if (!turns) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a schedule of %d micro-batches", n_micro_batches);
    pipeline_order(p->options.schedule, p->n, p->index, n_micro_batches, turns);
    *n = 0;
    for (int32_t i = 0; i < 2 * n_micro_batches; i++)
        for (int32_t k = 0; k < p->end - p->first; k++) {
            bool back = turns[i].backward;
            nrl_action *a = nrl_action_at(actions, (*n)++);
            a->pass = back ? NRL_PASS_BACKWARD : NRL_PASS_FORWARD;
            a->unit = back ? p->end - 1 - k : p->first + k;
            a->micro_batch = turns[i].micro_batch;
            a->stage = p->index;
        }
    free(turns);
    return NRL_OK;
}
