/*
 * locate.c - finds a model directory: `path` is a directory, or org/name or org/name@revision in the local cache that
 * Hugging Face tools and `nrl download` fill. Nothing is downloaded.
 */
#include "base/hub.h"
#include "hf.h"
#include <string.h>
#include <sys/stat.h>

bool hf_is_directory(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode);
}

bool hf_is_hub_name(const char *path)
{
    size_t size = strcspn(path, "@");
    return hub_is_name(path, size) && (!path[size] || path[size + 1]);
}

/* Why a path that is not a directory cannot be a name on the Hub either. NULL: it may be a name. */
static const char *not_a_model(const char *path, arena *a)
{
    struct stat s;
    if (!stat(path, &s))
        return arena_printf(a, "model '%s' is a file; expected the directory of config.json and weights", path);
    bool inside = hf_is_directory(arena_strndup(a, path, strcspn(path, "/")));
    if (!hf_is_hub_name(path) || inside) return arena_printf(a, "model '%s': no such directory", path);
    return NULL;
}

nrl_status hf_locate(const char *path, const nrl_format_host *host, arena *a, const char **out)
{
    if (hf_is_directory(path)) {
        *out = arena_strdup(a, path);
        return NRL_OK;
    }
    const char *why = not_a_model(path, a);
    if (why) return nrl_fail(NRL_ERR_CONFIG, "%s", why);
    size_t name = strcspn(path, "@");
    const char *cache = hub_cache(a, host->variable), *revision = path[name] ? path + name + 1 : "main";
    *out = hub_snapshot(a, hub_repository(a, cache, "models", path, name), revision);
    if (*out) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "model '%s' is neither a directory nor in the local cache %s\n"
                    "hint: if this is its name on the Hub: nrl download %.*s%s%s",
                    path, cache, (int)name, path, path[name] ? " --revision " : "", path[name] ? revision : "");
}
