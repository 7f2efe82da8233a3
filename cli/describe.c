/*
 * describe.c - `nrl describe [NAME]`: the option table of a section of the config, of a plugin, or of
 * everything. Configs are checked with the same rows, so this output cannot be out of date.
 */
#include "base/json.h"
#include "base/other_names.h"
#include "cli/verbs.h"
#include "config/compare.h"
#include "config/schema.h"
#include "base/suggest.h"
#include "optim/options.h"
#include "run/weights/reference.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One table: rows under a heading. */
typedef struct {
    const char *name; /* "train", "optimizers/adamw" */
    const char *help;
    const nrl_option *rows;
    size_t n_rows, stride;
    const char *const *words; /* other names: a model plugin's model_type values; NULL: none */
    const char *page;         /* printed if the table is requested by name; NULL: none */
} table;

typedef struct {
    arena a;
    plugin_host *host;
    table *list;
    size_t n, room;
    listed_plugin *plugins; /* including broken ones */
    size_t n_plugins;
} tables;

static void add(tables *t, table x)
{
    if (t->n == t->room) {
        t->room = t->room ? t->room * 2 : 32;
        t->list = mem_realloc(t->list, t->room * sizeof *t->list);
    }
    t->list[t->n++] = x;
}

/* What data.train and model.path can be. The kinds of files are those of plugins of datasets/ and formats/. */
static const char formats_page[] =
    "  rows of data.train and data.eval, recognised by their keys:\n"
    "    messages                     [{role, content}, ...]; answers of the assistant are trained\n"
    "    conversations                [{from, value}, ...], as in ShareGPT\n"
    "    prompt, completion           texts or lists of messages; the completion is trained\n"
    "    instruction, input, output   as in Alpaca\n"
    "    text                         everything is trained\n"
    "    prompt, chosen, rejected     pairs for dpo; texts or lists of messages\n"
    "    prompt, completion, label    for kto; label is true or false\n"
    "    input_ids, labels            tokens; labels of -100 are not trained\n"
    "  `nrl check FILE --sample N` shows how rows become tokens; docs/data.md lists all formats.\n"
    "  `nrl describe datasets` lists the kinds of data files, `nrl describe models` the\n"
    "  architectures. Kinds of model files, for model.path and `nrl export --format`:\n"
    "\n";

static void add_core(tables *t)
{
    size_t n;
    const config_section *s = config_sections(&n);
    for (size_t i = 0; i < n; i++)
        add(t, (table){s[i].name, s[i].help, s[i].rows, s[i].n_rows, sizeof(nrl_option), NULL, NULL});
    add(t, (table){"algorithm", "options for losses with a reference model; the algorithm plugin has further options",
                   reference_rows, reference_n_rows, sizeof(nrl_option), NULL, NULL});
    add(t, (table){"algorithm", "options for losses with a teacher model", teacher_rows, teacher_n_rows,
                   sizeof(nrl_option), NULL, NULL});
    add(t, (table){"optimizer", "options of every optimizer; the optimizer plugin has further options", optim_rows,
                   optim_n_rows, sizeof(nrl_option), NULL, NULL});
}

static const char *backend_help(arena *a, const plugin_about *b)
{
    return arena_printf(a, "%s\n  effect of train.deterministic: false: %s", b->summary,
                        b->relaxed ? b->relaxed : "nothing");
}

/* For a model plugin, adds the model_type values of config.json that it supports; for a backend, what
 * train.deterministic changes. */
static const char *plugin_help(arena *a, const listed_plugin *e)
{
    const char *help = e->about.summary, *before = "\n  model_type: ";
    if (e->kind->kind == NRL_KIND_BACKEND) return backend_help(a, &e->about);
    for (const char *const *type = e->about.model_types; type && *type; type++, before = ", ")
        help = arena_printf(a, "%s%s%s", help, before, *type);
    return help;
}

