/*
 * state.c - what a checkpoint holds of a run: weights, optimizer states, progress, the algorithm's, the
 * strategy's and the script's state, and fingerprints that tell when it belongs to something else. Data
 * order needs no state: step s is a function of seed and data alone.
 */
#include "run/state/state.h"
#include "base/paths.h"
#include "run/state/params.h"
#include "run/state/state_io.h"
#include "config/config.h"
#include "tensor/split16.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- saving ---- */

static params_scope scope_of(const session *se)
{
    return (params_scope){.mesh = se->mesh,
                          .trained_only = se->model->adapters,
                          .n_states = se->updates.n_states,
                          .state_names = se->updates.state_names,
                          .reads = optimizer_state_reads,
                          .reads_user = &se->updates};
}

int64_t state_bytes(const session *se)
{
    params_scope scope = scope_of(se);
    return params_bytes(se->model, &scope) + optimizer_state_bytes(&se->updates);
}

/* Every rank's own; that of the axis that takes what ranks are left is called "parallel", others "parallel.AXIS". */
static nrl_state_io strategy_state_io(const session *se, arena *a, const strategy_member *one)
{
    return (nrl_state_io){.rank = nrl_mesh_rank(se->mesh),
                          .world = nrl_mesh_world(se->mesh),
                          .owner =
                              one->axis->takes_rest ? "parallel" : arena_printf(a, "parallel.%s", one->axis->name)};
}

static void add_text(arena *a, checkpoint_writer *w, const char *key, const char *text)
{
    if (text) checkpoint_add_node(w, key, node_string(a, text, strlen(text)));
}

/* "NAME VERSION, HASH" of a plugin; NULL where there is none. */
static const char *identity_text(const session *se, arena *a, const nrl_plugin *p)
{
    const char *text;
    if (!p || plugin_identity(se->host, p->kind, p->name, a, &text) != NRL_OK) return NULL;
    return arena_printf(a, "%s %s", p->name, text);
}

static void add_nodes(const session *se, const trainer *tr, arena *a, checkpoint_writer *w)
{
    checkpoint_add_node(w, "progress", progress_node(a, &tr->progress, tr->lr_override));
    if (se->later_node) checkpoint_add_node(w, "data", node_copy(a, se->later_node));
    if (tr->loss_scale.rule.dynamic) { /* a scale that stays is the config's */
        nrl_node *map = node_new(a, NRL_NODE_MAP);
        node_append(a, map, "scale", node_f64(a, tr->loss_scale.scale));
        node_append(a, map, "good_steps", node_int(a, tr->loss_scale.good_steps));
        node_append(a, map, "overflows", node_int(a, tr->loss_scale.overflows));
        checkpoint_add_node(w, "loss_scale", map);
    }
    checkpoint_add_node(w, "fingerprints", fingerprint_node(a, se));
    checkpoint_add_node(w, "config", node_as_written(a, se->config.resolved));
    checkpoint_add_node(w, "plugins", plugins_node(a, se));
    checkpoint_add_node(w, "model", se->model->config);
    checkpoint_add_node(w, "time", node_int(a, (int64_t)time(NULL)));
    const char *shape = ""; /* "AXIS 2 AXIS 4": what belongs to a rank comes back to a mesh of this shape */
    for (size_t i = 0; i < se->config.n_axes; i++) {
        const char *name = se->config.axes[i].axis->name;
        shape = arena_printf(a, "%s%s%s %d", shape, i ? " " : "", name, (int)nrl_mesh_size(se->mesh, name));
    }
    add_text(a, w, "mesh", shape);
    /* Where `nrl sample` and `nrl export` find the tokenizer of this checkpoint. */
    const char *folder = se->tokenizer ? se->tokenizer->info.folder : NULL;
    add_text(a, w, "tokenizer", folder ? paths_absolute(a, folder) : se->tokenizer ? "" : NULL);
    if (se->new_tokens) checkpoint_add_node(w, "new_tokens", node_copy(a, se->new_tokens));
    add_text(a, w, "chat_template", session_template(se, a));
    add_text(a, w, "nrl", NRL_VERSION);
    add_text(a, w, "format", identity_text(se, a, se->origin.format ? &se->origin.format->plugin : NULL));
    add_text(a, w, "adapter", identity_text(se, a, se->model->adapters ? &se->model->adapters->table->plugin : NULL));
    add_text(a, w, "script_path", se->env.script);
    add_text(a, w, "frontend", se->env.frontend);
    add_text(a, w, "script", tr->script_state);
    if (tr->progress.best_step != tr->progress.step || !tr->progress.step) return;
    checkpoint_set_metric(w, se->best_is_largest ? -tr->progress.best : tr->progress.best);
}

