/*
 * claims.c - see claims.h. The marker is text: a line that says what it is, then a path a line.
 */
#include "base/claims.h"
#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/disk.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char claims_head[] = "nrl: runs in this folder made the following, a later run may replace it\n";
enum { CLAIMS_MAX_BYTES = 1 << 20 };

static char *claims_path(const claims *c, const char *name)
{
    return *name == '/' ? mem_strdup(name) : mem_printf("%s/%s", c->out, name);
}

/* ---- the marker ---- */

static void claims_append(claims *c, const char *name)
{
    c->made = mem_realloc(c->made, (c->n_made + 1) * sizeof *c->made);
    c->taken = mem_realloc(c->taken, (c->n_made + 1) * sizeof *c->taken);
    c->taken[c->n_made] = false;
    c->made[c->n_made++] = mem_strdup(name);
}

static nrl_status claims_read(claims *c, const char *path)
{
    char *text, *save = NULL;
    size_t size, head = sizeof claims_head - 1;
    NRL_TRY(file_read(path, CLAIMS_MAX_BYTES, &text, &size));
    if (strlen(text) != size || strncmp(text, claims_head, head)) {
        free(text);
        return nrl_fail(NRL_ERR_CONFIG, "out: '%s' is not the marker of a run\nhint: choose another out", path);
    }
    for (char *line = strtok_r(text + head, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        claims_append(c, line);
    free(text);
    c->marked = true;
    return NRL_OK;
}

nrl_status claims_open(claims *c, const char *out)
{
    struct stat s;
    c->out = mem_strdup(out);
    char *path = claims_path(c, CLAIMS_MARKER);
    nrl_status st = lstat(path, &s) ? NRL_OK : claims_read(c, path);
    free(path);
    return st;
}

void claims_close(claims *c)
{
    for (size_t i = 0; i < c->n_made; i++)
        free(c->made[i]);
    free(c->made);
    free(c->taken);
    free(c->out);
    inputs_free(&c->inputs);
    *c = (claims){0};
}

void claims_settle(claims *c, const char *out, int lock)
{
    struct stat s;
    if (!c->out) c->out = mem_strdup(out);
    if (lock >= 0 ? fstat(lock, &s) : stat(c->out, &s)) return;
    c->device = s.st_dev;
    c->inode = s.st_ino;
}

nrl_status claims_check_home(const claims *c)
{
    struct stat s;
    if (!c->inode) return NRL_OK;
    bool exists = !stat(c->out, &s);
    if (exists && s.st_dev == c->device && s.st_ino == c->inode) return NRL_OK;
    return nrl_fail(NRL_ERR_IO,
                    "out: '%s' was %s during the run\n"
                    "hint: nrl does not write to another directory; saved files are where the original directory was "
                    "moved",
                    c->out, exists ? "replaced by another directory" : "removed");
}

nrl_status claims_flush(claims *c)
{
    if (!c->changed) return NRL_OK;
    NRL_TRY(claims_check_home(c));
    int fd;
    buffer text = {0};
    char *path = claims_path(c, CLAIMS_MARKER), *temporary = file_temporary_name(path, ".tmp");
    buffer_puts(&text, claims_head);
    for (size_t i = 0; i < c->n_made; i++)
        buffer_print(&text, "%s\n", c->made[i]);
    nrl_status st = disk_create(temporary, &fd);
    if (st == NRL_OK) {
        st = disk_finish(fd, temporary, disk_write(fd, temporary, text.text, text.size));
        if (st == NRL_OK && rename(temporary, path)) st = disk_fail(path, errno);
        if (st != NRL_OK) unlink(temporary);
    }
    free(temporary);
    free(path);
    buffer_free(&text);
    NRL_TRY(st == NRL_OK ? disk_sync_folder(c->out) : st);
    c->marked = true;
    c->changed = false;
    return NRL_OK;
}

/* ---- whose it is ---- */

static bool claims_is_name(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

/* The index of the name; n_made if it is not in the list. */
static size_t claims_find(const claims *c, const char *name)
{
    size_t i = 0;
    while (i < c->n_made && strcmp(c->made[i], name))
        i++;
    return i;
}

bool claims_are_same(const char *a, const char *b)
{
    struct stat s, t;
    return !stat(a, &s) && !stat(b, &t) && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

bool claims_has_path(const claims *c, const char *path)
{
    bool is_made = false;
    for (size_t i = 0; i < c->n_made && !is_made; i++) {
        char *made = claims_path(c, c->made[i]);
        is_made = claims_are_same(made, path);
        free(made);
    }
    return is_made;
}

static bool claims_is_folder(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode);
}

/* Entries of a start that was killed before the marker was written do not count. */
static bool claims_is_empty(const claims *c, const char *path)
{
    struct stat s;
    if (!lstat(path, &s) && S_ISREG(s.st_mode) && !s.st_size) return true;
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        n += !(c->is_debris && c->is_debris(e->d_name));
    if (d) closedir(d);
    return d && n <= 2; /* . and .. */
}

bool claims_hold_results(const claims *c, const char *config)
{
    struct stat s;
    bool holds = false;
    for (size_t i = 0; i < c->n_made && !holds; i++) {
        if (*c->made[i] == '/' || !strcmp(c->made[i], config)) continue;
        char *path = claims_path(c, c->made[i]);
        holds = !lstat(path, &s) && !claims_is_empty(c, path);
        free(path);
    }
    return holds;
}

static const claims_known *claims_known_as(const claims *c, const char *name)
{
    for (const claims_known *k = c->known; k && k->name; k++)
        if (!strcmp(k->name, name)) return k;
    return NULL;
}

static nrl_status claims_check_inputs(const claims *c, const char *name, const char *path)
{
    nrl_status st =
        claims_is_folder(path) ? inputs_check_folder(&c->inputs, path) : inputs_check_file(&c->inputs, path);
    const claims_known *known = claims_known_as(c, name);
    if (st != NRL_OK) nrl_fail(st, "out: %s\nhint: choose another out%s", nrl_error_text(), known ? known->hint : "");
    return st;
}

nrl_status claims_check_input(const claims *c, const char *name)
{
    char *path = claims_path(c, name);
    nrl_status st = claims_check_inputs(c, name, path);
    free(path);
    return st;
}

nrl_status claims_check(const claims *c, const char *name)
{
    struct stat s;
    char *path = claims_path(c, name);
    nrl_status st = claims_check_inputs(c, name, path);
    bool exists = !lstat(path, &s) && !claims_is_empty(c, path);
    if (st == NRL_OK && exists && !c->adopted && claims_find(c, name) == c->n_made)
        st = nrl_fail(NRL_ERR_CONFIG,
                      "out: cannot write '%s': it already exists and was not written by a run\n"
                      "hint: choose another out, or move the file",
                      path);
    free(path);
    return st;
}

nrl_status claims_take(claims *c, const char *name)
{
    NRL_TRY(claims_check(c, name));
    size_t i = claims_find(c, name);
    c->changed |= i == c->n_made;
    if (i == c->n_made) claims_append(c, name);
    c->taken[i] = true;
    return NRL_OK;
}

nrl_status claims_add(claims *c, const char *path)
{
    if (!c->out || claims_find(c, path) < c->n_made) return NRL_OK;
    if (strchr(path, '\n')) return nrl_fail(NRL_ERR_CONFIG, "'%s': a line break in a path", path);
    claims_append(c, path);
    c->changed = true;
    return claims_flush(c);
}

/* ---- replacing a run ---- */

nrl_status claims_check_clear(const claims *c)
{
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < c->n_made && st == NRL_OK; i++) {
        if (!claims_is_name(c->made[i])) continue;
        char *path = claims_path(c, c->made[i]);
        const claims_known *known = claims_known_as(c, c->made[i]);
        st = claims_check_inputs(c, c->made[i], path);
        free(path);
        if (st == NRL_OK && known && known->check) st = known->check(c->out);
    }
    return st;
}

/* Removes a link and not its target, unless the entry has through_links. */
static nrl_status claims_remove(const claims *c, const char *name, bool *gone)
{
    char *path = claims_path(c, name);
    struct stat s;
    nrl_status st = NRL_OK;
    bool exists = !lstat(path, &s), is_folder = exists && S_ISDIR(s.st_mode);
    const claims_known *known = claims_known_as(c, name);
    if (known && exists && (is_folder || known->through_links))
        st = known->remove(c->user, c->out);
    else if (exists && !is_folder && unlink(path))
        st = nrl_fail(NRL_ERR_IO, "cannot remove '%s': %s", path, strerror(errno));
    *gone = lstat(path, &s) != 0;
    free(path);
    return st;
}

nrl_status claims_clear(claims *c)
{
    size_t n = 0;
    NRL_TRY(claims_check_clear(c));
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < c->n_made; i++) {
        bool gone = false;
        if (st == NRL_OK && claims_is_name(c->made[i])) st = claims_remove(c, c->made[i], &gone);
        if (gone)
            free(c->made[i]);
        else
            c->made[n++] = c->made[i];
    }
    c->changed = c->changed || n < c->n_made;
    c->n_made = n;
    return st;
}

void claims_warn_left(const claims *c)
{
    for (size_t i = 0; i < c->n_made; i++) {
        char *path = claims_path(c, c->made[i]);
        bool is_loggers = claims_is_name(c->made[i]) && !claims_known_as(c, c->made[i]);
        if (is_loggers && !c->taken[i] && claims_is_folder(path) && !claims_is_empty(c, path))
            nrl_warn("'%s' of an earlier run was not removed", path);
        free(path);
    }
}
