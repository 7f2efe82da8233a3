/*
 * log_file.c - see log_file.h.
 */
#include "log_file.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

nrl_status log_file_check_name(const char *option, const char *name)
{
    if (*name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..")) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s: '%s' is not a plain file name; expected a name without '/'", option, name);
}

nrl_status log_file_failed(const char *path, int error)
{
    bool full = error == ENOSPC || error == EFBIG || error == EDQUOT;
    return nrl_fail(full ? NRL_ERR_FULL : NRL_ERR_IO, "%s: %s", path, strerror(error));
}

static nrl_status log_file_claim(const log_file *f)
{
    return f->claim ? f->claim(f->claim_user, f->file) : NRL_OK;
}

nrl_status log_file_init(log_file *f, const nrl_logger_run *run, const char *name)
{
    size_t n = strlen(run->out) + strlen(name) + 2;
    *f = (log_file){.fd = -1, .path = malloc(n)};
    if (!f->path) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a file name");
    snprintf(f->path, n, "%s/%s", run->out, name);
    f->file = strrchr(f->path, '/') + 1;
    if (run->size >= sizeof *run) {
        f->claim = run->claim;
        f->claim_user = run->claim_user;
    }
    return log_file_claim(f);
}

nrl_status log_file_open(log_file *f, bool truncate)
{
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (truncate ? O_TRUNC : 0), 0666);
    return f->fd < 0 ? log_file_failed(f->path, errno) : NRL_OK;
}

nrl_status log_file_keep(log_file *f, bool *is_new)
{
    struct stat open_one, named;
    const bool was_open = f->fd >= 0;
    if (is_new) *is_new = false;
    if (was_open && !fstat(f->fd, &open_one) && !stat(f->path, &named) && open_one.st_dev == named.st_dev &&
        open_one.st_ino == named.st_ino)
        return NRL_OK;
    if (was_open) {
        close(f->fd);
        f->fd = -1;
        nrl_warn("%s was removed or replaced during the run; %lld records are lost", f->path, (long long)f->n_written);
    }
    f->n_written = 0;
    f->is_torn = false;
    if (is_new) *is_new = true;
    NRL_TRY(log_file_claim(f));
    return log_file_open(f, false);
}

static nrl_status append_bytes(log_file *f, const char *text, size_t size)
{
    struct stat before;
    size_t done = 0;
    if (fstat(f->fd, &before) != 0) return log_file_failed(f->path, errno);
    while (done < size) {
        ssize_t n = write(f->fd, text + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            int error = n < 0 ? errno : ENOSPC;
            f->is_torn = done && (!S_ISREG(before.st_mode) || ftruncate(f->fd, before.st_size) != 0);
            return log_file_failed(f->path, error);
        }
        done += (size_t)n;
    }
    return NRL_OK;
}

nrl_status log_file_append(log_file *f, const char *text, size_t size)
{
    if (f->is_torn) NRL_TRY(append_bytes(f, "\n", 1));
    f->is_torn = false;
    NRL_TRY(append_bytes(f, text, size));
    f->n_written++;
    return NRL_OK;
}

void log_file_close(log_file *f)
{
    if (f->fd >= 0) close(f->fd);
    free(f->path);
    *f = (log_file){.fd = -1};
}

static nrl_status copy_lines(FILE *in, FILE *out, const char *temporary,
                             bool (*copy)(void *user, char *line, ssize_t size, FILE *to), void *user)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    bool ok = true;
    while (ok && (size = getline(&line, &capacity, in)) > 0)
        ok = copy(user, line, size, out);
    ok = ok && fflush(out) == 0 && fsync(fileno(out)) == 0;
    nrl_status st = ok ? NRL_OK : log_file_failed(temporary, errno);
    free(line);
    return st;
}

nrl_status log_file_rewrite(const char *path, bool (*line)(void *user, char *line, ssize_t size, FILE *to), void *user)
{
    struct stat s;
    if (!stat(path, &s) && !S_ISREG(s.st_mode)) return NRL_OK;
    FILE *in = fopen(path, "re");
    if (!in) return errno == ENOENT ? NRL_OK : log_file_failed(path, errno);
    size_t n = strlen(path) + sizeof ".tmp";
    char *temporary = malloc(n);
    FILE *out = NULL;
    nrl_status st = temporary ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "out of memory for a file name");
    if (temporary) snprintf(temporary, n, "%s.tmp", path);
    if (st == NRL_OK && !(out = fopen(temporary, "we"))) st = log_file_failed(temporary, errno);
    if (out) {
        if (fstat(fileno(in), &s) == 0) fchmod(fileno(out), s.st_mode & 07777);
        st = copy_lines(in, out, temporary, line, user);
        if (fclose(out) != 0 && st == NRL_OK) st = log_file_failed(temporary, errno);
        if (st == NRL_OK && rename(temporary, path) != 0) st = log_file_failed(path, errno);
        if (st != NRL_OK) unlink(temporary);
    }
    free(temporary);
    fclose(in);
    return st;
}

const char *log_number(double v, char text[LOG_NUMBER])
{
    if (!isfinite(v)) return isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity";
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, LOG_NUMBER, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    return text;
}
