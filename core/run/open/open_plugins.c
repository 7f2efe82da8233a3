/*
 * open_plugins.c - fills all options from a config tree: the core's own sections first, then those of the plugin of
 * every component. All mistakes are collected and reported together; no device is touched.
 */
#include "run/open/session.h"
#include "base/buffer.h"
#include "base/hub.h"
#include "plugin/component.h"
#include "base/other_names.h"
#include "base/suggest.h"
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const void *open_component(session *se, uint32_t kind, const char *section, const config_component *c,
                                  const option_part *core, void **options)
{
    const plugin *p = NULL;
    plugin_instance(se->host, &se->memory, se->problems, kind, section, c, core, &p, options);
    return p ? p->table : NULL;
}

/* The core's own rows of `algorithm:` exist for algorithms that may need a second model. */
static option_part second_model_part(session *se, const nrl_algorithm *a)
{
    if (reference_is_teacher(a))
        return (option_part){teacher_rows, teacher_n_rows, sizeof *teacher_rows, &se->reference_options};
    return (option_part){reference_rows, reference_n_rows, sizeof *reference_rows, &se->reference_options};
}

/* `table` may be shorter than today's: the members that it lacks are NULL. */
static void fill_script_algorithm(session *se, const nrl_algorithm *table, void *self)
{
    const config_component *c = &se->config.algorithm;
    nrl_algorithm *own = arena_alloc(&se->memory, sizeof *own);
    memcpy(own, table, table->plugin.size < sizeof *own ? table->plugin.size : sizeof *own);
    se->algorithm = own;
    size_t n_parts = reference_is_needed(se->algorithm);
    const option_part part = second_model_part(se, se->algorithm);
    const plugin *p;
    if (plugin_open(se->host, NRL_KIND_ALGORITHM, c->name, &p) == NRL_OK)
        problems_add(se->problems, c->at,
                     "algorithm: '%s' is both a loss of the script and a plugin (%s): rename the loss", c->name,
                     p->path);
    se->algorithm_is_script = true;
    se->algorithm_self = self;
    options_fill(&se->memory, se->problems, "algorithm", c->options, &part, n_parts);
    options_resolve(&se->memory, c->options, &part, n_parts, c->resolved);
}

static void fill_plugin_algorithm(session *se)
{
    config_component *c = &se->config.algorithm;
    const plugin *p;
    void *options = NULL;
    const size_t before = se->problems->n;
    bool refers = plugin_open(se->host, NRL_KIND_ALGORITHM, c->name, &p) == NRL_OK &&
                  reference_is_needed((const nrl_algorithm *)p->table);
    option_part part = {0};
    if (refers) part = second_model_part(se, (const nrl_algorithm *)p->table);
    const nrl_algorithm *a = open_component(se, NRL_KIND_ALGORITHM, "algorithm", c, refers ? &part : NULL, &options);
    se->algorithm = a;
    se->algorithm_options = options;
    se->algorithm_self = a && a->create ? NULL : options; /* an instance that create has not made is not destroyed */
    nrl_status st = a && a->create && se->problems->n == before ? a->create(options, &se->algorithm_self) : NRL_OK;
    if (st != NRL_OK) {
        plugin_take_error(&se->memory, se->problems, st, "algorithm", c, &a->plugin);
        se->algorithm_self = NULL; /* a failed create may have left a value here */
    }
    if (a && se->problems->n == before) { /* a copy with the members of this instance */
        nrl_algorithm *own = arena_alloc(&se->memory, sizeof *own);
        *own = *a;
        if (a->instance_needs) own->needs = a->instance_needs(se->algorithm_self);
        if (a->instance_metrics) own->metrics = a->instance_metrics(se->algorithm_self);
        own->tokenwise &= !a->couples || !a->couples(se->algorithm_self);
        se->algorithm = own;
        if (!refers || reference_is_needed(own)) return;
        for (size_t i = 0; i < reference_n_rows; i++) /* options that this instance does not have */
            c->resolved = node_without(&se->memory, c->resolved, reference_rows[i].name);
        node_set(&se->memory, se->config.resolved, "algorithm", c->resolved);
    }
}

