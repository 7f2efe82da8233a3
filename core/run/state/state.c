/*
 * state.c - the state of a run in a checkpoint: weights, optimizer states, progress, the state of the algorithm, of the
 * strategy and of the script, and a description of the run. The order of the data needs no state: step s is a function
 * of the seed and the data alone.
 */
#include "run/state/state.h"
#include "run/state/params.h"
#include "run/state/state_io.h"
#include "tensor/split16.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- saving ---- */

static params_scope scope_of(const state_parts *s)
{
    const update_plan *updates = s->trainer->parts.updates;
    return (params_scope){.mesh = s->trainer->parts.mesh,
                          .trained_only = s->model->adapters,
                          .n_states = updates->n_states,
                          .state_names = updates->state_names,
                          .reads = optimizer_state_reads,
                          .reads_user = updates};
}

int64_t state_bytes(const state_parts *s)
{
    const params_scope scope = scope_of(s);
    return params_bytes(s->model, &scope) + optimizer_state_bytes(s->trainer->parts.updates);
}

static nrl_state_io state_io_of(const nrl_mesh *mesh, const char *owner)
{
    return (nrl_state_io){.rank = nrl_mesh_rank(mesh), .world = nrl_mesh_world(mesh), .owner = owner};
}

/* The state of a strategy, of which every rank has its own. The key of the axis that takes the remaining
 * ranks is "parallel", the keys of others are "parallel.AXIS". */
static nrl_state_io strategy_state_io(const nrl_mesh *mesh, arena *a, const strategy_member *one)
{
    return state_io_of(mesh, one->axis->takes_rest ? "parallel" : arena_printf(a, "parallel.%s", one->axis->name));
}

nrl_status state_add(const state_parts *s, arena *a, checkpoint_writer *w)
{
    const trainer *tr = s->trainer;
    const work *walk = tr->parts.work;
    const run_progress *p = &tr->progress;
    const params_scope scope = scope_of(s);
    nrl_node *run;
    NRL_TRY(params_save(walk->ctx, s->model, &scope, w));
    NRL_TRY(optimizer_state_save(tr->parts.updates, walk->ctx, a, w));
    checkpoint_add_node(w, "progress", progress_node(a, p, tr->lr_override));
    if (tr->loss_scale.rule.dynamic) { /* a constant scale comes from the config */
        nrl_node *map = node_new(a, NRL_NODE_MAP);
        node_append(a, map, "scale", node_f64(a, tr->loss_scale.scale));
        node_append_int(a, map, "good_steps", tr->loss_scale.good_steps);
        node_append_int(a, map, "overflows", tr->loss_scale.overflows);
        checkpoint_add_node(w, "loss_scale", map);
    }
    nrl_node *fp8 = fp8_scaling_node(&tr->fp8, a);
    if (fp8) checkpoint_add_node(w, "fp8", fp8);
    NRL_TRY(s->describe(s->user, a, &run));
    for (size_t i = 0; i < nrl_node_size(run); i++)
        checkpoint_add_node(w, nrl_node_key(run, i), nrl_node_at(run, i));
    checkpoint_add_node(w, "time", node_int(a, (int64_t)time(NULL)));
    checkpoint_add_node(w, "nrl", node_text(a, NRL_VERSION));
    if (tr->script_state) checkpoint_add_node(w, "script", node_text(a, tr->script_state));
    if (p->step && p->judged_step == p->step && isfinite(p->judged)) checkpoint_set_metric(w, p->judged);
    if (walk->algorithm->state) {
        nrl_state_io v = state_io_of(tr->parts.mesh, "algorithm");
        v.a = a;
        v.into = node_new(a, NRL_NODE_MAP);
        v.writer = w;
        v.same_on_all_ranks = true;
        NRL_TRY(walk->algorithm->state(walk->algorithm_self, &v));
        checkpoint_add_node(w, "algorithm", v.into);
    }
    for (int32_t i = 0; i < walk->strategy->n; i++) {
        const strategy_member *one = &walk->strategy->of[i];
        if (!one->table->state) continue;
        nrl_state_io v = strategy_state_io(tr->parts.mesh, a, one);
        v.a = a;
        v.into = node_new(a, NRL_NODE_MAP);
        v.writer = w;
        NRL_TRY(one->table->state(one->self, walk->ctx, &v));
        checkpoint_add_rank_node(w, v.owner, v.into);
    }
    return NRL_OK;
}

