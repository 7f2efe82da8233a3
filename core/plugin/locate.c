/*
 * locate.c - finds the plugin that an address belongs to, for reports of crashes, and the file of the core.
 * nrl_plugin_locate allocates nothing, because signal handlers call it.
 */
#define _GNU_SOURCE
#include "plugin/host.h"
#include <dlfcn.h>
#include <nrl/host.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The kind whose directory name ends at `end` in path; NULL = none. */
static const plugin_kind *kind_before(const char *path, const char *end)
{
    for (const plugin_kind *k = plugin_kinds; k->kind; k++) {
        size_t n = strlen(k->folder);
        if ((size_t)(end - path) > n && end[-(ptrdiff_t)n - 1] == '/' && !memcmp(end - n, k->folder, n)) return k;
    }
    return NULL;
}

nrl_status plugin_core_identity(char out[HASH_TEXT])
{
    Dl_info in;
    if (dladdr((const void *)(uintptr_t)&plugin_core_identity, &in) && in.dli_fname &&
        hash_file(in.dli_fname, out) == NRL_OK)
        return NRL_OK;
    return hash_file("/proc/self/exe", out); /* the core is linked statically into the program */
}

/* The library lies in <prefix>/lib or in a directory below it. */
const char *plugin_own_exe_dir(arena *a)
{
    Dl_info in;
    struct stat st;
    if (!dladdr((const void *)(uintptr_t)&plugin_own_exe_dir, &in) || !in.dli_fname) return NULL;
    char *path = realpath(in.dli_fname, NULL);
    const char *found = NULL;
    for (int up = 0; path && !found && up < 3; up++) {
        char *slash = strrchr(path, '/');
        if (!slash || slash == path) break;
        *slash = 0;
        char *plugins = arena_printf(a, "%s/" NRL_PLUGIN_SUBDIR, path);
        if (up && !stat(plugins, &st)) found = arena_printf(a, "%s/bin", path);
    }
    free(path);
    return found;
}

/* Every plugin has the path <directory>/<kind>/<name>.so. */
bool nrl_plugin_locate(const void *address, char *text, size_t room)
{
    Dl_info in;
    if (!dladdr(address, &in) || !in.dli_fname) return false;
    const char *slash = strrchr(in.dli_fname, '/');
    const plugin_kind *kind = slash ? kind_before(in.dli_fname, slash) : NULL;
    size_t n = slash ? strlen(slash + 1) : 0;
    if (!kind || n <= 3 || strcmp(slash + 1 + n - 3, ".so")) return false;
    snprintf(text, room, "%s '%.*s'", kind->name, (int)(n - 3), slash + 1);
    return true;
}
