/*
 * locate.c - whose code an address is, for whoever must tell where a crash was; and which file the core is. No allocation: a signal
 * handler calls plugin_locate.
 */
#define _GNU_SOURCE
#include "plugin/host.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The kind whose folder ends at `end` in path, NULL = none. */
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
    if (dladdr((const void *)(uintptr_t)&plugin_core_identity, &in) && in.dli_fname && hash_file(in.dli_fname, out) == NRL_OK)
        return NRL_OK;
    return hash_file("/proc/self/exe", out); /* the core is linked into the program, whose name says no path */
}

/* From <folder>/<kind>/<name>.so: the host opens no others. */
bool plugin_locate(const void *address, char *text, size_t room)
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
