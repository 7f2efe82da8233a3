/*
 * writer.h - the struct behind checkpoint_writer; writer.c fills it on the step thread, commit.c writes
 * it to disk on another. Between checkpoint_submit and the end of the write the save belongs to the
 * second; `lock` guards `state` alone.
 */
#ifndef CHECKPOINT_WRITER_H
#define CHECKPOINT_WRITER_H
#include "checkpoint/rank_file.h"
#include "checkpoint/staging.h"
#include <pthread.h>

typedef enum { WRITER_IDLE = 0, WRITER_FILLING, WRITER_WRITING, WRITER_WRITTEN } writer_state;

struct checkpoint_writer {
    checkpoint_writer_options o;
    checkpoint_ranks ranks; /* world 1 where there are none */
    char *parent;           /* OUT/checkpoints */
    staging memory;
    encoder encoder;
    atomic_bool give_up;
    bool parent_is_durable;
    bool has_pruned; /* once, with warnings */

    pthread_mutex_t lock;
    pthread_cond_t written;
    writer_state state;
    bool has_thread;
    pthread_t thread;

    /* the current save */
    arena save;
    int64_t serial; /* counts saves of this process, alike on all ranks */
    int64_t step;
    double metric, submitted;
    char *temporary, *final;
    rank_file_entry *entries;
    bool *in_staging; /* [n_entries] */
    size_t n_entries, capacity;
    nrl_node *nodes, *rank_nodes;

    /* how it ended */
    nrl_status status;
    char *text;
    checkpoint_outcome outcome;
};

/* The second half; a status that is set already means that this rank cannot. Fills status and text. */
void commit(checkpoint_writer *w);
double writer_seconds(void); /* monotonic */

#endif
