/*
 * saver.c - decides when a run is saved, and follows a save until it is complete: the run continues while a checkpoint
 * is written, checks after every step whether it is done, and waits for it when the next one is due or the run ends.
 */
#include "run/state/saver.h"
#include "base/clock.h"
#include "mesh/store.h"
#include <math.h>
#include <nrl/region.h>
#include <string.h>
#include <unistd.h>

/* ---- the writer ---- */

static nrl_status set_word(void *user, const char *key, const void *value, size_t size)
{
    return nrl_store_set(mesh_store(user), key, value, size);
}

/* A lost rank reports nothing, and waiting for the store alone would take until timeout_step. */
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

static nrl_status alloc_host(void *user, size_t size, void **memory)
{
    return ctx_host_alloc(user, size, memory);
}

static void free_host(void *user, void *memory)
{
    ctx_host_free(user, memory);
}

static nrl_status open_writer(saver *sv)
{
    const saver_parts *parts = &sv->parts;
    const config_checkpoint *c = parts->config;
    const checkpoint_ranks ranks = {.rank = nrl_mesh_rank(sv->mesh),
                                    .world = nrl_mesh_world(sv->mesh),
                                    .timeout_s = parts->timeout_s,
                                    .user = sv->mesh,
                                    .set = set_word,
                                    .get = get_word,
                                    .remove = remove_word};
    nrl_ctx *ctx = parts->trainer->parts.work->ctx;
    const checkpoint_writer_options o = {.out = parts->out,
                                         .ranks = ranks.world > 1 ? &ranks : NULL,
                                         .check = parts->claims ? check_home : NULL,
                                         .check_user = parts->claims,
                                         .source = {nrl_ctx_host_memory(ctx) ? NULL : alloc_host, free_host, ctx},
                                         .threads = (int)c->threads,
                                         .async = c->async,
                                         .keep = c->keep,
                                         .keep_best = c->keep_best,
                                         .is_signed = *c->sign,
                                         .key = parts->sign_key};
    return sv->writer ? NRL_OK : checkpoint_writer_open(&o, &sv->writer);
}

void saver_open(saver *sv, const saver_parts *parts)
{
    *sv = (saver){.parts = *parts,
                  .trainer = parts->trainer,
                  .mesh = parts->trainer->parts.mesh,
                  .last_saved = -1,
                  .last_save_time = clock_seconds()};
}

void saver_close(saver *sv)
{
    checkpoint_writer_close(sv->writer, false);
    sv->writer = NULL;
    arena_free(&sv->memory);
}

/* Allocates the space of a whole save and frees it, so that a full disk is noticed before hours of work. */
nrl_status saver_prepare(saver *sv)
{
    const config_checkpoint *c = sv->parts.config;
    if (!c->every && c->every_minutes <= 0 && c->export != CONFIG_EXPORT_BEST) return NRL_OK;
    NRL_TRY(open_writer(sv));
    nrl_status st = checkpoint_prepare(sv->writer, sv->parts.bytes(sv->parts.user), c->save_at_start);
    if (st != NRL_OK)
        nrl_add_context("a trial save before the first step (checkpoint.save_at_start)");
    else
        st = mesh_barrier(sv->mesh, "trial saves"); /* the space of all ranks is reserved at once */
    checkpoint_prepared(sv->writer);
    /* The last rank removes the folder: else a start that failed would look like a run to the next one. */
    rmdir(arena_printf(&sv->memory, "%s/checkpoints", sv->parts.out));
    return st;
}

/* ---- the result of a save ---- */

static nrl_status call_hook(saver *sv)
{
    if (!sv->hook_due) return NRL_OK;
    sv->hook_due = false;
    nrl_run_event e = {.kind = NRL_EVENT_SAVE, .step = sv->last_save_step, .path = sv->last_save};
    return hooks_emit(sv->trainer->parts.hooks, INSIDE_SAVE_HOOK, &e);
}

static void note(trainer *tr, const char *name, double seconds)
{
    tr->notes[tr->n_notes++] = (nrl_value){name, "s", seconds};
}

void saver_begin_step(saver *sv)
{
    trainer *tr = sv->trainer;
    double minutes = sv->parts.config->every_minutes;
    tr->save_at = minutes > 0 ? sv->last_save_time + 60 * minutes : INFINITY;
    if (!sv->times.is_unreported) return;
    sv->times.is_unreported = false;
    tr->n_notes = 0;
    note(tr, "save_s", sv->times.whole);
    note(tr, "save_stall_s", sv->times.stall);
    note(tr, "save_snapshot_s", sv->times.snapshot);
}

