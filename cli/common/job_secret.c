/*
 * job_secret.c - see job_secret.h.
 */
#include "cli/common/job_secret.h"
#include "cli/common/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define VARIABLE "NRL_JOB_SECRET"
#define FILE_VARIABLE "NRL_JOB_SECRET_FILE"
#define FD_VARIABLE "NRL_JOB_SECRET_FD"

/* The variable's text is in memory that the kernel shows as /proc/PID/environ. */
static void wipe_variable(const char *name)
{
    char *value = getenv(name);
    if (value) explicit_bzero(value, strlen(value));
    unsetenv(name);
}

static nrl_status check_length(const char *from, const job_secret *s)
{
    if (s->size >= NRL_SECRET_MIN && s->size <= NRL_SECRET_MAX) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "%s: a secret of %zu bytes; expected %d to %d\n"
                    "hint: `head -c 32 /dev/urandom | base64` creates one",
                    from, s->size, NRL_SECRET_MIN, NRL_SECRET_MAX);
}

static nrl_status read_all(int fd, const char *from, job_secret *s)
{
    for (size_t n = 0;;) {
        char more;
        ssize_t got = n < sizeof s->bytes ? pread(fd, s->bytes + n, sizeof s->bytes - n, (off_t)n)
                                          : pread(fd, &more, 1, (off_t)n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return nrl_fail(NRL_ERR_CONFIG, "%s: cannot read the job's secret: %s", from, strerror(errno));
        s->size = n += (size_t)got;
        if (!got || n > sizeof s->bytes) return NRL_OK;
    }
}

static nrl_status check_owner(int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st)) return nrl_fail(NRL_ERR_CONFIG, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return nrl_fail(NRL_ERR_CONFIG, "%s: not a regular file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return nrl_fail(NRL_ERR_CONFIG, "%s: belongs to user %u; expected user %u or root", path, (unsigned)st.st_uid,
                        (unsigned)geteuid());
    if (st.st_mode & 077)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: other users have access to it (mode %03o); expected 600\nhint: chmod 600 %s", path,
                        (unsigned)st.st_mode & 0777, path);
    return NRL_OK;
}

static nrl_status take_file(const char *path, job_secret *s)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return nrl_fail(NRL_ERR_CONFIG, "%s: %s", path, strerror(errno));
    nrl_status st = check_owner(fd, path);
    if (!st) st = read_all(fd, path, s);
    close(fd);
    while (s->size && s->size <= sizeof s->bytes && strchr(" \t\r\n", s->bytes[s->size - 1]))
        s->size--;
    return st ? st : check_length(path, s);
}

static nrl_status take_text(const char *text, job_secret *s)
{
    s->size = strlen(text);
    if (s->size <= sizeof s->bytes) memcpy(s->bytes, text, s->size);
    return check_length(VARIABLE, s);
}

static nrl_status take_descriptor(const char *text, job_secret *s)
{
    char *end;
    long fd = strtol(text, &end, 10);
    if (end == text || *end || fd < 3 || fd > 1 << 20)
        return nrl_fail(NRL_ERR_CONFIG, FD_VARIABLE " is '%s'; expected the value that `nrl launch` sets", text);
    nrl_status st = read_all((int)fd, FD_VARIABLE, s);
    if (!st) close((int)fd);
    return st ? st : check_length(FD_VARIABLE, s);
}

static nrl_status take(job_secret *s)
{
    const char *text = cli_getenv(VARIABLE), *path = cli_getenv(FILE_VARIABLE), *fd = cli_getenv(FD_VARIABLE);
    if (fd) return take_descriptor(fd, s);
    if (text && path)
        return nrl_fail(NRL_ERR_CONFIG, VARIABLE " and " FILE_VARIABLE " are both set; expected one of them");
    return text ? take_text(text, s) : path ? take_file(path, s) : NRL_OK;
}

nrl_status job_secret_take(job_secret *s)
{
    s->size = 0;
    nrl_status st = take(s);
    wipe_variable(VARIABLE);
    unsetenv(FD_VARIABLE);
    if (st) explicit_bzero(s, sizeof *s);
    return st;
}

void job_secret_make(job_secret *s)
{
    s->size = sizeof(nrl_job_secret);
    if (getentropy(s->bytes, s->size)) abort(); /* only a kernel without getrandom */
}

nrl_status job_secret_share(const job_secret *s, int *fd)
{
    *fd = memfd_create("job secret", MFD_CLOEXEC);
    if (*fd >= 0 && write(*fd, s->bytes, s->size) == (ssize_t)s->size) return NRL_OK;
    nrl_fail(NRL_ERR_IO, "cannot pass the job's secret to the ranks: %s", strerror(errno));
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return NRL_ERR_IO;
}

const nrl_job_secret *job_secret_key(arena *a, job_secret *s, const char *run_id)
{
    if (!s->size) return NULL;
    nrl_job_secret *key = arena_alloc(a, sizeof *key);
    nrl_job_secret_derive(s->bytes, s->size, run_id, key);
    explicit_bzero(s, sizeof *s);
    return key;
}
