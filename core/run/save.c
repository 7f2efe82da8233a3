/*
 * save.c - the run's whole state to a checkpoint and back: weights, optimizer states, progress, the
 * algorithm's and the script's state, and fingerprints that tell when a checkpoint belongs to
 * something else. Data order needs no state: step s is a function of seed and data alone.
 */
#include "base/json.h"
#include "checkpoint/params.h"
#include "checkpoint/visitor.h"
#include "config/config.h"
#include "run/internal.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the numbers of run_progress, one list for both directions ---- */

#define PROGRESS_FIELDS(X) X(step) X(updates) X(tokens) X(skipped_in_a_row) X(evals_without_best) X(best_step)

static nrl_node *progress_node(arena *a, const run *r)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
#define PUT(field) node_append(a, map, #field, node_int(a, r->progress.field));
    PROGRESS_FIELDS(PUT)
#undef PUT
    node_append(a, map, "best", node_f64(a, r->progress.best));
    node_append(a, map, "lr_override", node_f64(a, r->lr_override));
    return map;
}

static void progress_read(run *r, const nrl_node *map)
{
#define GET(field) r->progress.field = nrl_node_int(nrl_node_find(map, #field), 0);
    PROGRESS_FIELDS(GET)
#undef GET
    r->progress.best = nrl_node_f64(nrl_node_find(map, "best"), 0);
    r->lr_override = nrl_node_f64(nrl_node_find(map, "lr_override"), -1);
}

/* ---- what a checkpoint must agree with to be continued ---- */

static void put_text(arena *a, nrl_node *map, const char *key, const char *text)
{
    if (text) node_append(a, map, key, node_string(a, text, strlen(text)));
}

static nrl_node *fingerprint_node(arena *a, const run *r)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    put_text(a, map, "model", r->model->type);
    put_text(a, map, "data", dataset_hash(r->train_data));
    put_text(a, map, "tokenizer", r->tokenizer ? tokenizer_hash(r->tokenizer) : NULL);
    put_text(a, map, "algorithm", r->config.algorithm.name);
    put_text(a, map, "optimizer", r->config.optimizer.name);
    put_text(a, map, "script", r->env.script_hash);
    node_append(a, map, "seed", node_int(a, r->config.train.seed));
    node_append(a, map, "global_batch", node_int(a, r->config.train.global_batch));
    return map;
}

/* Everything that differs, in one error. */
static nrl_status fingerprint_check(const run *r, const nrl_node *was)
{
    arena a = {0};
    const nrl_node *is = fingerprint_node(&a, r);
    const char *text = "";
    for (size_t i = 0; i < nrl_node_size(is); i++) {
        const char *key = nrl_node_key(is, i);
        char *now = json_write(nrl_node_at(is, i), 0);
        char *then = nrl_node_find(was, key) ? json_write(nrl_node_find(was, key), 0) : mem_strdup("nothing");
        if (strcmp(now, then))
            text = arena_printf(&a, "%s\n  %s: was %s, is now %s", text, key, then, now);
        free(now);
        free(then);
    }
    nrl_status st = NRL_OK;
    if (*text)
        st = nrl_fail(NRL_ERR_CONFIG, "the checkpoint was made by another run:%s\nhint: another `out` starts afresh", text);
    arena_free(&a);
    return st;
}

/* ---- saving ---- */

static params_states states_of(const run *r)
{
    return (params_states){r->optimizer->n_states, r->optimizer->state_names};
}

static nrl_status add_algorithm_state(const run *r, arena *a, checkpoint_writer *w)
{
    if (!r->algorithm->state) return NRL_OK;
    nrl_visitor v = {.a = a, .into = node_new(a, NRL_NODE_MAP)};
    NRL_TRY(r->algorithm->state(r->algorithm_self, &v));
    checkpoint_add_node(w, "algorithm", v.into);
    return NRL_OK;
}

/* Where `nrl sample` and `nrl export` find the tokenizer of this checkpoint. */
static nrl_node *tokenizer_node(arena *a, const run *r)
{
    const char *folder = tokenizer_folder(r->tokenizer);
    const char *path = folder ? config_absolute(a, folder) : "";
    return node_string(a, path, strlen(path));
}

static nrl_status add_everything(run *r, arena *a, checkpoint_writer *w)
{
    params_states states = states_of(r);
    NRL_TRY(params_save(r->ctx, r->model, &states, w));
    checkpoint_add_node(w, "progress", progress_node(a, r));
    checkpoint_add_node(w, "fingerprints", fingerprint_node(a, r));
    checkpoint_add_node(w, "config", r->config.resolved);
    checkpoint_add_node(w, "model", r->model->config);
    if (r->tokenizer) checkpoint_add_node(w, "tokenizer", tokenizer_node(a, r));
    checkpoint_add_node(w, "nrl", node_string(a, NRL_VERSION, strlen(NRL_VERSION)));
    if (r->env.script)
        checkpoint_add_node(w, "script_path", node_string(a, r->env.script, strlen(r->env.script)));
    if (r->script_state)
        checkpoint_add_node(w, "script", node_string(a, r->script_state, strlen(r->script_state)));
    if (r->progress.best_step == r->progress.step && r->progress.step)
        checkpoint_set_metric(w, metric_is_larger_better(r->config.checkpoint.metric) ? -r->progress.best
                                                                                       : r->progress.best);
    return add_algorithm_state(r, a, w);
}