/* A loss made by the script is looked up first; its name must not be a plugin's. */
static void fill_algorithm(session *se)
{
    const char *name = se->config.algorithm.name;
    void *self = NULL;
    if (!name) return;
    const nrl_algorithm *loss =
        se->env.find_algorithm ? se->env.find_algorithm(se->env.algorithm_user, name, &self) : NULL;
    if (loss)
        fill_script_algorithm(se, loss, self);
    else
        fill_plugin_algorithm(se);
    /* Reports options of a reference that the chosen loss does not have, or for which no model will be opened. */
    const nrl_node *given = se->config.algorithm.options, *at = NULL;
    if (!se->algorithm || se->problems->n) return;
    if (reference_is_teacher(se->algorithm)) {
        if (!*se->reference_options.reference_model)
            problems_add(se->problems, se->config.algorithm.at,
                         "algorithm.teacher_model: expected the directory of the model that '%s' learns from", name);
        return;
    }
    for (size_t i = 0; i < reference_n_rows && !at; i++)
        at = nrl_node_find(given, reference_rows[i].name);
    if (at && !work_needs(se->algorithm, "ref_logps"))
        problems_add(se->problems, at, "algorithm.%s: this loss has no reference model", at->key);
    else if (se->reference_options.reference != REFERENCE_ONLINE && se->algorithm->rollout && at)
        problems_add(se->problems, nrl_node_find(given, "reference"),
                     "algorithm.reference: %s is not supported by algorithm '%s', which generates completions; "
                     "expected online",
                     nrl_node_string(nrl_node_find(given, "reference"), ""), name);
    else if (se->reference_options.reference == REFERENCE_CACHED && se->config.data.streaming)
        problems_add(se->problems, nrl_node_find(given, "reference"),
                     "algorithm.reference: cached needs all rows before the first step, but data.streaming reads "
                     "them during training; expected online");
    else if (se->reference_options.reference == REFERENCE_NONE && *se->reference_options.reference_model)
        problems_add(se->problems, nrl_node_find(given, "reference_model"),
                     "algorithm.reference_model: has no effect with reference: none");
}

/* Only now are the sections of installed adapters known. */
static void fill_adapter(session *se)
{
    config_adapter *c = &se->config.adapter;
    const char **names, *section;
    size_t n = plugin_names(se->host, &se->memory, NRL_KIND_ADAPTER, &names);
    option_part core = {adapter_rows, adapter_n_rows, sizeof *adapter_rows, c};
    se->tree = config_fold_adapter(&se->memory, se->problems, names, n, se->tree, &section);
    config_fill_adapter(&se->memory, se->problems, se->tree, section, &se->config);
    se->adapter = open_component(se, NRL_KIND_ADAPTER, section, &c->component, &core, &se->adapter_options);
}

/* "SECTION.WORD is an option of NAMES": the plugins of a kind that have such an option. */
static const char *known_to_options(session *se, arena *a, uint32_t kind, const char *section, const char *word)
{
    const char **names, *all = "";
    const plugin *p;
    size_t n = plugin_names(se->host, a, kind, &names);
    for (size_t i = 0; i < n; i++) {
        if (plugin_open_candidate(se->host, kind, names[i], &p) != NRL_OK) continue;
        for (size_t k = 0; k < p->table->n_options; k++)
            if (!strcmp(option_row(p->table->options, k, p->table->option_size)->name, word))
                all = arena_printf(a, "%s%s%s", all, *all ? ", " : "", names[i]);
    }
    return *all ? arena_printf(a, "%s.%s is an option of %s", section, word, all) : NULL;
}

/* config_problems.known_as: other trainers' names; what adapters are called there; options of other plugins. */
static const char *known_here(void *user, arena *a, const char *word)
{
    session *se = user;
    const char **names, *known = other_names_find(a, se->env.exe_dir, word, NULL);
    const plugin *p;
    if (known || !se->host || strchr(word, '=')) return known; /* plugins know keys only */
    size_t n = plugin_names(se->host, a, NRL_KIND_ADAPTER, &names);
    for (size_t i = 0; i < n; i++) {
        if (plugin_open_candidate(se->host, NRL_KIND_ADAPTER, names[i], &p) != NRL_OK) continue;
        const char *const *pair = ((const nrl_adapter *)p->table)->known_as;
        for (; pair && pair[0]; pair += 2)
            if (!strcmp(pair[0], word))
                return arena_printf(a, "it is %s%s%s here", names[i], *pair[1] ? "." : "", pair[1]);
    }
    known = known_to_options(se, a, NRL_KIND_ALGORITHM, "algorithm", word);
    if (!known) known = known_to_options(se, a, NRL_KIND_OPTIMIZER, "optimizer", word);
    return known ? known : known_to_options(se, a, NRL_KIND_SCHEDULE, "schedule", word);
}

