/*
 * run.c - the public calls of a run. A run is opened in the order in which mistakes are cheapest to find: options,
 * model, output directory, data; then the device, memory and weights; then the state of an earlier run.
 */
#include "run/internal.h"
#include "base/clock.h"
#include "base/scalar.h"
#include "config/tree.h"
#include "run/infer/export.h"
#include "run/step/batches.h"
#include "run/step/ranks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SAMPLE_METRICS = 8 }; /* of eval.samples, at most */

/* The parts that are not there yet are opened before the trainer is ready. */
static void open_trainer(run *r)
{
    session *se = &r->session;
    const nrl_run_services *services = se->env.services;
    const trainer_parts parts = {.work = &se->work,
                                 .updates = &se->updates,
                                 .mesh = se->mesh,
                                 .shards = &se->shards,
                                 .device = &se->device.info,
                                 .config = &se->config.train,
                                 .reference_options = &se->reference_options,
                                 .metrics = &se->metrics,
                                 .compute = session_compute(se),
                                 .clip_norm = se->optimizer_options.clip_norm,
                                 .checks = services && se->config.debug_every ? services->rank_checks : NULL,
                                 .debug_every = services ? se->config.debug_every : 0,
                                 .signal = se->env.signal,
                                 .hooks = se->hooks,
                                 .telemetry = se->telemetry};
    trainer_open(&r->trainer, &parts);
}

static int64_t saved_bytes(void *user)
{
    const state_parts parts = run_state(user);
    return state_bytes(&parts);
}

static nrl_status save_state(void *user, arena *a, checkpoint_writer *w)
{
    const state_parts parts = run_state(user);
    return state_add(&parts, a, w);
}

static void open_saver(run *r)
{
    const session *se = &r->session;
    const saver_parts parts = {.trainer = &r->trainer,
                               .config = &se->config.checkpoint,
                               .out = se->config.out,
                               .claims = &se->claims,
                               .sign_key = se->sign_key,
                               .timeout_s = se->config.launch.timeout_step,
                               .awaits_best = se->config.eval.early_stop,
                               .bytes = saved_bytes,
                               .add = save_state,
                               .user = r};
    saver_open(&r->saver, &parts);
}

static void open_evaluator(run *r)
{
    session *se = &r->session;
    const evaluator_parts parts = {
        .work = &se->work, .mesh = se->mesh, .shards = &se->shards, .metrics = &se->metrics, .hooks = se->hooks};
    const size_t n_values = (se->metrics.n + NRL_MAX_MODEL_TERMS + 2) * (se->config.data.n_evals + 1);
    evaluator_open(&r->evaluator, &parts, n_values + SAMPLE_METRICS);
}

static nrl_status open_schedule(run *r)
{
    const session *se = &r->session;
    nrl_status st = schedule_open(&r->trainer.schedule, se->schedule, se->schedule_options, se->optimizer_options.lr,
                                  se->total_steps);
    if (st != NRL_OK) nrl_add_context("%s: schedule", nrl_node_place(se->config.schedule.at));
    return st;
}

static nrl_status open_algorithm(const session *se)
{
    const nrl_algorithm_run about = {.size = sizeof about,
                                     .only_checks = se->env.check_only || se->env.dry_run,
                                     .config = se->config.resolved,
                                     .environment = &se->env,
                                     .tokenizer = se->tokenizer ? &se->tokenizer->open : NULL};
    if (!se->algorithm->open) return NRL_OK;
    nrl_status st = se->algorithm->open(se->algorithm_self, &about);
    if (st != NRL_OK) nrl_add_context("algorithm '%s'", se->algorithm->plugin.name);
    return st;
}

