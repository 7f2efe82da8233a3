/*
 * rank_file.h - writes what one rank holds: header, compressed chunks, index. For writer.c, on whatever
 * thread writes.
 */
#ifndef CHECKPOINT_RANK_FILE_H
#define CHECKPOINT_RANK_FILE_H
#include "checkpoint/index.h"
#include "checkpoint/manifest.h"
#include "checkpoint/workers.h"
#include <stdatomic.h>

/* Scratch memory of one thread more than `pool` has; kept from save to save. */
typedef struct {
    workers *pool;
    int n_codecs;
    codec **codecs;
    int n_slots;             /* chunks compressed at a time */
    unsigned char *slots[2]; /* [n_slots] CODEC_ROOM bytes: one half is filled while the other is written */
} encoder;

nrl_status encoder_open(int threads, encoder *out); /* threads: at least 1, the writing one included */
void encoder_close(encoder *e);

typedef struct {
    index_entry entry; /* chunks: filled here */
    const unsigned char *host;
} rank_file_entry;

typedef struct {
    const char *path;
    int64_t step;
    int32_t rank, world;
    size_t n_entries;
    rank_file_entry *entries;
    const nrl_node *nodes;
    bool has_digests;           /* for a signature */
    const atomic_bool *give_up; /* NULL = never */
} rank_file;

/* Durable when it returns NRL_OK. The entries' chunks live in `a`. */
nrl_status rank_file_write(const rank_file *f, encoder *e, arena *a, manifest_file *out);

#endif