/* Resolves a component that the config does not name to the default plugin of its kind, whose name is saved with the
 * run. */
static void name_default(session *se, uint32_t kind, const char *section, config_component *c)
{
    const plugin **list;
    if (!c->name || *c->name) return;
    if (plugin_defaults(se->host, &se->memory, kind, &list)) {
        c->name = list[0]->name;
        node_set(&se->memory, c->resolved, "name", node_text(&se->memory, c->name));
        return;
    }
    problems_add(se->problems, c->at, "%s: there is no default plugin of this kind; expected a name", section);
    c->name = NULL;
}

/* Resolves checkpoint.metric: auto to the name of a metric, which is saved with the run. */
static void name_metric(session *se)
{
    config_checkpoint *c = &se->config.checkpoint;
    const config_data *data = &se->config.data;
    const nrl_metric *best = se->algorithm && data->eval ? se->algorithm->best : NULL;
    const char *set = data->n_evals ? data->evals[0].name : ""; /* of several sets the first one */
    if (strcmp(c->metric, "auto")) return;
    c->metric = best ? arena_printf(&se->memory, "eval_%s%s%s", set, *set ? "_" : "", best->name) : "eval_loss";
    node_set(&se->memory, (nrl_node *)nrl_node_find(se->config.resolved, "checkpoint"), "metric",
             node_text(&se->memory, c->metric));
}

static void name_loggers(session *se)
{
    config_run *c = &se->config;
    const plugin **list;
    if (!c->loggers_unset) return;
    c->n_loggers = plugin_defaults(se->host, &se->memory, NRL_KIND_LOGGER, &list);
    c->loggers = arena_alloc(&se->memory, (c->n_loggers + 1) * sizeof *c->loggers);
    for (size_t i = 0; i < c->n_loggers; i++) {
        nrl_node *map = node_new(&se->memory, NRL_NODE_MAP);
        node_append_text(&se->memory, map, "name", list[i]->name);
        node_append(&se->memory, (nrl_node *)nrl_node_find(c->resolved, "loggers"), NULL, map);
        c->loggers[i] = (config_component){.name = list[i]->name, .resolved = map};
    }
}

/* Opens the plugin that `auto` chose. The config is saved as it was given, with `auto` and its options, so that the run
 * can be continued where another plugin is chosen. */
static const void *open_chosen(session *se, uint32_t kind, const char *section, const config_component *asked,
                               const char *name, void **options)
{
    arena *a = &se->memory;
    config_component c = *asked;
    c.name = name;
    c.resolved = node_new(a, NRL_NODE_MAP);
    const void *table = open_component(se, kind, section, &c, NULL, options);
    for (size_t i = 0; i < nrl_node_size(asked->options); i++) {
        const char *key = nrl_node_key(asked->options, i);
        const nrl_node *value = nrl_node_find(c.resolved, key);
        if (value) node_append(a, asked->resolved, key, node_copy(a, value));
    }
    return table;
}

nrl_status session_probe_backend(session *se)
{
    const plugin *p;
    NRL_TRY(plugin_open(se->host, NRL_KIND_BACKEND, se->backend->plugin.name, &p));
    return plugin_probe(se->host, p, true);
}

/* Opens the plugin of a backend that the chosen one names, with its default options. */
static const nrl_backend *open_helper(session *se, const config_component *chosen, const char *name, void **options)
{
    config_component other = {.name = name, .at = chosen->at, .resolved = node_new(&se->memory, NRL_NODE_MAP)};
    return name ? open_component(se, NRL_KIND_BACKEND, "backend", &other, NULL, options) : NULL;
}

