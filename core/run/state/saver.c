/*
 * saver.c - when a run is saved, and what becomes of it: the run goes on while a checkpoint is written,
 * looks after every step whether it is there, and waits for it where the next one is due or the run ends.
 */
#include "run/state/saver.h"
#include "base/clock.h"
#include "mesh/store.h"
#include "run/state/resume.h"
#include "run/state/state.h"
#include <math.h>
#include <nrl/region.h>
#include <string.h>
#include <unistd.h>

/* ---- the writer ---- */

static nrl_status set_word(void *user, const char *key, const void *value, size_t size)
{
    return nrl_store_set(mesh_store(user), key, value, size);
}

/* A rank that is lost will say nothing: the store alone would be waited for until timeout_step. */
static nrl_status get_word(void *user, const char *key, double timeout_s, void **value, size_t *size)
{
    NRL_TRY(mesh_check(user));
    return nrl_store_get(mesh_store(user), key, timeout_s, value, size);
}

static nrl_status remove_word(void *user, const char *key)
{
    return store_remove(mesh_store(user), key);
}

static nrl_status check_home(const void *user)
{
    return claims_check_home(user);
}

static nrl_status open_writer(saver *sv)
{
    const config_checkpoint *c = &sv->session->config.checkpoint;
    const checkpoint_ranks ranks = {.rank = nrl_mesh_rank(sv->session->mesh),
                                    .world = nrl_mesh_world(sv->session->mesh),
                                    .timeout_s = sv->session->config.launch.timeout_step,
                                    .user = sv->session->mesh,
                                    .set = set_word,
                                    .get = get_word,
                                    .remove = remove_word};
    const checkpoint_writer_options o = {.out = sv->session->config.out,
                                         .ranks = ranks.world > 1 ? &ranks : NULL,
                                         .check = check_home,
                                         .check_user = &sv->session->claims,
                                         .threads = (int)c->threads,
                                         .async = c->async,
                                         .keep = c->keep,
                                         .keep_best = c->keep_best,
                                         .is_signed = *c->sign,
                                         .key = sv->session->sign_key};
    return sv->writer ? NRL_OK : checkpoint_writer_open(&o, &sv->writer);
}

void saver_open(saver *sv, session *se, trainer *tr)
{
    *sv = (saver){.session = se, .trainer = tr, .last_saved = -1, .last_save_time = clock_seconds()};
}

void saver_close(saver *sv)
{
    checkpoint_writer_close(sv->writer, false);
    sv->writer = NULL;
}

/* Room for a whole save is asked for and given back: a full disk shows before hours of work. */
nrl_status saver_prepare(saver *sv)
{
    const config_checkpoint *c = &sv->session->config.checkpoint;
    if (!c->every && c->every_minutes <= 0 && c->export != CONFIG_EXPORT_BEST) return NRL_OK;
    NRL_TRY(open_writer(sv));
    nrl_status st = checkpoint_prepare(sv->writer, state_bytes(sv->session), c->save_at_start);
    if (st != NRL_OK)
        nrl_add_context("a trial save before the first step (checkpoint.save_at_start)");
    else
        st = mesh_barrier(sv->session->mesh, "trial saves"); /* the folder is still there for the last one */
    /* else a start that failed would look like a run to the next one */
    rmdir(arena_printf(&sv->session->memory, "%s/checkpoints", sv->session->config.out));
    return st;
}

/* ---- what became of a save ---- */

static nrl_status call_hook(saver *sv)
{
    if (!sv->hook_due) return NRL_OK;
    sv->hook_due = false;
    nrl_run_event e = {.kind = NRL_EVENT_SAVE, .step = sv->last_save_step, .path = sv->last_save};
    return hooks_emit(sv->session->hooks, INSIDE_SAVE_HOOK, &e);
}

static void note(trainer *tr, const char *name, double seconds)
{
    tr->notes[tr->n_notes++] = (nrl_value){name, "s", seconds};
}

