/*
 * adapters.c - section lora: which modules get adapters, and what stands in the plan and in checkpoints of them.
 * Everything else of a run sees parameters, some of which are not trained.
 */
#include "base/buffer.h"
#include "run/internal.h"
#include "text/regex.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which modules ---- */

typedef struct {
    int32_t n;
    const char **modules;
} chosen;

/* A word with nothing in it that only regular expressions have names a module as one of a list does. */
static bool is_name(const char *word)
{
    return !strpbrk(word, "^$*+?()[]{}|\\");
}

/* The module itself, or what it ends in behind a dot. */
static bool ends_in(const char *module, const char *name)
{
    size_t n = strlen(module), k = strlen(name);
    return n >= k && !strcmp(module + n - k, name) && (n == k || module[n - k - 1] == '.');
}

static const char *last_part(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

/* "q_proj, k_proj, ...": each once. */
static const char *names_of(arena *a, const model *m)
{
    const char *text = "";
    for (int32_t i = 0; i < m->n_own; i++) {
        if (!adapter_fits(m, m->params[i])) continue;
        const char *name = last_part(adapter_module(a, m->params[i]));
        const char *known = arena_printf(a, ", %s,", name), *all = arena_printf(a, ", %s,", text);
        if (!strstr(all, known)) text = *text ? arena_printf(a, "%s, %s", text, name) : name;
    }
    return *text ? text : "none";
}

static nrl_status no_module(arena *a, const session *se, const nrl_node *at, const char *word)
{
    const model *m = se->model;
    const char *why = "";
    for (int32_t i = 0; i < m->n_own; i++) {
        const nrl_param *p = m->params[i];
        const char *end = strstr(p->name, ".weight");
        if (end && p->n_dims == 2 && !adapter_fits(m, p) &&
            ends_in(arena_strndup(a, p->name, (size_t)(end - p->name)), word))
            why = " (it is an embedding or the head, which carry no adapters)";
    }
    return nrl_fail(NRL_ERR_CONFIG, "%s: lora.targets: no linear module's name ends in '%s'%s; those of this model: %s",
                    nrl_node_place(at), word, why, names_of(a, m));
}

static bool has_module(const chosen *s, const char *module)
{
    for (int32_t i = 0; i < s->n; i++)
        if (!strcmp(s->modules[i], module)) return true;
    return false;
}

static void add_module(chosen *s, const char *module)
{
    if (!has_module(s, module)) s->modules[s->n++] = module;
}

/* Modules whose name ends in the word; NULL: all. */
static void add_named(session *se, chosen *s, const char *word)
{
    for (int32_t i = 0; i < se->model->n_own; i++) {
        if (!adapter_fits(se->model, se->model->params[i])) continue;
        const char *module = adapter_module(&se->memory, se->model->params[i]);
        if (!word || ends_in(module, word)) add_module(s, module);
    }
}

/* Whole names, as peft matches. */
static nrl_status add_matched(session *se, chosen *s, const char *pattern)
{
    regex *x;
    const char *whole = arena_printf(&se->memory, "\\A(?:%s)\\z", pattern);
    NRL_TRY(regex_create(whole, strlen(whole), &x));
    nrl_status st = NRL_OK;
    for (int32_t i = 0; i < se->model->n_own && st == NRL_OK; i++) {
        if (!adapter_fits(se->model, se->model->params[i])) continue;
        const char *module = adapter_module(&se->memory, se->model->params[i]);
        bool found = false;
        st = regex_match(x, module, &found);
        if (st == NRL_OK && found) add_module(s, module);
    }
    regex_destroy(x);
    return st;
}

static nrl_status add_word(session *se, chosen *s, const nrl_node *at)
{
    const char *word = nrl_node_string(at, "");
    arena a = {0};
    int32_t before = s->n;
    bool was_there = false;
    if (!strcmp(word, "all-linear")) {
        add_named(se, s, NULL);
    } else {
        for (int32_t i = 0; i < s->n; i++)
            was_there |= ends_in(s->modules[i], word);
        add_named(se, s, word);
    }
    nrl_status st = s->n > before || was_there ? NRL_OK : no_module(&a, se, at, word);
    arena_free(&a);
    return st;
}

static const char *any_module(arena *a, const model *m)
{
    for (int32_t i = 0; i < m->n_own; i++)
        if (adapter_fits(m, m->params[i])) return adapter_module(a, m->params[i]);
    return "none";
}

static nrl_status add_pattern(session *se, chosen *s, const nrl_node *at)
{
    const char *pattern = nrl_node_string(at, "");
    arena a = {0};
    nrl_status st = add_matched(se, s, pattern);
    if (st != NRL_OK)
        nrl_add_context("%s: lora.targets: '%s'", nrl_node_place(at), pattern);
    else if (!s->n)
        st = nrl_fail(NRL_ERR_CONFIG,
                      "%s: lora.targets: '%s' is the whole name of no linear module, such as %s; last "
                      "parts there are: %s",
                      nrl_node_place(at), pattern, any_module(&a, se->model), names_of(&a, se->model));
    arena_free(&a);
    return st == NRL_ERR_DATA ? NRL_ERR_CONFIG : st;
}

static nrl_status choose(session *se, chosen *s)
{
    const config_lora *c = &se->config.lora;
    const nrl_node *t = c->targets;
    *s = (chosen){.modules = arena_alloc(&se->memory, (size_t)(se->model->n_own + 1) * sizeof *s->modules)};
    if (nrl_node_kind(t) == NRL_NODE_STRING)
        return is_name(nrl_node_string(t, "")) ? add_word(se, s, t) : add_pattern(se, s, t);
    for (size_t i = 0; i < nrl_node_size(t); i++)
        NRL_TRY(add_word(se, s, nrl_node_at(t, i)));
    return NRL_OK;
}

/* The settings of the adapter for these modules. */
static const nrl_node *settings_of(session *se, const chosen *s)
{
    const config_lora *c = &se->config.lora;
    arena *a = &se->memory;
    nrl_node *map = node_new(a, NRL_NODE_MAP), *list = node_new(a, NRL_NODE_LIST);
    node_append_text(a, map, "adapter", "lora");
    node_append(a, map, "rslora", node_bool(a, c->rslora));
    node_append(a, map, "dropout", node_f64(a, c->dropout));
    for (int32_t i = 0; i < s->n; i++) {
        nrl_node *one = node_new(a, NRL_NODE_MAP);
        node_append_text(a, one, "module", s->modules[i]);
        node_append_int(a, one, "rank", c->rank);
        node_append(a, one, "alpha", node_f64(a, c->alpha));
        node_append(a, list, NULL, one);
    }
    node_append(a, map, "modules", list);
    return map;
}

/* A number of the settings; `rank` and `alpha` are those of the first module. */
static double setting(const nrl_node *settings, const char *key)
{
    const nrl_node *own = nrl_node_find(settings, key);
    if (!own) own = nrl_node_find(nrl_node_at(nrl_node_find(settings, "modules"), 0), key);
    return nrl_node_kind(own) == NRL_NODE_BOOL ? nrl_node_bool(own, false) : nrl_node_f64(own, 0);
}

/* ---- an adapter to start from ---- */

static nrl_node *modules_node(arena *a, const adapter_set *s)
{
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    for (int32_t i = 0; i < s->n; i++)
        node_append(a, list, NULL, node_string(a, s->modules[i], strlen(s->modules[i])));
    return list;
}

/* What the file says is what the run has; another value beside it would be ignored. */
static nrl_status check_given(const session *se, const char *key, double given, double own)
{
    const nrl_node *at = nrl_node_find(nrl_node_find(se->tree, "lora"), key);
    if (nrl_node_kind(at) <= NRL_NODE_NULL || given == own) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s: lora.%s: the adapter of lora.use has its own, %g: leave it out",
                    nrl_node_place(at), key, own);
}