static void fill_backend(session *se)
{
    const config_component *c = &se->config.backend;
    if (!c->name) return;
    bool is_auto = !strcmp(c->name, "auto");
    const char *chosen = NULL;
    const plugin **list;
    /* For `auto`: takes the first backend that this machine can run and reports why another one could not. */
    size_t n = is_auto ? plugin_defaults(se->host, &se->memory, NRL_KIND_BACKEND, &list) : 0;
    for (size_t i = 0; i < n && !chosen; i++) {
        if (plugin_probe(se->host, list[i], false) == NRL_OK)
            chosen = list[i]->name;
        else
            se->skipped_backends = arena_printf(&se->memory, "%s: %s", list[i]->name, nrl_error_text());
    }
    if (is_auto && !chosen)
        problems_add(se->problems, c->at, "backend: auto: no installed backend works on this machine%s%s",
                     se->skipped_backends ? "\n" : "", se->skipped_backends ? se->skipped_backends : "");
    else if (is_auto)
        se->backend = open_chosen(se, NRL_KIND_BACKEND, "backend", c, chosen, &se->backend_options);
    else
        se->backend = open_component(se, NRL_KIND_BACKEND, "backend", c, NULL, &se->backend_options);
    if (!se->backend) return;
    se->delegate = open_helper(se, c, se->backend->delegate, &se->delegate_options);
    if (se->config.train.offloaded.optimizer && !se->env.evaluate_only)
        se->updater = open_helper(se, c, se->backend->updater, &se->updater_options);
}

/* Returns the axis that a strategy declares, in the size that this core knows; NULL: not usable. */
static const nrl_mesh_axis *axis_of(session *se, const nrl_parallel *t)
{
    const nrl_mesh_axis *given = t->axis;
    if (!given || given->size < offsetof(nrl_mesh_axis, order)) return NULL;
    nrl_mesh_axis *axis = arena_alloc(&se->memory, sizeof *axis);
    memcpy(axis, given, given->size < sizeof *axis ? given->size : sizeof *axis);
    bool named = axis->name && *axis->name && strlen(axis->name) < MESH_AXIS_NAME && strcmp(axis->name, "name");
    return named && axis->divides > NRL_DIVIDES_NONE && axis->divides <= NRL_DIVIDES_EXPERTS ? axis : NULL;
}

typedef struct {
    config_server *list;
    size_t n;
} servers;

static void add_server(session *se, servers *s, const char *name, bool is_named, bool by_default)
{
    const plugin *p;
    plugin_host *host = se->host;
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->list[i].table->plugin.name, name)) return;
    nrl_status st = is_named ? plugin_open(host, NRL_KIND_PARALLEL, name, &p)
                             : plugin_open_candidate(host, NRL_KIND_PARALLEL, name, &p);
    if (st != NRL_OK) return; /* the error is reported where the config names it */
    const nrl_parallel *t = (const nrl_parallel *)p->table;
    const nrl_mesh_axis *axis = axis_of(se, t);
    if (axis) s->list[s->n++] = (config_server){t, axis, by_default};
}

static const nrl_node *named_by(const nrl_node *node)
{
    return nrl_node_kind(node) == NRL_NODE_MAP ? nrl_node_find(node, "name") : node;
}

/* Whether each key of the map is an axis, or an option of the strategy that it names. */
static bool serves_keys(const servers *s, const nrl_node *map)
{
    const char *name = nrl_node_string(nrl_node_find(map, "name"), "");
    bool all = true;
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const char *key = nrl_node_key(map, i);
        all = all && (!strcmp(key, "name") || config_has_option(s->list, s->n, name, key) ||
                      config_server_of(s->list, s->n, key));
    }
    return all;
}

/* Lists the axes: those of the strategies that `auto` may choose and of those that the config names, and of all
 * strategies if the config has a key that is not one of these axes. One rank without `parallel` needs none. */
static servers find_servers(session *se)
{
    const nrl_node *given = se->config.parallel, *word = named_by(given);
    const char **names;
    servers s = {0};
    if (nrl_node_kind(given) <= NRL_NODE_NULL && session_world(se) == 1) return s;
    size_t n = plugin_names(se->host, &se->memory, NRL_KIND_PARALLEL, &names);
    s.list = arena_alloc(&se->memory, (n + 1) * sizeof *s.list);
    for (size_t i = 0; i < n; i++)
        if (plugin_is_default(se->host, NRL_KIND_PARALLEL, names[i])) add_server(se, &s, names[i], false, true);
    for (size_t i = 0; i < n; i++) {
        bool named = !strcmp(nrl_node_string(word, ""), names[i]);
        for (size_t k = 0; nrl_node_kind(given) == NRL_NODE_MAP && k < nrl_node_size(given); k++)
            named = named || !strcmp(nrl_node_string(named_by(nrl_node_at(given, k)), ""), names[i]);
        if (named) add_server(se, &s, names[i], true, false);
    }
    if (nrl_node_kind(given) == NRL_NODE_MAP && !serves_keys(&s, given))
        for (size_t i = 0; i < n; i++)
            add_server(se, &s, names[i], false, false);
    return s;
}

