/*
 * output.c - see output.h. Two directories of one file system exchange their names atomically if the kernel and the
 * file system support it (RENAME_EXCHANGE); otherwise the old directory is renamed for a moment.
 */
#include "base/output.h"
#include "base/arena.h"
#include "base/disk.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_BYTES = 1 << 16, ATTEMPTS = 1000 };

static nrl_status io_error(const char *path, const char *what)
{
    int error = errno;
    return nrl_fail(disk_status(error), "cannot %s %s: %s", what, path, strerror(error));
}

/* ---- directories ---- */

/* Until the descriptor is closed. At most 0: another process has the lock (without `wait`), or the file system has
 * none. */
static int lock_folder(const char *path, bool wait)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || !flock(fd, wait ? LOCK_EX : LOCK_EX | LOCK_NB)) return fd;
    close(fd);
    return -1;
}

/* Not mkdtemp, which would make the directory private: the result must follow the umask. */
static nrl_status make_temporary(output *o)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        free(o->temporary);
        o->temporary = mem_printf("%s.tmp-%ld-%d", o->dir, (long)getpid(), i);
        if (mkdir(o->temporary, 0777)) {
            if (errno != EEXIST) break;
            continue;
        }
        o->lock = lock_folder(o->temporary, true);
        if (!access(o->temporary, F_OK)) return NRL_OK;
        if (o->lock > 0) close(o->lock); /* another process removed it before it was locked: output_sweep */
        o->lock = 0;
    }
    nrl_status st = io_error(o->temporary, "create directory");
    free(o->temporary);
    o->temporary = NULL;
    return st;
}

nrl_status output_open(const char *dir, const inputs *read, output *out)
{
    *out = (output){.given = mem_strdup(dir), .dir = mem_strdup(dir)};
    size_t n = strlen(out->dir);
    while (n > 1 && out->dir[n - 1] == '/')
        out->dir[--n] = 0;
    struct stat s;
    out->exists = !stat(out->dir, &s);
    if (out->exists && !S_ISDIR(s.st_mode))
        return nrl_fail(NRL_ERR_CONFIG, "cannot write to %s: it is not a directory", out->dir);
    nrl_status st = inputs_check_folder(read, out->dir);
    if (st != NRL_OK) return nrl_fail(st, "%s\nhint: choose another directory", nrl_error_text());
    char *real = out->exists ? realpath(out->dir, NULL) : NULL;
    if (real) { /* write to the target of a link; the link stays */
        free(out->dir);
        out->dir = real;
    }
    char *parent = mem_strdup(out->dir), *slash = strrchr(parent, '/');
    if (slash && slash != parent) {
        *slash = 0;
        errno = disk_make_path(parent);
        if (errno) st = io_error(parent, "create directory");
    }
    free(parent);
    return st == NRL_OK ? make_temporary(out) : st;
}

/* ---- files ---- */

nrl_status output_file_open(const output *o, const char *name, uint64_t needed, output_file *out)
{
    *out = (output_file){.path = mem_printf("%s/%s", o->temporary, name), .name = name, .needed = needed};
    out->fd = open(out->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out->fd >= 0) return NRL_OK;
    nrl_status st = io_error(out->path, "create");
    free(out->path);
    return st;
}

static nrl_status explain(const output_file *f, nrl_status st)
{
    if (st != NRL_ERR_FULL) return st;
    return nrl_fail(st, "cannot write %s; the file needs %llu bytes", nrl_error_text(), (unsigned long long)f->needed);
}

nrl_status output_file_write(output_file *f, const void *bytes, size_t size)
{
    return explain(f, disk_write(f->fd, f->path, bytes, size));
}

nrl_status output_file_close(output_file *f, nrl_status st)
{
    nrl_status closed = disk_finish(f->fd, f->path, st);
    if (st == NRL_OK) st = explain(f, closed);
    free(f->path);
    return st;
}

nrl_status output_text(const output *o, const char *name, const char *text)
{
    output_file f;
    NRL_TRY(output_file_open(o, name, strlen(text), &f));
    return output_file_close(&f, output_file_write(&f, text, strlen(text)));
}

static nrl_status copy_bytes(FILE *in, output_file *f)
{
    char chunk[COPY_BYTES];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, in)) > 0)
        NRL_TRY(output_file_write(f, chunk, n));
    return NRL_OK;
}

