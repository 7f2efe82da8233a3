/*
 * folder.c - the checkpoints of a run: finds the newest one and removes old ones.
 */
#include "base/arena.h"
#include "checkpoint/checkpoint.h"
#include "base/disk.h"
#include "checkpoint/format.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

nrl_status format_remove(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return NRL_OK;
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR)) /* a symbolic link or a file: remove it, not its target */
        return unlink(path) == 0 ? NRL_OK : disk_fail(path, errno);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        int error = errno;
        if (fd >= 0) close(fd);
        return disk_fail(path, error);
    }
    for (struct dirent *e; (e = readdir(folder));)
        if (format_is_file(e->d_name)) unlinkat(dirfd(folder), e->d_name, 0);
    closedir(folder);
    return rmdir(path) == 0 || errno == ENOENT ? NRL_OK : disk_fail(path, errno);
}

typedef struct {
    int64_t step;
    double metric; /* NaN = none */
    bool aside;    /* has the name .old of commit.c: the run died before the new directory got its name */
    bool complete, kept;
} found;

typedef struct {
    char *path;  /* OUT/checkpoints */
    found *list; /* newest first */
    size_t n, capacity;
    char **dead; /* names of directories that interrupted saves and removals left behind */
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

bool checkpoint_is_trial(const char *name)
{
    size_t n = strlen(name);
    return !strncmp(name, "trial-", 6) && n > 4 && !strcmp(name + n - 4, ".tmp");
}

/* Parses "step-00000200" to 200. Returns -1 for any other name. *tmp: it ends in ".tmp"; *aside: it ends in ".old". */
static int64_t step_of(const char *name, bool *tmp, bool *aside)
{
    if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9') return -1;
    char *rest;
    errno = 0;
    long long step = strtoll(name + 5, &rest, 10);
    *tmp = !strcmp(rest, ".tmp");
    *aside = !strcmp(rest, ".old");
    if (errno || (*rest && !*tmp && !*aside)) return -1;
    char same[64];
    int n = snprintf(same, sizeof same, "step-%08lld", step);
    return n == rest - name && !strncmp(name, same, (size_t)n) ? step : -1; /* "step-2" is not one of our names */
}

/* Takes ownership of `name`, which is malloc'd. */
static void folder_add_dead(folder *f, char *name)
{
    f->dead = mem_realloc(f->dead, (f->n_dead + 1) * sizeof *f->dead);
    f->dead[f->n_dead++] = name;
}

static void folder_add(folder *f, const char *name)
{
    bool tmp = false, aside = false;
    int64_t step = step_of(name, &tmp, &aside);
    if (step < 0 && !checkpoint_is_trial(name)) return;
    if (tmp || step < 0) {
        folder_add_dead(f, mem_strdup(name));
        return;
    }
    if (f->n == f->capacity) {
        f->capacity = 2 * f->capacity + 16;
        f->list = mem_realloc(f->list, f->capacity * sizeof *f->list);
    }
    f->list[f->n++] = (found){.step = step, .metric = NAN, .aside = aside};
}

/* Within one step the final name comes first. */
static int by_step_down(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? 1 : -1;
    return x->aside - y->aside;
}

static nrl_status folder_list(const char *out, folder *f)
{
    *f = (folder){.path = mem_printf("%s/checkpoints", out)};
    DIR *d = opendir(f->path);
    struct stat s;
    if (!d && errno == ENOENT && lstat(f->path, &s) != 0) return NRL_OK; /* but a dangling link is an error */
    if (!d) {
        nrl_status st = errno == ENOTDIR
                            ? nrl_fail(NRL_ERR_CONFIG, "%s: is not a directory, expected that of a run", out)
                            : disk_fail(f->path, errno);
        folder_free(f);
        return st;
    }
    for (struct dirent *e; (e = readdir(d));)
        folder_add(f, e->d_name);
    closedir(d);
    if (f->n) qsort(f->list, f->n, sizeof *f->list, by_step_down);
    /* A replaced directory (.old) is dead if its successor exists; otherwise it is the checkpoint of its step. */
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (n && f->list[i].aside && f->list[n - 1].step == f->list[i].step)
            folder_add_dead(f, mem_printf("step-%08lld.old", (long long)f->list[i].step));
        else
            f->list[n++] = f->list[i];
    f->n = n;
    return NRL_OK;
}

char *checkpoint_dir_of(const char *out, int64_t step)
{
    return mem_printf("%s/checkpoints/step-%08lld", out, (long long)step);
}

static char *path_of(const folder *f, const found *one)
{
    return mem_printf("%s/step-%08lld%s", f->path, (long long)one->step, one->aside ? ".old" : "");
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

nrl_status checkpoint_search_open(const char *out, checkpoint_search *s)
{
    *s = (checkpoint_search){.out = mem_strdup(out)};
    nrl_status st = checkpoint_list(out, &s->dirs, &s->n);
    if (st != NRL_OK) checkpoint_search_close(s);
    return st;
}

void checkpoint_search_close(checkpoint_search *s)
{
    checkpoint_list_free(s->dirs, s->n);
    checkpoint_list_free(s->refused, s->n_refused);
    free(s->out);
    *s = (checkpoint_search){0};
}

void checkpoint_search_refuse(checkpoint_search *s)
{
    s->refused = mem_realloc(s->refused, (s->n_refused + 1) * sizeof *s->refused);
    s->refused[s->n_refused++] = mem_strdup(nrl_error_text());
}

/* Every candidate was refused: reports all reasons in one error. */
static nrl_status nothing_readable(const checkpoint_search *s)
{
    char *text = mem_printf("'%s' contains no complete checkpoint:", s->out);
    for (size_t i = 0; i < s->n_refused; i++) {
        char *longer = mem_printf("%s\n  %s", text, s->refused[i]);
        free(text);
        text = longer;
    }
    nrl_fail(NRL_ERR_CORRUPT, "%s", text);
    free(text);
    return NRL_ERR_CORRUPT;
}

nrl_status checkpoint_search_next(checkpoint_search *s, const char **dir)
{
    int64_t step;
    double metric;
    *dir = NULL;
    while (s->next < s->n && !*dir) {
        const char *one = s->dirs[s->next++];
        nrl_status st = checkpoint_look(one, &step, &metric);
        if (st == NRL_OK)
            *dir = one;
        else if (st == NRL_ERR_CORRUPT)
            checkpoint_search_refuse(s);
        else
            return st;
    }
    if (!*dir) return s->n_refused ? nothing_readable(s) : NRL_OK;
    for (; s->n_warned < s->n_refused; s->n_warned++)
        nrl_warn("skipped a damaged checkpoint: %s", s->refused[s->n_warned]);
    return NRL_OK;
}

nrl_status checkpoint_find_newest(const char *out, char **dir)
{
    checkpoint_search s;
    const char *newest;
    *dir = NULL;
    NRL_TRY(checkpoint_search_open(out, &s));
    nrl_status st = checkpoint_search_next(&s, &newest);
    if (st == NRL_OK && newest) *dir = mem_strdup(newest);
    checkpoint_search_close(&s);
    return st;
}

static bool holds(const char *path, const char *name)
{
    char *file = mem_printf("%s/%s", path, name);
    bool is = access(file, F_OK) == 0;
    free(file);
    return is;
}

/* RUN@STEP and RUN@best: a checkpoint of the run; *dir stays NULL if `path` has another form. Among equal metrics the
 * earliest step is the best, as in the run itself. */
static nrl_status find_named(const char *path, char **dir)
{
    const char *at = strrchr(path, '@');
    char *out = mem_printf("%.*s", at ? (int)(at - path) : 0, path), *end;
    folder f = {0};
    double metric, best = INFINITY;
    int64_t step;
    if (!at || !access(path, F_OK) || !holds(out, "checkpoints")) {
        free(out);
        return NRL_OK;
    }
    bool by_metric = !strcmp(at + 1, "best");
    int64_t wanted = strtoll(at + 1, &end, 10);
    nrl_status st = *end && !by_metric ? NRL_OK : folder_list(out, &f);
    for (size_t i = 0; i < f.n; i++) {
        char *one = path_of(&f, &f.list[i]);
        bool whole = by_metric && checkpoint_look(one, &step, &metric) == NRL_OK;
        if (by_metric && !whole) nrl_warn("skipped a damaged checkpoint: %s", nrl_error_text());
        bool is_it = by_metric ? whole && metric <= best : end > at + 1 && f.list[i].step == wanted;
        if (is_it && by_metric) best = metric;
        if (is_it) free(*dir);
        if (is_it)
            *dir = one;
        else
            free(one);
    }
    if (st == NRL_OK && !*dir)
        st = nrl_fail(NRL_ERR_CONFIG,
                      by_metric ? "cannot find '%s': no complete checkpoint of the run has a metric\n"
                                  "hint: set eval.every; only checkpoints saved after an evaluation have a metric"
                                : "cannot find '%s': expected RUN@best or RUN@STEP of an existing checkpoint\n"
                                  "hint: `nrl checkpoint verify RUN` lists the checkpoints",
                      path);
    folder_free(&f);
    free(out);
    return st;
}

nrl_status checkpoint_locate(const char *path, char **dir)
{
    *dir = holds(path, FORMAT_MANIFEST) ? mem_strdup(path) : NULL;
    if (!*dir) NRL_TRY(find_named(path, dir));
    if (*dir || !holds(path, "checkpoints")) return NRL_OK;
    NRL_TRY(checkpoint_find_newest(path, dir));
    return *dir ? NRL_OK : nrl_fail(NRL_ERR_CONFIG, "'%s' contains no complete checkpoint", path);
}

/* Looks for a file in the directory that no save writes, and returns its name. Returns the name of the directory itself
 * if it is not a directory, and "" if all files are ours. Malloc'd. */
static char *foreign_in(const char *path)
{
    struct stat s;
    if (lstat(path, &s)) return mem_strdup("");
    DIR *d = S_ISDIR(s.st_mode) ? opendir(path) : NULL;
    const char *own = strrchr(path, '/') + 1;
    char *name = mem_strdup(d || (S_ISREG(s.st_mode) && checkpoint_is_trial(own)) ? "" : own);
    for (struct dirent *e; d && !*name && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || format_is_file(e->d_name)) continue;
        free(name);
        name = mem_strdup(e->d_name);
    }
    if (d) closedir(d);
    return name;
}

/* Removes a directory that only saves have written to; keeps others, with a warning unless `quiet`. A checkpoint gets
 * the name of an unfinished save first (`dead`; else NULL), so that an interrupted removal does not leave half of it.
 */
static nrl_status remove_ours(const char *path, const char *dead, bool quiet)
{
    char *foreign = foreign_in(path);
    bool is_ours = !*foreign;
    if (!is_ours && !quiet) nrl_warn("'%s' was not removed: '%s' was not written by a run", path, foreign);
    free(foreign);
    if (!is_ours) return NRL_OK;
    if (!dead) return format_remove(path);
    NRL_TRY(format_remove(dead));
    return rename(path, dead) == 0 ? format_remove(dead) : disk_fail(path, errno);
}

static nrl_status remove_dead(const folder *f, bool quiet)
{
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < f->n_dead && st == NRL_OK; i++) {
        char *path = mem_printf("%s/%s", f->path, f->dead[i]);
        st = remove_ours(path, NULL, quiet);
        free(path);
    }
    return st;
}