static nrl_status open_all(run *r)
{
    session *se = &r->session;
    const char *base_key;
    NRL_TRY(session_open_plugins(se));
    NRL_TRY(session_open_mesh(se));
    NRL_TRY(session_open_keys(se));
    NRL_TRY(session_open_model(se));
    NRL_TRY(session_open_inputs(se));
    NRL_TRY(identity_check_files(se));
    NRL_TRY(session_open_metrics(se));
    open_trainer(r);
    open_saver(r);
    open_evaluator(r);
    if (se->config.eval.samples && se->env.services) NRL_TRY(se->env.services->samples_open(r, &r->samples));
    metrics_listen(&r->trainer.metrics);
    NRL_TRY(session_open_loaders(se));
    NRL_TRY(open_algorithm(se));
    NRL_TRY(session_handle_signal(se));
    NRL_TRY(open_schedule(r));
    if (se->env.check_only) {
        NRL_TRY(run_resume(r));
        NRL_TRY(session_inspect_reference(se));
        NRL_TRY(session_plan_storage(se));
        NRL_TRY(session_check_operations(se));
        if (!se->env.quiet) NRL_TRY(session_estimate(se));
        run_log_plan(r);
        return NRL_OK;
    }
    NRL_TRY(session_open_device(se));
    NRL_TRY(session_handle_signal(se));
    NRL_TRY(session_open_reference(se));
    if (!se->env.evaluate_only) NRL_TRY(trainer_ready(&r->trainer, se->reference));
    if (se->env.no_output) return run_take_weights(r);
    NRL_TRY(session_handle_signal(se)); /* from here on the folder of the run is written */
    if (session_is_rank0(se)) NRL_TRY(out_claim(se));
    NRL_TRY(mesh_barrier(se->mesh, "out is clear"));
    if (!session_is_rank0(se)) claims_settle(&se->claims, se->config.out, -1);
    if (se->model->adapters) NRL_TRY(adapter_base(se, &base_key)); /* saves and resumes need it */
    NRL_TRY(run_resume(r));
    if (r->trainer.progress.step && se->env.services) NRL_TRY(se->env.services->resumed(r, r->saver.last_save));
    if (se->config.checkpoint.export == CONFIG_EXPORT_BEST)
        NRL_TRY(best_resume(&r->trainer.progress, se->mesh, se->config.out));
    NRL_TRY(saver_prepare(&r->saver));
    const nrl_logger_run about = {.size = sizeof about,
                                  .out = se->config.out,
                                  .name = se->config.name,
                                  .config = se->config.resolved,
                                  .resumed_step = r->trainer.progress.step,
                                  .total_steps = se->total_steps,
                                  .terminal = se->env.terminal,
                                  .color = se->env.color};
    NRL_TRY(telemetry_open(&r->telemetry, &about, &se->claims));
    if (session_is_rank0(se)) NRL_TRY(out_mark(se)); /* until here only empty files and directories were created */
    if (session_is_rank0(se)) NRL_TRY(out_write_config(se));
    run_log_plan(r);
    run_stop_early(r);
    if (r->trainer.parts.checks) NRL_TRY(r->trainer.parts.checks->group(&r->trainer));
    trainer_begin(&r->trainer);
    r->saver.last_save_time = clock_seconds();
    return NRL_OK;
}

nrl_status run_open(const nrl_node *config, config_problems *problems, const nrl_environment *env, run **out)
{
    run *r = mem_alloc(sizeof *r);
    session *se = &r->session;
    NRL_ASSERT(env->size, >, 0);
    memcpy(&se->env, env, env->size < sizeof se->env ? env->size : sizeof se->env);
    if (!session_is_rank0(se)) se->env.quiet = true;
    if (env->session) env->session->n_runs++; /* also if it fails: all ranks must have the same count */
    se->telemetry = &r->telemetry;
    se->hooks = &r->hooks;
    se->problems = problems;
    se->out_lock = -1;
    se->tree = config;
    r->hooks = (hooks){.event = se->env.event, .user = se->env.event_user};
    r->telemetry.event = se->env.event ? hooks_emit_text : NULL;
    r->telemetry.event_user = &r->hooks;
    r->telemetry.takes_warnings = se->env.takes_warnings;
    r->telemetry.quiet = se->env.quiet;
    r->telemetry.step = &r->trainer.progress.step;
    telemetry_begin(&r->telemetry, !se->env.no_output && !se->env.check_only);
    nrl_status st = run_end_call(r, open_all(r));
    if (st == NRL_ERR_STOPPED) mesh_report_failure(se->mesh, st, nrl_error_text()); /* others do not know it yet */
    se->tree = NULL;
    if (st == NRL_OK) {
        *out = r->hooks.run = r;
        return NRL_OK;
    }
    nrl_run_close(r);
    return st;
}

nrl_status nrl_run_open(nrl_config *config, const nrl_environment *env, nrl_run **out)
{
    nrl_environment own = {0};
    *out = NULL;
    NRL_TRY(scalar_check_locale());
    memcpy(&own, env, env->size < sizeof own ? env->size : sizeof own);
    if (!own.exe_dir) own.exe_dir = plugin_own_exe_dir(config->memory);
    if (config->root) return run_open(config->root, &config->problems, &own, out);
    return nrl_fail(NRL_ERR_CONFIG, "cannot open a run: its config is empty");
}

void nrl_run_close(run *r)
{
    if (!r) return;
    saver_close(&r->saver);
    if (r->samples) r->session.env.services->samples_close(r->samples);
    if (r->session.sign_key) sign_forget(r->session.sign_key);
    telemetry_close(&r->telemetry);
    out_unlock(&r->session);
    claims_close(&r->session.claims);
    session_close_device(&r->session);
    evaluator_close(&r->evaluator);
    trainer_close(&r->trainer); /* before the plugins, one of which is its schedule */
    session_close(&r->session);
    free(r);
}

/* A rank that ends with an error reports it to the others. */
nrl_status run_end_call(run *r, nrl_status st)
{
    nrl_mesh *mesh = r->session.mesh;
    if (st != NRL_OK && st != NRL_ERR_STOPPED && mesh) mesh_report_failure(mesh, st, nrl_error_text());
    return st;
}

void nrl_run_abandon(run *r, nrl_status st, const char *why)
{
    mesh_report_failure(r->session.mesh, st, why);
}

/* ---- calls between two steps ---- */

