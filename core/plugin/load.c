/*
 * load.c - opens a plugin file in this process.
 */
#include "plugin/load.h"
#include "plugin/check.h"
#include <dlfcn.h>
#include <string.h>

nrl_status load_table(arena *a, const char *path, const plugin_kind *kind, const char *name, const nrl_plugin **table)
{
    const nrl_plugin *(*entry)(void);
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        const char *text = dlerror(); /* names the file and the missing symbol or version */
        bool newer = strstr(text, "version `NRL_") || strstr(text, "undefined symbol: nrl_");
        return nrl_fail(NRL_ERR_PLUGIN, "cannot be opened: %s%s", text,
                        newer ? "\nhint: the plugin was built for a newer nrl; this is " NRL_VERSION : "");
    }
    *(void **)&entry = dlsym(so, "nrl_plugin_entry");
    if (!entry)
        return nrl_fail(NRL_ERR_PLUGIN, "has no nrl_plugin_entry: it is not an nrl plugin, or lacks NRL_EXPORT(table)");
    const nrl_plugin *own = entry();
    if (!own) return nrl_fail(NRL_ERR_PLUGIN, "nrl_plugin_entry returned no table");
    if (!kind) kind = plugin_kind_find(own->kind);
    if (!kind) kind = plugin_kinds; /* any kind: the check reports that the plugin's kind is unknown */
    NRL_TRY(plugin_check(own, kind, name));
    void *copy = arena_alloc(a, kind->table_size);
    memcpy(copy, own, own->size < kind->table_size ? own->size : kind->table_size);
    *table = copy;
    return NRL_OK;
}
