/*
 * search.c - searches for plugin files. A directory that is named twice (in the environment and next to the program)
 * counts once; otherwise every plugin in it would hide itself.
 */
#include "base/search.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool search_is_same_folder(const char *x, const char *y)
{
    struct stat a, b;
    return !stat(x, &a) && !stat(y, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void search_add(search_path *s, arena *a, const char *folder)
{
    struct stat st;
    if (!*folder) return;
    if (stat(folder, &st) || !S_ISDIR(st.st_mode)) {
        s->absent = s->absent ? arena_printf(a, "%s, %s", s->absent, folder) : arena_strdup(a, folder);
        return;
    }
    for (size_t i = 0; i < s->n; i++)
        if (search_is_same_folder(s->folders[i], folder)) return;
    const char **all = arena_alloc(a, (s->n + 1) * sizeof *all);
    if (s->n) memcpy(all, s->folders, s->n * sizeof *all);
    all[s->n++] = arena_strdup(a, folder);
    s->folders = all;
}

void search_add_list(search_path *s, arena *a, const char *list)
{
    while (*list) {
        size_t n = strcspn(list, ":");
        search_add(s, a, arena_strndup(a, list, n));
        list += n + (list[n] == ':');
    }
}

const char *search_file(const search_path *s, arena *a, const char *kind, const char *name, size_t *folder)
{
    struct stat st;
    if (!*name || *name == '.' || strchr(name, '/')) return NULL;
    for (; *folder < s->n; ++*folder) {
        const char *path = arena_printf(a, "%s/%s/%s.so", s->folders[*folder], kind, name);
        if (!lstat(path, &st)) return path;
    }
    return NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

typedef struct {
    const char **names;
    size_t n, room;
} name_list;

static void add_name(name_list *l, arena *a, const char *file)
{
    size_t n = strlen(file);
    if (n <= 3 || *file == '.' || strcmp(file + n - 3, ".so")) return;
    if (l->n == l->room) {
        l->room = l->room ? l->room * 2 : 16;
        l->names = mem_realloc(l->names, l->room * sizeof *l->names);
    }
    l->names[l->n++] = arena_strndup(a, file, n - 3);
}

size_t search_names(const search_path *s, arena *a, const char *kind, const char ***names)
{
    name_list l = {0};
    for (size_t i = 0; i < s->n; i++) {
        DIR *dir = opendir(arena_printf(a, "%s/%s", s->folders[i], kind));
        for (struct dirent *e; dir && (e = readdir(dir));)
            add_name(&l, a, e->d_name);
        if (dir) closedir(dir);
    }
    if (l.n) qsort(l.names, l.n, sizeof *l.names, compare_names);
    size_t unique = 0;
    *names = arena_alloc(a, l.n * sizeof **names);
    for (size_t i = 0; i < l.n; i++)
        if (!i || strcmp(l.names[i], l.names[i - 1])) (*names)[unique++] = l.names[i];
    free(l.names);
    return unique;
}
