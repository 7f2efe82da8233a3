/*
 * locate.c - finds a model directory: `path` is a directory, or org/name in the local cache that
 * Hugging Face tools fill (hub/models--org--name/{refs,snapshots}). Nothing is downloaded.
 */
#include "base/file.h"
#include "hf.h"
#include <dirent.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_REF_BYTES = 4096 };

bool hf_is_directory(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode);
}

/* "org/name": one slash, and no characters that only a path has. */
bool hf_is_hub_name(const char *path)
{
    const char *slash = strchr(path, '/');
    return slash && slash != path && slash[1] && !strchr(slash + 1, '/') && *path != '.' && *path != '~';
}

static const char *cache_directory(const nrl_format_host *host, arena *a)
{
    const char *hf_home = host->variable("HF_HOME");
    if (hf_home) return hf_home;
    struct passwd *user = getpwuid(getuid());
    return arena_printf(a, "%s/.cache/huggingface", user ? user->pw_dir : "");
}

/* The commit that branch main points to; NULL if there is none. */
static const char *main_commit(const char *repo, arena *a)
{
    char *text;
    size_t size;
    if (file_read(arena_printf(a, "%s/refs/main", repo), MAX_REF_BYTES, &text, &size) != NRL_OK) return NULL;
    text[strcspn(text, " \r\n\t")] = 0;
    const char *commit = *text && !strchr(text, '/') ? arena_strdup(a, text) : NULL;
    free(text);
    return commit;
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
    size_t org = strcspn(path, "/");
    const char *cache = cache_directory(host, a);
    const char *repo = arena_printf(a, "%s/hub/models--%.*s--%s", cache, (int)org, path, path + org + 1);
    const char *commit = main_commit(repo, a);
    const char *snapshot = commit ? arena_printf(a, "%s/snapshots/%s", repo, commit) : NULL;
    if (!snapshot || !hf_is_directory(snapshot))
        return nrl_fail(NRL_ERR_CONFIG,
                        "model '%s' is neither a directory nor in the local cache %s/hub\n"
                        "hint: if this is its name on the Hub: hf download %s",
                        path, cache, path);
    *out = snapshot;
    return NRL_OK;
}
