/*
 * open.c - what a run is made of, in the order in which mistakes are cheapest to find: options,
 * model, output directory, data; then the device, memory and weights; then the state of an earlier
 * run.
 */
#include "config/tree.h"
#include "run/step/debug.h"
#include "run/open/identity.h"
#include <stdlib.h>
#include <string.h>

/* What a model and a folder of results need before a device. A run stops at the first mistake; `nrl
 * check` looks at all parts that do not need one that failed, and tells of every mistake. */
static nrl_status open_inputs(run *r)
{
    static const struct {
        nrl_status (*open)(run *);
        bool is_needed; /* by those below it */
    } parts[] = {{out_prepare, false},
                 {open_weights, false},
                 {open_text, true},
                 {open_train_data, false},
                 {open_eval_data, false}};
    config_problems problems = {0};
    nrl_status first = NRL_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        NRL_TRY(run_heed_early(r));
        nrl_status st = parts[i].open(r);
        if (st == NRL_OK) continue;
        if (!r->env.check_only) return st;
        if (first == NRL_OK) first = st;
        problems_take_error(&problems, NULL);
        if (parts[i].is_needed) break;
    }
    return problems_report_as(&problems, first, "mistakes");
}

/* The first rank of a node reads the data and leaves its cache; the others find it there. */
static nrl_status open_inputs_in_turn(run *r)
{
    bool first = mesh_where(r->mesh)->local_rank == 0;
    nrl_status st = NRL_OK;
    if (first) st = open_inputs(r);
    if (st == NRL_OK) st = mesh_barrier(r->mesh, "data is there");
    if (st == NRL_OK && !first) st = open_inputs(r);
    return st;
}

/* What a rank would hold: the strategy plans, nothing is allocated. */
static nrl_status plan_storage(run *r)
{
    const strategy_setup setup = strategy_setup_of(r);
    NRL_TRY(strategy_open(&setup, &r->strategy));
    const storage_spec spec = strategy_storage(&r->strategy, &setup);
    storage_plan(r->model, &spec, &r->storage);
    return NRL_OK;
}

/* A key that cannot be read shows before anything is trained. */
static nrl_status open_keys(run *r)
{
    const config_checkpoint *c = &r->config.checkpoint;
    sign_public_key *public_key = arena_alloc(&r->memory, sizeof *public_key);
    nrl_status st = NRL_OK;
    if (*c->public_key) {
        st = sign_read_public(c->public_key, public_key);
        r->public_key = public_key;
        if (st != NRL_OK) nrl_add_context("checkpoint.public_key");
    }
    if (st != NRL_OK || !*c->sign || !run_is_rank0(r) || r->env.no_output) return st;
    r->sign_key = arena_alloc(&r->memory, sizeof *r->sign_key);
    st = sign_read_secret(c->sign, r->sign_key);
    if (st != NRL_OK) nrl_add_context("checkpoint.sign");
    return st;
}

static nrl_status open_loggers(run *r)
{
    const nrl_logger_run about = {.size = sizeof about,
                                  .out = r->config.out,
                                  .name = r->config.name,
                                  .config = r->config.resolved,
                                  .resumed_step = r->progress.step,
                                  .total_steps = r->total_steps,
                                  .terminal = r->env.terminal,
                                  .color = r->env.color};
    return telemetry_open(&r->telemetry, &about, &r->claims);
}

static nrl_status open_all(run *r, const nrl_node *config)
{
    const char *base_key;
    NRL_TRY(open_plugins(r, config));
    NRL_TRY(open_mesh(r));
    NRL_TRY(open_keys(r));
    NRL_TRY(open_model(r));
    NRL_TRY(open_inputs_in_turn(r));
    NRL_TRY(identity_check_files(r));
    NRL_TRY(open_loaders(r));
    NRL_TRY(run_heed_early(r));
    NRL_TRY(schedule_init(&r->schedule, &r->schedule_options, r->optimizer_options.lr, r->total_steps));
    if (r->env.check_only) {
        NRL_TRY(look_at_reference(r));
        NRL_TRY(plan_storage(r));
        if (!r->env.quiet) estimate_step(r);
        return open_plan(r);
    }
    NRL_TRY(open_device(r));
    NRL_TRY(run_heed_early(r));
    NRL_TRY(open_reference(r));
    if (r->env.no_output) return resume_weights(r);
    NRL_TRY(run_heed_early(r)); /* from here on the folder of the run is written */
    if (run_is_rank0(r)) NRL_TRY(out_claim(r));
    NRL_TRY(mesh_barrier(r->mesh, "out is clear"));
    if (!run_is_rank0(r)) claims_settle(&r->claims, r->config.out, -1);
    if (r->model->adapters) NRL_TRY(adapters_base(r, &base_key)); /* saves and resumes need it */
    NRL_TRY(resume_due(r));
    NRL_TRY(best_resume(r));
    NRL_TRY(save_at_start(r));
    NRL_TRY(open_loggers(r));
    if (run_is_rank0(r)) NRL_TRY(out_mark(r)); /* nothing but empty files and folders was made before */
    if (run_is_rank0(r)) NRL_TRY(save_config(r));
    NRL_TRY(open_plan(r));
    NRL_TRY(debug_group(r));
    r->resumed_from = r->progress.step;
    r->resumed_updates = r->progress.updates;
    r->resumed_tokens = r->progress.tokens;
    r->started = r->last_save_time = now_seconds();
    return NRL_OK;
}

