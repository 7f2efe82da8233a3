/*
 * state.c - what a checkpoint holds of a run: weights, optimizer states, progress, the algorithm's, the
 * strategy's and the script's state, and fingerprints that tell when it belongs to something else. Data
 * order needs no state: step s is a function of seed and data alone.
 */
#include "run/state.h"
#include "base/json.h"
#include "checkpoint/params.h"
#include "checkpoint/visitor.h"
#include "config/config.h"
#include "tensor/split16.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
    return nrl_fail(NRL_ERR_CORRUPT, "loss_scale: scale %g after %lld good steps and %lld overflows, expected a "
                    "number above 0 and counts", s->scale, (long long)s->good_steps, (long long)s->overflows);
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

/* Name and options, and how long the run is where the rate depends on it. */
static void put_schedule(arena *a, nrl_node *map, const run *r)
{
    bool level = !strncmp(r->config.schedule.name, "constant", strlen("constant"));
    node_append(a, map, "schedule", node_copy(a, r->config.schedule.resolved));
    if (!level) node_append(a, map, "schedule_steps", node_int(a, r->total_steps));
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
    put_schedule(a, map, r);
    node_append(a, map, "seed", node_int(a, r->config.train.seed));
    node_append(a, map, "global_batch", node_int(a, r->config.train.global_batch));
    if (!r->model->adapters) return map;
    put_text(a, map, "base", r->base_key);
    node_append(a, map, "lora", adapter_set_node(a, r->model->adapters));
    return map;
}

/* Two lists: where the first difference is, not all that they hold. */
static const char *list_difference(arena *a, const char *text, const char *path, const nrl_node *is, const nrl_node *was)
{
    size_t n = nrl_node_size(is), m = nrl_node_size(was), differ = 0;
    const char *first = NULL;
    for (size_t i = 0; i < n && i < m; i++) {
        char *now = json_write(nrl_node_at(is, i), 0), *then = json_write(nrl_node_at(was, i), 0);
        bool same = !strcmp(now, then);
        if (!same && !first) first = arena_printf(a, "was %s, is now %s", then, now);
        differ += !same;
        free(now);
        free(then);
    }
    if (n != m) text = arena_printf(a, "%s\n  %s: had %zu entries, has %zu", text, path, m, n);
    if (!differ) return text;
    return arena_printf(a, "%s\n  %s: %zu of %zu differ, the first %s", text, path, differ, n < m ? n : m, first);
}

/* `text` and a line for each value that differs. */
static const char *differences(arena *a, const char *text, const char *path, const nrl_node *is, const nrl_node *was)
{
    if (nrl_node_kind(is) == NRL_NODE_MAP && nrl_node_kind(was) == NRL_NODE_MAP) {
        for (size_t i = 0; i < nrl_node_size(is); i++) {
            const char *key = nrl_node_key(is, i);
            text = differences(a, text, arena_printf(a, "%s%s%s", path, *path ? "." : "", key), nrl_node_at(is, i),
                               nrl_node_find(was, key));
        }
        return text;
    }
    if (nrl_node_kind(is) == NRL_NODE_LIST && nrl_node_kind(was) == NRL_NODE_LIST)
        return list_difference(a, text, path, is, was);
    char *now = json_write(is, 0), *then = was ? json_write(was, 0) : mem_strdup("nothing");
    if (strcmp(now, then)) text = arena_printf(a, "%s\n  %s: was %s, is now %s", text, path, then, now);
    free(now);
    free(then);
    return text;
}

/* Everything that differs, in one error. */
static nrl_status fingerprint_check(const run *r, const nrl_node *was)
{
    arena a = {0};
    const char *text = differences(&a, "", "", fingerprint_node(&a, r), was);
    nrl_status st = NRL_OK;
    if (*text && r->config.checkpoint.mismatch == CONFIG_ON_ERROR_STOP)
        st = nrl_fail(NRL_ERR_CONFIG, "the checkpoint was made by another run:%s\n"
                                      "hint: another `out` starts afresh, model.path takes its weights alone, "
                                      "checkpoint.mismatch=warn goes on all the same", text);
    else if (*text && run_leads(r)) nrl_warn("the checkpoint was made by another run:%s", text);
    arena_free(&a);
    return st;
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
    nrl_visitor v = {.a = a, .into = node_new(a, NRL_NODE_MAP)};
    NRL_TRY(r->algorithm->state(r->algorithm_self, &v));
    checkpoint_add_node(w, "algorithm", v.into);
    return NRL_OK;
}

/* Every rank's own; that of the axis data is called "parallel", others "parallel.AXIS". */
static nrl_visitor strategy_visitor(const run *r, arena *a, const strategy_member *one)
{
    bool data = !strcmp(one->table->axis, "data");
    return (nrl_visitor){.rank = nrl_mesh_rank(r->mesh), .world = nrl_mesh_world(r->mesh),
                         .owner = data ? "parallel" : arena_printf(a, "parallel.%s", one->table->axis)};
}

