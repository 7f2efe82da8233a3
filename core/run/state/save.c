/*
 * save.c - when a run is saved, and what becomes of it: the run goes on while a checkpoint is written,
 * looks after every step whether it is there, and waits for it where the next one is due or the run ends.
 */
#include "checkpoint/disk.h"
#include "config/config.h"
#include "mesh/store.h"
#include "run/step/ranks.h"
#include "run/state/state.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
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

static nrl_status open_writer(run *r)
{
    const config_checkpoint *c = &r->config.checkpoint;
    const checkpoint_ranks ranks = {.rank = nrl_mesh_rank(r->mesh),
                                    .world = nrl_mesh_world(r->mesh),
                                    .timeout_s = r->config.launch.timeout_step,
                                    .user = r->mesh,
                                    .set = set_word,
                                    .get = get_word,
                                    .remove = remove_word};
    const checkpoint_writer_options o = {.out = r->config.out,
                                         .ranks = ranks.world > 1 ? &ranks : NULL,
                                         .check = check_home,
                                         .check_user = &r->claims,
                                         .threads = (int)c->threads,
                                         .async = c->async,
                                         .keep = c->keep,
                                         .keep_best = c->keep_best,
                                         .is_signed = *c->sign,
                                         .key = r->sign_key};
    return r->writer ? NRL_OK : checkpoint_writer_open(&o, &r->writer);
}

void save_close(run *r)
{
    checkpoint_writer_close(r->writer, false);
    r->writer = NULL;
}

/* Room for a whole save is asked for and given back: a full disk shows before hours of work. */
nrl_status save_at_start(run *r)
{
    const config_checkpoint *c = &r->config.checkpoint;
    if (!c->every && c->every_minutes <= 0 && c->export != CONFIG_EXPORT_BEST) return NRL_OK;
    NRL_TRY(open_writer(r));
    nrl_status st = checkpoint_prepare(r->writer, state_bytes(r), c->save_at_start);
    if (st != NRL_OK)
        nrl_add_context("a trial save before the first step (checkpoint.save_at_start)");
    else
        st = mesh_barrier(r->mesh, "trial saves"); /* the folder is still there for the last one */
    /* else a start that failed would look like a run to the next one */
    rmdir(arena_printf(&r->memory, "%s/checkpoints", r->config.out));
    return st;
}

/* ---- what became of a save ---- */

static nrl_status call_hook(run *r)
{
    if (!r->hook_due) return NRL_OK;
    r->hook_due = false;
    nrl_run_event e = {.kind = NRL_EVENT_SAVE, .step = r->last_save_step, .path = r->last_save};
    return run_emit(r, INSIDE_SAVE_HOOK, &e);
}

static void announce(run *r, const checkpoint_outcome *o)
{
    save_times *t = &r->save_times;
    bool async = r->config.checkpoint.async;
    t->whole = async ? t->start + o->write_s : t->start;
    t->snapshot = t->start;
    t->stall = t->start + t->late;
    t->is_unreported = true;
    const char *dir = r->last_save;
    if (async)
        run_tell(r, NRL_EVENT_SAVE, dir, "saved %s in %.2f s, of which the run waited %.2f", dir, t->whole, t->stall);
    else
        run_tell(r, NRL_EVENT_SAVE, dir, "saved %s in %.2f s", dir, t->whole);
}

void save_tell(run *r, nrl_value *values, size_t *n)
{
    if (!r->save_times.is_unreported) return;
    r->save_times.is_unreported = false;
    value_append(r, values, n, "save_s", "s", r->save_times.whole);
    value_append(r, values, n, "save_stall_s", "s", r->save_times.stall);
    value_append(r, values, n, "save_snapshot_s", "s", r->save_times.snapshot);
}

/* Looks whether the save on its way is there; `wait`: until it is. */
static nrl_status settle(run *r, bool wait)
{
    checkpoint_outcome o;
    bool done, late = wait && checkpoint_is_writing(r->writer);
    double start = now_seconds();
    nrl_status st = checkpoint_poll(r->writer, wait, &o, &done);
    if (late) r->save_times.late += now_seconds() - start;
    if (!done) return NRL_OK;
    if (st != NRL_OK) {
        nrl_add_context("saving step %lld", (long long)o.step);
        if (r->last_saved == o.step) r->last_saved = -1;
        return st;
    }
    r->last_save = arena_strdup(&r->memory, o.dir);
    r->last_save_step = o.step;
    r->hook_due = true;
    announce(r, &o);
    return NRL_OK;
}