static nrl_status save_to(run *r, const char *out, char **dir)
{
    arena a = {0};
    checkpoint_writer *w = NULL;
    params_states states = states_of(r);
    nrl_status st = checkpoint_begin(out, r->progress.step, params_bytes(r->model, &states), &w);
    if (st == NRL_OK) {
        st = add_everything(r, &a, w);
        if (st == NRL_OK) st = checkpoint_commit(w, dir);
        else checkpoint_abandon(w);
    }
    arena_free(&a);
    return st;
}

nrl_status save_now(run *r, const char **path)
{
    char *dir = NULL;
    double start = now_seconds();
    if (r->hooks.before_save) NRL_TRY(r->hooks.before_save(r->hooks.user, r));
    nrl_status st = save_to(r, r->config.out, &dir);
    if (st != NRL_OK) {
        nrl_note("saving step %lld", (long long)r->progress.step);
        return st;
    }
    *path = r->last_save = arena_strdup(&r->memory, dir);
    free(dir);
    r->last_saved = r->progress.step;
    r->last_save_time = now_seconds();
    run_say(r, "saved %s in %.2f s", r->last_save, r->last_save_time - start);
    NRL_TRY(checkpoint_prune(r->config.out, r->config.checkpoint.keep, r->config.checkpoint.keep_best));
    return r->hooks.save ? r->hooks.save(r->hooks.user, r, r->progress.step, r->last_save) : NRL_OK;
}

nrl_status run_save(run *r, const char **path)
{
    return save_now(r, path);
}

nrl_status save_due(run *r)
{
    const config_checkpoint *c = &r->config.checkpoint;
    const char *path;
    bool due = c->every && r->progress.step % c->every == 0;
    if (r->save_by_clock) due = true;
    if (!due || r->last_saved == r->progress.step) return NRL_OK;
    nrl_status st = save_now(r, &path);
    if (st == NRL_OK || c->on_error == CONFIG_ON_ERROR_STOP) return st;
    nrl_warn("%s (checkpoint.on_error: warn; the run goes on)", nrl_error_text());
    r->last_save_time = now_seconds();
    return NRL_OK;
}

/* Room for a whole save is asked for and given back: a full disk shows before hours of work. */
nrl_status save_at_start(run *r)
{
    const config_checkpoint *c = &r->config.checkpoint;
    checkpoint_writer *w = NULL;
    params_states states = states_of(r);
    if (!c->save_at_start || (!c->every && c->every_minutes <= 0)) return NRL_OK;
    nrl_status st = checkpoint_begin(r->config.out, r->progress.step, params_bytes(r->model, &states), &w);
    if (st == NRL_OK) checkpoint_abandon(w);
    else nrl_note("a trial save before the first step (checkpoint.save_at_start)");
    /* else a start that failed would look like a run to the next one */
    rmdir(arena_printf(&r->memory, "%s/checkpoints", r->config.out));
    return st;
}

/* ---- resuming ---- */

static nrl_status restore(run *r, const checkpoint *c)
{
    params_states states = states_of(r);
    NRL_TRY(fingerprint_check(r, checkpoint_node(c, "fingerprints")));
    NRL_TRY(params_load(r->ctx, r->model, &states, c));
    for (int32_t i = 0; i < r->model->n_params; i++)
        NRL_TRY(storage_refresh(r->ctx, r->model->params[i]));
    progress_read(r, checkpoint_node(c, "progress"));
    run_set_script_state(r, nrl_node_string(checkpoint_node(c, "script"), NULL));
    if (!r->algorithm->state) return NRL_OK;
    nrl_visitor v = {.from = checkpoint_node(c, "algorithm")};
    return r->algorithm->state(r->algorithm_self, &v);
}

nrl_status resume_due(run *r)
{
    const char *how = r->config.resume;
    char *dir = NULL;
    checkpoint *c = NULL;
    if (!strcmp(how, "never")) return NRL_OK;
    if (!strcmp(how, "auto")) NRL_TRY(checkpoint_find_newest(r->config.out, &dir));
    else dir = mem_strdup(how);
    if (!dir) return NRL_OK; /* auto, and nothing there yet: a fresh run */
    nrl_status st = checkpoint_open(dir, &c);
    if (st == NRL_OK) st = restore(r, c);
    if (st != NRL_OK) nrl_note("resuming from %s", dir);
    else r->last_saved = r->progress.step;
    r->last_save = arena_strdup(&r->memory, dir);
    if (c) checkpoint_close(c);
    free(dir);
    return st;
}

/* OUT/config.yaml: what this run resolved to, with what it was made of. */
nrl_status save_config(run *r)
{
    char *yaml = config_write(r->config.resolved);
    const char *path = arena_printf(&r->memory, "%s/config.yaml", r->config.out);
    FILE *f = fopen(path, "w");
    int bad = !f || fprintf(f, "# nrl %s, data %s, tokenizer %s\n%s", NRL_VERSION,
                            dataset_hash(r->train_data),
                            r->tokenizer ? tokenizer_hash(r->tokenizer) : "none", yaml) < 0;
    if (f && fclose(f)) bad = 1;
    free(yaml);
    if (!bad) return NRL_OK;
    return nrl_fail(errno == ENOSPC ? NRL_ERR_FULL : NRL_ERR_IO, "cannot write '%s': %s", path,
                    strerror(errno));
}

const char *run_script_state(const run *r)
{
    return r->script_state;
}

void run_set_script_state(run *r, const char *json)
{
    char *copy = json ? mem_strdup(json) : NULL;
    free(r->script_state);
    r->script_state = copy;
}
