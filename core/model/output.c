/*
 * output.c - see output.h. A rename within one file system is atomic; a directory that exists
 * already is filled file by file, weights before the rest, which is as close as POSIX comes to it.
 */
#include "model/output.h"
#include "base/arena.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_BYTES = 1 << 16, ATTEMPTS = 1000 };

static bool is_full(int error)
{
    return error == ENOSPC || error == EFBIG || error == EDQUOT;
}

static nrl_status io_error(const char *path, const char *what)
{
    int error = errno;
    return nrl_fail(is_full(error) ? NRL_ERR_FULL : NRL_ERR_IO, "%s: cannot %s: %s", path, what,
                    strerror(error));
}

/* ---- directories ---- */

static nrl_status make_parents(const char *path)
{
    char *copy = mem_strdup(path);
    nrl_status st = NRL_OK;
    for (char *c = strchr(copy + 1, '/'); c && st == NRL_OK; c = strchr(c + 1, '/')) {
        *c = 0;
        if (mkdir(copy, 0777) && errno != EEXIST) st = io_error(copy, "make this directory");
        *c = '/';
    }
    free(copy);
    return st;
}

/* mkdtemp would make it private; the result shall follow the umask. */
static nrl_status make_temporary(output *o)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        free(o->temporary);
        o->temporary = mem_printf("%s.tmp-%ld-%d", o->dir, (long)getpid(), i);
        if (!mkdir(o->temporary, 0777)) return NRL_OK;
        if (errno != EEXIST) break;
    }
    nrl_status st = io_error(o->temporary, "make this directory");
    free(o->temporary);
    o->temporary = NULL;
    return st;
}

nrl_status output_open(const char *dir, output *out)
{
    *out = (output){.dir = mem_strdup(dir)};
    size_t n = strlen(out->dir);
    while (n > 1 && out->dir[n - 1] == '/')
        out->dir[--n] = 0;
    struct stat s;
    out->exists = !stat(out->dir, &s);
    if (out->exists && !S_ISDIR(s.st_mode))
        return nrl_fail(NRL_ERR_CONFIG, "%s: exists and is no directory", out->dir);
    NRL_TRY(make_parents(out->dir));
    return make_temporary(out);
}

static nrl_status sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return io_error(path, "open this directory");
    int failed = fsync(fd) && errno != EINVAL && errno != EROFS;
    nrl_status st = failed ? io_error(path, "sync this directory") : NRL_OK;
    close(fd);
    return st;
}

static nrl_status sync_parent(const char *path)
{
    char *copy = mem_strdup(path), *slash = strrchr(copy, '/');
    if (slash) slash[slash == copy] = 0;
    nrl_status st = sync_directory(slash ? copy : ".");
    free(copy);
    return st;
}

/* ---- files ---- */

nrl_status output_file_open(const output *o, const char *name, uint64_t needed, output_file *out)
{
    *out = (output_file){
        .path = mem_printf("%s/%s", o->temporary, name), .name = name, .needed = needed};
    out->fd = open(out->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out->fd >= 0) return NRL_OK;
    nrl_status st = io_error(out->path, "create this file");
    free(out->path);
    return st;
}

static nrl_status write_error(const output_file *f)
{
    int error = errno;
    if (!is_full(error)) return io_error(f->path, "write");
    return nrl_fail(NRL_ERR_FULL, "%s: %s; the file needs %llu bytes", f->path, strerror(error),
                    (unsigned long long)f->needed);
}

nrl_status output_file_write(output_file *f, const void *bytes, size_t size)
{
    const char *from = bytes;
    while (size > 0) {
        ssize_t n = write(f->fd, from, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return write_error(f);
        from += n;
        size -= (size_t)n;
    }
    return NRL_OK;
}

nrl_status output_file_close(output_file *f, nrl_status st)
{
    if (st == NRL_OK && fsync(f->fd) && errno != EINVAL) st = write_error(f);
    if (close(f->fd) && st == NRL_OK) st = write_error(f);
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

static nrl_status move_file(const output *o, const char *name)
{
    char *from = mem_printf("%s/%s", o->temporary, name), *to = mem_printf("%s/%s", o->dir, name);
    nrl_status st = rename(from, to) ? io_error(to, "put the file in place") : NRL_OK;
    free(from);
    free(to);
    return st;
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

/* config.json moves last: until then a reader sees the old model's description. */
static nrl_status move_all(const output *o, const name_list *ours)
{
    static const char last[] = "config.json";
    for (size_t i = 0; i < ours->n; i++)
        if (strcmp(ours->names[i], last)) NRL_TRY(move_file(o, ours->names[i]));
    return has_name(ours, last) ? move_file(o, last) : NRL_OK;
}

static nrl_status fill_existing(const output *o, bool (*is_stale)(const char *, void *), void *user)
{
    name_list ours = list_names(o->temporary), theirs = list_names(o->dir);
    nrl_status st = move_all(o, &ours);
    for (size_t i = 0; i < theirs.n && st == NRL_OK && is_stale; i++)
        if (!has_name(&ours, theirs.names[i]) && is_stale(theirs.names[i], user))
            remove_in(o->dir, theirs.names[i]);
    free_names(&ours);
    free_names(&theirs);
    return st == NRL_OK ? sync_directory(o->dir) : st;
}

nrl_status output_publish(output *o, bool (*is_stale)(const char *name, void *user), void *user)
{
    NRL_TRY(sync_directory(o->temporary));
    if (o->exists) return fill_existing(o, is_stale, user);
    if (rename(o->temporary, o->dir)) return io_error(o->dir, "put the directory in place");
    free(o->temporary);
    o->temporary = NULL;
    return sync_parent(o->dir);
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
    free(o->temporary);
    free(o->dir);
    *o = (output){0};
}