void saver_begin_step(saver *sv)
{
    trainer *tr = sv->trainer;
    double minutes = sv->session->config.checkpoint.every_minutes;
    tr->save_at = minutes > 0 ? sv->last_save_time + 60 * minutes : INFINITY;
    if (!sv->times.is_unreported) return;
    sv->times.is_unreported = false;
    tr->n_notes = 0;
    note(tr, "save_s", sv->times.whole);
    note(tr, "save_stall_s", sv->times.stall);
    note(tr, "save_snapshot_s", sv->times.snapshot);
}

/* Looks whether the save on its way is there; `wait`: until it is. */
static nrl_status settle(saver *sv, bool wait)
{
    checkpoint_outcome o;
    bool done, late = wait && checkpoint_is_writing(sv->writer);
    double start = clock_seconds();
    nrl_status st = checkpoint_poll(sv->writer, wait, &o, &done);
    if (late) sv->times.late += clock_seconds() - start;
    if (late) nrl_region_span("steps", "wait for a save", start, clock_seconds());
    if (!done) return NRL_OK;
    if (st != NRL_OK) {
        nrl_add_context("saving step %lld", (long long)o.step);
        if (sv->last_saved == o.step) sv->last_saved = -1;
        return st;
    }
    sv->last_save = arena_strdup(&sv->session->memory, o.dir);
    sv->last_save_step = o.step;
    sv->hook_due = true;
    save_times *t = &sv->times;
    bool async = sv->session->config.checkpoint.async;
    t->whole = async ? t->start + o.write_s : t->start;
    t->snapshot = t->start;
    t->stall = t->start + t->late;
    t->is_unreported = true;
    const char *dir = sv->last_save;
    if (async)
        telemetry_report(sv->session->telemetry, NRL_EVENT_SAVE, dir,
                         "saved %s in %.2f s, of which the run waited %.2f", dir, t->whole, t->stall);
    else
        telemetry_report(sv->session->telemetry, NRL_EVENT_SAVE, dir, "saved %s in %.2f s", dir, t->whole);
    return NRL_OK;
}

/* A failed save, by checkpoint.on_error. */
static nrl_status judge(saver *sv, nrl_status st)
{
    if (st == NRL_OK || sv->session->config.checkpoint.on_error == CONFIG_ON_ERROR_STOP) return st;
    if (session_is_rank0(sv->session)) nrl_warn("%s (checkpoint.on_error: warn; the run goes on)", nrl_error_text());
    return NRL_OK;
}

/* ---- saving ---- */

static nrl_status start(saver *sv)
{
    session *se = sv->session;
    arena a = {0};
    NRL_TRY(judge(sv, settle(sv, true)));
    NRL_TRY(call_hook(sv));
    nrl_run_event before = {.kind = NRL_EVENT_BEFORE_SAVE, .step = sv->trainer->progress.step};
    NRL_TRY(hooks_emit(se->hooks, INSIDE_SAVE_HOOK, &before));
    double begun = clock_seconds();
    checkpoint_begin(sv->writer, sv->trainer->progress.step);
    nrl_status st = strategy_average_begin(&se->strategy, se->ctx);
    if (st == NRL_OK) st = state_add(se, sv->trainer, &a, sv->writer);
    if (st == NRL_OK)
        checkpoint_submit(sv->writer); /* reads weights where they lie until it returns */
    else
        checkpoint_abandon(sv->writer, st);
    st = strategy_average_end(&se->strategy, se->ctx, NRL_OK); /* a failed save is told by settle */
    arena_free(&a);
    sv->last_save_time = clock_seconds();
    sv->times.start = sv->last_save_time - begun;
    sv->times.late = 0;
    sv->last_saved = sv->trainer->progress.step;
    nrl_region_span("steps", "save", begun, sv->last_save_time);
    return st;
}

nrl_status saver_save(saver *sv, const char **path)
{
    NRL_TRY(open_writer(sv));
    NRL_TRY(start(sv));
    NRL_TRY(settle(sv, true));
    *path = sv->last_save;
    return call_hook(sv);
}

nrl_status saver_wait(saver *sv)
{
    if (!sv->writer) return NRL_OK;
    NRL_TRY(judge(sv, settle(sv, true)));
    return call_hook(sv);
}

