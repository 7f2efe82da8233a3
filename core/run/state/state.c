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

static params_scope scope_of(const trainer *tr)
{
    return (params_scope){.mesh = tr->session->mesh,
                          .trained_only = tr->session->model->adapters,
                          .n_states = tr->session->updates.n_states,
                          .state_names = tr->session->updates.state_names,
                          .reads = optimizer_state_reads,
                          .reads_user = &tr->session->updates};
}

int64_t state_bytes(const trainer *tr)
{
    params_scope scope = scope_of(tr);
    return params_bytes(tr->session->model, &scope) + optimizer_state_bytes(&tr->session->updates);
}

/* Every rank's own; that of the axis that takes what ranks are left is called "parallel", others "parallel.AXIS". */
static nrl_state_io strategy_state_io(const trainer *tr, arena *a, const strategy_member *one)
{
    return (nrl_state_io){.rank = nrl_mesh_rank(tr->session->mesh),
                          .world = nrl_mesh_world(tr->session->mesh),
                          .owner =
                              one->axis->takes_rest ? "parallel" : arena_printf(a, "parallel.%s", one->axis->name)};
}

static void add_text(arena *a, checkpoint_writer *w, const char *key, const char *text)
{
    if (text) checkpoint_add_node(w, key, node_string(a, text, strlen(text)));
}

/* "NAME VERSION, HASH" of a plugin; NULL where there is none. */
static const char *identity_text(trainer *tr, arena *a, const nrl_plugin *p)
{
    const char *text;
    if (!p || plugin_identity(tr->session->host, p->kind, p->name, a, &text) != NRL_OK) return NULL;
    return arena_printf(a, "%s %s", p->name, text);
}

static void add_nodes(trainer *tr, arena *a, checkpoint_writer *w)
{
    checkpoint_add_node(w, "progress", progress_node(a, &tr->progress, tr->lr_override));
    if (tr->session->later_node) checkpoint_add_node(w, "data", node_copy(a, tr->session->later_node));
    if (tr->loss_scale.rule.dynamic) { /* a scale that stays is the config's */
        nrl_node *map = node_new(a, NRL_NODE_MAP);
        node_append(a, map, "scale", node_f64(a, tr->loss_scale.scale));
        node_append(a, map, "good_steps", node_int(a, tr->loss_scale.good_steps));
        node_append(a, map, "overflows", node_int(a, tr->loss_scale.overflows));
        checkpoint_add_node(w, "loss_scale", map);
    }
    checkpoint_add_node(w, "fingerprints", fingerprint_node(a, tr));
    checkpoint_add_node(w, "config", node_as_written(a, tr->session->config.resolved));
    checkpoint_add_node(w, "plugins", plugins_node(a, tr));
    checkpoint_add_node(w, "model", tr->session->model->config);
    checkpoint_add_node(w, "time", node_int(a, (int64_t)time(NULL)));
    const char *shape = ""; /* "AXIS 2 AXIS 4": what belongs to a rank comes back to a mesh of this shape */
    for (size_t i = 0; i < tr->session->config.n_axes; i++) {
        const char *name = tr->session->config.axes[i].axis->name;
        shape = arena_printf(a, "%s%s%s %d", shape, i ? " " : "", name, (int)nrl_mesh_size(tr->session->mesh, name));
    }
    add_text(a, w, "mesh", shape);
    /* Where `nrl sample` and `nrl export` find the tokenizer of this checkpoint. */
    const char *folder = tr->session->tokenizer ? tr->session->tokenizer->info.folder : NULL;
    add_text(a, w, "tokenizer", folder ? paths_absolute(a, folder) : tr->session->tokenizer ? "" : NULL);
    add_text(a, w, "chat_template", session_template(tr->session, a));
    add_text(a, w, "nrl", NRL_VERSION);
    add_text(a, w, "format",
             identity_text(tr, a, tr->session->origin.format ? &tr->session->origin.format->plugin : NULL));
    add_text(a, w, "adapter",
             identity_text(tr, a, tr->session->model->adapters ? &tr->session->model->adapters->table->plugin : NULL));
    add_text(a, w, "script_path", tr->session->env.script);
    add_text(a, w, "frontend", tr->session->env.frontend);
    add_text(a, w, "script", tr->script_state);
    if (tr->progress.best_step != tr->progress.step || !tr->progress.step) return;
    checkpoint_set_metric(w, tr->session->best_is_largest ? -tr->progress.best : tr->progress.best);
}