static const char *axis_help(arena *a, const plugin_about *axis, const char *strategies)
{
    static const char *const divides[] = {"",
                                          "number of ranks that share the layers as stages",
                                          "number of ranks that share each layer",
                                          "ranks that share the batch",
                                          "number of ranks that share the tokens of each micro-batch",
                                          "number of ranks that share the experts"};
    const char *what = axis->axis_divides < sizeof divides / sizeof *divides ? divides[axis->axis_divides] : "";
    if (!axis->axis_takes_rest)
        return arena_printf(a, "%s, or {name, size, options}; strategies: %s", what, strategies);
    return arena_printf(a,
                        "%s: a strategy, a number of ranks, or {name, size, options}; unset: the remaining ranks; "
                        "strategies: %s",
                        what, strategies);
}

/* NULL: the plugin serves no axis, or is not used. */
static const char *axis_of(const listed_plugin *e)
{
    return e->problem || e->hidden_by ? NULL : e->about.axis;
}

/* The keys of `parallel`: every axis that a plugin serves. */
static void add_axes(tables *t)
{
    nrl_option *rows = arena_alloc(&t->a, (t->n_plugins + 1) * sizeof *rows);
    size_t n = 0;
    for (size_t i = 0; i < t->n_plugins; i++) {
        const char *axis = axis_of(&t->plugins[i]), *other;
        const char *strategies = t->plugins[i].name;
        bool known = !axis;
        for (size_t k = 0; k < n && !known; k++)
            known = !strcmp(rows[k].name, axis);
        for (size_t k = i + 1; k < t->n_plugins && !known; k++)
            if ((other = axis_of(&t->plugins[k])) != NULL && !strcmp(other, axis))
                strategies = arena_printf(&t->a, "%s, %s", strategies, t->plugins[k].name);
        if (!known)
            rows[n++] = (nrl_option){.name = axis,
                                     .initial = "",
                                     .type = NRL_TYPE_NODE,
                                     .help = axis_help(&t->a, &t->plugins[i].about, strategies)};
    }
    add(t, (table){"parallel", "number of ranks of each axis; the strategy of an axis has its own options", rows, n,
                   sizeof(nrl_option), NULL, NULL});
}

static void add_plugins(tables *t)
{
    add(t, (table){"formats", "row formats, and plugins for model files", NULL, 0, 0, NULL, formats_page});
    t->n_plugins = verbs_plugin_list(t->host, &t->a, &t->plugins);
    add_axes(t);
    for (size_t i = 0; i < t->n_plugins; i++) {
        const listed_plugin *e = &t->plugins[i];
        if (e->problem) nrl_warn("skipped a plugin that cannot be used: %s: %s", e->path, e->problem);
        if (!e->problem && !e->hidden_by)
            add(t,
                (table){arena_printf(&t->a, "%s/%s", e->kind->folder, e->name), plugin_help(&t->a, e), e->about.options,
                        e->about.n_options, sizeof(nrl_option), e->about.model_types, e->about.page});
    }
}

/* "adamw" and "optimizers/adamw" both name the plugin, "optimizer" and "optimizers" all plugins of the
 * kind; "config" is the top level. */
static bool is_called(const table *x, const char *name)
{
    for (const char *const *word = x->words; word && *word; word++)
        if (!strcmp(*word, name)) return true;
    const char *slash = strchr(x->name, '/');
    size_t n = strlen(name), folder = slash ? (size_t)(slash - x->name) : 0;
    bool kind = slash && !strncmp(x->name, name, n) && (folder == n || (folder == n + 1 && x->name[n] == 's'));
    return kind || !strcmp(x->name, name) || (slash && !strcmp(slash + 1, name)) ||
           (!*x->name && !strcmp(name, "config"));
}

/* One option by its name: "lr", "optimizer.lr", "adamw.betas". */
static bool is_option_called(const table *x, const nrl_option *row, const char *name)
{
    const char *dot = strrchr(name, '.');
    if (strcmp(row->name, dot ? dot + 1 : name)) return false;
    if (!dot) return true;
    char section[64];
    snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
    return is_called(x, section);
}

/* ---- as text ---- */

static const char *type_name(uint32_t type)
{
    static const char *const names[] = {"?", "int", "number", "bool", "text", "word", "path", "value"};
    return type < sizeof names / sizeof *names ? names[type] : "?";
}

static const char *range(arena *a, const nrl_option *r)
{
    if (r->type == NRL_TYPE_ENUM) return r->choices;
    if (r->type != NRL_TYPE_INT && r->type != NRL_TYPE_F64) return "";
    return option_range(a, r);
}

