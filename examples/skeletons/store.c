/*
 * @NAME@.c - a store in one file that all ranks can write and lock, "@NAME@:PATH": replace it by
 * your own store, for example a client of a service. Each change appends a record, and the last
 * record of a key is valid. Each call reads the whole file, so the store is for few ranks. It does
 * not use a secret: the mode of the file determines who can access it.
 */
#include <nrl/nrl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static const char scheme[] = "@NAME@:";

/* A record: this header, then the key and its value. */
typedef struct {
    uint32_t key_size;
    int32_t value_size; /* -1: the key was removed */
} @NAME@_record;

/* Every call opens a descriptor of its own, and a lock belongs to a descriptor, so threads exclude
 * each other like processes. */
static nrl_status @NAME@_lock(const char *path, FILE **f)
{
    *f = fopen(path, "a+be");
    if (*f && flock(fileno(*f), LOCK_EX) == 0 && fseek(*f, 0, SEEK_SET) == 0) return NRL_OK;
    nrl_status st = nrl_fail(NRL_ERR_PEER, "cannot lock the @NAME@ '%s': %s", path, strerror(errno));
    if (*f) fclose(*f);
    return st;
}

/* *value: malloc'd and NUL-terminated; NULL if the key has no value. */
static nrl_status @NAME@_find(FILE *f, const char *key, void **value, size_t *size)
{
    @NAME@_record r;
    char name[NRL_STORE_MAX_KEY];
    bool whole = true;
    *value = NULL;
    while (whole && fread(&r, sizeof r, 1, f) == 1) {
        size_t n = r.value_size < 0 ? 0 : (size_t)r.value_size;
        whole = r.key_size < sizeof name && n <= NRL_STORE_MAX_VALUE && fread(name, 1, r.key_size, f) == r.key_size;
        if (!whole || r.key_size != strlen(key) || memcmp(name, key, r.key_size) != 0) {
            whole = whole && fseek(f, (long)n, SEEK_CUR) == 0;
            continue;
        }
        free(*value);
        *value = r.value_size < 0 ? NULL : calloc(1, n + 1);
        *size = n;
        whole = r.value_size < 0 || (*value && fread(*value, 1, n, f) == n);
    }
    if (whole) return NRL_OK;
    free(*value);
    return nrl_fail(NRL_ERR_PEER, "cannot read '%s' in the @NAME@", key);
}

static nrl_status @NAME@_append(FILE *f, const char *key, const void *value, int32_t size)
{
    const @NAME@_record r = {(uint32_t)strlen(key), size};
    size_t n = size < 0 ? 0 : (size_t)size;
    bool written = fseek(f, 0, SEEK_END) == 0 && fwrite(&r, sizeof r, 1, f) == 1 &&
                   fwrite(key, 1, r.key_size, f) == r.key_size && fwrite(value, 1, n, f) == n && fflush(f) == 0;
    return written ? NRL_OK : nrl_fail(NRL_ERR_PEER, "cannot write '%s' to the @NAME@: %s", key, strerror(errno));
}

static int32_t @NAME@_probe(const char *address)
{
    return strncmp(address, scheme, sizeof scheme - 1) ? NRL_PROBE_NO : NRL_PROBE_YES;
}

static nrl_status @NAME@_open(const void *options, const nrl_store_setup *setup, void **self)
{
    FILE *f;
    (void)options;
    if (@NAME@_probe(setup->address) == NRL_PROBE_NO)
        return nrl_fail(NRL_ERR_CONFIG, "cannot meet at '%s': expected %sPATH", setup->address, scheme);
    const char *path = setup->address + sizeof scheme - 1;
    NRL_TRY(@NAME@_lock(path, &f)); /* checks that the file can be locked */
    fclose(f);
    *self = strdup(path);
    return *self ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "cannot allocate a store");
}

static nrl_status @NAME@_set(void *self, const char *key, const void *value, size_t size)
{
    FILE *f;
    NRL_TRY(@NAME@_lock(self, &f));
    nrl_status st = @NAME@_append(f, key, value, (int32_t)size);
    fclose(f);
    return st;
}

static double @NAME@_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static nrl_status @NAME@_get(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    double deadline = @NAME@_seconds() + timeout_s;
    FILE *f;
    for (;;) {
        NRL_TRY(@NAME@_lock(self, &f));
        nrl_status st = @NAME@_find(f, key, value, size);
        fclose(f);
        if (st != NRL_OK) return st;
        *found = *value != NULL;
        if (*found || @NAME@_seconds() >= deadline) return NRL_OK;
        nanosleep(&pause, NULL);
    }
}

static nrl_status @NAME@_set_once(void *self, const char *key, const char *text, char **now)
{
    FILE *f;
    void *value;
    size_t size;
    NRL_TRY(@NAME@_lock(self, &f));
    nrl_status st = @NAME@_find(f, key, &value, &size);
    if (st == NRL_OK && (!value || !size)) {
        free(value);
        value = strdup(text);
        if (!value) st = nrl_fail(NRL_ERR_MEMORY, "cannot allocate a value");
        if (st == NRL_OK && *text) st = @NAME@_append(f, key, text, (int32_t)strlen(text));
        if (st != NRL_OK) free(value);
    }
    fclose(f);
    if (st == NRL_OK) *now = value;
    return st;
}

static nrl_status @NAME@_remove(void *self, const char *key)
{
    FILE *f;
    NRL_TRY(@NAME@_lock(self, &f));
    nrl_status st = @NAME@_append(f, key, "", -1);
    fclose(f);
    return st;
}

static nrl_status @NAME@_add(void *self, const char *key, int64_t amount, int64_t *result)
{
    FILE *f;
    void *value;
    size_t size;
    char text[32];
    NRL_TRY(@NAME@_lock(self, &f));
    nrl_status st = @NAME@_find(f, key, &value, &size);
    if (st == NRL_OK) {
        *result = (value ? strtoll(value, NULL, 10) : 0) + amount;
        free(value);
        st = @NAME@_append(f, key, text, snprintf(text, sizeof text, "%" PRId64, *result));
    }
    fclose(f);
    return st;
}

static const nrl_store_plugin @NAME@ = {
    NRL_PLUGIN_PLAIN(NRL_KIND_STORE, nrl_store_plugin, "@NAME@", "1.0", "one file that all ranks lock, @NAME@:PATH"),
    .probe = @NAME@_probe,
    .open = @NAME@_open,
    .close = free,
    .set = @NAME@_set,
    .get = @NAME@_get,
    .set_once = @NAME@_set_once,
    .remove = @NAME@_remove,
    .add = @NAME@_add,
};
NRL_EXPORT(@NAME@)