/* Other targets than the file's would be ignored. */
static nrl_status check_targets(session *se, const adapter_set *own)
{
    const nrl_node *at = nrl_node_find(nrl_node_find(se->tree, "lora"), "targets");
    chosen given;
    if (nrl_node_kind(at) <= NRL_NODE_NULL) return NRL_OK;
    NRL_TRY(choose(se, &given));
    bool same = given.n == own->n;
    for (int32_t i = 0; i < given.n && same; i++)
        same = has_module(&(chosen){own->n, own->modules}, given.modules[i]);
    if (same) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s: lora.targets: the adapter of lora.use has its own, %d modules: leave it out",
                    nrl_node_place(at), own->n);
}

/* The section says what is used, also when it is read again from OUT/config.yaml. */
static nrl_status take_given(session *se, const adapter_set *s)
{
    const config_lora *c = &se->config.lora;
    arena *a = &se->memory;
    double rank = setting(s->settings, "rank"), alpha = setting(s->settings, "alpha"),
           rslora = setting(s->settings, "rslora");
    NRL_TRY(check_given(se, "rank", (double)c->rank, rank));
    NRL_TRY(check_given(se, "alpha", c->alpha, alpha));
    NRL_TRY(check_given(se, "rslora", c->rslora, rslora));
    NRL_TRY(check_targets(se, s));
    node_set(a, c->resolved, "rank", node_int(a, (int64_t)rank));
    node_set(a, c->resolved, "alpha", node_f64(a, alpha));
    node_set(a, c->resolved, "rslora", node_bool(a, rslora > 0));
    node_set(a, c->resolved, "dropout", node_f64(a, setting(s->settings, "dropout")));
    node_set(a, c->resolved, "targets", modules_node(a, s));
    return NRL_OK;
}

