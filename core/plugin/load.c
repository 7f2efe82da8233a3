/*
 * load.c - opens a plugin file in this process.
 */
#include "plugin/load.h"
#include "plugin/check.h"
#include <dlfcn.h>
#include <string.h>

/* The text of dlerror names the file and the missing symbol or version. */
static nrl_status explain_dlerror(const char *text)
{
    bool newer = strstr(text, "version `NRL_") || strstr(text, "undefined symbol: nrl_");
    return nrl_fail(NRL_ERR_PLUGIN, "cannot be opened: %s%s", text,
                    newer ? "\nhint: the plugin was built for a newer nrl; this is " NRL_VERSION : "");
}

static nrl_status load_entry(const char *path, const nrl_plugin **table)
{
    const nrl_plugin *(*entry)(void);
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) return explain_dlerror(dlerror());
    *(void **)&entry = dlsym(so, "nrl_plugin_entry");
    if (!entry)
        return nrl_fail(NRL_ERR_PLUGIN, "has no nrl_plugin_entry: it is not an nrl plugin, or lacks NRL_EXPORT(table)");
    *table = entry();
    return NRL_OK;
}

nrl_status load_table(const char *path, const plugin_kind *kind, const char *name, const nrl_plugin **table)
{
    NRL_TRY(load_entry(path, table));
    if (!kind && *table) kind = plugin_kind_find((*table)->kind);
    if (!kind) kind = plugin_kinds; /* any kind: the check reports that the plugin's kind is unknown */
    return plugin_check(*table, kind, name);
}