static void add_strategy(session *se, const config_axis *x, const config_component *c)
{
    const char *section = x->axis->takes_rest ? "parallel" : arena_printf(&se->memory, "parallel.%s", x->axis->name);
    void *options = NULL;
    const nrl_parallel *t = open_component(se, NRL_KIND_PARALLEL, section, c, NULL, &options);
    const nrl_mesh_axis *axis = t ? axis_of(se, t) : NULL;
    if (!t) return;
    if (!axis)
        problems_add(se->problems, c->at, "%s: '%s' declares no axis", section, c->name);
    else if (strcmp(axis->name, x->axis->name))
        problems_add(se->problems, c->at, "%s: '%s' is a strategy of the axis '%s', expected a strategy of the axis %s",
                     section, c->name, axis->name, x->axis->name);
    else
        strategy_choose(&se->strategy_choices, (strategy_choice){t, axis, options, c->at});
}

static void fill_parallel(session *se)
{
    const servers s = find_servers(se);
    config_axes(&se->memory, se->problems, s.list, s.n, &se->config);
    if (se->config.n_axes > MESH_MAX_GIVEN) {
        problems_add(se->problems, se->config.parallel, "parallel: expected at most %d axes", MESH_MAX_GIVEN);
        return;
    }
    for (size_t i = 0; i < se->config.n_axes; i++) {
        const config_axis *x = &se->config.axes[i];
        config_component c = x->strategy;
        if (x->is_default) { /* no strategy is named: the one that serves the axis, if there are several ranks */
            int32_t n = session_axis_size(se, x), world = session_world(se);
            if (n == 1) continue;
            c.name = config_server_of(s.list, s.n, x->axis->name)->table->plugin.name;
            c.resolved = node_new(&se->memory, NRL_NODE_MAP); /* the word `default` has no options */
            const char *of = n == world ? arena_printf(&se->memory, "for %d ranks", n)
                                        : arena_printf(&se->memory, "for the axis %s, size %d (%d ranks in all)",
                                                       x->axis->name, n, world);
            telemetry_log(se->telemetry, "parallel   %s, the default %s", c.name, of);
        }
        if (c.name) add_strategy(se, x, &c);
    }
}

static bool suits(const session *se, const nrl_collective *c)
{
    return c->host_only || !se->backend || se->backend->stream_create;
}

/* For `auto`: the collective that the backend prefers, else the default one; NULL: none suits. */
static const char *choose_collective(session *se)
{
    const char *preferred = se->backend ? se->backend->collective : NULL;
    const plugin *p, **list;
    if (preferred && plugin_is_default(se->host, NRL_KIND_COLLECTIVE, preferred) &&
        plugin_open_candidate(se->host, NRL_KIND_COLLECTIVE, preferred, &p) == NRL_OK &&
        suits(se, (const nrl_collective *)p->table))
        return preferred;
    size_t n = plugin_defaults(se->host, &se->memory, NRL_KIND_COLLECTIVE, &list);
    for (size_t i = 0; i < n; i++)
        if (suits(se, (const nrl_collective *)list[i]->table)) return list[i]->name;
    return NULL;
}

/* One process opens no collective, but a configured one is checked. */
static void fill_collective(session *se)
{
    const config_component *c = &se->config.collective;
    bool is_auto = c->name && !strcmp(c->name, "auto");
    if (!c->name || (is_auto && session_world(se) == 1)) return;
    const char *chosen = choose_collective(se);
    if (is_auto && !chosen) {
        problems_add(se->problems, c->at, "collective: auto: no installed collective suits this run");
        return;
    }
    if (is_auto) {
        se->collective = open_chosen(se, NRL_KIND_COLLECTIVE, "collective", c, chosen, &se->collective_options);
        return;
    }
    se->collective = open_component(se, NRL_KIND_COLLECTIVE, "collective", c, NULL, &se->collective_options);
    if (!se->collective || suits(se, se->collective)) return;
    const char *expected = chosen ? arena_printf(&se->memory, ": expected %s", chosen) : "";
    problems_add(se->problems, c->at,
                 "collective: '%s' requires a backend with streams, but backend '%s' computes on the host%s", c->name,
                 se->backend->plugin.name, expected);
}

