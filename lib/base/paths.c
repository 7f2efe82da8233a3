/*
 * paths.c - see paths.h.
 */
#include "base/paths.h"
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH = 4096, MAX_DEPTH = 32 }; /* depth of directories; a link to a directory above itself ends here */

void paths_free(paths *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->items[i]);
    free(p->items);
    *p = (paths){0};
}

const char *paths_absolute(arena *a, const char *path)
{
    char dir[MAX_PATH];
    if (*path == '/' || !*path || !getcwd(dir, sizeof dir)) return path;
    return arena_printf(a, "%s/%s", strcmp(dir, "/") ? dir : "", path);
}

bool paths_is_pattern(const char *path)
{
    struct stat st;
    return strpbrk(path, "*?[") && stat(path, &st);
}

static nrl_status add(paths *p, const char *path)
{
    if (!(p->n & (p->n - 1))) { /* full at each power of two */
        char **items = mem_try_grow(p->items, (p->n ? 2 * p->n : 1) * sizeof *items, "names of files");
        if (!items) return NRL_ERR_MEMORY;
        p->items = items;
    }
    p->items[p->n++] = mem_strdup(path);
    return NRL_OK;
}

static bool is_left_out(const char *name)
{
    return *name == '.' || *name == '_' || !strncasecmp(name, "readme", 6) || !strncasecmp(name, "license", 7);
}

static nrl_status add_folder(paths *p, const char *folder, int depth)
{
    DIR *d = opendir(folder);
    nrl_status st = NRL_OK;
    if (!d) return nrl_fail(NRL_ERR_IO, "%s: %s", folder, strerror(errno));
    if (depth == MAX_DEPTH) st = nrl_fail(NRL_ERR_CONFIG, "%s: more than %d nested directories", folder, MAX_DEPTH);
    for (struct dirent *e; st == NRL_OK && (e = readdir(d));) {
        struct stat s;
        if (is_left_out(e->d_name)) continue;
        size_t n = strlen(folder);
        char *path = mem_printf("%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", e->d_name);
        st = !stat(path, &s) && S_ISDIR(s.st_mode) ? add_folder(p, path, depth + 1) : add(p, path);
        free(path);
    }
    closedir(d);
    return st;
}

static nrl_status add_path(paths *p, const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode) ? add_folder(p, path, 0) : add(p, path);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

nrl_status paths_expand(const char *path, paths *out)
{
    nrl_status st = NRL_OK;
    *out = (paths){0};
    bool pattern = paths_is_pattern(path);
    if (pattern) {
        glob_t found = {0};
        int error = glob(path, 0, NULL, &found);
        if (error == GLOB_NOSPACE) st = nrl_fail(NRL_ERR_MEMORY, "%s: out of memory", path);
        for (size_t i = 0; !error && st == NRL_OK && i < found.gl_pathc; i++)
            st = add_path(out, found.gl_pathv[i]);
        globfree(&found);
    } else {
        st = add_path(out, path);
    }
    if (st != NRL_OK) return st;
    if (!out->n)
        return nrl_fail(NRL_ERR_CONFIG, pattern ? "no file matches '%s'" : "'%s': the directory has no files to read",
                        path);
    qsort(out->items, out->n, sizeof *out->items, by_bytes);
    return NRL_OK;
}