nrl_status run_open(const nrl_node *config, config_problems *problems, const nrl_environment *env, run **out)
{
    run *r = mem_alloc(sizeof *r);
    NRL_ASSERT(env->size, >, 0);
    memcpy(&r->env, env, env->size < sizeof r->env ? env->size : sizeof r->env);
    r->problems = problems;
    if (!run_is_rank0(r)) r->env.quiet = true;
    if (env->session) env->session->n_runs++; /* also where it fails: ranks count alike */
    r->lr_override = -1;
    r->last_saved = -1;
    r->out_lock = -1;
    r->tree = config;
    r->telemetry.event = r->env.event ? run_emit_text : NULL;
    r->telemetry.event_user = r;
    r->telemetry.takes_warnings = r->env.takes_warnings;
    r->telemetry.quiet = r->env.quiet;
    telemetry_begin(&r->telemetry, !r->env.no_output && !r->env.check_only);
    nrl_status st = run_end_call(r, open_all(r, config));
    if (st == NRL_ERR_STOPPED) mesh_tell_failure(r->mesh, st, nrl_error_text()); /* ranks have not agreed on it */
    r->tree = NULL;
    if (st == NRL_OK) {
        *out = r;
        return NRL_OK;
    }
    nrl_run_close(r);
    return st;
}

nrl_status nrl_run_open(nrl_config *config, const nrl_environment *env, nrl_run **out)
{
    nrl_environment own = {0};
    *out = NULL;
    memcpy(&own, env, env->size < sizeof own ? env->size : sizeof own);
    if (!own.exe_dir) own.exe_dir = plugin_own_exe_dir(config->memory);
    if (config->root) return run_open(config->root, &config->problems, &own, out);
    return nrl_fail(NRL_ERR_CONFIG, "cannot open a run: its config is empty");
}

static void close_data(run *r)
{
    close_eval(r);
    if (r->train_loader) data_loader_destroy(r->train_loader);
    if (r->train_plan) data_plan_destroy(r->train_plan);
    if (r->train_data) dataset_close(r->train_data);
    chat_template_close(r->chat);
    tokenizer_close(r->tokenizer);
}

static void close_device(run *r)
{
    if (!r->ctx) {
        strategy_close(&r->strategy, NULL);
        return;
    }
    ctx_set_batch(r->ctx, NULL);
    reference_close(r->reference);
    work_close(&r->work);
    strategy_close(&r->strategy, r->ctx);
    mesh_settle(r->mesh);
    storage_free(r->ctx, r->model, &r->storage);
    ctx_destroy(r->ctx);
}

/* Only what a create of the plugin's own has made: without one, self is the options. */
static void destroy_instances(run *r)
{
    const nrl_algorithm *a = r->algorithm_is_script ? NULL : r->algorithm;
    const nrl_optimizer *o = r->optimizer;
    if (a && a->create && a->destroy && r->algorithm_self) a->destroy(r->algorithm_self);
    if (o && o->create && o->destroy && r->optimizer_self) o->destroy(r->optimizer_self);
}

void nrl_run_close(run *r)
{
    if (!r) return;
    save_close(r);
    if (r->sign_key) sign_forget(r->sign_key);
    telemetry_close(&r->telemetry);
    out_unlock(r);
    claims_close(&r->claims);
    close_device(r);
    if (r->device.self) device_close(&r->device);
    close_data(r);
    if (r->model) model_destroy(r->model);
    destroy_instances(r);
    if (r->host) plugin_host_destroy(r->host);
    free(r->script_state);
    if (r->mesh) mesh_close(r->mesh);
    arena_free(&r->slice_memory);
    arena_free(&r->model_memory);
    arena_free(&r->memory);
    free(r);
}
