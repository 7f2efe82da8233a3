/*
 * component.c - nrl_component of nrl/host.h: one plugin with its options, for callers outside the core.
 */
#include "plugin/component.h"
#include "config/config.h"
#include <nrl/host.h>
#include <stdlib.h>

plugin_host *component_host(const nrl_environment *env, const plugin_places *config)
{
    const plugin_places none = {0}, *c = config ? config : &none;
    const char *exe_dir = env->exe_dir;
    arena a = {0};
    if (!exe_dir) exe_dir = plugin_own_exe_dir(&a);
    plugin_host *h =
        plugin_host_create(env->plugin_path, c->folders, env->no_config_plugins ? 0 : c->n_folders, exe_dir);
    plugin_host_add_user(h, env->user_plugins);
    plugin_host_limit(h, env->variable ? env->variable("NRL_PLUGIN_TIMEOUT") : NULL);
    if (env->no_config_plugins) plugin_host_skip(h, c->n_folders);
    if (c->allow) plugin_host_restrict(h, c->allow, c->n_allow);
    arena_free(&a);
    return h;
}

static nrl_status component_fill(nrl_component *c, uint32_t kind, const char *section, const nrl_node *config)
{
    config_problems problems = {0};
    config_component slot;
    component_read(&c->memory, &problems, section, config, NULL, &slot);
    if (slot.name) plugin_instance(c->host, &c->memory, &problems, kind, section, &slot, NULL, &c->plugin, &c->options);
    NRL_TRY(problems_report(&problems));
    return c->plugin ? NRL_OK : nrl_fail(NRL_ERR_CONFIG, "%s: expected a name", section);
}

nrl_status nrl_component_open(const nrl_environment *env, uint32_t kind, const char *section, const nrl_node *config,
                              nrl_component **out)
{
    nrl_component *c = mem_alloc(sizeof *c);
    *out = NULL;
    c->host = component_host(env, NULL);
    nrl_status st = component_fill(c, kind, section, config);
    if (st == NRL_OK)
        *out = c;
    else
        nrl_component_close(c);
    return st;
}

void nrl_component_close(nrl_component *c)
{
    if (!c) return;
    plugin_host_destroy(c->host);
    nrl_arena_destroy(c->own);
    arena_free(&c->memory);
    free(c);
}

const nrl_plugin *nrl_component_table(const nrl_component *c)
{
    return c->plugin->table;
}

void *nrl_component_options(const nrl_component *c)
{
    return c->options;
}

const char *nrl_component_identity(nrl_component *c)
{
    const nrl_plugin *t = c->plugin->table;
    if (!c->identity && plugin_identity(c->host, t->kind, t->name, &c->memory, &c->identity) != NRL_OK) return NULL;
    return c->identity;
}

const char *const *nrl_plugin_names(const nrl_environment *env, uint32_t kind, nrl_arena *memory)
{
    const char **names;
    plugin_host *h = component_host(env, NULL);
    size_t n = plugin_names(h, memory, kind, &names);
    const char **ended = arena_alloc(memory, (n + 1) * sizeof *ended);
    for (size_t i = 0; i < n; i++)
        ended[i] = names[i];
    plugin_host_destroy(h);
    return ended;
}