/* What the file says, but for the dropout of the section where that is written. */
static nrl_status open_given(session *se, const weight_files *start, const nrl_node *section, adapter_set *set)
{
    NRL_TRY(origin_adapter_set(start, se->host, &se->memory, set));
    if (nrl_node_kind(nrl_node_find(section, "dropout")) <= NRL_NODE_NULL) return NRL_OK;
    nrl_node *settings = node_copy(&se->memory, set->settings);
    node_set(&se->memory, settings, "dropout", node_f64(&se->memory, se->config.lora.dropout));
    adapter_set_close(set);
    return adapter_set_open(&se->memory, se->host, settings, set);
}

static nrl_status attach_start(session *se)
{
    weight_files *start;
    adapter_set set = {0};
    const char *dir = se->config.lora.use;
    const nrl_node *section = nrl_node_find(se->tree, "lora");
    nrl_status given = NRL_OK, st = weights_open(&se->formats, NRL_HOLDS_ADAPTER, dir, &start);
    if (st == NRL_OK) {
        st = weights_load(start);
        if (st == NRL_OK) st = open_given(se, start, section, &set);
        if (st == NRL_OK) st = given = take_given(se, &set);
        if (st == NRL_OK) st = model_adapt(se->model, &set);
        if (st == NRL_OK) st = weights_check_adapters(start, se->model);
        se->origin.adapter_dir = arena_strdup(&se->memory, start->info.path);
        se->origin.adapter_format = start->format;
        weights_close(start);
        adapter_set_close(&set);
    }
    /* what stands beside lora.use has been named with its own place */
    if (st != NRL_OK && given == NRL_OK) nrl_add_context("%s: lora.use", nrl_node_place(nrl_node_find(section, "use")));
    return st;
}

nrl_status adapters_open(session *se)
{
    chosen modules;
    adapter_set set;
    if (!se->config.lora.on) return NRL_OK;
    if (*se->config.lora.use) return attach_start(se);
    NRL_TRY(choose(se, &modules));
    nrl_status st = adapter_set_open(&se->memory, se->host, settings_of(se, &modules), &set);
    if (st == NRL_OK) st = model_adapt(se->model, &set);
    adapter_set_close(&set);
    if (st != NRL_OK) nrl_add_context("%s: lora", nrl_node_place(nrl_node_find(se->tree, "lora")));
    return st;
}

/* ---- the plan ---- */

static int64_t bytes_of(const session *se, bool trained)
{
    int64_t n = 0;
    for (int32_t i = 0; i < se->model->n_params; i++)
        if (se->model->params[i]->trained == trained) n += se->model->params[i]->numel;
    return n * (int64_t)nrl_dtype_size(session_compute(se));
}

void adapters_say(session *se)
{
    const adapter_set *s = se->model->adapters;
    if (!s) return;
    double mib = 1 << 20, dropout = setting(s->settings, "dropout");
    int64_t trained = model_n_trained(se->model), all = model_n_params(se->model);
    telemetry_say(se->telemetry,
                  "lora       rank %lld, alpha %g%s%s on %d modules; %s parameters are trained (%.3g %%, %.1f MiB), %s "
                  "frozen (%.1f MiB)",
                  (long long)setting(s->settings, "rank"), setting(s->settings, "alpha"),
                  setting(s->settings, "rslora") > 0 ? " (rslora)" : "",
                  dropout > 0 ? arena_printf(&se->memory, ", dropout %g", dropout) : "", s->n, thousands_text(trained),
                  100 * (double)trained / (double)all, (double)bytes_of(se, true) / mib, thousands_text(all - trained),
                  (double)bytes_of(se, false) / mib);
    if (se->origin.adapter_dir) telemetry_say(se->telemetry, "           adapters from %s", se->origin.adapter_dir);
}

/* ---- what they stand on ---- */

nrl_status adapters_base(session *se, const char **key)
{
    char text[33] = "";
    model_origin base = se->origin;
    base.adapter_dir = NULL;
    if (!se->base_key) {
        nrl_status st = session_is_rank0(se) ? origin_key(&base, text) : NRL_OK;
        NRL_TRY(st);
        NRL_TRY(mesh_broadcast(se->mesh, "hash of the base model", 0, text, sizeof text));
        se->base_key = arena_strdup(&se->memory, text);
    }
    *key = se->base_key;
    return NRL_OK;
}
