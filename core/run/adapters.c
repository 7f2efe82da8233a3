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

static nrl_status no_module(arena *a, const run *r, const nrl_node *at, const char *word)
{
    const model *m = r->model;
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
static void add_named(run *r, chosen *s, const char *word)
{
    for (int32_t i = 0; i < r->model->n_own; i++) {
        if (!adapter_fits(r->model, r->model->params[i])) continue;
        const char *module = adapter_module(&r->memory, r->model->params[i]);
        if (!word || ends_in(module, word)) add_module(s, module);
    }
}

/* Whole names, as peft matches. */
static nrl_status add_matched(run *r, chosen *s, const char *pattern)
{
    regex *x;
    const char *whole = arena_printf(&r->memory, "\\A(?:%s)\\z", pattern);
    NRL_TRY(regex_create(whole, strlen(whole), &x));
    nrl_status st = NRL_OK;
    for (int32_t i = 0; i < r->model->n_own && st == NRL_OK; i++) {
        if (!adapter_fits(r->model, r->model->params[i])) continue;
        const char *module = adapter_module(&r->memory, r->model->params[i]);
        bool found = false;
        st = regex_match(x, module, &found);
        if (st == NRL_OK && found) add_module(s, module);
    }
    regex_destroy(x);
    return st;
}

static nrl_status add_word(run *r, chosen *s, const nrl_node *at)
{
    const char *word = nrl_node_string(at, "");
    arena a = {0};
    int32_t before = s->n;
    bool was_there = false;
    if (!strcmp(word, "all-linear")) {
        add_named(r, s, NULL);
    } else {
        for (int32_t i = 0; i < s->n; i++)
            was_there |= ends_in(s->modules[i], word);
        add_named(r, s, word);
    }
    nrl_status st = s->n > before || was_there ? NRL_OK : no_module(&a, r, at, word);
    arena_free(&a);
    return st;
}

static const char *any_module(arena *a, const model *m)
{
    for (int32_t i = 0; i < m->n_own; i++)
        if (adapter_fits(m, m->params[i])) return adapter_module(a, m->params[i]);
    return "none";
}

static nrl_status add_pattern(run *r, chosen *s, const nrl_node *at)
{
    const char *pattern = nrl_node_string(at, "");
    arena a = {0};
    nrl_status st = add_matched(r, s, pattern);
    if (st != NRL_OK)
        nrl_add_context("%s: lora.targets: '%s'", nrl_node_place(at), pattern);
    else if (!s->n)
        st = nrl_fail(NRL_ERR_CONFIG,
                      "%s: lora.targets: '%s' is the whole name of no linear module, such as %s; last "
                      "parts there are: %s",
                      nrl_node_place(at), pattern, any_module(&a, r->model), names_of(&a, r->model));
    arena_free(&a);
    return st == NRL_ERR_DATA ? NRL_ERR_CONFIG : st;
}

static nrl_status choose(run *r, chosen *s)
{
    const config_lora *c = &r->config.lora;
    const nrl_node *t = c->targets;
    *s = (chosen){.modules = arena_alloc(&r->memory, (size_t)(r->model->n_own + 1) * sizeof *s->modules)};
    if (nrl_node_kind(t) == NRL_NODE_STRING)
        return is_name(nrl_node_string(t, "")) ? add_word(r, s, t) : add_pattern(r, s, t);
    for (size_t i = 0; i < nrl_node_size(t); i++)
        NRL_TRY(add_word(r, s, nrl_node_at(t, i)));
    return NRL_OK;
}

/* The settings of the adapter for these modules. */
static const nrl_node *settings_of(run *r, const chosen *s)
{
    const config_lora *c = &r->config.lora;
    arena *a = &r->memory;
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
static nrl_status check_given(const run *r, const char *key, double given, double own)
{
    const nrl_node *at = nrl_node_find(nrl_node_find(r->tree, "lora"), key);
    if (nrl_node_kind(at) <= NRL_NODE_NULL || given == own) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s: lora.%s: the adapter of lora.use has its own, %g: leave it out",
                    nrl_node_place(at), key, own);
}

/* Other targets than the file's would be ignored. */
static nrl_status check_targets(run *r, const adapter_set *own)
{
    const nrl_node *at = nrl_node_find(nrl_node_find(r->tree, "lora"), "targets");
    chosen given;
    if (nrl_node_kind(at) <= NRL_NODE_NULL) return NRL_OK;
    NRL_TRY(choose(r, &given));
    bool same = given.n == own->n;
    for (int32_t i = 0; i < given.n && same; i++)
        same = has_module(&(chosen){own->n, own->modules}, given.modules[i]);
    if (same) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s: lora.targets: the adapter of lora.use has its own, %d modules: leave it out",
                    nrl_node_place(at), own->n);
}