/* ---- restoring ---- */

static nrl_status restore_strategies(const trainer_parts *t, arena *a, checkpoint *c)
{
    /* Whether rank numbers mean the same coordinates as in this run. Axes have a fixed order, so equal sizes give equal
     * coordinates. */
    const char *was = nrl_node_string(checkpoint_node(c, "mesh"), NULL);
    bool same = was && checkpoint_world(c) == nrl_mesh_world(t->mesh);
    char name[MESH_AXIS_NAME];
    int size, read;
    for (; same && sscanf(was, "%23s %d%n", name, &size, &read) == 2; was += read)
        same = nrl_mesh_size(t->mesh, name) == size;
    for (int32_t i = 0; i < t->work->strategy->n; i++) {
        const strategy_member *one = &t->work->strategy->of[i];
        if (!one->table->state) continue;
        nrl_state_io v = strategy_state_io(t->mesh, a, one);
        v.saved = same ? c : NULL;
        v.optional = v.may_lack = true; /* options of strategies may change, which adds states */
        if (same) v.from = checkpoint_rank_node(c, v.rank, v.owner);
        NRL_TRY(one->table->state(one->self, t->work->ctx, &v));
    }
    return NRL_OK;
}

/* Checks that the checkpoint has adapters if this run has some, and else full weights. */
static nrl_status check_kind(const state_parts *s, const checkpoint *c)
{
    bool saved = checkpoint_node(c, "adapters");
    const adapter_set *own = s->model->adapters;
    if (saved && !own)
        return nrl_fail(NRL_ERR_CONFIG,
                        "it contains adapters, but this run has no section %s\n"
                        "hint: set model.path to the checkpoint to continue with merged weights, in another `out`",
                        nrl_node_string(nrl_node_find(checkpoint_node(c, "adapters"), "adapter"), "adapter"));
    if (!saved && own)
        return nrl_fail(NRL_ERR_CONFIG,
                        "it contains full weights, but this run trains adapters (%s)\n"
                        "hint: set model.path to the checkpoint to train adapters on its weights, in another `out`",
                        own->table->plugin.name);
    return NRL_OK;
}

static nrl_status restore_algorithm(const state_parts *s, const work *w, checkpoint *c)
{
    if (!w->algorithm->state) return NRL_OK;
    nrl_state_io v = state_io_of(s->trainer->parts.mesh, "algorithm");
    v.from = checkpoint_node(c, "algorithm");
    v.may_lack = s->mismatch_warns;
    v.saved = c;
    return w->algorithm->state(w->algorithm_self, &v);
}

typedef struct {
    origin_reader *base;
    origin_stream trained;
} adapted;

static nrl_status adapted_read(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    adapted *from = user;
    if (!p->trained) return origin_read(from->base, p, begin, n, out);
    return origin_stream_read(&from->trained, p, begin, n, out);
}

/* The frozen weights are in the compute dtype alone, so all are loaded as at a start, adapters from
 * the checkpoint. */
static nrl_status load_adapters(const state_parts *s, checkpoint *c)
{
    adapted from = {.trained.c = c};
    NRL_TRY(origin_open(s->origin, s->model, &from.base));
    nrl_status st = storage_load(s->trainer->parts.work->ctx, s->model, s->trainer->parts.mesh, adapted_read, &from);
    origin_close(from.base);
    free(from.trained.raw);
    return st;
}

