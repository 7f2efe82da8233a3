/*
 * hash.c - XXH3-128 of memory and files; SHA-256 of files, by libsodium.
 */
#include "base/hash.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { CHUNK = 1 << 20 };

static void hash_print(XXH128_hash_t h, char out[HASH_TEXT])
{
    snprintf(out, HASH_TEXT, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64, (uint64_t)h.low64);
}

void hash_bytes(const void *bytes, size_t size, char out[HASH_TEXT])
{
    hash_print(XXH3_128bits(bytes, size), out);
}

static nrl_status hash_add_file(int fd, const char *name, XXH3_state_t *state, void *chunk)
{
    for (;;) {
        ssize_t n = read(fd, chunk, CHUNK);
        if (n == 0) return NRL_OK;
        if (n > 0)
            XXH3_128bits_update(state, chunk, (size_t)n);
        else if (errno != EINTR)
            return nrl_fail(NRL_ERR_IO, "%s: %s", name, strerror(errno));
    }
}

nrl_status hash_descriptor(int fd, const char *name, char out[HASH_TEXT])
{
    XXH3_state_t *state = XXH3_createState();
    void *chunk = malloc(CHUNK);
    nrl_status st = NRL_OK;
    if (!state || !chunk || XXH3_128bits_reset(state) != XXH_OK)
        st = nrl_fail(NRL_ERR_MEMORY, "cannot hash %s: out of memory", name);
    else
        st = hash_add_file(fd, name, state, chunk);
    if (st == NRL_OK) hash_print(XXH3_128bits_digest(state), out);
    free(chunk);
    XXH3_freeState(state);
    return st;
}

nrl_status hash_file(const char *path, char out[HASH_TEXT])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
    nrl_status st = hash_descriptor(fd, path, out);
    close(fd);
    return st;
}

nrl_status hash_sha256_file(const char *path, char out[HASH_SHA256_TEXT])
{
    crypto_hash_sha256_state state;
    unsigned char digest[crypto_hash_sha256_BYTES], chunk[1 << 14];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : 1;
    NRL_ASSERT(sodium_init(), >=, 0);
    crypto_hash_sha256_init(&state);
    while (n > 0 || (n < 0 && fd >= 0 && errno == EINTR)) {
        n = read(fd, chunk, sizeof chunk);
        if (n > 0) crypto_hash_sha256_update(&state, chunk, (size_t)n);
    }
    int error = n < 0 ? errno : 0;
    if (fd >= 0) close(fd);
    if (error) return nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(error));
    crypto_hash_sha256_final(&state, digest);
    sodium_bin2hex(out, HASH_SHA256_TEXT, digest, sizeof digest);
    return NRL_OK;
}