/* Planned ranks do not meet, but a configured store is checked. */
static void fill_store(session *se)
{
    const config_component *c = &se->config.store;
    const plugin *p;
    if (!c->name) return;
    if (strcmp(c->name, "auto")) {
        se->store = open_component(se, NRL_KIND_STORE, "store", c, NULL, &se->store_options);
        return;
    }
    if (session_world(se) == 1 || !se->env.ranks || !se->env.ranks->store) return;
    nrl_status st = store_choose(se->host, se->env.ranks->store, &p);
    if (st == NRL_OK)
        se->store = open_chosen(se, NRL_KIND_STORE, "store", c, p->name, &se->store_options);
    else
        problems_take_error(se->problems, st, c->at);
}

static void fill_loggers(session *se)
{
    telemetry *t = se->telemetry;
    bool records = session_is_rank0(se) && !se->env.no_output && !se->env.check_only;
    t->loggers = arena_alloc(&se->memory, (se->config.n_loggers + 1) * sizeof *t->loggers);
    for (size_t i = 0; i < se->config.n_loggers; i++) {
        const config_component *c = &se->config.loggers[i];
        run_logger *l = &t->loggers[t->n_loggers];
        l->name = c->name;
        l->table = open_component(se, NRL_KIND_LOGGER, "loggers", c, NULL,
                                  &l->options); /* resolved even where it is not opened */
        if (l->table && records && !(se->env.quiet && l->table->on_terminal)) t->n_loggers++;
    }
}

/* Adds a word to the list of an error. */
static const char *list_word(arena *a, const char *list, const char *word, suggestion *near)
{
    suggest_offer(near, word);
    return *list ? arena_printf(a, "%s, %s", list, word) : word;
}

/* Refuses a word of `needs` that nothing fills, which would otherwise fail at the first step. */
static nrl_status check_needs(session *se)
{
    static const char *const known[] = {"logps",    "ref_logps",     "teacher_logps", "teacher_logits", "entropy",
                                        "sum_p2",   "lse",           "logits",        "hidden",         "weights",
                                        "label",    "answer_tokens", "prompt_tokens", "sequences",      "pairs",
                                        "examples", "desirable",     "tokens",        "prompt_targets", "kl_pairs"};
    const nrl_node *extra = se->config.data.extra;
    for (const char *const *need = se->algorithm->needs; need && *need; need++) {
        suggestion near = {.word = *need};
        const char *all = "";
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            all = list_word(&se->memory, all, known[i], &near);
            is_known = is_known || !strcmp(known[i], *need);
        }
        for (size_t i = 0; i < nrl_node_size(extra); i++) {
            const char *word = nrl_node_string(nrl_node_at(extra, i), "");
            all = list_word(&se->memory, all, word, &near);
            is_known = is_known || !strcmp(word, *need);
        }
        if (!is_known)
            return nrl_fail(NRL_ERR_CONFIG,
                            "algorithm '%s' needs '%s', which is neither a column of nrl nor in data.extra%s%s%s; "
                            "expected one of: %s",
                            se->algorithm->plugin.name, *need, near.best ? "; did you mean '" : "",
                            near.best ? near.best : "", near.best ? "'?" : "", all);
    }
    const nrl_status mistake = se->algorithm_is_script ? NRL_ERR_CONFIG : NRL_ERR_PLUGIN;
    if (work_needs(se->algorithm, "ref_logps") && reference_is_teacher(se->algorithm))
        return nrl_fail(mistake, "algorithm '%s' needs both a reference and a teacher; expected only one of them",
                        se->algorithm->plugin.name);
    bool logits = work_needs(se->algorithm, "logits") || work_needs(se->algorithm, "teacher_logits");
    if (logits && !loss_is_separable(se->algorithm))
        return nrl_fail(mistake,
                        "algorithm '%s' needs logits, which exist one chunk of target positions at a time; expected a "
                        "tokenwise loss that does not need 'hidden'",
                        se->algorithm->plugin.name);
    return NRL_OK;
}

static nrl_status check_algorithm(session *se)
{
    NRL_TRY(metrics_declare(&se->metrics, &se->algorithm->plugin, se->algorithm->metrics,
                            se->algorithm_is_script ? NRL_ERR_CONFIG : NRL_ERR_PLUGIN, &se->memory));
    se->metrics.n_algorithm = se->metrics.n;
    return check_needs(se);
}

