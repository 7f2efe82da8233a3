/*
 * train.c - the loop: a step, then what is due after it (record, evaluate, save), until nothing is
 * left, a script stops it, or a signal does.
 */
#include "base/clock.h"
#include "run/infer/export.h"
#include "run/internal.h"
#include "run/step/batches.h"
#include "run/step/ranks.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static double eta(const run *r, const nrl_run_event *e)
{
    double elapsed = clock_seconds() - r->trainer.started;
    int64_t done = e->step - r->trainer.resumed.step, left = r->session.total_steps - e->step;
    return done > 0 && left >= 0 ? elapsed / (double)done * (double)left : -1;
}

void run_stop_early(run *r)
{
    const int64_t limit = r->session.config.eval.early_stop;
    if (limit && r->trainer.progress.evals_without_best >= limit)
        trainer_stop(&r->trainer, "evaluations did not improve (eval.early_stop)");
}

/* By eval.every: evaluates, logs the record, remembers a new best, and calls the hook; ends the run after
 * eval.early_stop evaluations without a best one. */
static nrl_status evaluate_due(run *r)
{
    session *se = &r->session;
    const int64_t every = se->config.eval.every;
    run_progress *p = &r->trainer.progress;
    const char *metric = se->config.checkpoint.metric;
    const value_list *v = &r->evaluator.values;
    if ((!se->n_evals && !r->samples) || !every) return NRL_OK;
    if (p->step % every && p->step != se->total_steps) return NRL_OK;
    evaluator_clear(&r->evaluator);
    if (se->n_evals) NRL_TRY(batches_evaluate(se, &r->evaluator, se->evals, se->n_evals, p->step));
    if (r->samples) NRL_TRY(se->env.services->samples_make(r->samples, r));
    telemetry_record(&r->telemetry, NRL_RECORD_EVAL, p->step, -1, v->list, v->n, NULL, 0);
    if (se->n_evals || strcmp(metric, "eval_loss")) NRL_TRY(best_judge(p, v, metric, se->best_is_largest));
    run_stop_early(r);
    nrl_run_event e = {.kind = NRL_EVENT_EVAL,
                       .step = p->step,
                       .loss = se->n_evals ? v->list[0].value : NAN,
                       .values = v->list,
                       .n_values = v->n};
    return hooks_emit(&r->hooks, INSIDE_EVAL_HOOK, &e);
}

/* A rank lacked memory: nothing has changed, and the step is repeated with smaller micro-batches. */
static nrl_status shrink_step(run *r)
{
    session *se = &r->session;
    const char *problem = r->trainer.problem;
    NRL_TRY(ctx_set_batch(se->ctx, NULL));
    ctx_trim(se->ctx);
    nrl_status st = session_shrink_micro_batches(se);
    if (st != NRL_OK) nrl_add_context("%s", problem ? problem : "another rank is out of memory");
    if (st == NRL_OK && problem)
        nrl_warn("step %lld is repeated with micro-batches of %lld: %s\n"
                 "hint: set train.micro_batch_tokens (or micro_batch) to this size; later steps keep it, a resumed "
                 "run starts with the value in the config",
                 (long long)r->trainer.progress.step + 1, (long long)se->micro_batch_size, problem);
    return st;
}

/* A stream notices a faulty row late: what was trained before it is kept. Other ranks may not have the error. */
static nrl_status save_before_error(run *r, nrl_status st)
{
    const session *se = &r->session;
    const char *path, *error = arena_strdup(&r->session.memory, nrl_error_text());
    const bool saves = !se->env.no_output && nrl_mesh_world(se->mesh) == 1 && r->trainer.progress.step;
    if (!saves || saver_wait(&r->saver) != NRL_OK) return nrl_fail(st, "%s", error);
    if (r->saver.last_saved != r->trainer.progress.step && saver_save(&r->saver, &path) != NRL_OK)
        return nrl_fail(st, "%s", error);
    return nrl_fail(st, "%s\nafter step %lld: state saved in %s\nhint: nrl resume %s", error,
                    (long long)r->trainer.progress.step, r->saver.last_save, se->config.out);
}

