/*
 * manifest.h - manifest.json as C structs: the step, the number of ranks, and the size and index hash of each file.
 */
#ifndef CHECKPOINT_MANIFEST_H
#define CHECKPOINT_MANIFEST_H
#include "base/arena.h"
#include "base/node.h"
#include "checkpoint/format.h"
#include "base/sign.h"

typedef struct {
    int64_t size, index; /* bytes of the file; offset of its index */
    char hash[FORMAT_HASH_DIGITS + 1];
    char digest[SIGN_DIGEST_TEXT]; /* of the index, if the checkpoint is signed; "" = none */
} manifest_file;

typedef struct {
    int64_t step;
    double metric; /* NaN = none */
    int32_t world;
    manifest_file *files;  /* [world] */
    const nrl_node *nodes; /* a map */
} manifest;

/* Returns malloc'd text that begins with its own hash. NULL: NRL_ERR_MEMORY. */
char *manifest_write(const manifest *m, size_t *size);
/* *out is allocated from `a`. manifest_check also checks the hash. NRL_ERR_CORRUPT; NRL_ERR_DATA for a format that this
 * version does not know. */
nrl_status manifest_parse(arena *a, const char *path, const char *text, size_t size, manifest *out);
nrl_status manifest_check(arena *a, const char *path, const char *text, size_t size, manifest *out);

#endif
