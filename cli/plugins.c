/*
 * plugins.c - `nrl plugins`: lists all plugins that are found; opening them shows which are broken,
 * and why. Verbs below it have their own files.
 */
#include "base/json.h"
#include "cli/verbs.h"
#include "plugin/component.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_line(const listed_plugin *e)
{
    if (e->problem) {
        printf("  %-14s broken: %s\n  %-14s %s\n", e->name, e->problem, "", e->path);
        return;
    }
    printf("  %-14s %-8s %s\n", e->name, e->about.version, e->about.summary);
    if (e->hidden_by) printf("  %-14s not used: hidden by %s\n", "", e->hidden_by);
    printf("  %-14s %s\n", "", e->path);
}

static void print_text(const listed_plugin *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!i || entries[i].kind != entries[i - 1].kind) printf("%s\n", entries[i].kind->folder);
        print_line(&entries[i]);
    }
}

static void set_text(arena *a, nrl_node *map, const char *key, const char *text)
{
    if (text) node_set(a, map, key, node_text(a, text));
}

static void print_json(arena *a, const listed_plugin *entries, size_t n)
{
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    for (size_t i = 0; i < n; i++) {
        const listed_plugin *e = &entries[i];
        nrl_node *map = node_new(a, NRL_NODE_MAP);
        set_text(a, map, "kind", e->kind->folder);
        set_text(a, map, "name", e->name);
        set_text(a, map, "version", e->problem ? NULL : e->about.version);
        set_text(a, map, "summary", e->problem ? NULL : e->about.summary);
        set_text(a, map, "path", e->path);
        set_text(a, map, "hidden_by", e->hidden_by);
        set_text(a, map, "problem", e->problem);
        node_append(a, list, NULL, map);
    }
    char *text = json_write(list, 2);
    printf("%s\n", text);
    free(text);
}

plugin_host *verbs_plugin_host(arena *a)
{
    const nrl_environment env = {.size = sizeof env,
                                 .plugin_path = cli_getenv("NRL_PLUGIN_PATH"),
                                 .user_plugins = cli_user_plugins(a),
                                 .exe_dir = cli_exe_dir(a),
                                 .variable = cli_getenv};
    return component_host(&env, NULL);
}

nrl_status cli_plugins(int argc, char **argv)
{
    static const struct {
        const char *name;
        cli_run_verb run;
    } own[] = {{"new", cli_plugins_new},
               {"install", cli_plugins_install},
               {"list", cli_plugins_list},
               {"remove", cli_plugins_remove}};
    arena a = {0};
    listed_plugin *entries;
    if (argc > 1 && !strcmp(argv[1], "test")) return programs_exec("test-plugin", argv + 1);
    for (size_t i = 0; argc > 1 && i < sizeof own / sizeof *own; i++)
        if (!strcmp(argv[1], own[i].name)) return own[i].run(argc, argv);
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(cli_expect(argc, argv, 0, 0));
    plugin_host *h = verbs_plugin_host(&a);
    size_t n = verbs_plugin_list(h, &a, &entries);
    if (json)
        print_json(&a, entries, n);
    else
        print_text(entries, n);
    plugin_host_destroy(h);
    arena_free(&a);
    return NRL_OK;
}
