/*
 * manifest.h - manifest.json as C structs: what a checkpoint holds and where. Everything that is
 * read is checked here against the files before anyone allocates or seeks by it.
 */
#ifndef CHECKPOINT_MANIFEST_H
#define CHECKPOINT_MANIFEST_H
#include "base/arena.h"
#include "checkpoint/checkpoint.h"

#define MANIFEST_FILE "manifest.json"
#define MANIFEST_DATA "rank-00000.bin"

typedef struct {
    checkpoint_tensor tensor;
    int64_t offset, size; /* bytes in the data file */
    int64_t n_chunks;
    uint64_t *chunks; /* XXH3 of each CHECKPOINT_CHUNK bytes */
} manifest_entry;

typedef struct {
    int64_t step;
    double metric;
    int64_t data_size;
    size_t n_entries, capacity;
    manifest_entry *entries;
    const nrl_node *nodes; /* a map */
} manifest;

/* Bytes of a tensor; false where they do not fit in an int64_t or a dimension is negative. */
bool manifest_tensor_size(const checkpoint_tensor *t, int64_t *size);

/* malloc'd text, its own hash in front. */
char *manifest_write(const manifest *m, size_t *size);
/* Everything of *out lives in `a`, and points to `path` in messages. manifest_parse does all but
 * check the hash. */
nrl_status manifest_parse(arena *a, const char *path, const char *text, size_t size, manifest *out);
nrl_status manifest_read(arena *a, const char *path, manifest *out);

#endif