/* ---- what a resume compares ---- */

/* The section of the config that contains a table's rows: "optimizer" for "optimizers/adamw". */
static const char *section_of(arena *a, const table *x)
{
    const char *slash = strchr(x->name, '/');
    if (!slash) return x->name;
    size_t n = (size_t)(slash - x->name);
    if (!strncmp(x->name, "loggers", n)) return "loggers";
    return arena_strndup(a, x->name, x->name[n - 1] == 's' ? n - 1 : n);
}

static bool is_compared(arena *a, const table *x, const nrl_option *row)
{
    const char *section = section_of(a, x);
    return config_key_classify(arena_printf(a, "%s%s%s", section, *section ? "." : "", row->name)) != CONFIG_KEY_FREE;
}

/* The options of a table that a resume compares, or does not compare, as "steps, epochs". */
static const char *options_that(tables *t, const table *x, bool compared, size_t *n)
{
    const char *text = "";
    *n = 0;
    for (size_t i = 0; i < x->n_rows; i++) {
        const nrl_option *r = option_row(x->rows, i, x->stride);
        if (is_compared(&t->a, x, r) != compared) continue;
        text = arena_printf(&t->a, "%s%s%s", text, *n ? ", " : "", r->name);
        ++*n;
    }
    return text;
}

/* Prints the shorter of the two lists. Sections and directories are in the top level, and have
 * their own tables. */
static void print_compared(tables *t, const table *x)
{
    size_t n_compared, n_free;
    if (!*x->name || !x->n_rows) return;
    const char *compared = options_that(t, x, true, &n_compared), *free_ones = options_that(t, x, false, &n_free);
    if (!n_compared)
        printf("  on resume: all may change\n");
    else if (!n_free)
        printf("  on resume: all must equal the checkpoint's (checkpoint.mismatch)\n");
    else if (n_compared < n_free)
        printf("  on resume: these must equal the checkpoint's: %s; the others may change\n", compared);
    else
        printf("  on resume: these may change: %s; the others must equal the checkpoint's\n", free_ones);
}

/* `only` NULL: all options. */
static void print_text(tables *t, const table *x, const nrl_option *only)
{
    printf("%s - %s\n", *x->name ? x->name : "config", x->help);
    for (size_t i = 0; i < x->n_rows; i++) {
        const nrl_option *r = option_row(x->rows, i, x->stride);
        if (only && r != only) continue;
        const char *initial = !r->initial ? "(required)" : *r->initial ? r->initial : "(unset)";
        const char *limits = range(&t->a, r);
        printf("  %-24s %-6s %-10s %s%s%s%s\n", r->name, type_name(r->type), initial, r->help ? r->help : "",
               *limits ? " [" : "", limits, *limits ? "]" : "");
        if (only && *x->name)
            printf("  on resume: %s\n", is_compared(&t->a, x, r) ? "compared with the checkpoint's" : "free to change");
    }
    if (!only) print_compared(t, x);
    printf("\n");
}

/* ---- as JSON ---- */

static void set_text(arena *a, nrl_node *map, const char *key, const char *text)
{
    node_set(a, map, key, text ? node_text(a, text) : node_new(a, NRL_NODE_NULL));
}

static nrl_node *row_node(arena *a, const table *x, const nrl_option *r)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    set_text(a, map, "name", r->name);
    set_text(a, map, "type", type_name(r->type));
    set_text(a, map, "default", r->initial);
    node_set(a, map, "required", node_bool(a, !r->initial));
    if (r->choices) set_text(a, map, "choices", r->choices);
    if (r->type == NRL_TYPE_INT || r->type == NRL_TYPE_F64) {
        node_set(a, map, "min", node_f64(a, r->min));
        node_set(a, map, "max", node_f64(a, r->max));
    }
    set_text(a, map, "help", r->help);
    if (*x->name) node_set(a, map, "compared", node_bool(a, is_compared(a, x, r)));
    return map;
}

