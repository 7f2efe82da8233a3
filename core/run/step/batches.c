/*
 * batches.c - see batches.h.
 */
#include "run/step/batches.h"

nrl_status rollout_begin(nrl_rollout *r)
{
    const session *se = r->session;
    if (!se->algorithm->rollout) return NRL_OK;
    run_inside was = hooks_enter(se->hooks, INSIDE_LOSS);
    nrl_status st = se->algorithm->rollout(se->algorithm_self, r);
    hooks_enter(se->hooks, was);
    if (st != NRL_OK) nrl_add_context("rollout of '%s'", se->algorithm->plugin.name);
    return st;
}

void rollout_end(nrl_rollout *r)
{
    for (int64_t m = 0; r->batches && m < r->data->n_micro_batches; m++)
        batch_free(r->batches[m]);
    arena_free(&r->memory);
}
