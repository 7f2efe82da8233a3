/*
 * state.c - what a checkpoint holds of a run: weights, optimizer states, progress, the algorithm's, the
 * strategy's and the script's state, and fingerprints that tell when it belongs to something else. Data
 * order needs no state: step s is a function of seed and data alone.
 */
#include "run/state/state.h"
#include "checkpoint/params.h"
#include "checkpoint/state_io.h"
#include "config/config.h"
#include "run/state/fingerprint.h"
#include "run/state/progress.h"
#include "tensor/split16.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A scale that stays is the config's. */
static nrl_node *scale_node(arena *a, const loss_scale *s)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append(a, map, "scale", node_f64(a, s->scale));
    node_append(a, map, "good_steps", node_int(a, s->good_steps));
    node_append(a, map, "overflows", node_int(a, s->overflows));
    return map;
}

static nrl_status scale_read(loss_scale *s, const nrl_node *map)
{
    if (!s->rule.dynamic || !map) return NRL_OK;
    s->scale = nrl_node_f64(nrl_node_find(map, "scale"), 0);
    s->good_steps = nrl_node_int(nrl_node_find(map, "good_steps"), -1);
    s->overflows = nrl_node_int(nrl_node_find(map, "overflows"), -1);
    if (s->scale > 0 && s->scale <= FLT_MAX && s->good_steps >= 0 && s->overflows >= 0) return NRL_OK;
    return nrl_fail(NRL_ERR_CORRUPT,
                    "loss_scale: scale %g after %lld good steps and %lld overflows, expected a "
                    "number above 0 and counts",
                    s->scale, (long long)s->good_steps, (long long)s->overflows);
}

/* ---- saving ---- */

static params_scope scope_of(const run *r)
{
    return (params_scope){.mesh = r->mesh,
                          .trained_only = r->model->adapters,
                          .n_states = r->optimizer->n_states,
                          .state_names = r->optimizer->state_names};
}

int64_t state_bytes(const run *r)
{
    params_scope scope = scope_of(r);
    return params_bytes(r->model, &scope);
}

static nrl_status add_algorithm(const run *r, arena *a, checkpoint_writer *w)
{
    if (!r->algorithm->state) return NRL_OK;
    nrl_state_io v = {.a = a, .into = node_new(a, NRL_NODE_MAP)};
    NRL_TRY(r->algorithm->state(r->algorithm_self, &v));
    checkpoint_add_node(w, "algorithm", v.into);
    return NRL_OK;
}

/* Every rank's own; that of the axis that takes what ranks are left is called "parallel", others "parallel.AXIS". */
static nrl_state_io strategy_state_io(const run *r, arena *a, const strategy_member *one)
{
    return (nrl_state_io){.rank = nrl_mesh_rank(r->mesh),
                          .world = nrl_mesh_world(r->mesh),
                          .owner =
                              one->axis->takes_rest ? "parallel" : arena_printf(a, "parallel.%s", one->axis->name)};
}

/* "AXIS 2 AXIS 4": what belongs to a rank comes back to a mesh of this shape. */
static const char *mesh_shape(const run *r, arena *a)
{
    const char *text = "";
    for (size_t i = 0; i < r->config.n_axes; i++) {
        const char *name = r->config.axes[i].axis->name;
        text = arena_printf(a, "%s%s%s %d", text, i ? " " : "", name, (int)nrl_mesh_size(r->mesh, name));
    }
    return text;
}

static nrl_status add_strategy(const run *r, arena *a, checkpoint_writer *w)
{
    for (int32_t i = 0; i < r->strategy.n; i++) {
        const strategy_member *one = &r->strategy.of[i];
        if (!one->table->state) continue;
        nrl_state_io v = strategy_state_io(r, a, one);
        v.a = a;
        v.into = node_new(a, NRL_NODE_MAP);
        v.writer = w;
        NRL_TRY(one->table->state(one->self, r->ctx, &v));
        checkpoint_add_rank_node(w, v.owner, v.into);
    }
    return NRL_OK;
}

static void add_text(arena *a, checkpoint_writer *w, const char *key, const char *text)
{
    if (text) checkpoint_add_node(w, key, node_string(a, text, strlen(text)));
}

/* Where `nrl sample` and `nrl export` find the tokenizer of this checkpoint. */
static const char *tokenizer_path(arena *a, const run *r)
{
    const char *folder = r->tokenizer ? r->tokenizer->info.folder : NULL;
    return folder ? config_absolute(a, folder) : r->tokenizer ? "" : NULL;
}