nrl_status saver_save_last(saver *sv)
{
    NRL_TRY(open_writer(sv));
    NRL_TRY(start(sv));
    return saver_wait(sv);
}

/* The evaluation of this step is the best so far, and the best is kept or waited for (eval.early_stop). */
static bool found_best(const saver *sv)
{
    const config_checkpoint *c = &sv->session->config.checkpoint;
    bool saves = c->every || c->every_minutes > 0 || c->export == CONFIG_EXPORT_BEST;
    return saves && (c->keep_best || sv->session->config.eval.early_stop) && sv->trainer->progress.step > 0 &&
           sv->trainer->progress.best_step == sv->trainer->progress.step;
}

nrl_status saver_save_due(saver *sv)
{
    const config_checkpoint *c = &sv->session->config.checkpoint;
    bool due = (c->every && sv->trainer->progress.step % c->every == 0) || sv->trainer->save_by_clock || found_best(sv);
    if (sv->writer) NRL_TRY(judge(sv, settle(sv, false)));
    /* ranks see the end of a save after different steps, but scripts make their calls together */
    if (nrl_mesh_world(sv->session->mesh) == 1) NRL_TRY(call_hook(sv));
    if (!due || sv->last_saved == sv->trainer->progress.step) return NRL_OK;
    NRL_TRY(open_writer(sv));
    NRL_TRY(start(sv));
    return c->async ? NRL_OK : saver_wait(sv);
}

/* ---- what a run goes on from ---- */

static nrl_status restore_all(void *sv, checkpoint *c)
{
    return state_restore(((saver *)sv)->session, ((saver *)sv)->trainer, c);
}

static nrl_status restore_weights(void *sv, checkpoint *c)
{
    return state_restore_weights(((saver *)sv)->session, ((saver *)sv)->trainer, c);
}

static resume_choice choice_of(saver *sv, nrl_status (*restore)(void *user, checkpoint *c))
{
    const session *se = sv->session;
    return (resume_choice){.mesh = se->mesh,
                           .out = se->config.out,
                           .public_key = se->public_key,
                           .threads = (int)se->config.checkpoint.threads,
                           .falls_back = se->config.checkpoint.fallback == CONFIG_FALLBACK_PREVIOUS,
                           .restore = restore,
                           .user = sv};
}

/* An exported model holds adapters merged: there is nothing to put into this run's. */
static nrl_status exported_weights(saver *sv, const char *dir)
{
    model_origin from = {.formats = &sv->session->formats};
    const nrl_node *config;
    if (sv->session->model->adapters)
        return nrl_fail(NRL_ERR_CONFIG,
                        "it is an exported model, and this run trains adapters (%s); expected one of its checkpoints",
                        sv->session->adapter->plugin.name);
    NRL_TRY(origin_find(dir, &sv->session->model_memory, &from, &config));
    NRL_TRY(origin_check(&from, sv->session->model));
    NRL_TRY(origin_load(&from, sv->session->ctx, sv->session->model, sv->session->mesh));
    return strategy_updated(&sv->session->strategy, sv->session->ctx, 0);
}

nrl_status saver_resume_weights(saver *sv)
{
    const char *path = sv->session->env.weights, *dir;
    const resume_choice choice = choice_of(sv, restore_weights);
    bool differ;
    if (!path) return NRL_OK;
    nrl_status st = origin_checkpoint(path, &sv->session->memory, &dir);
    if (st == NRL_OK) st = dir ? resume_read(&choice, dir, &differ) : exported_weights(sv, path);
    if (st != NRL_OK) nrl_add_context("evaluating %s", path);
    return st;
}

nrl_status saver_resume(saver *sv)
{
    const char *how = sv->session->config.resume, *dir = how;
    const resume_choice choice = choice_of(sv, restore_all);
    if (!strcmp(how, "never")) return NRL_OK;
    if (strcmp(how, "auto"))
        NRL_TRY(resume_from(&choice, how));
    else
        NRL_TRY(resume_newest(&choice, &sv->session->memory, &dir));
    if (!dir) return NRL_OK;
    sv->last_saved = sv->trainer->progress.step;
    sv->last_save = arena_strdup(&sv->session->memory, dir);
    return NRL_OK;
}
