/*
 * options.h - a plugin and its options from YAML text, filled and checked as in a run.
 */
#ifndef SUPPORT_OPTIONS_H
#define SUPPORT_OPTIONS_H
#include "base/yaml.h"
#include "plugin/host.h"
#include <stdlib.h>
#include <string.h>

static inline plugin_host *test_host(void)
{
    return plugin_host_create(getenv("NRL_PLUGIN_PATH"), NULL, 0, NULL);
}

/* The table and the options of plugin `name`; the status reports errors in `yaml` ("" = no
 * options). */
static inline nrl_status test_options(plugin_host *host, arena *a, uint32_t kind, const char *section, const char *name,
                                      const char *yaml, const void **table, void **options)
{
    config_problems problems = {0};
    config_component c = {.name = name, .resolved = node_new(a, NRL_NODE_MAP)};
    nrl_node *map = NULL;
    const plugin *p;
    if (*yaml) NRL_TRY(yaml_parse(a, "test", yaml, strlen(yaml), &map));
    c.options = map;
    plugin_instance(host, a, &problems, kind, section, &c, NULL, &p, options);
    NRL_TRY(problems_report(&problems));
    *table = p->table;
    return NRL_OK;
}

#endif