nrl_status state_add(trainer *tr, arena *a, checkpoint_writer *w)
{
    params_scope scope = scope_of(tr);
    NRL_TRY(params_save(tr->session->ctx, tr->session->model, &scope, w));
    NRL_TRY(optimizer_state_save(&tr->session->updates, tr->session->ctx, a, w));
    if (tr->session->model->adapters) { /* saved without what they stand on, which is told apart by its hash */
        model_origin base = tr->session->origin;
        const char *key;
        NRL_TRY(adapter_base(tr->session, &key));
        base.adapter_dir = NULL;
        checkpoint_add_node(w, "adapters", node_copy(a, tr->session->model->adapters->settings));
        checkpoint_add_node(w, "base", origin_base_node(a, &base, key));
    }
    add_nodes(tr, a, w);
    if (tr->session->algorithm->state) {
        nrl_state_io v = {.a = a, .into = node_new(a, NRL_NODE_MAP)};
        NRL_TRY(tr->session->algorithm->state(tr->session->algorithm_self, &v));
        checkpoint_add_node(w, "algorithm", v.into);
    }
    for (int32_t i = 0; i < tr->session->strategy.n; i++) {
        const strategy_member *one = &tr->session->strategy.of[i];
        if (!one->table->state) continue;
        nrl_state_io v = strategy_state_io(tr, a, one);
        v.a = a;
        v.into = node_new(a, NRL_NODE_MAP);
        v.writer = w;
        NRL_TRY(one->table->state(one->self, tr->session->ctx, &v));
        checkpoint_add_rank_node(w, v.owner, v.into);
    }
    return NRL_OK;
}

/* ---- restoring ---- */

static nrl_status restore_strategies(const trainer *tr, arena *a, checkpoint *c)
{
    /* Whether ranks mean the same coordinates as now. Axes stand in one order, so equal sizes are equal coordinates. */
    const char *was = nrl_node_string(checkpoint_node(c, "mesh"), NULL);
    bool same = was && checkpoint_world(c) == nrl_mesh_world(tr->session->mesh);
    char name[MESH_AXIS_NAME];
    int size, read;
    for (; same && sscanf(was, "%23s %d%n", name, &size, &read) == 2; was += read)
        same = nrl_mesh_size(tr->session->mesh, name) == size;
    for (int32_t i = 0; i < tr->session->strategy.n; i++) {
        const strategy_member *one = &tr->session->strategy.of[i];
        if (!one->table->state) continue;
        nrl_state_io v = strategy_state_io(tr, a, one);
        v.saved = same ? c : NULL;
        v.optional = true;
        if (same) v.from = checkpoint_rank_node(c, v.rank, v.owner);
        NRL_TRY(one->table->state(one->self, tr->session->ctx, &v));
    }
    return NRL_OK;
}

/* Of adapters or of whole weights, as this run. */
static nrl_status check_kind(trainer *tr, const checkpoint *c)
{
    bool saved = checkpoint_node(c, "adapters");
    const char *key;
    if (saved && !tr->session->model->adapters)
        return nrl_fail(NRL_ERR_CONFIG,
                        "it holds adapters, and this run has no section %s\n"
                        "hint: model.path: the checkpoint goes on with the two merged, in an `out` of its own",
                        nrl_node_string(nrl_node_find(checkpoint_node(c, "adapters"), "adapter"), "adapter"));
    if (!saved && tr->session->model->adapters)
        return nrl_fail(NRL_ERR_CONFIG,
                        "it holds whole weights, and this run trains adapters (%s)\n"
                        "hint: model.path: the checkpoint attaches them to its weights, in an `out` of its own",
                        tr->session->adapter->plugin.name);
    return saved ? adapter_base(tr->session, &key) : NRL_OK;
}