/* A failed save, by checkpoint.on_error. */
static nrl_status judge(run *r, nrl_status st)
{
    if (st == NRL_OK || r->config.checkpoint.on_error == CONFIG_ON_ERROR_STOP) return st;
    if (run_is_rank0(r)) nrl_warn("%s (checkpoint.on_error: warn; the run goes on)", nrl_error_text());
    return NRL_OK;
}

/* ---- saving ---- */

static nrl_status start(run *r)
{
    arena a = {0};
    NRL_TRY(judge(r, settle(r, true)));
    NRL_TRY(call_hook(r));
    nrl_run_event before = {.kind = NRL_EVENT_BEFORE_SAVE, .step = r->progress.step};
    NRL_TRY(run_emit(r, INSIDE_SAVE_HOOK, &before));
    double begun = now_seconds();
    checkpoint_begin(r->writer, r->progress.step);
    nrl_status st = strategy_average_begin(&r->strategy, r->ctx);
    if (st == NRL_OK) st = state_add(r, &a, r->writer);
    if (st == NRL_OK)
        checkpoint_submit(r->writer); /* reads weights where they lie until it returns */
    else
        checkpoint_abandon(r->writer, st);
    st = strategy_average_end(&r->strategy, r->ctx, NRL_OK); /* a failed save is told by settle */
    arena_free(&a);
    r->save_times.start = now_seconds() - begun;
    r->save_times.late = 0;
    r->last_saved = r->progress.step;
    r->last_save_time = now_seconds();
    return st;
}

nrl_status save_now(run *r, const char **path)
{
    NRL_TRY(open_writer(r));
    NRL_TRY(start(r));
    NRL_TRY(settle(r, true));
    *path = r->last_save;
    return call_hook(r);
}

static nrl_status save_together(run *r, const char **path)
{
    NRL_TRY(ranks_agree(r, "save", (uint64_t)r->progress.step));
    return save_now(r, path);
}

nrl_status nrl_run_save(run *r, const char **path)
{
    NRL_TRY(run_begin_call(r, RUN_CALL_SAVE));
    telemetry_use(&r->telemetry);
    return run_end_call(r, save_together(r, path));
}

nrl_status save_wait(run *r)
{
    if (!r->writer) return NRL_OK;
    NRL_TRY(judge(r, settle(r, true)));
    return call_hook(r);
}

nrl_status save_last(run *r)
{
    NRL_TRY(open_writer(r));
    NRL_TRY(start(r));
    return save_wait(r);
}

/* The evaluation of this step is the best so far, and the best is kept or waited for (eval.early_stop). */
static bool found_best(const run *r)
{
    const config_checkpoint *c = &r->config.checkpoint;
    bool saves = c->every || c->every_minutes > 0 || c->export == CONFIG_EXPORT_BEST;
    return saves && (c->keep_best || r->config.eval.early_stop) && r->progress.step > 0 &&
           r->progress.best_step == r->progress.step;
}

nrl_status save_due(run *r)
{
    const config_checkpoint *c = &r->config.checkpoint;
    bool due = (c->every && r->progress.step % c->every == 0) || r->save_by_clock || found_best(r);
    if (r->writer) NRL_TRY(judge(r, settle(r, false)));
    /* ranks see the end of a save after different steps, but scripts make their calls together */
    if (nrl_mesh_world(r->mesh) == 1) NRL_TRY(call_hook(r));
    if (!due || r->last_saved == r->progress.step) return NRL_OK;
    NRL_TRY(open_writer(r));
    NRL_TRY(start(r));
    return c->async ? NRL_OK : save_wait(r);
}

/* OUT/config.yaml: what this run resolved to, with what it was made of. After a crash `nrl resume` needs it: it
 * is durable, and takes the place of an earlier one as a whole. */
nrl_status save_config(run *r)
{
    char *yaml = config_write(r->config.resolved);
    char *text = mem_printf("# nrl %s, data %s, tokenizer %s\n%s", NRL_VERSION, dataset_hash(r->train_data),
                            r->tokenizer ? r->tokenizer->identity : "none", yaml);
    const char *path = arena_printf(&r->memory, "%s/config.yaml", r->config.out);
    const char *temporary = arena_printf(&r->memory, "%s.tmp", path);
    int fd;
    unlink(temporary); /* of a run that was killed here */
    nrl_status st = disk_create(temporary, &fd);
    if (st == NRL_OK) st = disk_finish(fd, temporary, disk_write(fd, temporary, text, strlen(text)));
    if (st == NRL_OK && rename(temporary, path) != 0) st = disk_fail(path, errno);
    if (st == NRL_OK) st = disk_sync_folder(r->config.out);
    if (st != NRL_OK) unlink(temporary);
    free(text);
    free(yaml);
    return st;
}