static nrl_status remove_saved(const folder *f, const found *one, bool quiet)
{
    char *path = path_of(f, one), *dead = mem_printf("%s.tmp", path);
    nrl_status st = remove_ours(path, dead, quiet);
    free(path);
    free(dead);
    return st;
}

/* Keeps the best checkpoint that is not counted yet, whether or not it is kept already; on ties the older one. */
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

nrl_status checkpoint_prune(const char *out, int64_t keep, int64_t keep_best, bool quiet)
{
    folder f;
    NRL_TRY(folder_list(out, &f));
    nrl_status st = remove_dead(&f, quiet);
    if (keep > 0) {
        for (size_t i = 0; i < f.n; i++) {
            int64_t step;
            char *path = path_of(&f, &f.list[i]);
            f.list[i].complete = checkpoint_look(path, &step, &f.list[i].metric) == NRL_OK;
            f.list[i].kept = f.list[i].complete && keep-- > 0;
            free(path);
        }
        for (int64_t i = 0; i < keep_best && i < (int64_t)f.n; i++)
            keep_one_best(&f);
        for (size_t i = 0; i < f.n && st == NRL_OK; i++)
            if (f.list[i].complete && !f.list[i].kept) st = remove_saved(&f, &f.list[i], quiet);
    }
    folder_free(&f);
    return st;
}

nrl_status checkpoint_check_clear(const char *out)
{
    folder f;
    NRL_TRY(folder_list(out, &f));
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < f.n && st == NRL_OK; i++) {
        char *path = path_of(&f, &f.list[i]), *foreign = foreign_in(path);
        if (*foreign)
            st = nrl_fail(NRL_ERR_CONFIG,
                          "cannot remove '%s': '%s' was not written by a run\n"
                          "hint: move it away, or choose another out",
                          path, foreign);
        free(foreign);
        free(path);
    }
    folder_free(&f);
    return st;
}

nrl_status checkpoint_clear(const char *out)
{
    folder f;
    NRL_TRY(folder_list(out, &f));
    nrl_status st = remove_dead(&f, false);
    for (size_t i = 0; i < f.n && st == NRL_OK; i++)
        st = remove_saved(&f, &f.list[i], false);
    DIR *d = st == NRL_OK && rmdir(f.path) ? opendir(f.path) : NULL;
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) nrl_warn("left '%s/%s' in place", f.path, e->d_name);
    if (d) closedir(d);
    folder_free(&f);
    return st;
}