/* The section says what is used, also when it is read again from OUT/config.yaml. */
static nrl_status take_given(run *r, const adapter_set *s)
{
    const config_lora *c = &r->config.lora;
    arena *a = &r->memory;
    double rank = setting(s->settings, "rank"), alpha = setting(s->settings, "alpha"),
           rslora = setting(s->settings, "rslora");
    NRL_TRY(check_given(r, "rank", (double)c->rank, rank));
    NRL_TRY(check_given(r, "alpha", c->alpha, alpha));
    NRL_TRY(check_given(r, "rslora", c->rslora, rslora));
    NRL_TRY(check_targets(r, s));
    node_set(a, c->resolved, "rank", node_int(a, (int64_t)rank));
    node_set(a, c->resolved, "alpha", node_f64(a, alpha));
    node_set(a, c->resolved, "rslora", node_bool(a, rslora > 0));
    node_set(a, c->resolved, "dropout", node_f64(a, setting(s->settings, "dropout")));
    node_set(a, c->resolved, "targets", modules_node(a, s));
    return NRL_OK;
}

/* What the file says, but for the dropout of the section where that is written. */
static nrl_status open_given(run *r, const weight_files *start, const nrl_node *section, adapter_set *set)
{
    NRL_TRY(origin_adapter_set(start, r->host, &r->memory, set));
    if (nrl_node_kind(nrl_node_find(section, "dropout")) <= NRL_NODE_NULL) return NRL_OK;
    nrl_node *settings = node_copy(&r->memory, set->settings);
    node_set(&r->memory, settings, "dropout", node_f64(&r->memory, r->config.lora.dropout));
    adapter_set_close(set);
    return adapter_set_open(&r->memory, r->host, settings, set);
}

static nrl_status attach_start(run *r)
{
    weight_files *start;
    adapter_set set = {0};
    const char *dir = r->config.lora.use;
    const nrl_node *section = nrl_node_find(r->tree, "lora");
    nrl_status given = NRL_OK, st = weights_open(&r->formats, NRL_HOLDS_ADAPTER, dir, &start);
    if (st == NRL_OK) {
        st = weights_load(start);
        if (st == NRL_OK) st = open_given(r, start, section, &set);
        if (st == NRL_OK) st = given = take_given(r, &set);
        if (st == NRL_OK) st = model_adapt(r->model, &set);
        if (st == NRL_OK) st = weights_check_adapters(start, r->model);
        r->origin.adapter_dir = arena_strdup(&r->memory, start->info.path);
        r->origin.adapter_format = start->format;
        weights_close(start);
        adapter_set_close(&set);
    }
    /* what stands beside lora.use has been named with its own place */
    if (st != NRL_OK && given == NRL_OK) nrl_add_context("%s: lora.use", nrl_node_place(nrl_node_find(section, "use")));
    return st;
}

nrl_status adapters_open(run *r)
{
    chosen modules;
    adapter_set set;
    if (!r->config.lora.on) return NRL_OK;
    if (*r->config.lora.use) return attach_start(r);
    NRL_TRY(choose(r, &modules));
    nrl_status st = adapter_set_open(&r->memory, r->host, settings_of(r, &modules), &set);
    if (st == NRL_OK) st = model_adapt(r->model, &set);
    adapter_set_close(&set);
    if (st != NRL_OK) nrl_add_context("%s: lora", nrl_node_place(nrl_node_find(r->tree, "lora")));
    return st;
}

/* ---- the plan ---- */

static int64_t bytes_of(const run *r, bool trained)
{
    int64_t n = 0;
    for (int32_t i = 0; i < r->model->n_params; i++)
        if (r->model->params[i]->trained == trained) n += r->model->params[i]->numel;
    return n * (int64_t)nrl_dtype_size(run_compute(r));
}

void adapters_say(run *r)
{
    const adapter_set *s = r->model->adapters;
    if (!s) return;
    double mib = 1 << 20, dropout = setting(s->settings, "dropout");
    int64_t trained = model_n_trained(r->model), all = model_n_params(r->model);
    run_say(r,
            "lora       rank %lld, alpha %g%s%s on %d modules; %s parameters are trained (%.3g %%, %.1f MiB), %s "
            "frozen (%.1f MiB)",
            (long long)setting(s->settings, "rank"), setting(s->settings, "alpha"),
            setting(s->settings, "rslora") > 0 ? " (rslora)" : "",
            dropout > 0 ? arena_printf(&r->memory, ", dropout %g", dropout) : "", s->n, run_thousands(trained),
            100 * (double)trained / (double)all, (double)bytes_of(r, true) / mib, run_thousands(all - trained),
            (double)bytes_of(r, false) / mib);
    if (r->origin.adapter_dir) run_say(r, "           adapters from %s", r->origin.adapter_dir);
}

/* ---- what they stand on ---- */

nrl_status adapters_base(run *r, const char **key)
{
    char text[33] = "";
    model_origin base = r->origin;
    base.adapter_dir = NULL;
    if (!r->base_key) {
        nrl_status st = run_is_rank0(r) ? origin_key(&base, text) : NRL_OK;
        NRL_TRY(st);
        NRL_TRY(mesh_broadcast(r->mesh, "hash of the base model", 0, text, sizeof text));
        r->base_key = arena_strdup(&r->memory, text);
    }
    *key = r->base_key;
    return NRL_OK;
}
