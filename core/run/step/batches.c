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

/* ---- evaluation ---- */

static nrl_status begin_step(void *user, int64_t step, const data_step **data)
{
    nrl_rollout *r = user;
    *r = (nrl_rollout){.session = r->session, .source = r->source, .data = r->data, .step = step};
    *data = r->data;
    NRL_TRY(data_loader_step(r->source->loader, step, r->data));
    return rollout_begin(r);
}

static void end_step(void *user)
{
    rollout_end(user);
}

nrl_status batches_evaluate(session *se, evaluator *ev, const session_data *sets, size_t n_sets, int64_t step)
{
    arena a = {0};
    data_step data;
    nrl_rollout *rollouts = arena_alloc(&a, (n_sets + 1) * sizeof *rollouts);
    evaluator_set *list = arena_alloc(&a, (n_sets + 1) * sizeof *list);
    for (size_t i = 0; i < n_sets; i++) {
        const session_data *d = &sets[i];
        rollouts[i] = (nrl_rollout){.session = se, .source = d, .data = &data};
        list[i] = (evaluator_set){.name = d->name,
                                  .data_set = 1 + i,
                                  .n_steps = data_plan_steps_per_epoch(d->plan),
                                  .begin = begin_step,
                                  .end = end_step,
                                  .user = &rollouts[i]};
    }
    nrl_status st = evaluator_run(ev, list, n_sets, step);
    arena_free(&a);
    return st;
}
