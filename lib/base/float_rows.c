/*
 * float_rows.c - see float_rows.h.
 */
#include "base/float_rows.h"
#include "base/disk.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { VERSION = 1 };

typedef struct {
    char magic[8];
    uint32_t version, reserved;
    int64_t n_rows, n_values;
    uint64_t hash; /* of everything after the header */
} rows_header;

static size_t file_size(int64_t n_rows, int64_t n_values)
{
    return sizeof(rows_header) + (size_t)(n_rows + 1) * sizeof(int64_t) + (size_t)n_values * sizeof(float);
}

bool float_rows_open(const char *path, const char magic[8], int64_t n_rows, float_rows *out, bool *damaged)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *out = (float_rows){0};
    *damaged = fd >= 0;
    if (fd < 0) return false;
    void *map = MAP_FAILED;
    if (!fstat(fd, &s) && (size_t)s.st_size >= sizeof(rows_header))
        map = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return false;
    const rows_header *h = map;
    const int64_t *offsets = (const int64_t *)(h + 1);
    *out = (float_rows){map, (size_t)s.st_size, n_rows, offsets, (const float *)(offsets + n_rows + 1)};
    bool whole = !memcmp(h->magic, magic, sizeof h->magic) && h->version == VERSION && h->n_rows == n_rows &&
                 h->n_values >= 0 && h->n_values < ((int64_t)1 << 40) && file_size(n_rows, h->n_values) == out->size &&
                 XXH3_64bits(h + 1, out->size - sizeof *h) == h->hash;
    *damaged = !whole;
    if (!whole) float_rows_close(out);
    return whole;
}

void float_rows_close(float_rows *f)
{
    if (f->map) munmap(f->map, f->size);
    *f = (float_rows){0};
}

nrl_status float_rows_write(const char *path, const char magic[8], int64_t n_rows, const int64_t *offsets,
                            const float *values)
{
    size_t head = (size_t)(n_rows + 1) * sizeof *offsets, body = (size_t)offsets[n_rows] * sizeof *values;
    rows_header h = {.version = VERSION, .n_rows = n_rows, .n_values = offsets[n_rows]};
    XXH3_state_t *state = XXH3_createState();
    char *temporary = file_temporary_name(path, ".tmp");
    int fd;
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, offsets, head);
    XXH3_64bits_update(state, values, body);
    h.hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    memcpy(h.magic, magic, sizeof h.magic);
    nrl_status st = disk_create(temporary, &fd);
    if (st == NRL_OK) {
        st = disk_write(fd, temporary, &h, sizeof h);
        if (st == NRL_OK) st = disk_write(fd, temporary, offsets, head);
        if (st == NRL_OK) st = disk_write(fd, temporary, values, body);
        st = disk_finish(fd, temporary, st);
        if (st == NRL_OK && rename(temporary, path)) st = disk_fail(path, errno);
        if (st != NRL_OK) unlink(temporary);
    }
    if (st != NRL_OK) nrl_add_context("cannot write '%s' (%zu bytes)", path, sizeof h + head + body);
    free(temporary);
    return st;
}
