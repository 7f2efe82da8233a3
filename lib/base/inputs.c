/*
 * inputs.c - see inputs.h. The list has one entry for each input and one for each directory above it, so a check is
 * one stat and one pass over the list.
 */
#include "base/inputs.h"
#include "base/arena.h"
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef enum { INPUTS_ITSELF = 1, INPUTS_ABOVE } inputs_kind;

struct inputs_entry {
    dev_t device;
    ino_t inode;
    inputs_kind kind;
    char *path, *name; /* of the input */
};

static void inputs_append(inputs *in, const struct stat *s, inputs_kind kind, const char *name, const char *path)
{
    if (in->n == in->capacity) {
        in->capacity = 2 * in->capacity + 32;
        in->list = mem_realloc(in->list, in->capacity * sizeof *in->list);
    }
    in->list[in->n++] = (inputs_entry){s->st_dev, s->st_ino, kind, mem_strdup(path), mem_strdup(name)};
}

static void inputs_add_above(inputs *in, const char *name, const char *path)
{
    struct stat s;
    char *real = realpath(path, NULL);
    for (char *slash = real ? strrchr(real, '/') : NULL; slash && slash != real; slash = strrchr(real, '/')) {
        *slash = 0;
        if (!stat(real, &s)) inputs_append(in, &s, INPUTS_ABOVE, name, path);
    }
    free(real);
}

static void inputs_add_files_in(inputs *in, const char *name, const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat s;
        char *path = mem_printf("%s/%s", dir, e->d_name);
        if (!stat(path, &s) && !S_ISDIR(s.st_mode)) inputs_append(in, &s, INPUTS_ITSELF, name, path);
        free(path);
    }
    if (d) closedir(d);
}

void inputs_add(inputs *in, const char *name, const char *path)
{
    struct stat s;
    if (stat(path, &s)) return;
    inputs_append(in, &s, INPUTS_ITSELF, name, path);
    inputs_add_above(in, name, path);
    if (S_ISDIR(s.st_mode)) inputs_add_files_in(in, name, path);
}

void inputs_free(inputs *in)
{
    for (size_t i = 0; i < in->n; i++) {
        free(in->list[i].path);
        free(in->list[i].name);
    }
    free(in->list);
    *in = (inputs){0};
}

static const inputs_entry *inputs_find(const inputs *in, const struct stat *s, bool above)
{
    for (size_t i = 0; i < in->n; i++) {
        const inputs_entry *e = &in->list[i];
        if (e->device == s->st_dev && e->inode == s->st_ino && (above || e->kind == INPUTS_ITSELF)) return e;
    }
    return NULL;
}

static nrl_status inputs_refuse(const char *path, const inputs_entry *e)
{
    if (e->kind == INPUTS_ABOVE)
        return nrl_fail(NRL_ERR_CONFIG, "cannot replace '%s': '%s' in it is read as %s", path, e->path, e->name);
    if (strcmp(path, e->path))
        return nrl_fail(NRL_ERR_CONFIG, "cannot replace '%s': it is the same as '%s', which is read as %s", path,
                        e->path, e->name);
    return nrl_fail(NRL_ERR_CONFIG, "cannot replace '%s': it is read as %s", path, e->name);
}

nrl_status inputs_check_file(const inputs *in, const char *path)
{
    struct stat s;
    const inputs_entry *e = in && !stat(path, &s) ? inputs_find(in, &s, false) : NULL;
    return e ? inputs_refuse(path, e) : NRL_OK;
}

nrl_status inputs_check_folder(const inputs *in, const char *path)
{
    struct stat s;
    if (!in || stat(path, &s)) return NRL_OK;
    const inputs_entry *e = inputs_find(in, &s, true);
    if (e) return inputs_refuse(path, e);
    nrl_status st = NRL_OK;
    DIR *d = opendir(path);
    for (struct dirent *file; st == NRL_OK && d && (file = readdir(d));) {
        if (!strcmp(file->d_name, ".") || !strcmp(file->d_name, "..")) continue;
        char *inside = mem_printf("%s/%s", path, file->d_name);
        st = inputs_check_file(in, inside);
        free(inside);
    }
    if (d) closedir(d);
    return st;
}
