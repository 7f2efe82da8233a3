/*
 * find.c - see find.h. Plugins that cannot be opened are reported only when no other plugin serves the model.
 */
#include "model/find.h"
#include "base/buffer.h"
#include <string.h>

static bool model_serves(const nrl_model *m, const char *type)
{
    for (const char *const *t = m->model_types; t && *t; t++)
        if (!strcmp(*t, type)) return true;
    return false;
}

static const nrl_model *try_open(plugin_host *host, const char *name, buffer *text)
{
    const plugin *p;
    if (plugin_open_candidate(host, NRL_KIND_MODEL, name, &p) == NRL_OK) return (const nrl_model *)p->table;
    buffer_print(text, "\n  %s cannot be used: %s", name, nrl_error_text());
    return NULL;
}

nrl_status model_find(plugin_host *host, const nrl_node *config, const nrl_model **out)
{
    buffer served = {0}, broken = {0};
    const char *type = nrl_node_string(nrl_node_find(config, "model_type"), "");
    nrl_status st = NRL_OK;
    arena a = {0};
    const char **names;
    const nrl_model *found = NULL;
    size_t n = plugin_names(host, &a, NRL_KIND_MODEL, &names), named = n;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], type)) named = i;
    for (size_t k = 0; k <= n && !found; k++) { /* first the plugin named like the type, then the others */
        size_t i = k ? k - 1 : named;
        if (i == n || (k && i == named)) continue;
        const nrl_model *m = try_open(host, names[i], &broken);
        if (m && model_serves(m, type)) found = m;
        if (m) {
            for (const char *const *t = m->model_types; t && *t; t++)
                buffer_print(&served, "%s%s", served.size ? ", " : "", *t);
        }
    }
    arena_free(&a);
    *out = found;
    if (!*out)
        st = nrl_fail(NRL_ERR_DATA, "%s: no model plugin supports model_type '%.60s'; expected one of: %s%s",
                      nrl_node_place(config), type, served.text ? served.text : "none", broken.text ? broken.text : "");
    buffer_free(&served);
    buffer_free(&broken);
    return st;
}