/* Adapters are saved without what they stand on, which is told apart by its hash. */
static nrl_status add_adapters(run *r, arena *a, checkpoint_writer *w)
{
    model_origin base = r->origin;
    const char *key;
    if (!r->model->adapters) return NRL_OK;
    NRL_TRY(adapters_base(r, &key));
    base.adapter_dir = NULL;
    checkpoint_add_node(w, "adapters", node_copy(a, r->model->adapters->settings));
    checkpoint_add_node(w, "base", origin_base_node(a, &base, key));
    return NRL_OK;
}

/* "NAME VERSION, HASH" of a plugin; NULL where there is none. */
static const char *identity_text(run *r, arena *a, const nrl_plugin *p)
{
    const char *text;
    if (!p || plugin_identity(r->host, p->kind, p->name, a, &text) != NRL_OK) return NULL;
    return arena_printf(a, "%s %s", p->name, text);
}

static void add_nodes(run *r, arena *a, checkpoint_writer *w)
{
    checkpoint_add_node(w, "progress", progress_node(a, &r->progress, r->lr_override));
    if (r->loss_scale.rule.dynamic) checkpoint_add_node(w, "loss_scale", scale_node(a, &r->loss_scale));
    checkpoint_add_node(w, "fingerprints", fingerprint_node(a, r));
    checkpoint_add_node(w, "config", node_as_written(a, r->config.resolved));
    checkpoint_add_node(w, "model", r->model->config);
    checkpoint_add_node(w, "time", node_int(a, (int64_t)time(NULL)));
    add_text(a, w, "mesh", mesh_shape(r, a));
    add_text(a, w, "tokenizer", tokenizer_path(a, r));
    add_text(a, w, "chat_template", export_template(r, a));
    add_text(a, w, "nrl", NRL_VERSION);
    add_text(a, w, "format", identity_text(r, a, r->origin.format ? &r->origin.format->plugin : NULL));
    add_text(a, w, "adapter", identity_text(r, a, r->model->adapters ? &r->model->adapters->table->plugin : NULL));
    add_text(a, w, "script_path", r->env.script);
    add_text(a, w, "frontend", r->env.frontend);
    add_text(a, w, "script", r->script_state);
    if (r->progress.best_step != r->progress.step || !r->progress.step) return;
    checkpoint_set_metric(w, r->best_is_largest ? -r->progress.best : r->progress.best);
}

nrl_status state_add(run *r, arena *a, checkpoint_writer *w)
{
    params_scope scope = scope_of(r);
    NRL_TRY(params_save(r->ctx, r->model, &scope, w));
    NRL_TRY(add_adapters(r, a, w));
    add_nodes(r, a, w);
    NRL_TRY(add_algorithm(r, a, w));
    return add_strategy(r, a, w);
}

/* ---- restoring ---- */

/* Whether ranks mean the same coordinates as now. Axes stand in one order, so equal sizes are equal coordinates. */
static bool is_same_mesh(const run *r, const checkpoint *c)
{
    const char *was = nrl_node_string(checkpoint_node(c, "mesh"), NULL);
    bool same = was && checkpoint_world(c) == nrl_mesh_world(r->mesh);
    char name[MESH_AXIS_NAME];
    int size, read;
    for (; same && sscanf(was, "%23s %d%n", name, &size, &read) == 2; was += read)
        same = nrl_mesh_size(r->mesh, name) == size;
    return same;
}

static nrl_status restore_strategies(const run *r, arena *a, checkpoint *c)
{
    bool same = is_same_mesh(r, c);
    for (int32_t i = 0; i < r->strategy.n; i++) {
        const strategy_member *one = &r->strategy.of[i];
        if (!one->table->state) continue;
        nrl_state_io v = strategy_state_io(r, a, one);
        v.saved = same ? c : NULL;
        v.optional = true;
        if (same) v.from = checkpoint_rank_node(c, v.rank, v.owner);
        NRL_TRY(one->table->state(one->self, r->ctx, &v));
    }
    return NRL_OK;
}

static nrl_status restore_strategy(const run *r, checkpoint *c)
{
    arena a = {0};
    nrl_status st = restore_strategies(r, &a, c);
    arena_free(&a);
    return st;
}