/* "pipeline 1 data 2 tensor 2": what belongs to a rank comes back to a mesh of this shape. */
static const char *mesh_shape(const run *r, arena *a)
{
    const char *text = "";
    for (int i = 0; i < CONFIG_N_AXES; i++)
        text = arena_printf(a, "%s%s%s %d", text, i ? " " : "", r->config.axes[i].name,
                            (int)nrl_mesh_size(r->mesh, r->config.axes[i].name));
    return text;
}

static nrl_status add_strategy(const run *r, arena *a, checkpoint_writer *w)
{
    for (int32_t i = 0; i < r->strategy.n; i++) {
        const strategy_member *one = &r->strategy.of[i];
        if (!one->table->state) continue;
        nrl_visitor v = strategy_visitor(r, a, one);
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
    const char *folder = r->tokenizer ? tokenizer_folder(r->tokenizer) : NULL;
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
    checkpoint_add_node(w, "adapters", adapter_set_node(a, r->model->adapters));
    checkpoint_add_node(w, "base", origin_base_node(a, &base, key));
    return NRL_OK;
}

static void add_nodes(run *r, arena *a, checkpoint_writer *w)
{
    checkpoint_add_node(w, "progress", progress_node(a, r));
    if (r->loss_scale.rule.dynamic) checkpoint_add_node(w, "loss_scale", scale_node(a, &r->loss_scale));
    checkpoint_add_node(w, "fingerprints", fingerprint_node(a, r));
    checkpoint_add_node(w, "config", r->config.resolved);
    checkpoint_add_node(w, "model", r->model->config);
    checkpoint_add_node(w, "time", node_int(a, (int64_t)time(NULL)));
    add_text(a, w, "mesh", mesh_shape(r, a));
    add_text(a, w, "tokenizer", tokenizer_path(a, r));
    add_text(a, w, "nrl", NRL_VERSION);
    add_text(a, w, "script_path", r->env.script);
    add_text(a, w, "script", r->script_state);
    if (r->progress.best_step != r->progress.step || !r->progress.step) return;
    bool larger = metric_is_larger_better(r->config.checkpoint.metric);
    checkpoint_set_metric(w, larger ? -r->progress.best : r->progress.best);
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

/* Ranks that mean the same coordinates as now; checkpoints from before there were axes hold data alone. */
static bool is_same_mesh(const run *r, arena *a, const checkpoint *c)
{
    const char *was = nrl_node_string(checkpoint_node(c, "mesh"), NULL);
    bool alone = nrl_mesh_size(r->mesh, "data") == nrl_mesh_world(r->mesh);
    return checkpoint_world(c) == nrl_mesh_world(r->mesh) && (was ? !strcmp(was, mesh_shape(r, a)) : alone);
}

static nrl_status restore_strategies(const run *r, arena *a, checkpoint *c)
{
    bool same = is_same_mesh(r, a, c);
    for (int32_t i = 0; i < r->strategy.n; i++) {
        const strategy_member *one = &r->strategy.of[i];
        if (!one->table->state) continue;
        nrl_visitor v = strategy_visitor(r, a, one);
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
        return nrl_fail(NRL_ERR_CONFIG, "it holds adapters, and this run has no section lora\n"
                        "hint: model.path: the checkpoint goes on with the two merged, in an `out` of its own");
    if (!saved && r->model->adapters)
        return nrl_fail(NRL_ERR_CONFIG, "it holds whole weights, and this run trains adapters (lora)\n"
                        "hint: model.path: the checkpoint attaches them to its weights, in an `out` of its own");
    return saved ? adapters_base(r, &key) : NRL_OK;
}

nrl_status state_restore(run *r, checkpoint *c)
{
    params_scope scope = scope_of(r);
    NRL_TRY(check_kind(r, c));
    NRL_TRY(fingerprint_check(r, checkpoint_node(c, "fingerprints")));
    NRL_TRY(params_load(r->ctx, r->model, &scope, c));
    for (int32_t i = 0; i < r->model->n_params; i++) NRL_TRY(param_refresh(r->ctx, r->model->params[i]));
    progress_read(r, checkpoint_node(c, "progress"));
    NRL_TRY(scale_read(&r->loss_scale, checkpoint_node(c, "loss_scale")));
    run_set_script_state(r, nrl_node_string(checkpoint_node(c, "script"), NULL));
    NRL_TRY(restore_strategy(r, c));
    NRL_TRY(strategy_updated(&r->strategy, r->ctx, 0));
    if (!r->algorithm->state) return NRL_OK;
    nrl_visitor v = {.from = checkpoint_node(c, "algorithm")};
    return r->algorithm->state(r->algorithm_self, &v);
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