/* `only` NULL: all options. */
static nrl_node *table_node(arena *a, const table *x, const nrl_option *only)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    set_text(a, map, "name", x->name);
    set_text(a, map, "summary", x->help);
    nrl_node *rows = node_set(a, map, "options", node_new(a, NRL_NODE_LIST));
    for (size_t i = 0; i < x->n_rows; i++) {
        const nrl_option *r = option_row(x->rows, i, x->stride);
        if (!only || r == only) node_append(a, rows, NULL, row_node(a, x, r));
    }
    return map;
}

/* ---- the verb ---- */

static nrl_status nothing_called(const tables *t, const char *name)
{
    suggestion near = {.word = name};
    for (size_t i = 0; i < t->n; i++) {
        const char *slash = strchr(t->list[i].name, '/');
        suggest_offer(&near, slash ? slash + 1 : t->list[i].name);
    }
    for (size_t i = 0; i < t->n_plugins; i++)
        if (t->plugins[i].problem && !strcmp(t->plugins[i].name, name))
            return nrl_fail(NRL_ERR_PLUGIN, "%s: %s", t->plugins[i].path, t->plugins[i].problem);
    return nrl_fail(NRL_ERR_CONFIG, "there is no section, plugin or option '%s'%s%s%s", name,
                    near.best ? "; did you mean '" : "", near.best ? near.best : "", near.best ? "'?" : "");
}

/* Prints a table, or one option of it, or appends it to the list `json`. */
static void print_table(tables *t, const table *x, const nrl_option *only, nrl_node *json)
{
    if (json)
        node_append(&t->a, json, NULL, table_node(&t->a, x, only));
    else
        print_text(t, x, only);
}

static size_t print_called(tables *t, const char *name, nrl_node *json);

static size_t print_options(tables *t, const char *name, nrl_node *json)
{
    size_t found = 0;
    const char *key, *part = name && strrchr(name, '.') ? strrchr(name, '.') + 1 : name;
    const char *known = name ? other_names_find(&t->a, cli_exe_dir(&t->a), part, &key) : NULL;
    for (size_t i = 0; name && i < t->n; i++)
        for (size_t k = 0; k < t->list[i].n_rows; k++) {
            const nrl_option *row = option_row(t->list[i].rows, k, t->list[i].stride);
            if (!is_option_called(&t->list[i], row, name)) continue;
            print_table(t, &t->list[i], row, json);
            found++;
        }
    const char *dot = name ? strchr(name, '.') : NULL;
    for (size_t i = 0; !found && dot && i < t->n; i++) /* lora.base: an option of the core for every adapter */
        if (!strcmp(t->list[i].name, arena_printf(&t->a, "adapters/%.*s", (int)(dot - name), name)))
            found = print_options(t, arena_printf(&t->a, "adapter%s", dot), json);
    if (found || !known) return found;
    if (json) /* what another trainer calls it */
        print_table(t, &(table){.name = name, .help = known}, NULL, json);
    else
        printf("%s is not an option of nrl; %s\n\n", name, known);
    if (key && strcmp(key, part)) print_called(t, key, json);
    return 1;
}

/* Prints the tables or the options with this name (NULL: all tables), or appends them to the list `json`; returns their
 * number. */
static size_t print_called(tables *t, const char *name, nrl_node *json)
{
    size_t found = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (name && !is_called(&t->list[i], name)) continue;
        found++;
        print_table(t, &t->list[i], NULL, json);
        if (name && !json && t->list[i].page) cli_print(t->list[i].page);
    }
    return found ? found : print_options(t, name, json);
}

static nrl_status print(tables *t, const char *name, bool json)
{
    nrl_node *list = json ? node_new(&t->a, NRL_NODE_LIST) : NULL;
    if (!print_called(t, name, list)) return nothing_called(t, name ? name : "");
    if (!json) return NRL_OK;
    char *text = json_write(list, 2);
    printf("%s\n", text);
    free(text);
    return NRL_OK;
}

nrl_status cli_describe(int argc, char **argv)
{
    tables t = {0};
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(cli_expect(argc, argv, 0, 1));
    t.host = verbs_plugin_host(&t.a);
    add_core(&t);
    add_plugins(&t);
    nrl_status st = print(&t, argc > 1 ? argv[1] : NULL, json);
    plugin_host_destroy(t.host);
    free(t.list);
    arena_free(&t.a);
    return st;
}