nrl_status output_copy(const output *o, const char *from_dir, const char *name)
{
    char *path = mem_printf("%s/%s", from_dir, name);
    FILE *in = fopen(path, "rbe");
    nrl_status st = NRL_OK;
    struct stat s;
    if (!in && errno != ENOENT) st = io_error(path, "read");
    if (in) {
        output_file f;
        uint64_t size = fstat(fileno(in), &s) ? 0 : (uint64_t)s.st_size;
        st = output_file_open(o, name, size, &f);
        if (st == NRL_OK) {
            st = copy_bytes(in, &f);
            if (st == NRL_OK && ferror(in)) st = io_error(path, "read");
            st = output_file_close(&f, st);
        }
        fclose(in);
    }
    free(path);
    return st;
}

/* ---- publishing ---- */

typedef struct {
    char **names;
    size_t n;
} name_list;

static name_list list_names(const char *dir)
{
    name_list list = {0};
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        list.names = mem_realloc(list.names, (list.n + 1) * sizeof *list.names);
        list.names[list.n++] = mem_strdup(e->d_name);
    }
    if (d) closedir(d);
    return list;
}

static void free_names(name_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->names[i]);
    free(list->names);
}

static bool has_name(const name_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (!strcmp(list->names[i], name)) return true;
    return false;
}

static void remove_in(const char *dir, const char *name)
{
    char *path = mem_printf("%s/%s", dir, name);
    unlink(path);
    free(path);
}

static nrl_status refuse_existing(const output *o, const char *name)
{
    return nrl_fail(NRL_ERR_CONFIG,
                    "cannot write the model to '%s': '%s' already exists and was not written by this run\n"
                    "hint: choose another directory, remove the file, or let nrl export --overwrite replace it",
                    o->given, name);
}

static bool output_is_listed(const char *const *list, const char *name)
{
    while (list && *list && strcmp(*list, name))
        list++;
    return list && *list;
}

/* Hard-links files of the old directory that are not replaced or stale into the new one, so that they survive the
 * exchange. Files that cannot be linked remain in `theirs`, to be moved after the exchange. Without overwrite, a file
 * that would be replaced or is stale is an error. */
static nrl_status carry_over(const output *o, const name_list *ours, name_list *theirs, bool overwrite,
                             output_stale stale)
{
    size_t n = 0;
    for (size_t i = 0; i < theirs->n; i++) {
        char *name = theirs->names[i];
        bool goes = has_name(ours, name) || stale.is_ours(name) || stale.is_former(name) ||
                    (overwrite && output_is_listed(stale.companions, name));
        if (goes && !overwrite) return refuse_existing(o, name);
        char *from = mem_printf("%s/%s", o->dir, name), *to = mem_printf("%s/%s", o->temporary, name);
        bool is_there = goes || !link(from, to);
        free(from);
        free(to);
        if (is_there) continue;
        theirs->names[i] = theirs->names[n]; /* names that remain move to the front */
        theirs->names[n++] = name;
    }
    for (size_t i = n; i < theirs->n; i++)
        free(theirs->names[i]);
    theirs->n = n;
    return NRL_OK;
}

static bool exchange(const char *a, const char *b)
{
    if (!renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE)) return true;
    if (errno != EINVAL && errno != ENOSYS) return false;
    char *aside = mem_printf("%s.old", a);
    bool done = !rename(b, aside) && (!rename(a, b) || (rename(aside, b), false)) && !rename(aside, a);
    free(aside);
    return done;
}

/* Moves files that could not be linked out of the old directory, which has the temporary name after the exchange. */
static nrl_status bring(const output *o, const name_list *left)
{
    for (size_t i = 0; i < left->n; i++) {
        char *from = mem_printf("%s/%s", o->temporary, left->names[i]),
             *to = mem_printf("%s/%s", o->dir, left->names[i]);
        nrl_status st = rename(from, to) ? io_error(from, "move to the new directory:") : NRL_OK;
        free(from);
        free(to);
        NRL_TRY(st);
    }
    return NRL_OK;
}

static void keep_mode(const output *o)
{
    struct stat s;
    if (!stat(o->dir, &s)) chmod(o->temporary, s.st_mode & 07777);
}