/* One step on the next batches, or on those that the algorithm generates from them. */
static nrl_status take_step(run *r, nrl_run_event *e, bool *done)
{
    session *se = &r->session;
    const int64_t step = r->trainer.progress.step;
    const session_data *source = se->later.loader ? &se->later : &se->train;
    data_step data;
    step_input in = {.data = &data, .began = clock_seconds()};
    int32_t stops = r->trainer.stop_reason != NULL; /* decided by rank 0 */
    if (se->algorithm->rollout) {                   /* nothing is generated for a step that will not begin */
        NRL_TRY(mesh_broadcast(se->mesh, "stop", 0, &stops, sizeof stops));
        *done = stops;
        if (*done) return NRL_OK;
    }
    if (se->env.step) *se->env.step = step + 1;
    ctx_phase_set(se->ctx, NRL_PHASE_DATA);
    const struct nrl_run_streams *streams = se->stream && source == &se->train ? se->env.services->streams : NULL;
    nrl_status st = streams ? streams->advance(se, step, done) : NRL_OK;
    if (st != NRL_OK) return save_before_error(r, st);
    if (*done) {
        trainer_stop(&r->trainer, "the pipe of data.train has ended");
        return NRL_OK;
    }
    in.data_seconds = clock_seconds() - in.began - data_loader_wait_seconds(source->loader);
    const int64_t updates = session_updates(se), since = step - source->begin;
    NRL_TRY(data_loader_step(source->loader, since / updates, &data));
    ctx_phase_set(se->ctx, NRL_PHASE_HOST);
    in.data_seconds += data_loader_wait_seconds(source->loader);
    if (streams) data.epoch = streams->epoch(se, data.epoch);
    nrl_rollout rollout = {
        .session = se, .source = source, .data = &data, .step = step, .update = since % updates, .trains = true};
    ctx_settings_of(se->ctx)->retry.allowed = se->config.train.on_oom == CONFIG_OOM_RETRY;
    st = fp8_scaling_begin(&r->trainer.fp8, se->ctx);
    if (st == NRL_OK) st = rollout_begin(&rollout);
    if (st != NRL_OK) nrl_add_context("step %lld", (long long)step + 1);
    if (st == NRL_OK) st = trainer_step(&r->trainer, &in, e, done);
    rollout_end(&rollout);
    ctx_settings_of(se->ctx)->retry.allowed = false;
    NRL_TRY(st);
    if (!r->trainer.lacked) return NRL_OK;
    NRL_TRY(shrink_step(r));
    return take_step(r, e, done);
}

static nrl_status step_and_after(run *r, nrl_run_event *e, bool *done)
{
    *done = r->trainer.progress.step >= r->session.total_steps;
    if (*done) return NRL_OK;
    /* What a profile counts as a step. A callback may begin or end one. */
    NRL_TRY(ctx_profile_step(r->session.ctx, true));
    saver_begin_step(&r->saver);
    NRL_TRY(take_step(r, e, done));
    if (!*done && r->session.env.services) NRL_TRY(r->session.env.services->measure(r, e));
    if (!*done) telemetry_record(&r->telemetry, NRL_RECORD_TRAIN, e->step, eta(r, e), e->values, e->n_values, NULL, 0);
    if (!*done) NRL_TRY(hooks_emit(&r->hooks, INSIDE_STEP_HOOK, e));
    NRL_TRY(ctx_profile_step(r->session.ctx, false));
    if (*done || r->session.env.no_output) return NRL_OK;
    NRL_TRY(evaluate_due(r));
    NRL_TRY(saver_save_due(&r->saver));
    /* A signal is handled after the step is finished: its state is saved, and the run prints how to continue. */
    const char *path;
    if (nrl_mesh_world(r->session.mesh) == 1 && r->session.env.signal)
        r->trainer.signal = *r->session.env.signal; /* no other ranks */
    if (!r->trainer.signal) return NRL_OK;
    NRL_TRY(saver_wait(&r->saver)); /* it may be a save of this step, and it may fail */
    if (r->saver.last_saved != r->trainer.progress.step) NRL_TRY(saver_save(&r->saver, &path));
    return nrl_fail(NRL_ERR_STOPPED, "%s after step %lld: state saved in %s\nhint: nrl resume %s",
                    r->trainer.signal == SIGINT ? "interrupted" : "stopped by a signal",
                    (long long)r->trainer.progress.step, r->saver.last_save, r->session.config.out);
}

nrl_status nrl_run_step(nrl_run *r, nrl_run_event *event, bool *done)
{
    nrl_run_event e = {0};
    uint32_t size = event->size < sizeof e ? event->size : sizeof e;
    NRL_TRY(hooks_check_call(&r->hooks, RUN_CALL_STEP));
    run_use(r);
    nrl_status st = run_end_call(r, step_and_after(r, &e, done));
    if (st == NRL_OK && !*done) memcpy(event, &e, size);
    return st;
}

/* What this process did; the records of the run have the rest. */
static void say_trained(run *r)
{
    const run_progress *p = &r->trainer.progress;
    int64_t steps = p->step - r->trainer.resumed.step, tokens = p->tokens - r->trainer.resumed.tokens;
    int64_t updates = p->updates - r->trainer.resumed.updates;
    double seconds = clock_seconds() - r->trainer.started;
    const char *skipped = "", *best = "";
    if (steps <= 0) return;
    if (updates < steps)
        skipped = arena_printf(&r->session.memory, " (%lld updated the weights, %lld were skipped)", (long long)updates,
                               (long long)(steps - updates));
    if (p->best_step)
        best = arena_printf(&r->session.memory, "; best %s %.4f at step %lld", r->session.config.checkpoint.metric,
                            p->best, (long long)p->best_step);
    telemetry_log(&r->telemetry, "trained    %lld step%s%s in %.1f s, %lld tokens, %.0f a second%s", (long long)steps,
                  steps > 1 ? "s" : "", skipped, seconds, (long long)tokens, (double)tokens / seconds, best);
}