nrl_status state_add(session *se, const trainer *tr, arena *a, checkpoint_writer *w)
{
    params_scope scope = scope_of(se);
    NRL_TRY(params_save(se->ctx, se->model, &scope, w));
    NRL_TRY(optimizer_state_save(&se->updates, se->ctx, a, w));
    if (se->model->adapters) { /* saved without what they stand on, which is told apart by its hash */
        model_origin base = se->origin;
        const char *key;
        NRL_TRY(adapter_base(se, &key));
        base.adapter_dir = NULL;
        checkpoint_add_node(w, "adapters", node_copy(a, se->model->adapters->settings));
        checkpoint_add_node(w, "base", origin_base_node(a, &base, key));
    }
    add_nodes(se, tr, a, w);
    if (se->algorithm->state) {
        nrl_state_io v = {.a = a, .into = node_new(a, NRL_NODE_MAP)};
        NRL_TRY(se->algorithm->state(se->algorithm_self, &v));
        checkpoint_add_node(w, "algorithm", v.into);
    }
    for (int32_t i = 0; i < se->strategy.n; i++) {
        const strategy_member *one = &se->strategy.of[i];
        if (!one->table->state) continue;
        nrl_state_io v = strategy_state_io(se, a, one);
        v.a = a;
        v.into = node_new(a, NRL_NODE_MAP);
        v.writer = w;
        NRL_TRY(one->table->state(one->self, se->ctx, &v));
        checkpoint_add_rank_node(w, v.owner, v.into);
    }
    return NRL_OK;
}

/* ---- restoring ---- */

static nrl_status restore_strategies(const session *se, arena *a, checkpoint *c)
{
    /* Whether ranks mean the same coordinates as now. Axes stand in one order, so equal sizes are equal coordinates. */
    const char *was = nrl_node_string(checkpoint_node(c, "mesh"), NULL);
    bool same = was && checkpoint_world(c) == nrl_mesh_world(se->mesh);
    char name[MESH_AXIS_NAME];
    int size, read;
    for (; same && sscanf(was, "%23s %d%n", name, &size, &read) == 2; was += read)
        same = nrl_mesh_size(se->mesh, name) == size;
    for (int32_t i = 0; i < se->strategy.n; i++) {
        const strategy_member *one = &se->strategy.of[i];
        if (!one->table->state) continue;
        nrl_state_io v = strategy_state_io(se, a, one);
        v.saved = same ? c : NULL;
        v.optional = true;
        if (same) v.from = checkpoint_rank_node(c, v.rank, v.owner);
        NRL_TRY(one->table->state(one->self, se->ctx, &v));
    }
    return NRL_OK;
}

/* Of adapters or of whole weights, as this run. */
static nrl_status check_kind(session *se, const checkpoint *c)
{
    bool saved = checkpoint_node(c, "adapters");
    const char *key;
    if (saved && !se->model->adapters)
        return nrl_fail(NRL_ERR_CONFIG,
                        "it holds adapters, and this run has no section %s\n"
                        "hint: model.path: the checkpoint goes on with the two merged, in an `out` of its own",
                        nrl_node_string(nrl_node_find(checkpoint_node(c, "adapters"), "adapter"), "adapter"));
    if (!saved && se->model->adapters)
        return nrl_fail(NRL_ERR_CONFIG,
                        "it holds whole weights, and this run trains adapters (%s)\n"
                        "hint: model.path: the checkpoint attaches them to its weights, in an `out` of its own",
                        se->adapter->plugin.name);
    return saved ? adapter_base(se, &key) : NRL_OK;
}

