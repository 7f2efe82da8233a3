/*
 * index.h - what one rank's file holds, as C structs and as the JSON at the file's end (format.h).
 * Everything that is read is checked here, against the file's size too, before anyone allocates or
 * seeks by it: every byte of the file belongs to the header, one chunk or the index.
 */
#ifndef CHECKPOINT_INDEX_H
#define CHECKPOINT_INDEX_H
#include "base/arena.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/format.h"
#include "checkpoint/sign.h"

typedef struct {
    uint64_t hash;                     /* of the bytes as stored */
    int64_t offset;                    /* in the file */
    uint32_t sizes[CODEC_MAX_WIDTH];   /* stored, a plane */
    unsigned char digest[SIGN_DIGEST]; /* of the bytes as stored, where the entry has digests */
} index_chunk;

typedef struct {
    checkpoint_tensor tensor;
    layout_shard piece;
    int32_t rank;
    int rotate;       /* bits, before the planes were cut: 0 or 1 */
    bool has_digests; /* for a signature */
    int64_t n_chunks;
    index_chunk *chunks;
} index_entry;

typedef struct {
    int32_t rank, world;
    size_t n_entries;
    index_entry *entries;
    const nrl_node *nodes; /* a map, or NULL */
} file_index;

int64_t index_chunk_elements(const index_entry *e); /* of all chunks but the last */
/* Of chunk i: elements, and bytes as stored. */
int64_t index_chunk_numel(const index_entry *e, int64_t i);
int64_t index_chunk_stored(const index_entry *e, int64_t i);
int64_t index_entry_bytes(const index_entry *e);  /* of the piece's elements */
int64_t index_entry_stored(const index_entry *e); /* on disk */
int64_t index_n_chunks(int64_t numel, nrl_dtype dtype);

char *index_write(const file_index *index, size_t *size); /* malloc'd */
/* `offset`: where the index begins in its file. Everything of *out lives in `a`. NRL_ERR_CORRUPT. */
nrl_status index_parse(arena *a, const char *path, const char *text, size_t size, int64_t offset, file_index *out);

/* 32 hex digits of the XXH3-128. */
void index_hash(const void *bytes, size_t size, char digits[FORMAT_HASH_DIGITS + 1]);

/* "f32 [4,8]" for messages. */
typedef struct {
    char text[160];
} tensor_text;
tensor_text tensor_describe(const checkpoint_tensor *t);

#endif
