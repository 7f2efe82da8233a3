/*
 * reader.h - struct checkpoint: the combined indices of all files. reader.c opens a checkpoint, read.c reads elements.
 */
#ifndef CHECKPOINT_READER_H
#define CHECKPOINT_READER_H
#include "checkpoint/index.h"
#include "checkpoint/manifest.h"
#include "base/workers.h"

typedef struct {
    checkpoint_tensor tensor;
    size_t n_shards;
    const index_entry **shards; /* [n_shards] disjoint; together they cover the tensor */
} saved_tensor;

/* Scratch memory of one decoding thread. */
typedef struct {
    codec *codec;
    unsigned char *stored, *raw; /* CODEC_CHUNK each */
} decoder;

struct checkpoint {
    arena memory;
    const char *dir;
    const sign_public_key *signer; /* required signer; NULL = none */
    manifest m;
    int64_t manifest_bytes;
    file_index *files; /* [world] */
    size_t n_tensors;
    saved_tensor *tensors; /* in order of appearance */
    size_t *by_name;       /* [n_tensors] sorted by name, slot */
    int n_decoders;
    decoder *decoders;
    workers *pool;
};

/* Returns the path of a rank's file, allocated from `a`. */
const char *reader_path(arena *a, const char *dir, int32_t rank);

/* Checks a file that a rank has just written as a reader would: size, header, index. */
nrl_status reader_check_file(const char *path, int32_t rank, int32_t world, int64_t step, const manifest_file *file);

/* Combines the entries of all files to tensors and checks that their shards cover them (tensors.c). */
nrl_status reader_collect(checkpoint *c);

#endif
