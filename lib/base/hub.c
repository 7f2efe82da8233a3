/*
 * hub.c - see hub.h.
 */
#include "base/hub.h"
#include "base/file.h"
#include <ctype.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_REF_BYTES = 4096 };

bool hub_is_name(const char *name, size_t size)
{
    const char *slash = memchr(name, '/', size);
    if (!slash || slash == name || slash == name + size - 1) return false;
    for (size_t i = 0; i < size; i++) {
        bool starts_part = i == 0 || name[i - 1] == '/';
        if (name + i != slash && !isalnum((unsigned char)name[i]) && (starts_part || !strchr("._-", name[i])))
            return false;
    }
    return true;
}

const char *hub_home(arena *a, hub_variable variable)
{
    const char *home = variable("HF_HOME"), *cache = variable("XDG_CACHE_HOME");
    if (home && *home) return home;
    if (cache && *cache) return arena_printf(a, "%s/huggingface", cache);
    home = variable("HOME");
    const struct passwd *user = home && *home ? NULL : getpwuid(getuid());
    return arena_printf(a, "%s/.cache/huggingface", user ? user->pw_dir : home ? home : "");
}

const char *hub_cache(arena *a, hub_variable variable)
{
    const char *cache = variable("HF_HUB_CACHE"), *former = variable("HUGGINGFACE_HUB_CACHE");
    if (cache && *cache) return cache;
    return former && *former ? former : arena_printf(a, "%s/hub", hub_home(a, variable));
}

const char *hub_repository(arena *a, const char *cache, const char *kind, const char *name, size_t size)
{
    size_t org = strcspn(name, "/");
    return arena_printf(a, "%s/%s--%.*s--%.*s", cache, kind, (int)org, name, (int)(size - org - 1), name + org + 1);
}

static bool is_directory(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode);
}

const char *hub_snapshot(arena *a, const char *repository, const char *revision)
{
    char *text;
    size_t size;
    const char *commit = revision;
    if (file_read(arena_printf(a, "%s/refs/%s", repository, revision), MAX_REF_BYTES, &text, &size) == NRL_OK) {
        text[strcspn(text, " \r\n\t")] = 0;
        commit = arena_strdup(a, text);
        free(text);
    }
    const char *snapshot = arena_printf(a, "%s/snapshots/%s", repository, commit);
    return *commit && !strchr(commit, '/') && strcmp(commit, "..") && is_directory(snapshot) ? snapshot : NULL;
}

nrl_status hub_data(arena *a, const char *address, hub_variable variable, const char **path)
{
    static const char kind[] = "datasets/"; /* as in addresses of huggingface_hub */
    const char *name = address + strlen(HUB_SCHEME);
    if (!strncmp(name, kind, sizeof kind - 1) && strchr(name + sizeof kind - 1, '/')) name += sizeof kind - 1;
    size_t org = strcspn(name, "/"), n = name[org] ? org + 1 + strcspn(name + org + 1, "/@") : 0;
    const char *rest = name + n + strcspn(name + n, "/");
    const char *revision = name[n] == '@' ? arena_strndup(a, name + n + 1, (size_t)(rest - name - n - 1)) : "main";
    if (!hub_is_name(name, n) || !*revision || strstr(rest, "/../"))
        return nrl_fail(NRL_ERR_CONFIG,
                        "'%s': expected hf://ORG/NAME, hf://ORG/NAME/FILE or hf://ORG/NAME@REVISION/FILE", address);
    const char *cache = hub_cache(a, variable);
    const char *snapshot = hub_snapshot(a, hub_repository(a, cache, "datasets", name, n), revision);
    if (!snapshot)
        return nrl_fail(NRL_ERR_CONFIG, "'%s': not in the local cache %s\nhint: nrl download %.*s --dataset%s%s",
                        address, cache, (int)n, name, name[n] == '@' ? " --revision " : "",
                        name[n] == '@' ? revision : "");
    *path = arena_printf(a, "%s%s", snapshot, rest);
    return NRL_OK;
}
