/*
 * disk.c - durable writes, complete reads and directories.
 */
#include "base/disk.h"
#include "base/arena.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

nrl_status disk_status(int error)
{
    return error == ENOSPC || error == EFBIG || error == EDQUOT ? NRL_ERR_FULL : NRL_ERR_IO;
}

nrl_status disk_fail(const char *path, int error)
{
    return nrl_fail(disk_status(error), "%s: %s", path, strerror(error));
}

/* ---- writing ---- */

nrl_status disk_create(const char *path, int *fd)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return *fd < 0 ? disk_fail(path, errno) : NRL_OK;
}

/* Writing beyond the limit would raise SIGXFSZ, which ends the process. */
static bool is_beyond_limit(int fd, size_t size)
{
    struct rlimit limit;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (at < 0 || getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
    return (rlim_t)at > limit.rlim_cur || limit.rlim_cur - (rlim_t)at < size;
}

nrl_status disk_write(int fd, const char *path, const void *data, size_t size)
{
    if (is_beyond_limit(fd, size)) return disk_fail(path, EFBIG);
    for (const char *from = data; size > 0;) {
        ssize_t n = write(fd, from, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return disk_fail(path, n < 0 ? errno : ENOSPC);
        from += n;
        size -= (size_t)n;
    }
    return NRL_OK;
}

void disk_start_sync(int fd, int64_t offset, int64_t size)
{
    sync_file_range(fd, offset, size, SYNC_FILE_RANGE_WRITE); /* fsync reports an error again */
}

nrl_status disk_reserve(int fd, const char *path, int64_t size)
{
    if (is_beyond_limit(fd, (size_t)size)) return disk_fail(path, EFBIG);
    if (size <= 0 || fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, size) == 0) return NRL_OK;
    return disk_status(errno) == NRL_ERR_FULL ? disk_fail(path, errno) : NRL_OK;
}

/* Returns 0 or an errno. A signal can interrupt fsync on a network file system, and not every file system syncs. */
static int sync_now(int fd)
{
    int st;
    while ((st = fsync(fd)) != 0 && errno == EINTR)
        continue;
    return st && errno != EINVAL && errno != EROFS ? errno : 0;
}

nrl_status disk_finish(int fd, const char *path, nrl_status st)
{
    int error = st == NRL_OK ? sync_now(fd) : 0;
    if (close(fd) != 0 && !error) error = errno;
    return error && st == NRL_OK ? disk_fail(path, error) : st;
}

/* ---- reading ---- */

nrl_status disk_open(const char *path, int *fd, int64_t *size)
{
    struct stat s;
    *fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); /* a pipe must not block */
    if (*fd < 0 && errno == ENOENT) return nrl_fail(NRL_ERR_CORRUPT, "%s: is missing", path);
    if (*fd < 0 && errno == ELOOP) return nrl_fail(NRL_ERR_CORRUPT, "%s: is a symbolic link, expected a file", path);
    if (*fd < 0) return disk_fail(path, errno);
    int error = fstat(*fd, &s) != 0 ? errno : 0;
    if (!error && S_ISREG(s.st_mode)) {
        *size = s.st_size;
        return NRL_OK;
    }
    close(*fd);
    *fd = -1;
    return error ? disk_fail(path, error) : nrl_fail(NRL_ERR_CORRUPT, "%s: is not a regular file", path);
}

nrl_status disk_read(int fd, const char *path, int64_t offset, void *to, size_t size)
{
    for (char *at = to; size > 0;) {
        ssize_t n = pread(fd, at, size, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return disk_fail(path, errno);
        if (n == 0)
            return nrl_fail(NRL_ERR_CORRUPT, "%s: ends at byte %lld, expected %zu more bytes", path, (long long)offset,
                            size);
        at += n;
        offset += n;
        size -= (size_t)n;
    }
    return NRL_OK;
}

nrl_status disk_read_whole(const char *path, int64_t max_bytes, char **text, size_t *size)
{
    int fd;
    int64_t bytes;
    NRL_TRY(disk_open(path, &fd, &bytes));
    char *all = bytes <= max_bytes ? mem_try_grow(NULL, (size_t)bytes + 1, path) : NULL;
    nrl_status st = NRL_ERR_MEMORY;
    if (bytes > max_bytes)
        st = nrl_fail(NRL_ERR_CORRUPT, "%s: has %lld bytes, expected at most %lld", path, (long long)bytes,
                      (long long)max_bytes);
    else if (all)
        st = disk_read(fd, path, 0, all, (size_t)bytes);
    close(fd);
    if (st != NRL_OK) {
        free(all);
        return st;
    }
    all[bytes] = 0;
    *text = all;
    *size = (size_t)bytes;
    return NRL_OK;
}

/* ---- directories ---- */

nrl_status disk_make_folder(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST ? NRL_OK : disk_fail(path, errno);
}

int disk_make_path(const char *path)
{
    char *copy = mem_strdup(path);
    int error = 0;
    for (char *c = copy + 1; !error && *c; c++) {
        if (*c != '/') continue;
        *c = 0;
        if (mkdir(copy, 0777) && errno != EEXIST && errno != EROFS && errno != EACCES) error = errno;
        *c = '/';
    }
    if (!error && mkdir(copy, 0777) && errno != EEXIST) error = errno;
    free(copy);
    return error;
}

nrl_status disk_make_folders(const char *key, const char *path)
{
    char made[4096], parent[4096];
    size_t n = strlen(path);
    if (n >= sizeof made) return nrl_fail(NRL_ERR_CONFIG, "%s: '%s' is too long", key, path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i]) continue;
        memcpy(made, path, i);
        made[i] = 0;
        if (mkdir(made, 0777)) {
            if (errno == EEXIST) continue;
            return nrl_fail(errno == ENOSPC ? NRL_ERR_FULL : NRL_ERR_CONFIG, "%s: cannot create the directory '%s': %s",
                            key, made, strerror(errno));
        }
        /* A directory whose name is not durable loses its contents in a power failure. One that cannot be read cannot
         * be synced. */
        const char *slash = strrchr(made, '/');
        snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - made) + 1 : 1, slash ? made : ".");
        disk_sync_folder(parent);
    }
    return NRL_OK;
}

nrl_status disk_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return disk_fail(path, errno);
    int error = sync_now(fd);
    close(fd);
    return error ? disk_fail(path, error) : NRL_OK;
}

nrl_status disk_sync_parent(const char *path)
{
    char *copy = mem_strdup(path), *slash = strrchr(copy, '/');
    if (slash) slash[slash == copy] = 0;
    nrl_status st = disk_sync_folder(slash ? copy : ".");
    free(copy);
    return st;
}

/* Locks the folder itself and no file in it, so that nothing is left behind however the process ends. */
bool disk_lock_folder(const char *path, int *fd)
{
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0 || !flock(*fd, LOCK_EX | LOCK_NB)) return true;
    bool is_held = errno == EWOULDBLOCK;
    close(*fd);
    *fd = -1;
    return !is_held;
}