static nrl_status restore_algorithm(const session *se, checkpoint *c)
{
    if (!se->algorithm->state) return NRL_OK;
    nrl_state_io v = {.from = checkpoint_node(c, "algorithm")};
    return se->algorithm->state(se->algorithm_self, &v);
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
static nrl_status load_adapters(session *se, checkpoint *c)
{
    adapted from = {.trained.c = c};
    NRL_TRY(origin_open(&se->origin, se->model, &from.base));
    nrl_status st = storage_load(se->ctx, se->model, se->mesh, adapted_read, &from);
    origin_close(from.base);
    free(from.trained.raw);
    return st;
}

nrl_status state_restore_weights(session *se, trainer *tr, checkpoint *c)
{
    const model_origin from = {.checkpoint = checkpoint_dir(c), .formats = &se->formats};
    NRL_TRY(check_kind(se, c));
    /* Adapters say something on their own base alone. */
    const char *was = nrl_node_string(nrl_node_find(checkpoint_node(c, "base"), "key"), ""), *key = "";
    if (se->model->adapters) NRL_TRY(adapter_base(se, &key));
    if (strcmp(key, was))
        return nrl_fail(NRL_ERR_CONFIG, "its adapters were trained on other weights: their hash was %.32s, is now %s",
                        was, key);
    NRL_TRY(se->model->adapters ? load_adapters(se, c) : origin_load(&from, se->ctx, se->model, se->mesh));
    if (checkpoint_node(c, "progress")) NRL_TRY(progress_read(c, &tr->progress, &tr->lr_override));
    NRL_TRY(strategy_updated(&se->strategy, se->ctx, 0));
    return restore_algorithm(se, c);
}

nrl_status state_restore(session *se, trainer *tr, checkpoint *c)
{
    params_scope scope = scope_of(se);
    NRL_TRY(progress_check_nodes(c));
    if (!checkpoint_node(c, "config") && !checkpoint_node(c, "progress")) /* of `nrl import` */
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: holds weights alone, not the state of a run\n"
                        "hint: model.path=%s trains from them",
                        checkpoint_dir(c), checkpoint_dir(c));
    if (!checkpoint_node(c, "config") || !checkpoint_node(c, "model") || !checkpoint_node(c, "fingerprints"))
        return nrl_fail(NRL_ERR_CORRUPT, "%s/manifest.json: it lacks config, model or fingerprints", checkpoint_dir(c));
    NRL_TRY(check_kind(se, c));
    NRL_TRY(fingerprint_check(se, &tr->schedule, c));
    NRL_TRY(optimizer_state_check(&se->updates, c));
    NRL_TRY(params_check_read(se->model, &scope, c));
    NRL_TRY(params_load(se->ctx, se->model, &scope, c));
    NRL_TRY(optimizer_state_load(&se->updates, se->ctx, c));
    for (int32_t i = 0; i < se->model->n_params; i++)
        NRL_TRY(param_refresh(se->ctx, se->model->params[i]));
    NRL_TRY(progress_read(c, &tr->progress, &tr->lr_override));
    if (checkpoint_node(c, "data") && !se->env.services)
        return nrl_fail(NRL_ERR_CONFIG, "the run has set other data, which this program cannot restore "
                                        "(nrl_environment.services)");
    const nrl_node *map = checkpoint_node(c, "loss_scale");
    loss_scale *s = &tr->loss_scale;
    if (s->rule.dynamic && map) {
        s->scale = nrl_node_f64(nrl_node_find(map, "scale"), 0);
        s->good_steps = nrl_node_int(nrl_node_find(map, "good_steps"), -1);
        s->overflows = nrl_node_int(nrl_node_find(map, "overflows"), -1);
        if (!(s->scale > 0 && s->scale <= FLT_MAX) || s->good_steps < 0 || s->overflows < 0)
            return nrl_fail(NRL_ERR_CORRUPT,
                            "loss_scale: scale %g after %lld good steps and %lld overflows, expected a "
                            "number above 0 and counts",
                            s->scale, (long long)s->good_steps, (long long)s->overflows);
    }
    trainer_set_script_state(tr, nrl_node_string(checkpoint_node(c, "script"), NULL));
    arena a = {0};
    nrl_status st = restore_strategies(se, &a, c);
    arena_free(&a);
    NRL_TRY(st);
    NRL_TRY(strategy_updated(&se->strategy, se->ctx, 0));
    return restore_algorithm(se, c);
}
