/*
 * folder.c - the checkpoints of a run: which one is the newest, and which ones may go.
 */
#include "base/arena.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/disk.h"
#include "checkpoint/format.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    int64_t step;
    double metric; /* NaN = none */
    bool aside; /* only under the name that disk_replace gives: the run died before the new one had its name */
    bool complete, kept;
} found;

typedef struct {
    char *path;  /* OUT/checkpoints */
    found *list; /* newest first */
    size_t n, capacity;
    char **dead; /* names of folders that saves or removals left behind */
    size_t n_dead;
} folder;

static void folder_free(folder *f)
{
    for (size_t i = 0; i < f->n_dead; i++)
        free(f->dead[i]);
    free(f->dead);
    free(f->list);
    free(f->path);
}

/* What a run leaves that dies while it tries for room (checkpoint_prepare). */
static bool is_trial(const char *name)
{
    size_t n = strlen(name);
    return !strncmp(name, "trial-", 6) && n > 4 && !strcmp(name + n - 4, ".tmp");
}

/* step-00000200 -> 200; -1 for any other name; *tmp = it ends in .tmp; *aside = in .old (disk_replace). */
static int64_t step_of(const char *name, bool *tmp, bool *aside)
{
    if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9') return -1;
    char *rest;
    errno = 0;
    long long step = strtoll(name + 5, &rest, 10);
    *tmp = !strcmp(rest, ".tmp");
    *aside = !strcmp(rest, ".old");
    return errno || (*rest && !*tmp && !*aside) ? -1 : step;
}

/* `name`: malloc'd, taken. */
static void add_dead(folder *f, char *name)
{
    f->dead = mem_realloc(f->dead, (f->n_dead + 1) * sizeof *f->dead);
    f->dead[f->n_dead++] = name;
}

static void add(folder *f, const char *name)
{
    bool tmp = false, aside = false;
    int64_t step = step_of(name, &tmp, &aside);
    if (step < 0 && !is_trial(name)) return;
    if (tmp || step < 0) {
        add_dead(f, mem_strdup(name));
        return;
    }
    if (f->n == f->capacity) {
        f->capacity = 2 * f->capacity + 16;
        f->list = mem_realloc(f->list, f->capacity * sizeof *f->list);
    }
    f->list[f->n++] = (found){.step = step, .metric = NAN, .aside = aside};
}

/* Of one step the final name first. */
static int by_step_down(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? 1 : -1;
    return x->aside - y->aside;
}

/* What was replaced is dead where its successor is there, else it is the checkpoint of its step. */
static void drop_replaced(folder *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (n && f->list[i].aside && f->list[n - 1].step == f->list[i].step)
            add_dead(f, mem_printf("step-%08lld.old", (long long)f->list[i].step));
        else f->list[n++] = f->list[i];
    f->n = n;
}

static nrl_status folder_list(const char *out, folder *f)
{
    *f = (folder){.path = mem_printf("%s/checkpoints", out)};
    DIR *d = opendir(f->path);
    if (!d && errno == ENOENT) return NRL_OK;
    if (!d) {
        nrl_status st = errno == ENOTDIR ? nrl_fail(NRL_ERR_CONFIG, "%s: is no folder, expected that of a run", out)
                                         : disk_fail(f->path, errno);
        folder_free(f);
        return st;
    }
    for (struct dirent *e; (e = readdir(d));)
        add(f, e->d_name);
    closedir(d);
    if (f->n) qsort(f->list, f->n, sizeof *f->list, by_step_down);
    drop_replaced(f);
    return NRL_OK;
}

static char *path_of(const folder *f, const found *one)
{
    return mem_printf("%s/step-%08lld%s", f->path, (long long)one->step, one->aside ? ".old" : "");
}

/* Whether it is complete; its metric. */
static bool look_into(const folder *f, found *one)
{
    int64_t step;
    char *path = path_of(f, one);
    one->complete = checkpoint_look(path, &step, &one->metric) == NRL_OK;
    free(path);
    return one->complete;
}

nrl_status checkpoint_list(const char *out, char ***dirs, size_t *n)
{
    folder f;
    NRL_TRY(folder_list(out, &f));
    *dirs = mem_alloc((f.n + 1) * sizeof **dirs);
    for (*n = 0; *n < f.n; ++*n)
        (*dirs)[*n] = path_of(&f, &f.list[*n]);
    folder_free(&f);
    return NRL_OK;
}

void checkpoint_list_free(char **dirs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(dirs[i]);
    free(dirs);
}

nrl_status checkpoint_find_newest(const char *out, char **dir)
{
    folder f;
    *dir = NULL;
    NRL_TRY(folder_list(out, &f));
    for (size_t i = 0; i < f.n && !*dir; i++)
        if (look_into(&f, &f.list[i]))
            *dir = path_of(&f, &f.list[i]);
        else
            nrl_warn("passed over: %s", nrl_error_text());
    folder_free(&f);
    return NRL_OK;
}

static bool holds(const char *path, const char *name)
{
    char *file = mem_printf("%s/%s", path, name);
    bool is = access(file, F_OK) == 0;
    free(file);
    return is;
}

nrl_status checkpoint_locate(const char *path, char **dir)
{
    *dir = holds(path, FORMAT_MANIFEST) ? mem_strdup(path) : NULL;
    if (*dir || !holds(path, "checkpoints")) return NRL_OK;
    NRL_TRY(checkpoint_find_newest(path, dir));
    return *dir ? NRL_OK : nrl_fail(NRL_ERR_CONFIG, "'%s' holds no complete checkpoint", path);
}

/* Under the name of an unfinished save first: a removal that is cut short leaves no half
 * checkpoint. */
static nrl_status remove_one(const folder *f, const found *one)
{
    char *path = path_of(f, one), *dead = mem_printf("%s.tmp", path);
    nrl_status st = disk_remove_folder(dead);
    if (st == NRL_OK && rename(path, dead) != 0) st = disk_fail(path, errno);
    if (st == NRL_OK) st = disk_remove_folder(dead);
    free(path);
    free(dead);
    return st;
}

static nrl_status remove_dead(const folder *f)
{
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < f->n_dead && st == NRL_OK; i++) {
        char *path = mem_printf("%s/%s", f->path, f->dead[i]);
        st = disk_remove_folder(path);
        free(path);
    }
    return st;
}

static void keep_newest(folder *f, int64_t keep)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i].complete && keep-- > 0) f->list[i].kept = true;
}

/* The best one that is not counted yet, whether kept already or not; the older one on ties. */
static void keep_one_best(folder *f)
{
    found *best = NULL;
    for (size_t i = 0; i < f->n; i++) {
        found *one = &f->list[i];
        if (!one->complete || isnan(one->metric)) continue;
        if (!best || one->metric <= best->metric) best = one;
    }
    if (best) {
        best->kept = true;
        best->metric = NAN; /* counted */
    }
}

nrl_status checkpoint_prune(const char *out, int64_t keep, int64_t keep_best)
{
    folder f;
    NRL_TRY(folder_list(out, &f));
    nrl_status st = remove_dead(&f);
    if (keep > 0) {
        for (size_t i = 0; i < f.n; i++)
            look_into(&f, &f.list[i]);
        keep_newest(&f, keep);
        for (int64_t i = 0; i < keep_best && i < (int64_t)f.n; i++)
            keep_one_best(&f);
        for (size_t i = 0; i < f.n && st == NRL_OK; i++)
            if (f.list[i].complete && !f.list[i].kept) st = remove_one(&f, &f.list[i]);
    }
    folder_free(&f);
    return st;
}
