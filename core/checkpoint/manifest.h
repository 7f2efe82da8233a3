/*
 * manifest.h - manifest.json as C structs: which step, how many ranks, and each file's size and hash of
 * its index.
 */
#ifndef CHECKPOINT_MANIFEST_H
#define CHECKPOINT_MANIFEST_H
#include "base/arena.h"
#include "base/node.h"
#include "checkpoint/format.h"
#include "checkpoint/sign.h"

typedef struct {
    int64_t size, index; /* bytes of the file; where its index begins */
    char hash[FORMAT_HASH_DIGITS + 1];
    char digest[SIGN_DIGEST_TEXT]; /* of the index, for a signature; "" = none */
} manifest_file;

typedef struct {
    int64_t step;
    double metric; /* NaN = none */
    int32_t world;
    manifest_file *files;  /* [world] */
    const nrl_node *nodes; /* a map */
} manifest;

/* malloc'd text, its own hash in front. */
char *manifest_write(const manifest *m, size_t *size);
/* Everything of *out lives in `a`. manifest_parse does all but check the hash. NRL_ERR_CORRUPT;
 * NRL_ERR_DATA for a format this version does not know. */
nrl_status manifest_parse(arena *a, const char *path, const char *text, size_t size, manifest *out);
nrl_status manifest_check(arena *a, const char *path, const char *text, size_t size, manifest *out);

#endif
