/*
 * permit.c - plugins that a script opens itself: the base of a loss, a tokenizer that trains, the backend of a gradient
 * check. The section `plugins` of a config says where they are searched and which may be opened, as it does for a run.
 *
 * nrl_component_open knows directories only. A plugin that `allow` does not list is kept out of reach: the directories
 * that the core is given hold the one file that was checked, or none, and installed plugins are always allowed.
 */
#include "permit.h"
#include "base/hash.h"
#include "base/search.h"
#include <string.h>

/* A list, or one item that stands for it. */
static size_t n_items(const nrl_node *list)
{
    return nrl_node_kind(list) == NRL_NODE_LIST ? nrl_node_size(list) : nrl_node_kind(list) > NRL_NODE_NULL;
}

static const nrl_node *item_at(const nrl_node *list, size_t i)
{
    return nrl_node_kind(list) == NRL_NODE_LIST ? nrl_node_at(list, i) : list;
}

static bool lists(const nrl_node *allow, const char *text)
{
    for (size_t i = 0; i < n_items(allow); i++) {
        const char *item = nrl_node_string(item_at(allow, i), NULL);
        if (item && !strcmp(item, text)) return true;
    }
    return false;
}

const nrl_node *script_plugins(script_host *h)
{
    nrl_config *config = nrl_config_create(&h->memory);
    for (size_t i = 0; i < h->job->n_words; i++)
        if (strchr(h->job->words[i], '=')) nrl_config_override(config, h->job->words[i]);
    nrl_config_substitute(config, h->run.variable);
    const nrl_node *plugins = nrl_node_find(nrl_config_root(config), "plugins");
    nrl_config_destroy(config);
    return plugins;
}

nrl_environment script_places(const script_host *h, const nrl_node *plugins, arena *a)
{
    nrl_environment env = h->run;
    const nrl_node *folders = nrl_node_kind(plugins) == NRL_NODE_MAP ? nrl_node_find(plugins, "folders") : plugins;
    for (size_t i = 0; i < n_items(folders) && !env.no_config_plugins; i++) {
        const nrl_node *at = item_at(folders, i);
        const char *path = node_path(a, at, nrl_node_string(at, ""));
        env.plugin_path = env.plugin_path ? arena_printf(a, "%s:%s", env.plugin_path, path) : path;
    }
    return env;
}

/* The folder of a kind that scripts open. */
static const char *folder_of(uint32_t kind)
{
    return kind == NRL_KIND_ALGORITHM ? "algorithms" : kind == NRL_KIND_TOKENIZER ? "tokenizers" : "backends";
}

static bool is_found(const nrl_environment *env, uint32_t kind, const char *name, arena *a)
{
    const char *const *names = nrl_plugin_names(env, kind, a);
    while (*names && strcmp(*names, name))
        names++;
    return *names != NULL;
}

/* Leaves the directory of the first file of that name if `allow` lists its hash, else only installed plugins. */
static nrl_status narrow(nrl_environment *env, const nrl_node *allow, uint32_t kind, const char *section,
                         const char *name, arena *a)
{
    search_path all = {0};
    size_t at = 0;
    char hash[HASH_SHA256_TEXT];
    if (env->plugin_path) search_add_list(&all, a, env->plugin_path);
    if (env->user_plugins) search_add(&all, a, env->user_plugins);
    env->plugin_path = env->user_plugins = NULL;
    if (!all.n) return NRL_OK;
    const char *path = search_file(&all, a, folder_of(kind), name, &at);
    if (!path) return NRL_OK;
    NRL_TRY(hash_sha256_file(path, hash));
    if (lists(allow, arena_printf(a, "sha256:%s", hash)))
        env->plugin_path = all.folders[at];
    else if (!is_found(env, kind, name, a))
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: '%s' (%s): cannot open the plugin: plugins.allow contains neither its name nor its hash\n"
                        "hint: to allow exactly this file, add 'plugins.allow=[sha256:%s]'",
                        section, name, path, hash);
    return NRL_OK;
}

nrl_status script_permit(const script_host *h, const nrl_node *plugins, uint32_t kind, const char *section,
                         const char *name, arena *a, nrl_environment *env)
{
    const nrl_node *allow = nrl_node_find(plugins, "allow");
    *env = script_places(h, plugins, a);
    if (nrl_node_kind(allow) <= NRL_NODE_NULL || lists(allow, name) ||
        lists(allow, arena_printf(a, "%s/%s", folder_of(kind), name)))
        return NRL_OK;
    return narrow(env, allow, kind, section, name, a);
}

nrl_status script_component_open(const script_host *h, const nrl_node *plugins, uint32_t kind, const char *section,
                                 const nrl_node *config, nrl_component **out)
{
    const nrl_node *word = nrl_node_kind(config) == NRL_NODE_MAP ? nrl_node_find(config, "name") : config;
    arena a = {0};
    nrl_environment env;
    *out = NULL;
    nrl_status st = script_permit(h, plugins, kind, section, nrl_node_string(word, ""), &a, &env);
    if (st == NRL_OK) st = nrl_component_open(&env, kind, section, config, out);
    arena_free(&a);
    return st;
}
