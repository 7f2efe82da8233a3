/*
 * origin_adapters.c - what a checkpoint says of its adapters, and of the weights that they stand on.
 */
#include "base/paths.h"
#include "run/weights/origin.h"
#include <string.h>

nrl_status origin_adapters(const checkpoint *c, plugin_host *host, arena *a, adapter_set *out)
{
    const nrl_node *node = checkpoint_node(c, "adapters");
    *out = (adapter_set){0};
    if (!node) return NRL_OK;
    nrl_status st = adapter_set_open(a, host, node_copy(a, node), out);
    if (st != NRL_OK) nrl_add_context("%s", checkpoint_dir(c));
    return st;
}

nrl_status origin_adapter_set(const weight_files *w, plugin_host *host, arena *a, adapter_set *out)
{
    const nrl_node *config;
    NRL_TRY(weights_config(w, a, &config));
    nrl_node *settings = node_copy(a, nrl_node_find(config, "settings"));
    const char *name = nrl_node_string(nrl_node_find(config, "adapter"), "");
    node_set(a, settings, "adapter", node_text(a, name));
    nrl_status st = adapter_set_open(a, host, settings, out);
    if (st != NRL_OK) nrl_add_context("%s", w->info.path);
    return st;
}

nrl_node *origin_base_node(arena *a, const model_origin *base, const char *key)
{
    const char *path = base->checkpoint ? base->checkpoint : base->dir;
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    if (path) node_append_text(a, map, "path", paths_absolute(a, path));
    if (base->dir)
        node_append_text(a, map, "format", base->format->plugin.name);
    else
        node_append_int(a, map, "seed", (int64_t)base->seed);
    node_append_text(a, map, "key", key);
    if (base->rows) node_append_int(a, map, "rows", base->rows);
    if (base->quantized) node_append_text(a, map, "quantized", quantize_name(base->quantized));
    return map;
}

nrl_status origin_base(const checkpoint *c, arena *a, model_origin *out)
{
    const nrl_node *node = checkpoint_node(c, "base"), *config;
    const char *path = nrl_node_string(nrl_node_find(node, "path"), NULL);
    const char *was = nrl_node_string(nrl_node_find(node, "key"), "");
    char key[33];
    format_scope formats = *out->formats;
    const format_scope *caller = out->formats;
    formats.name = nrl_node_string(nrl_node_find(node, "format"), NULL);
    *out = (model_origin){.formats = &formats,
                          .signer = checkpoint_signer(c),
                          .seed = (uint64_t)nrl_node_int(nrl_node_find(node, "seed"), 0)};
    nrl_status st = !node  ? nrl_fail(NRL_ERR_CORRUPT, "it does not name its base model")
                    : path ? origin_find(arena_strdup(a, path), a, out, &config)
                           : NRL_OK;
    out->formats = caller;
    out->rows = nrl_node_int(nrl_node_find(node, "rows"), 0);
    out->quantized = quantize_kind_of(nrl_node_string(nrl_node_find(node, "quantized"), ""));
    if (st == NRL_OK) st = origin_key(out, key);
    if (st == NRL_OK && strcmp(key, was))
        st = nrl_fail(NRL_ERR_CONFIG, "%s: the adapters were trained on other weights: hash %.32s, now %s",
                      path ? path : "seed", was, key);
    if (st != NRL_OK) nrl_add_context("%s: it contains only adapters; their base model", checkpoint_dir(c));
    return st;
}