static nrl_status finish(run *r)
{
    if (r->finished) return NRL_OK;
    NRL_TRY(ranks_agree(r->session.mesh, &r->session.shards, "finish", (uint64_t)r->trainer.progress.step));
    const config_checkpoint *c = &r->session.config.checkpoint;
    r->finished = r->session.env.no_output;
    if (r->finished) return NRL_OK;
    if (r->saver.last_saved != r->trainer.progress.step && (c->every || c->every_minutes > 0))
        NRL_TRY(saver_save_last(&r->saver));
    NRL_TRY(saver_wait(&r->saver));
    telemetry_warn_missing(&r->telemetry);
    say_trained(r);
    const run_progress *p = &r->trainer.progress;
    bool scales = r->trainer.loss_scale.rule.dynamic;
    if (!p->updates && p->step) /* each was skipped, in this process and before: the weights are those of the start */
        return nrl_fail(NRL_ERR_DIVERGED,
                        "cannot finish: none of %lld steps updated the weights, because each had a %s that is not "
                        "finite\n"
                        "hint: %s",
                        (long long)p->step, scales ? "gradient" : "loss or gradient",
                        scales ? "try a smaller `init` of train.loss_scale, or more steps, in which the scale decreases"
                               : "the initial weights already give such numbers");
    if (p->far_steps && r->session.config.train.diverge_factor >
                            0) /* a run too short for ten such steps, or one that diverged at its end */
        return nrl_fail(NRL_ERR_DIVERGED,
                        "cannot finish: the last %lld step%s had a loss above %g times the first loss, %g\n"
                        "hint: try a lower optimizer.lr or a longer warm-up; train.diverge_factor: 0 disables this "
                        "check",
                        (long long)p->far_steps, p->far_steps > 1 ? "s" : "", r->session.config.train.diverge_factor,
                        p->first_loss);
    r->finished = true;
    const nrl_value finished = {"finished_step", "steps", (double)p->step};
    /* OUT/model, by checkpoint.export. */
    if (c->export != CONFIG_EXPORT_NONE) {
        bool best = c->export == CONFIG_EXPORT_BEST;
        if (best && !p->best_step && !p->evals_without_best) {
            nrl_warn("the last step is exported instead of the best one, because the run ended before an evaluation");
            best = false;
        }
        int64_t step = best ? p->best_step : p->step;
        const char *path = arena_printf(&r->session.memory, "%s/model", r->session.config.out);
        const char *which =
            best ? arena_printf(&r->session.memory, "the best, %s %.4f", c->metric, p->best) : "the last";
        if (best && !step)
            return nrl_fail(NRL_ERR_DIVERGED, "cannot export the best step: in no evaluation %s was a number",
                            c->metric);
        char *from = step == p->step ? NULL : checkpoint_dir_of(r->session.config.out, step);
        const nrl_run_services *services = r->session.env.services;
        nrl_status st = session_is_rank0(&r->session) ? claims_check_home(&r->session.claims) : NRL_OK;
        char *card = services && session_is_rank0(&r->session) ? services->model_card(r, path, step) : NULL;
        if (st == NRL_OK) st = export_to(&r->session, from, path, card);
        free(card);
        free(from);
        if (st != NRL_OK) return st;
        const nrl_value end[] = {finished, {"exported_step", "steps", (double)step}};
        telemetry_record(&r->telemetry, NRL_RECORD_END, p->step, -1, end, 2, NULL, 0);
        telemetry_report(&r->telemetry, NRL_EVENT_END, path, "exported   %s: step %lld (%s)%s", path, (long long)step,
                         which,
                         r->session.model->adapters ? ", with merged adapters; `nrl export RUN DIR --adapter` writes "
                                                      "only the adapters"
                                                    : "");
        return NRL_OK;
    }
    telemetry_record(&r->telemetry, NRL_RECORD_END, p->step, -1, &finished, 1, NULL, 0);
    telemetry_emit(&r->telemetry, (nrl_run_event){.kind = NRL_EVENT_END});
    return NRL_OK;
}

nrl_status nrl_run_finish(run *r)
{
    NRL_TRY(hooks_check_call(&r->hooks, RUN_CALL_FINISH));
    run_use(r);
    nrl_status st = finish(r);
    if (st == NRL_OK) out_unlock(&r->session);
    return run_end_call(r, st);
}

nrl_status nrl_run_train(run *r)
{
    nrl_run_event e = {.size = sizeof e};
    bool done = false;
    if (r->trainer.progress.step > r->session.total_steps)
        telemetry_log(&r->telemetry, "nothing left to do: %lld steps are done, and the config requests %lld",
                      (long long)r->trainer.progress.step, (long long)r->session.total_steps);
    else if (r->trainer.progress.step == r->session.total_steps)
        telemetry_log(&r->telemetry, "nothing left to do: step %lld of %lld is done",
                      (long long)r->trainer.progress.step, (long long)r->session.total_steps);
    while (!done)
        NRL_TRY(nrl_run_step(r, &e, &done));
    return nrl_run_finish(r);
}