static nrl_status restore_algorithm(trainer *tr, checkpoint *c)
{
    if (!tr->session->algorithm->state) return NRL_OK;
    nrl_state_io v = {.from = checkpoint_node(c, "algorithm")};
    return tr->session->algorithm->state(tr->session->algorithm_self, &v);
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
static nrl_status load_adapters(trainer *tr, checkpoint *c)
{
    adapted from = {.trained.c = c};
    NRL_TRY(origin_open(&tr->session->origin, tr->session->model, &from.base));
    nrl_status st = storage_load(tr->session->ctx, tr->session->model, tr->session->mesh, adapted_read, &from);
    origin_close(from.base);
    free(from.trained.raw);
    return st;
}

nrl_status state_restore_weights(trainer *tr, checkpoint *c)
{
    const model_origin from = {.checkpoint = checkpoint_dir(c), .formats = &tr->session->formats};
    NRL_TRY(check_kind(tr, c));
    /* Adapters say something on their own base alone. */
    const char *was = nrl_node_string(nrl_node_find(checkpoint_node(c, "base"), "key"), ""), *key = "";
    if (tr->session->model->adapters) NRL_TRY(adapter_base(tr->session, &key));
    if (strcmp(key, was))
        return nrl_fail(NRL_ERR_CONFIG, "its adapters were trained on other weights: their hash was %.32s, is now %s",
                        was, key);
    NRL_TRY(tr->session->model->adapters ? load_adapters(tr, c)
                                         : origin_load(&from, tr->session->ctx, tr->session->model, tr->session->mesh));
    if (checkpoint_node(c, "progress")) NRL_TRY(progress_read(c, &tr->progress, &tr->lr_override));
    NRL_TRY(strategy_updated(&tr->session->strategy, tr->session->ctx, 0));
    return restore_algorithm(tr, c);
}

nrl_status state_restore(trainer *tr, checkpoint *c)
{
    params_scope scope = scope_of(tr);
    NRL_TRY(progress_check_nodes(c));
    if (!checkpoint_node(c, "config") && !checkpoint_node(c, "progress")) /* of `nrl import` */
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: holds weights alone, not the state of a run\n"
                        "hint: model.path=%s trains from them",
                        checkpoint_dir(c), checkpoint_dir(c));
    if (!checkpoint_node(c, "config") || !checkpoint_node(c, "model") || !checkpoint_node(c, "fingerprints"))
        return nrl_fail(NRL_ERR_CORRUPT, "%s/manifest.json: it lacks config, model or fingerprints", checkpoint_dir(c));
    NRL_TRY(check_kind(tr, c));
    NRL_TRY(fingerprint_check(tr, c));
    NRL_TRY(optimizer_state_check(&tr->session->updates, c));
    NRL_TRY(params_check_read(tr->session->model, &scope, c));
    NRL_TRY(params_load(tr->session->ctx, tr->session->model, &scope, c));
    NRL_TRY(optimizer_state_load(&tr->session->updates, tr->session->ctx, c));
    for (int32_t i = 0; i < tr->session->model->n_params; i++)
        NRL_TRY(param_refresh(tr->session->ctx, tr->session->model->params[i]));
    NRL_TRY(progress_read(c, &tr->progress, &tr->lr_override));
    if (checkpoint_node(c, "data") && !tr->session->env.services)
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
    nrl_status st = restore_strategies(tr, &a, c);
    arena_free(&a);
    NRL_TRY(st);
    NRL_TRY(strategy_updated(&tr->session->strategy, tr->session->ctx, 0));
    return restore_algorithm(tr, c);
}
