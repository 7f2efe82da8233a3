/*
 * index.h - the contents of a rank's file, as C structs and as the JSON at the end of the file (format.h). The parser
 * checks every value, also against the size of the file, before anything is allocated or read by it: each byte of the
 * file belongs to the header, to exactly one chunk, or to the index.
 */
#ifndef CHECKPOINT_INDEX_H
#define CHECKPOINT_INDEX_H
#include "base/arena.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/format.h"
#include "base/sign.h"

typedef struct {
    uint64_t hash;                     /* of the stored bytes */
    int64_t offset;                    /* in the file */
    uint32_t sizes[CODEC_MAX_WIDTH];   /* stored bytes of each plane */
    unsigned char digest[SIGN_DIGEST]; /* of the stored bytes, if the entry has digests */
} index_chunk;

typedef struct {
    checkpoint_tensor tensor;
    layout_shard piece;
    int32_t rank;
    int rotate;       /* left rotation in bits before the split into planes: 0 or 1 */
    bool has_digests; /* the checkpoint is signed */
    int64_t n_chunks;
    index_chunk *chunks;
} index_entry;

typedef struct {
    int32_t rank, world;
    size_t n_entries;
    index_entry *entries;
    const nrl_node *nodes; /* a map, or NULL */
} file_index;

int64_t index_chunk_elements(const index_entry *e);          /* elements of each chunk except the last */
int64_t index_chunk_numel(const index_entry *e, int64_t i);  /* elements of chunk i */
int64_t index_chunk_stored(const index_entry *e, int64_t i); /* stored bytes of chunk i */
int64_t index_entry_bytes(const index_entry *e);             /* uncompressed */
int64_t index_entry_stored(const index_entry *e);            /* on disk */
int64_t index_n_chunks(int64_t numel, nrl_dtype dtype);

char *index_write(const file_index *index, size_t *size); /* malloc'd; NULL: NRL_ERR_MEMORY */
/* `offset` is where the index begins in the file. *out is allocated from `a`. NRL_ERR_CORRUPT, NRL_ERR_MEMORY. */
nrl_status index_parse(arena *a, const char *path, const char *text, size_t size, int64_t offset, file_index *out);

/* Writes the XXH3-128 as 32 hex digits. */
void index_hash(const void *bytes, size_t size, char digits[FORMAT_HASH_DIGITS + 1]);

/* The dtype and shape, such as "f32 [4,8]", for messages. */
typedef struct {
    char text[160];
} tensor_text;
tensor_text tensor_describe(const checkpoint_tensor *t);

#endif
