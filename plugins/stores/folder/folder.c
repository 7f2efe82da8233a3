/*
 * folder.c - the store plugin folder: plain files in the format of PyTorch's FileStore. The name of
 * a file is the decimal std::hash of the key as libstdc++ computes it on 64 bits (MurmurHash64A),
 * and its content is the value. It is written under a name with a leading dot and then renamed. A
 * key is set once.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nrl/store.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define POLL_S 0.01

typedef struct {
    char *path;
} folder;

/* h starts as seed ^ (n M); each 8-byte word w: k = w M, k ^= k >> 47, k *= M, h = (h ^ k) M; the rest
 * of 1..7 bytes as one number t: h = (h ^ t) M; at the end h ^= h >> 47, h *= M, h ^= h >> 47. */
static uint64_t libstdcxx_hash(const char *key)
{
    const uint64_t m = 0xc6a4a7935bd1e995u;
    size_t n = strlen(key), i;
    uint64_t h = 0xc70f6907u ^ (n * m);
    for (i = 0; i + 8 <= n; i += 8) {
        uint64_t k;
        memcpy(&k, key + i, 8);
        k *= m;
        k ^= k >> 47;
        h = (h ^ (k * m)) * m;
    }
    if (i < n) {
        uint64_t rest = 0;
        memcpy(&rest, key + i, n - i);
        h = (h ^ rest) * m;
    }
    h = (h ^ (h >> 47)) * m;
    return h ^ (h >> 47);
}

static char *file_of(const folder *f, const char *key, const char *dot)
{
    return mem_printf("%s/%s%" PRIu64, f->path, dot, libstdcxx_hash(key));
}

static nrl_status write_file(const char *path, const void *value, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
    const char *at = value;
    while (size) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            nrl_status code = errno == ENOSPC || errno == EDQUOT ? NRL_ERR_FULL : NRL_ERR_IO;
            nrl_fail(code, "%s: %s", path, strerror(errno));
            close(fd);
            return code;
        }
        at += n;
        size -= (size_t)n;
    }
    close(fd);
    return NRL_OK;
}

static nrl_status folder_set(void *self, const char *key, const void *value, size_t size)
{
    folder *f = self;
    char *path = file_of(f, key, ""), *early = file_of(f, key, ".");
    nrl_status st = NRL_OK;
    if (!access(path, F_OK))
        st = nrl_fail(NRL_ERR_CONFIG,
                      "the store's directory %s already contains '%s' (%s)\n"
                      "hint: a directory serves one run; use an empty one",
                      f->path, key, path);
    if (!st) st = write_file(early, value, size);
    if (!st && rename(early, path)) st = nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
    free(path);
    free(early);
    return st;
}

/* A key can only be set if it is absent: of several link calls for one name, only one succeeds. The
 * temporary names are unique, so that no client writes to another's file. */
static nrl_status folder_set_once(void *self, const char *key, const char *desired, char **now)
{
    folder *f = self;
    size_t size;
    char *path = file_of(f, key, "");
    nrl_status st = NRL_OK;
    if (*desired && access(path, F_OK)) {
        char *early = file_temporary_name(path, ".tmp");
        st = write_file(early, desired, strlen(desired));
        if (!st && link(early, path) && errno != EEXIST) st = nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
        unlink(early);
        free(early);
    }
    if (!st && access(path, F_OK))
        *now = mem_strdup("");
    else if (!st)
        st = file_read(path, NRL_STORE_MAX_VALUE, now, &size);
    free(path);
    return st;
}

static nrl_status folder_get(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size)
{
    char *path = file_of(self, key, ""), *text;
    double deadline = clock_seconds() + timeout_s;
    nrl_status st = NRL_OK;
    while (!(*found = !access(path, F_OK)) && clock_seconds() < deadline)
        clock_sleep(POLL_S);
    if (*found) {
        st = file_read(path, NRL_STORE_MAX_VALUE, &text, size);
        if (!st) *value = text;
    }
    free(path);
    return st;
}

static nrl_status folder_remove(void *self, const char *key)
{
    char *path = file_of(self, key, "");
    bool gone = unlink(path) == 0 || errno == ENOENT;
    nrl_status st = gone ? NRL_OK : nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
    free(path);
    return st;
}

static void folder_close(void *self)
{
    folder *f = self;
    free(f->path);
    free(f);
}

/* "file:///DIR", or a path that is a directory or looks like one. */
static const char *folder_path(const char *address)
{
    return !strncmp(address, "file://", 7) ? address + 7 : address;
}

static int32_t folder_probe(const char *address)
{
    struct stat s;
    const char *path = folder_path(address);
    if (path == address && strstr(address, "://")) return NRL_PROBE_NO;
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode)) return NRL_PROBE_YES;
    return strchr(path, '/') ? NRL_PROBE_PERHAPS : NRL_PROBE_NO;
}

static nrl_status folder_open(const void *options, const nrl_store_setup *setup, void **self)
{
    struct stat s;
    const char *path = folder_path(setup->address);
    char *whole = realpath(path, NULL);
    (void)options;
    if (!whole || stat(whole, &s) || !S_ISDIR(s.st_mode)) {
        nrl_fail(NRL_ERR_CONFIG, "cannot use the directory %s as a store: %s", path,
                 whole ? "not a directory" : strerror(errno));
        free(whole);
        return NRL_ERR_CONFIG;
    }
    folder *f = mem_alloc(sizeof *f);
    f->path = whole;
    *self = f;
    return NRL_OK;
}

static const nrl_store_plugin plugin = {
    NRL_PLUGIN_PLAIN(NRL_KIND_STORE, nrl_store_plugin, "folder", "0.1.0",
                     "files in a directory that all ranks share, as PyTorch's FileStore; without heartbeats"),
    .probe = folder_probe,
    .open = folder_open,
    .close = folder_close,
    .set = folder_set,
    .get = folder_get,
    .set_once = folder_set_once,
    .remove = folder_remove,
};
NRL_EXPORT(plugin)
