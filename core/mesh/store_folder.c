/*
 * store_folder.c - a store of plain files, in the format of PyTorch's FileStore: the name is the decimal
 * std::hash of the key as libstdc++ computes it on 64 bits (MurmurHash64A), the content is the value;
 * written under a leading dot and renamed. A key is set once.
 */
#include "base/arena.h"
#include "base/file.h"
#include "mesh/socket.h"
#include "mesh/store_kind.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define POLL_S 0.01

typedef struct {
    char *path;
} folder;

/* h starts as seed ^ (n M); each 8-byte abort_record w: k = w M, k ^= k >> 47, k *= M, h = (h ^ k) M; the rest
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
                      "the store's folder %s holds '%s' already (%s)\n"
                      "a folder serves one run: give an empty one",
                      f->path, key, path);
    if (!st) st = write_file(early, value, size);
    if (!st && rename(early, path)) st = nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
    free(path);
    free(early);
    return st;
}

/* Only what is not there yet can be set; a link is made once, whoever tries. Files under a name
 * that nobody else has, so that nobody writes into another's. */
static nrl_status folder_compare_set(void *self, const char *key, const char *expected, const char *desired, char **now)
{
    folder *f = self;
    size_t size;
    if (*expected) return nrl_fail(NRL_ERR_CONFIG, "a folder as store cannot compare; use a store with an address");
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
        st = file_read(path, STORE_MAX_VALUE, now, &size);
    free(path);
    return st;
}

static nrl_status folder_get(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size)
{
    char *path = file_of(self, key, ""), *text;
    double deadline = mesh_clock() + timeout_s;
    nrl_status st = NRL_OK;
    while (!(*found = !access(path, F_OK)) && mesh_clock() < deadline)
        mesh_sleep(POLL_S);
    if (*found) {
        st = file_read(path, STORE_MAX_VALUE, &text, size);
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

static nrl_status folder_all_there(void *self, const char *const *keys, size_t n, bool *all)
{
    *all = true;
    for (size_t i = 0; i < n && *all; i++) {
        char *path = file_of(self, keys[i], "");
        *all = !access(path, F_OK);
        free(path);
    }
    return NRL_OK;
}

static nrl_status folder_get_all(void *self, const char *const *keys, size_t n, char **values)
{
    for (size_t i = 0; i < n; i++) {
        void *value;
        size_t size;
        bool found;
        nrl_status st = folder_get(self, keys[i], 0, &found, &value, &size);
        if (!st && !found) st = nrl_fail(NRL_ERR_PEER, "'%s' is not in the store's folder", keys[i]);
        if (st) {
            while (i)
                free(values[--i]);
            return st;
        }
        values[i] = value; /* file_read ends it with a NUL */
    }
    return NRL_OK;
}

static void folder_close(void *self)
{
    folder *f = self;
    free(f->path);
    free(f);
}

static const store_kind folder_kind = {
    .set = folder_set,
    .get = folder_get,
    .compare_set = folder_compare_set,
    .all_there = folder_all_there,
    .remove = folder_remove,
    .get_all = folder_get_all,
    .close = folder_close,
};

nrl_status store_open_folder(const char *path, nrl_store **out)
{
    struct stat s;
    char *whole = realpath(path, NULL);
    if (!whole || stat(whole, &s) || !S_ISDIR(s.st_mode)) {
        nrl_fail(NRL_ERR_CONFIG, "the store's folder %s: %s", path, whole ? "not a folder" : strerror(errno));
        free(whole);
        return NRL_ERR_CONFIG;
    }
    folder *f = mem_alloc(sizeof *f);
    f->path = whole;
    *out = store_new(&folder_kind, f);
    return NRL_OK;
}
