/*
 * rank_file.h - writes the file of one rank: header, compressed chunks, index. Called on the writer thread, or on the
 * step thread of a synchronous writer.
 */
#ifndef CHECKPOINT_RANK_FILE_H
#define CHECKPOINT_RANK_FILE_H
#include "checkpoint/index.h"
#include "checkpoint/manifest.h"
#include "base/workers.h"
#include <stdatomic.h>

/* The scratch memory of all compression threads; kept between saves. */
typedef struct {
    workers *pool;
    int n_codecs;
    codec **codecs;
    int n_slots;             /* chunks per batch */
    unsigned char *slots[2]; /* [n_slots] CODEC_ROOM bytes each: one batch is compressed while the other is written */
} encoder;

nrl_status encoder_open(int threads, encoder *out); /* threads: at least 1, including the calling thread */
void encoder_close(encoder *e);

typedef struct {
    index_entry entry; /* rank_file_write fills the chunks */
    const unsigned char *host;
    bool in_staging; /* host is the writer's own memory */
} rank_file_entry;

typedef struct {
    const char *path;
    int64_t step;
    int32_t rank, world;
    size_t n_entries;
    rank_file_entry *entries;
    const nrl_node *nodes;
    bool has_digests;           /* the checkpoint will be signed */
    const atomic_bool *give_up; /* NULL = never */
} rank_file;

/* Writes the file and makes it durable. The chunks of the entries are allocated from `a`. */
nrl_status rank_file_write(const rank_file *f, encoder *e, arena *a, manifest_file *out);

#endif