/* Reports all missing files, because opening them stops at the first one, after the config was checked. Patterns and
 * addresses are left to what opens them. */
static void inspect_files(session *se)
{
    const config_data *data = &se->config.data;
    model_origin origin = {.formats = &se->formats};
    const nrl_node *config;
    for (size_t i = 0; i <= data->n_evals; i++) { /* the last one: data.train */
        const nrl_node *set = i < data->n_evals ? data->evals[i].sources : data->train;
        if (i < data->n_evals && set == data->train) continue; /* rows that are held out */
        for (size_t k = 0; k < nrl_node_size(set); k++) {
            const nrl_node *at = nrl_node_at(set, k);
            const char *path = nrl_node_string(nrl_node_find(at, "path"), "");
            const bool named = hub_is_name(path, strlen(path)) && !strchr(path, '.');
            if (*path && !strpbrk(path, "*?[{:") && strcmp(path, "-") && access(path, F_OK))
                problems_add(se->problems, at, "data.%s: %s: No such file or directory%s%s",
                             i < data->n_evals ? "eval" : "train", path,
                             named ? "\nhint: a data set of the Hub is " HUB_SCHEME : "", named ? path : "");
        }
    }
    if (!se->problems->n || !*se->config.model.path) return; /* the model is opened next */
    nrl_status st = origin_find(se->config.model.path, &se->model_memory, &origin, &config);
    if (st != NRL_OK) problems_take_error(se->problems, st, nrl_node_find(nrl_node_find(se->tree, "model"), "path"));
}

/* With no_config_plugins, folders of the config are not even looked at. */
static void open_host(session *se)
{
    const config_run *c = &se->config;
    for (size_t i = 0; i < c->n_plugins && !se->env.no_config_plugins; i++)
        if (access(c->plugins[i], F_OK))
            problems_add(se->problems,
                         nrl_node_kind(c->plugin_folders) == NRL_NODE_LIST ? nrl_node_at(c->plugin_folders, i)
                                                                           : c->plugin_folders,
                         "plugins: '%s': no such directory", c->plugins[i]);
    const plugin_places places = {c->plugins, c->n_plugins, c->plugins_allow, c->n_plugins_allow};
    se->host = component_host(&se->env, &places);
    se->formats = (format_scope){.host = se->host, .variable = se->env.variable};
}

nrl_status session_open_plugins(session *se)
{
    config_problems none = {0};
    if (!se->problems) se->problems = &none;
    se->problems->known_as = known_here;
    se->problems->user = se;
    config_fill(&se->memory, se->problems, se->tree, &se->config);
    open_host(se);
    name_default(se, NRL_KIND_ALGORITHM, "algorithm", &se->config.algorithm);
    name_default(se, NRL_KIND_OPTIMIZER, "optimizer", &se->config.optimizer);
    name_default(se, NRL_KIND_SCHEDULE, "schedule", &se->config.schedule);
    name_loggers(se);
    fill_adapter(se);
    fill_algorithm(se);
    name_metric(se);
    option_part core = {optim_rows, optim_n_rows, sizeof *optim_rows, &se->optimizer_options};
    se->optimizer = open_component(se, NRL_KIND_OPTIMIZER, "optimizer", &se->config.optimizer, &core,
                                   &se->optimizer_plugin_options);
    optim_scale_lr(&se->memory, se->problems, se->config.train.global_batch, &se->optimizer_options);
    se->schedule = open_component(se, NRL_KIND_SCHEDULE, "schedule", &se->config.schedule, NULL, &se->schedule_options);
    fill_backend(se);
    fill_parallel(se);
    fill_collective(se);
    fill_store(se);
    fill_loggers(se);
    nrl_status st = se->algorithm ? check_algorithm(se) : NRL_OK, late = st == NRL_ERR_CONFIG ? NRL_OK : st;
    if (st == NRL_ERR_CONFIG) problems_take_error(se->problems, st, NULL);
    inspect_files(se);
    st = se->problems->n ? problems_report(se->problems) : late;
    *se->problems = (config_problems){0};
    se->problems = NULL;
    NRL_TRY(st);
    /* Without a create of its own the instance is the options. */
    const nrl_optimizer *o = se->optimizer;
    se->optimizer_self = se->optimizer_plugin_options;
    if (!o->create) return NRL_OK;
    st = o->create(se->optimizer_plugin_options, &se->optimizer_self);
    if (st) se->optimizer_self = NULL; /* a failed create may have left a value here */
    return st;
}