static nrl_status evaluate_file(run *r, const char *file)
{
    session *se = &r->session;
    session_data set;
    if (se->reference && se->reference_options.reference == REFERENCE_CACHED)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot evaluate '%s': algorithm.reference: cached supports only data.train and data.eval\n"
                        "hint: algorithm.reference: online supports any file",
                        file);
    arena a = {0};
    nrl_status st = open_more_data(se, node_text(&a, file), "eval", &set);
    arena_free(&a);
    NRL_TRY(st);
    st = batches_evaluate(se, &r->evaluator, &set, 1, r->trainer.progress.step);
    close_data(&set);
    return st;
}

void run_use(run *r)
{
    telemetry_use(&r->telemetry);
    metrics_use(&r->trainer.metrics);
}

nrl_status nrl_run_evaluate(run *r, const char *file, const nrl_value **values, size_t *n_values)
{
    NRL_TRY(hooks_check_call(&r->hooks, RUN_CALL_EVALUATE));
    run_use(r);
    uint64_t what = (uint64_t)r->trainer.progress.step ^ (file ? XXH3_64bits(file, strlen(file)) : 0);
    nrl_status st = ranks_agree(r->session.mesh, &r->session.shards, "evaluate", what);
    if (st == NRL_OK)
        st = file ? evaluate_file(r, file)
                  : batches_evaluate(&r->session, &r->evaluator, r->session.evals, r->session.n_evals,
                                     r->trainer.progress.step);
    if (st == NRL_OK) {
        *values = r->evaluator.values.list;
        *n_values = r->evaluator.values.n;
    }
    return run_end_call(r, st);
}

nrl_status nrl_run_save(run *r, const char **path)
{
    NRL_TRY(hooks_check_call(&r->hooks, RUN_CALL_SAVE));
    if (r->session.env.no_output)
        return nrl_fail(NRL_ERR_CONFIG, "cannot save: this run does not write an output directory\n"
                                        "hint: nrl profile --output enables it");
    run_use(r);
    nrl_status st = ranks_agree(r->session.mesh, &r->session.shards, "save", (uint64_t)r->trainer.progress.step);
    if (st == NRL_OK) st = saver_save(&r->saver, path);
    return run_end_call(r, st);
}

nrl_status nrl_run_export(nrl_run *r, const char *dir)
{
    NRL_TRY(hooks_check_call(&r->hooks, "export"));
    nrl_status st = ranks_agree(r->session.mesh, &r->session.shards, "export", XXH3_64bits(dir, strlen(dir)));
    if (st == NRL_OK) st = export_check(&r->session.claims, dir);
    if (st == NRL_OK) st = export_to(&r->session, NULL, dir, NULL);
    return run_end_call(r, st);
}

void nrl_run_stop(run *r, const char *reason)
{
    trainer_stop(&r->trainer, reason);
}

void nrl_run_set_lr(run *r, double lr)
{
    const bool is_rate = lr >= 0 && isfinite(lr);
    if (!is_rate) nrl_warn("cannot set the learning rate to %g, expected a number from 0: the schedule applies", lr);
    r->trainer.lr_override = is_rate ? lr : -1;
}

void nrl_run_report(run *r, const char *name, const char *unit, double value)
{
    const nrl_value v = {name, unit, value};
    if (metrics_has(&r->session.metrics, name)) {
        if (!r->report_refused)
            nrl_warn("'%s' is already a metric of the run; the reported value is not written\n"
                     "hint: report it under another name, such as 'my_%s'",
                     name, name);
        r->report_refused = true;
        return;
    }
    telemetry_record(&r->telemetry, NRL_RECORD_REPORT, r->trainer.progress.step, -1, &v, 1, NULL, 0);
}

void nrl_run_set_state(run *r, const char *json)
{
    trainer_set_script_state(&r->trainer, json);
}

const char *nrl_run_state(const run *r)
{
    return r->trainer.script_state;
}

int64_t nrl_run_steps_done(const run *r)
{
    return r->trainer.progress.step;
}

int64_t nrl_run_total_steps(const run *r)
{
    return r->session.total_steps;
}

const nrl_node *nrl_run_config(const run *r)
{
    return r->session.config.resolved;
}

const char *nrl_run_out(const run *r)
{
    return r->session.config.out;
}

char *nrl_run_sample_text(const run *r, int64_t i, int64_t *n)
{
    *n = dataset_info(r->session.train.set)->n_examples;
    return i >= 0 && i < *n ? dataset_sample_text(r->session.train.set, i, r->session.tokenizer) : NULL;
}

const char *nrl_run_weights(run *r)
{
    session *se = &r->session;
    const model_origin *o = &se->origin;
    const char *from = o->checkpoint ? o->checkpoint : o->dir;
    const int64_t step = r->trainer.progress.step;
    if (se->env.weights)
        return step ? arena_printf(&se->memory, "%s, step %lld", se->env.weights, (long long)step) : se->env.weights;
    if (!from) from = arena_printf(&se->memory, "random, of seed %llu", (unsigned long long)o->seed);
    return o->adapter_dir ? arena_printf(&se->memory, "%s with adapters of %s", from, o->adapter_dir) : from;
}
