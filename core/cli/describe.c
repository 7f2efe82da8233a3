/*
 * describe.c - `nrl describe [NAME]`: the option table of a section of the config, of a plugin, or
 * of everything. The rows are the ones that configs are checked with, so this cannot be out of
 * date.
 */
#include "base/json.h"
#include "cli/cli.h"
#include "config/schema.h"
#include "config/suggest.h"
#include "optim/options.h"
#include "optim/schedule.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One table: rows under a heading. */
typedef struct {
    const char *name; /* "train", "optimizers/adamw" */
    const char *help;
    const nrl_option *rows;
    size_t n_rows, stride;
} table;

typedef struct {
    arena a;
    plugin_host *host;
    table *list;
    size_t n, room;
    plugin_entry *plugins; /* broken ones too */
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

static const char *schedule_help(arena *a)
{
    const char *help = "the learning rate over time; one of";
    for (int i = 0; i < SCHEDULE_COUNT; i++) help = arena_printf(a, "%s %s", help, schedule_names[i]);
    return help;
}

static void add_core(tables *t)
{
    size_t n;
    const config_section *s = config_sections(&n);
    for (size_t i = 0; i < n; i++)
        add(t, (table){s[i].name, s[i].help, s[i].rows, s[i].n_rows, sizeof(nrl_option)});
    add(t, (table){"optimizer", "the core's part; the optimizer plugin has its own", optim_rows,
                   optim_n_rows, sizeof(nrl_option)});
    add(t, (table){"schedule", schedule_help(&t->a), schedule_rows, schedule_n_rows,
                   sizeof(nrl_option)});
}

static void add_plugins(tables *t)
{
    t->n_plugins = plugin_list(t->host, &t->a, &t->plugins);
    for (size_t i = 0; i < t->n_plugins; i++) {
        const plugin_entry *e = &t->plugins[i];
        if (e->table && !e->hidden_by)
            add(t,
                (table){arena_printf(&t->a, "%s/%s", e->kind->folder, e->name), e->table->summary,
                        e->table->options, e->table->n_options, e->table->option_size});
    }
}

/* "adamw" and "optimizers/adamw" both mean the plugin; "config" is the top level. */
static bool is_called(const table *x, const char *name)
{
    const char *slash = strchr(x->name, '/');
    return !strcmp(x->name, name) || (slash && !strcmp(slash + 1, name)) ||
           (!*x->name && !strcmp(name, "config"));
}

/* ---- as text ---- */

static const char *type_name(uint32_t type)
{
    static const char *const names[] = {"?",    "int",  "number", "bool",
                                        "text", "word", "path",   "value"};
    return type < sizeof names / sizeof *names ? names[type] : "?";
}

static const char *range(arena *a, const nrl_option *r)
{
    if (r->type == NRL_TYPE_ENUM) return r->choices;
    if (r->type != NRL_TYPE_INT && r->type != NRL_TYPE_F64) return "";
    bool open = r->max > 1e15;
    return open ? arena_printf(a, "from %g", r->min) : arena_printf(a, "%g to %g", r->min, r->max);
}

static void print_text(tables *t, const table *x)
{
    printf("%s - %s\n", *x->name ? x->name : "config", x->help);
    for (size_t i = 0; i < x->n_rows; i++) {
        const nrl_option *r = option_row(x->rows, i, x->stride);
        const char *initial = !r->initial ? "(required)" : *r->initial ? r->initial : "(unset)";
        const char *limits = range(&t->a, r);
        printf("  %-24s %-6s %-10s %s%s%s%s\n", r->name, type_name(r->type), initial,
               r->help ? r->help : "", *limits ? " [" : "", limits, *limits ? "]" : "");
    }
    printf("\n");
}

/* ---- as JSON ---- */

static void set_text(arena *a, nrl_node *map, const char *key, const char *text)
{
    node_set(a, map, key, text ? node_string(a, text, strlen(text)) : node_new(a, NRL_NODE_NULL));
}

static nrl_node *row_node(arena *a, const nrl_option *r)
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
    return map;
}

static nrl_node *table_node(arena *a, const table *x)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    set_text(a, map, "name", x->name);
    set_text(a, map, "summary", x->help);
    nrl_node *rows = node_set(a, map, "options", node_new(a, NRL_NODE_LIST));
    for (size_t i = 0; i < x->n_rows; i++)
        node_append(a, rows, NULL, row_node(a, option_row(x->rows, i, x->stride)));
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
        if (!t->plugins[i].table && !strcmp(t->plugins[i].name, name))
            return nrl_fail(NRL_ERR_PLUGIN, "%s: %s", t->plugins[i].path, t->plugins[i].problem);
    return nrl_fail(NRL_ERR_CONFIG, "neither a section nor a plugin is called '%s'%s%s%s", name,
                    near.best ? "; did you mean '" : "", near.best ? near.best : "",
                    near.best ? "'?" : "");
}

static nrl_status print(tables *t, const char *name, bool json)
{
    size_t found = 0;
    nrl_node *list = node_new(&t->a, NRL_NODE_LIST);
    for (size_t i = 0; i < t->n; i++) {
        if (name && !is_called(&t->list[i], name)) continue;
        found++;
        if (json)
            node_append(&t->a, list, NULL, table_node(&t->a, &t->list[i]));
        else
            print_text(t, &t->list[i]);
    }
    if (!found) return nothing_called(t, name ? name : "");
    char *text = json_write(list, 2);
    if (json) printf("%s\n", text);
    free(text);
    return NRL_OK;
}

nrl_status cli_describe(int argc, char **argv)
{
    tables t = {0};
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(cli_expect(argc, argv, 0, 1));
    t.host = cli_plugin_host(&t.a, NULL, 0);
    add_core(&t);
    add_plugins(&t);
    nrl_status st = print(&t, argc > 1 ? argv[1] : NULL, json);
    plugin_host_destroy(t.host);
    free(t.list);
    arena_free(&t.a);
    return st;
}