static nrl_status replace_existing(output *o, bool overwrite, output_stale stale)
{
    name_list ours = list_names(o->temporary), theirs = list_names(o->dir);
    nrl_status st = carry_over(o, &ours, &theirs, overwrite, stale);
    keep_mode(o);
    if (st == NRL_OK) st = disk_sync_folder(o->temporary);
    if (st == NRL_OK && !exchange(o->temporary, o->dir)) st = io_error(o->dir, "replace directory");
    if (st == NRL_OK && bring(o, &theirs) != NRL_OK) {
        st = NRL_ERR_IO;
        free(o->temporary); /* output_close must not remove the directory: it has the files that could not be moved */
        o->temporary = NULL;
    }
    free_names(&ours);
    free_names(&theirs);
    return st == NRL_OK ? disk_sync_parent(o->dir) : st;
}

nrl_status output_refuse(const output *o, bool (*is_ours)(const char *name), bool (*is_former)(const char *name))
{
    name_list theirs = list_names(o->dir);
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < theirs.n && st == NRL_OK; i++)
        if (is_ours(theirs.names[i]) || is_former(theirs.names[i])) st = refuse_existing(o, theirs.names[i]);
    free_names(&theirs);
    return st;
}

nrl_status output_publish(output *o, bool overwrite, output_stale stale)
{
    NRL_TRY(disk_sync_folder(o->temporary));
    if (o->exists) return replace_existing(o, overwrite, stale);
    if (rename(o->temporary, o->dir)) return io_error(o->dir, "create directory");
    free(o->temporary);
    o->temporary = NULL;
    return disk_sync_parent(o->dir);
}

/* A model card that nrl has written. */
static bool output_is_card(const char *dir, const char *name)
{
    enum { MAX_CARD = 4 << 20 };
    char *path = mem_printf("%s/%s", dir, name), *text = NULL;
    size_t size;
    bool is = !strcmp(name, "README.md") && file_read(path, MAX_CARD, &text, &size) == NRL_OK &&
              strstr(text, OUTPUT_CARD_MARKER);
    free(text);
    free(path);
    return is;
}

nrl_status output_remove(const char *dir, bool (*is_ours)(const char *name), const char *const *also)
{
    name_list all = list_names(dir);
    const char *left = NULL;
    for (size_t i = 0; i < all.n; i++)
        if (is_ours(all.names[i]) || output_is_listed(also, all.names[i]) || output_is_card(dir, all.names[i]))
            remove_in(dir, all.names[i]);
        else
            left = all.names[i];
    if (left) nrl_warn("left in place: '%s/%s'", dir, left);
    nrl_status st =
        left || !rmdir(dir) || errno == ENOENT || errno == ENOTDIR ? NRL_OK : io_error(dir, "remove directory");
    free_names(&all);
    return st;
}

void output_sweep(const output *o, bool (*is_ours)(const char *name), const char *const *also)
{
    const char *slash = strrchr(o->dir, '/'), *name = slash ? slash + 1 : o->dir;
    const size_t n = strlen(name);
    char *parent = slash ? mem_printf("%.*s/", (int)(slash - o->dir), o->dir) : mem_strdup("./");
    name_list all = list_names(parent);
    for (size_t i = 0; i < all.n; i++) {
        long process;
        int number, end = 0;
        const char *rest = strncmp(all.names[i], name, n) ? "" : all.names[i] + n;
        if (sscanf(rest, ".tmp-%ld-%d%n", &process, &number, &end) != 2 || rest[end]) continue;
        char *path = mem_printf("%s%s", parent, all.names[i]);
        int lock = lock_folder(path, false);
        if (lock > 0) {
            (void)output_remove(path, is_ours, also); /* failure is harmless */
            close(lock);
        }
        free(path);
    }
    free_names(&all);
    free(parent);
}

void output_close(output *o)
{
    if (o->temporary) {
        name_list left = list_names(o->temporary);
        for (size_t i = 0; i < left.n; i++)
            remove_in(o->temporary, left.names[i]);
        free_names(&left);
        rmdir(o->temporary);
    }
    if (o->lock > 0) close(o->lock);
    free(o->temporary);
    free(o->dir);
    free(o->given);
    *o = (output){0};
}
