/*
 * train.c - the loop: a step, then what is due after it (record, evaluate, save), until nothing is
 * left, a script stops it, or a signal does.
 */
#include "run/ranks.h"
#include <signal.h>
#include <string.h>

static double eta(const run *r, const run_event *e)
{
    double elapsed = now_seconds() - r->started;
    int64_t done = e->step - r->resumed_from, left = r->total_steps - e->step;
    return done > 0 && left >= 0 ? elapsed / (double)done * (double)left : -1;
}

/* The step is finished before a signal is heeded; its state is saved and the run says how to go on. */
static nrl_status heed_signal(run *r)
{
    const char *path;
    if (nrl_mesh_world(r->mesh) == 1 && r->env.signal) r->signal = *r->env.signal; /* nobody to agree with */
    if (!r->signal) return NRL_OK;
    NRL_TRY(save_wait(r)); /* of this step, perhaps, and perhaps it fails */
    if (r->last_saved != r->progress.step) NRL_TRY(save_now(r, &path));
    return nrl_fail(NRL_ERR_STOPPED, "%s after step %lld: state saved in %s\nhint: nrl resume %s",
                    r->signal == SIGINT ? "interrupted" : "stopped by a signal",
                    (long long)r->progress.step, r->last_save, r->config.out);
}

/* What a profile counts as a step. A hook may begin or end one. */
static nrl_status step_and_record(run *r, run_event *e, bool *done)
{
    ctx_profile_step(r->ctx, true);
    NRL_TRY(step_take(r, e, done));
    if (!*done) loggers_write(r, NRL_RECORD_TRAIN, r->values, r->n_values, eta(r, e));
    if (!*done && r->hooks.step) NRL_TRY(r->hooks.step(r->hooks.user, r, e));
    ctx_profile_step(r->ctx, false);
    return ctx_profile_read(r->ctx);
}

static nrl_status step_and_after(run *r, run_event *e, bool *done)
{
    *done = r->progress.step >= r->total_steps;
    if (*done) return NRL_OK;
    NRL_TRY(step_and_record(r, e, done));
    if (*done || r->env.no_output) return NRL_OK;
    NRL_TRY(evaluate_due(r));
    NRL_TRY(save_due(r));
    return heed_signal(r);
}

nrl_status run_step(run *r, run_event *e, bool *done)
{
    return run_end_call(r, step_and_after(r, e, done));
}

/* What this process did; a run's records tell the rest. */
static void say_trained(run *r)
{
    const run_progress *p = &r->progress;
    int64_t steps = p->step - r->resumed_from, tokens = p->tokens - r->resumed_tokens;
    double seconds = now_seconds() - r->started;
    const char *best = "";
    if (steps <= 0) return;
    if (p->best_step)
        best = arena_printf(&r->memory, "; best %s %.4f at step %lld", r->config.checkpoint.metric, p->best,
                            (long long)p->best_step);
    run_say(r, "trained    %lld step%s in %.1f s, %lld tokens, %.0f a second%s", (long long)steps, steps > 1 ? "s" : "",
            seconds, (long long)tokens, (double)tokens / seconds, best);
}

static nrl_status finish(run *r)
{
    if (r->finished) return NRL_OK;
    NRL_TRY(ranks_agree(r, "finish", (uint64_t)r->progress.step));
    const config_checkpoint *c = &r->config.checkpoint;
    if (r->last_saved != r->progress.step && (c->every || c->every_minutes > 0)) NRL_TRY(save_last(r));
    NRL_TRY(save_wait(r));
    say_trained(r);
    r->finished = true;
    if (!c->export) return NRL_OK;
    const char *path = arena_printf(&r->memory, "%s/model", r->config.out);
    NRL_TRY(export_to(r, path));
    run_say(r, "exported %s%s", path, r->model->adapters ? ", adapters merged; alone: nrl export RUN DIR --adapter" : "");
    return NRL_OK;
}

nrl_status run_finish(run *r)
{
    nrl_status st = finish(r);
    if (st == NRL_OK) out_unlock(r);
    return run_end_call(r, st);
}

nrl_status run_train(run *r)
{
    run_event e;
    bool done = false;
    if (r->progress.step > r->total_steps)
        run_say(r, "nothing left to do: %lld steps are done, the config asks for %lld", (long long)r->progress.step,
                (long long)r->total_steps);
    else if (r->progress.step == r->total_steps)
        run_say(r, "nothing left to do: step %lld of %lld is done", (long long)r->progress.step,
                (long long)r->total_steps);
    while (!done) NRL_TRY(run_step(r, &e, &done));
    return run_finish(r);
}

/* A rank that leaves with an error tells the others why. */
nrl_status run_end_call(run *r, nrl_status st)
{
    if (st != NRL_OK && st != NRL_ERR_STOPPED && r->mesh) mesh_tell_failure(r->mesh, st, nrl_error_text());
    return st;
}

void run_abandon(run *r, nrl_status st, const char *why)
{
    mesh_tell_failure(r->mesh, st, why);
}

void run_stop(run *r, const char *reason)
{
    if (r->stop_reason) return;
    r->stop_reason = arena_strdup(&r->memory, reason ? reason : "asked to");
    run_say(r, "stopping after step %lld: %s", (long long)r->progress.step, r->stop_reason);
}

void run_set_lr(run *r, double lr)
{
    r->lr_override = lr;
}

void run_set_hooks(run *r, const run_hooks *hooks)
{
    r->hooks = *hooks;
}

int64_t run_steps_done(const run *r)
{
    return r->progress.step;
}

int64_t run_total_steps(const run *r)
{
    return r->total_steps;
}

const nrl_node *run_config(const run *r)
{
    return r->config.resolved;
}

const char *run_out(const run *r)
{
    return r->config.out;
}