/* Checks whether the save that is being written is complete; `wait`: waits for it. */
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
    sv->last_save = arena_strdup(&sv->memory, o.dir);
    sv->last_save_step = o.step;
    sv->hook_due = true;
    save_times *t = &sv->times;
    bool async = sv->parts.config->async;
    t->whole = async ? t->start + o.write_s : t->start;
    t->snapshot = t->start;
    t->stall = t->start + t->late;
    t->is_unreported = true;
    const char *dir = sv->last_save;
    if (async)
        telemetry_report(sv->trainer->parts.telemetry, NRL_EVENT_SAVE, dir,
                         "saved %s in %.2f s, of which the run waited %.2f", dir, t->whole, t->stall);
    else
        telemetry_report(sv->trainer->parts.telemetry, NRL_EVENT_SAVE, dir, "saved %s in %.2f s", dir, t->whole);
    return NRL_OK;
}

/* Handles a failed save as checkpoint.on_error says. */
static nrl_status judge(saver *sv, nrl_status st)
{
    if (st == NRL_OK || sv->parts.config->on_error == CONFIG_ON_ERROR_STOP) return st;
    if (nrl_mesh_rank(sv->mesh) == 0) nrl_warn("%s (checkpoint.on_error: warn; the run continues)", nrl_error_text());
    return NRL_OK;
}

/* ---- saving ---- */

static nrl_status start(saver *sv)
{
    const trainer_parts *with = &sv->trainer->parts;
    const work *w = with->work;
    arena a = {0};
    NRL_TRY(judge(sv, settle(sv, true)));
    NRL_TRY(call_hook(sv));
    nrl_run_event before = {.kind = NRL_EVENT_BEFORE_SAVE, .step = sv->trainer->progress.step};
    NRL_TRY(hooks_emit(with->hooks, INSIDE_SAVE_HOOK, &before));
    double begun = clock_seconds();
    checkpoint_begin(sv->writer, sv->trainer->progress.step);
    const nrl_status averaged = strategy_begin(w->strategy, STRATEGY_AVERAGE, w->ctx);
    nrl_status st = averaged;
    if (st == NRL_OK) st = sv->parts.add(sv->parts.user, &a, sv->writer);
    if (st == NRL_OK) st = ctx_wait(w->ctx); /* copies to pinned memory are queued, all at once */
    if (st == NRL_OK)
        checkpoint_submit(sv->writer); /* reads the weights in place until it returns */
    else
        checkpoint_abandon(sv->writer, st);
    /* settle reports other failures. A rank without the average must not train on: the others wait for it. */
    if (averaged != NRL_OK) nrl_add_context("saving step %lld", (long long)sv->trainer->progress.step);
    st = strategy_end(w->strategy, STRATEGY_AVERAGE, w->ctx, averaged);
    arena_free(&a);
    sv->last_save_time = clock_seconds();
    sv->times.start = sv->last_save_time - begun;
    sv->times.late = 0;
    sv->last_saved = sv->trainer->progress.step;
    sv->last_is_judged = sv->trainer->progress.judged_step == sv->last_saved;
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
    const config_checkpoint *c = sv->parts.config;
    bool saves = c->every || c->every_minutes > 0 || c->export == CONFIG_EXPORT_BEST;
    return saves && (c->keep_best || sv->parts.awaits_best) && sv->trainer->progress.step > 0 &&
           sv->trainer->progress.best_step == sv->trainer->progress.step;
}

nrl_status saver_save_due(saver *sv)
{
    const config_checkpoint *c = sv->parts.config;
    bool due = (c->every && sv->trainer->progress.step % c->every == 0) || sv->trainer->save_by_clock || found_best(sv);
    if (sv->writer) NRL_TRY(judge(sv, settle(sv, false)));
    /* ranks notice the end of a save after different steps, but scripts make their calls together */
    if (nrl_mesh_world(sv->mesh) == 1) NRL_TRY(call_hook(sv));
    /* A script may have saved the step before it was evaluated. */
    const bool is_judged = sv->trainer->progress.judged_step == sv->trainer->progress.step;
    const bool is_saved = sv->last_saved == sv->trainer->progress.step && (sv->last_is_judged || !is_judged);
    if (!due || is_saved) return NRL_OK;
    NRL_TRY(open_writer(sv));
    NRL_TRY(start(sv));
    return c->async ? NRL_OK : saver_wait(sv);
}

void saver_resumed(saver *sv, const char *dir)
{
    sv->last_saved = sv->trainer->progress.step;
    sv->last_save = arena_strdup(&sv->memory, dir);
}