/* Finds the metric of the best evaluation. A misspelt name would otherwise be found at the first evaluation. */
static nrl_status check_best(session *se)
{
    const config_checkpoint *c = &se->config.checkpoint;
    const config_data *data = &se->config.data;
    const char *names = "eval_loss";
    suggestion near = {.word = c->metric};
    const uint32_t unknown = UINT32_MAX, n_terms = (uint32_t)se->model->n_terms; /* these have no row */
    uint32_t better = strcmp(c->metric, names) ? unknown : NRL_BETTER_SMALLER;
    for (size_t k = 0; k < data->n_evals; k++) {
        const char *set = data->evals[k].name;
        for (uint32_t i = *set ? 0 : 1; i <= n_terms + se->metrics.n; i++) { /* 0: the loss of a set */
            const nrl_metric *row = i > n_terms ? se->metrics.list[i - n_terms - 1].row : NULL;
            const char *word = row ? row->name : i ? se->model->terms[i - 1].name : "loss";
            const char *name = arena_printf(&se->memory, "eval_%s%s%s", set, *set ? "_" : "", word);
            names = list_word(&se->memory, names, name, &near);
            if (!strcmp(c->metric, name)) better = row ? row->better : NRL_BETTER_SMALLER;
        }
    }
    const nrl_run_services *services = se->env.services;
    for (const nrl_metric *row = services && se->config.eval.samples ? services->sample_metrics : NULL;
         row && row->name; row++) {
        const char *name = arena_printf(&se->memory, "eval_%s", row->name);
        names = list_word(&se->memory, names, name, &near);
        if (!strcmp(c->metric, name)) better = row->better;
    }
    if (!services && se->env.dry_run) return NRL_OK; /* it neither evaluates nor compares ranks */
    if ((se->config.eval.samples || se->config.debug_every) && !services)
        return nrl_fail(NRL_ERR_CONFIG, "%s (nrl_environment.services)",
                        se->config.eval.samples ? "eval.samples: this program does not generate text"
                                                : "debug: this program does not compare ranks");
    if (!data->n_evals && se->config.eval.every && !strcmp(c->metric, "eval_loss") &&
        (c->export == CONFIG_EXPORT_BEST || se->config.eval.early_stop))
        return nrl_fail(NRL_ERR_CONFIG,
                        "checkpoint.metric: eval_loss requires data.eval, and %s compares it; expected one of: %s",
                        c->export == CONFIG_EXPORT_BEST ? "checkpoint.export: best" : "eval.early_stop", names);
    if (better == unknown && se->config.eval.every)
        return nrl_fail(NRL_ERR_CONFIG, "checkpoint.metric: '%s' is not a metric of evaluations; expected one of: %s",
                        c->metric, names);
    if (c->metric_mode != CONFIG_METRIC_AUTO)
        better = c->metric_mode == CONFIG_METRIC_MIN ? NRL_BETTER_SMALLER : NRL_BETTER_LARGER;
    se->best_is_largest = better == NRL_BETTER_LARGER;
    if (better == NRL_BETTER_SMALLER || se->best_is_largest || !se->config.eval.every) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "checkpoint.metric: its plugin does not declare whether a smaller or a larger "
                    "'%s' is better\nhint: checkpoint.metric_mode: min or max",
                    c->metric);
}

nrl_status session_open_metrics(session *se)
{
    const nrl_plugin **open;
    buffer lines = {0};
    size_t n = plugin_opened(se->host, &se->memory, &open);
    for (uint32_t i = 0; i < se->metrics.n_algorithm; i++)
        buffer_print(&lines, "metric %s\n", se->metrics.list[i].row->name);
    for (size_t i = 0; i < n; i++) {
        if (!open[i]->metrics) continue;
        NRL_TRY(metrics_declare(&se->metrics, open[i], open[i]->metrics, NRL_ERR_PLUGIN, &se->memory));
        buffer_print(&lines, "metrics of %s: %s\n", open[i]->name, open[i]->version);
    }
    nrl_status st = mesh_compare(se->mesh, "metrics", lines.text ? lines.text : "", NULL);
    buffer_free(&lines);
    return st == NRL_OK ? check_best(se) : st;
}
