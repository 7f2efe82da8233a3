/*
 * writer.h - struct checkpoint_writer. writer.c fills it on the step thread, and commit.c writes it to disk on another
 * thread, which owns the save from checkpoint_submit until the save is written. `lock` guards `state` only.
 */
#ifndef CHECKPOINT_WRITER_H
#define CHECKPOINT_WRITER_H
#include "checkpoint/rank_file.h"
#include "base/staging.h"
#include <pthread.h>

typedef enum { WRITER_IDLE = 0, WRITER_FILLING, WRITER_WRITING, WRITER_WRITTEN } writer_state;

struct checkpoint_writer {
    checkpoint_writer_options o;
    checkpoint_ranks ranks; /* world is 1 if the caller gave none */
    char *parent;           /* OUT/checkpoints */
    char *trial;            /* file that reserves space before the first save, or NULL */
    staging memory;
    encoder encoder;
    atomic_bool give_up;
    bool parent_is_durable;
    bool has_pruned; /* checkpoint_prune has warned once */

    pthread_mutex_t lock;
    pthread_cond_t written;
    writer_state state;
    bool has_thread;
    pthread_t thread;

    /* the current save */
    arena save;
    int64_t serial; /* number of saves in this process, equal on all ranks */
    int64_t step;
    double metric, submitted;
    char *temporary, *final;
    rank_file_entry *entries;
    size_t n_entries, capacity;
    nrl_node *nodes, *rank_nodes;
    manifest_file *files; /* rank 0: [world] */

    /* the outcome */
    nrl_status status;
    char *text;
    checkpoint_outcome outcome;
};

/* Runs the second half of a save. If w->status is an error already, this rank takes part without writing. Sets status
 * and text. */
void commit(checkpoint_writer *w);

#endif