/* Of adapters or of whole weights, as this run. */
static nrl_status check_kind(run *r, const checkpoint *c)
{
    bool saved = checkpoint_node(c, "adapters");
    const char *key;
    if (saved && !r->model->adapters)
        return nrl_fail(NRL_ERR_CONFIG,
                        "it holds adapters, and this run has no section lora\n"
                        "hint: model.path: the checkpoint goes on with the two merged, in an `out` of its own");
    if (!saved && r->model->adapters)
        return nrl_fail(NRL_ERR_CONFIG,
                        "it holds whole weights, and this run trains adapters (lora)\n"
                        "hint: model.path: the checkpoint attaches them to its weights, in an `out` of its own");
    return saved ? adapters_base(r, &key) : NRL_OK;
}

/* `nrl import` makes checkpoints of weights alone. */
static nrl_status check_is_of_a_run(const checkpoint *c)
{
    NRL_TRY(progress_check_nodes(c));
    if (!checkpoint_node(c, "config") && !checkpoint_node(c, "progress"))
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: holds weights alone, not the state of a run\n"
                        "hint: model.path=%s trains from them",
                        checkpoint_dir(c), checkpoint_dir(c));
    if (checkpoint_node(c, "config") && checkpoint_node(c, "model") && checkpoint_node(c, "fingerprints"))
        return NRL_OK;
    return nrl_fail(NRL_ERR_CORRUPT, "%s/manifest.json: it lacks config, model or fingerprints", checkpoint_dir(c));
}

static nrl_status restore_algorithm(run *r, checkpoint *c)
{
    if (!r->algorithm->state) return NRL_OK;
    nrl_state_io v = {.from = checkpoint_node(c, "algorithm")};
    return r->algorithm->state(r->algorithm_self, &v);
}

/* Adapters say something on their own base alone. */
static nrl_status check_base(run *r, const checkpoint *c)
{
    const char *was = nrl_node_string(nrl_node_find(checkpoint_node(c, "base"), "key"), ""), *key = "";
    if (r->model->adapters) NRL_TRY(adapters_base(r, &key));
    if (!strcmp(key, was)) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "its adapters were trained on other weights: their hash was %.32s, is now %s", was,
                    key);
}

typedef struct {
    const model *m;
    origin_reader *base;
    origin_stream trained;
} adapted;

static nrl_status adapted_read(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    adapted *from = user;
    if (p->index < from->m->n_own) return origin_read(from->base, p, begin, n, out);
    return origin_stream_read(&from->trained, p, begin, n, out);
}

/* The frozen weights are in the compute dtype alone, so all are loaded as at a start, adapters from
 * the checkpoint. */
static nrl_status load_adapters(run *r, checkpoint *c)
{
    adapted from = {.m = r->model, .trained.c = c};
    NRL_TRY(origin_open(&r->origin, r->model, &from.base));
    nrl_status st = storage_load(r->ctx, r->model, r->mesh, adapted_read, &from);
    origin_close(from.base);
    free(from.trained.raw);
    return st;
}

nrl_status state_restore_weights(run *r, checkpoint *c)
{
    const model_origin from = {.checkpoint = checkpoint_dir(c), .formats = &r->formats};
    NRL_TRY(check_kind(r, c));
    NRL_TRY(check_base(r, c));
    NRL_TRY(r->model->adapters ? load_adapters(r, c) : origin_load(&from, r->ctx, r->model, r->mesh));
    if (checkpoint_node(c, "progress")) NRL_TRY(progress_read(c, &r->progress, &r->lr_override));
    NRL_TRY(strategy_updated(&r->strategy, r->ctx, 0));
    return restore_algorithm(r, c);
}

nrl_status state_restore(run *r, checkpoint *c)
{
    params_scope scope = scope_of(r);
    NRL_TRY(check_is_of_a_run(c));
    NRL_TRY(check_kind(r, c));
    NRL_TRY(fingerprint_check(r, c));
    NRL_TRY(params_check_read(r->model, &scope, c));
    NRL_TRY(params_load(r->ctx, r->model, &scope, c));
    for (int32_t i = 0; i < r->model->n_params; i++)
        NRL_TRY(param_refresh(r->ctx, r->model->params[i]));
    NRL_TRY(progress_read(c, &r->progress, &r->lr_override));
    NRL_TRY(scale_read(&r->loss_scale, checkpoint_node(c, "loss_scale")));
    nrl_run_set_state(r, nrl_node_string(checkpoint_node(c, "script"), NULL));
    NRL_TRY(restore_strategy(r, c));
    NRL_TRY(strategy_updated(&r->strategy, r->ctx, 0));
    return restore_algorithm(r, c);
}

const char *nrl_run_state(const run *r)
{
    return r->script_state;
}

void nrl_run_set_state(run *r, const char *json)
{
    char *copy = json ? mem_strdup(json) : NULL;
    free(r->script_state);
    r->script_state = copy;
}