nrl_status state_restore_weights(const state_parts *s, checkpoint *c)
{
    const model_origin from = {.checkpoint = checkpoint_dir(c), .formats = s->formats, .signer = checkpoint_signer(c)};
    trainer *tr = s->trainer;
    const work *w = tr->parts.work;
    NRL_TRY(check_kind(s, c));
    /* Adapters are only valid on their own base. */
    const char *was = nrl_node_string(nrl_node_find(checkpoint_node(c, "base"), "key"), ""), *key = "";
    if (s->model->adapters) NRL_TRY(s->base_key(s->user, &key));
    if (strcmp(key, was))
        return nrl_fail(NRL_ERR_CONFIG, "its adapters were trained on other weights: hash %.32s, now %s", was, key);
    NRL_TRY(s->model->adapters ? load_adapters(s, c) : origin_load(&from, w->ctx, s->model, tr->parts.mesh));
    if (checkpoint_node(c, "progress")) NRL_TRY(progress_read(c, &tr->progress, &tr->lr_override));
    NRL_TRY(strategy_updated(w->strategy, w->ctx, 0));
    return restore_algorithm(s, w, c);
}

/* Compares the run with the one that wrote the checkpoint. */
static nrl_status compare(const state_parts *s, checkpoint *c)
{
    arena a = {0};
    nrl_node *run;
    nrl_status st = s->describe(s->user, &a, &run);
    if (st == NRL_OK) st = fingerprint_check(s, run, c);
    arena_free(&a);
    return st;
}

nrl_status state_restore(const state_parts *s, checkpoint *c)
{
    trainer *tr = s->trainer;
    const work *w = tr->parts.work;
    const update_plan *updates = tr->parts.updates;
    const params_scope scope = scope_of(s);
    NRL_TRY(progress_check_nodes(c));
    if (!checkpoint_node(c, "config") && !checkpoint_node(c, "progress")) /* of `nrl import` */
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: contains only weights, not the state of a run\nhint: model.path=%s trains from them",
                        checkpoint_dir(c), checkpoint_dir(c));
    if (!checkpoint_node(c, "config") || !checkpoint_node(c, "model") || !checkpoint_node(c, "fingerprints"))
        return nrl_fail(NRL_ERR_CORRUPT, "%s/manifest.json: it lacks config, model or fingerprints", checkpoint_dir(c));
    NRL_TRY(check_kind(s, c));
    NRL_TRY(compare(s, c));
    NRL_TRY(optimizer_state_check(updates, c));
    NRL_TRY(params_check_read(s->model, &scope, c));
    NRL_TRY(params_load(w->ctx, s->model, &scope, c));
    NRL_TRY(optimizer_state_load(updates, w->ctx, c));
    for (int32_t i = 0; i < s->model->n_params; i++)
        NRL_TRY(param_refresh(w->ctx, s->model->params[i]));
    NRL_TRY(progress_read(c, &tr->progress, &tr->lr_override));
    if (checkpoint_node(c, "data") && !s->restores_data)
        return nrl_fail(NRL_ERR_CONFIG, "the run has changed its data, which this program cannot restore "
                                        "(nrl_environment.services)");
    NRL_TRY(fp8_scaling_read(&tr->fp8, checkpoint_node(c, "fp8")));
    const nrl_node *map = checkpoint_node(c, "loss_scale");
    loss_scale *scale = &tr->loss_scale;
    if (scale->rule.dynamic && map) {
        scale->scale = nrl_node_f64(nrl_node_find(map, "scale"), 0);
        scale->good_steps = nrl_node_int(nrl_node_find(map, "good_steps"), -1);
        scale->overflows = nrl_node_int(nrl_node_find(map, "overflows"), -1);
        if (!(scale->scale > 0 && scale->scale <= FLT_MAX) || scale->good_steps < 0 || scale->overflows < 0)
            return nrl_fail(NRL_ERR_CORRUPT,
                            "loss_scale: got scale %g, %lld good steps and %lld overflows, expected a scale above 0 "
                            "and counts",
                            scale->scale, (long long)scale->good_steps, (long long)scale->overflows);
    }
    trainer_set_script_state(tr, nrl_node_string(checkpoint_node(c, "script"), NULL));
    arena a = {0};
    nrl_status st = restore_strategies(&tr->parts, &a, c);
    arena_free(&a);
    NRL_TRY(st);
    NRL_TRY(strategy_updated(w->strategy, w->ctx, 0));
    return restore_algorithm(s, w, c);
}
