/*
 * state_io.h - the two sides of nrl_action_*: values into a map of a checkpoint, and back out of it.
 * Tensors need the writer or the opened checkpoint beside the map.
 */
#ifndef CHECKPOINT_STATE_IO_H
#define CHECKPOINT_STATE_IO_H
#include "checkpoint/checkpoint.h"
#include <nrl/algorithm.h>

/* Either `into` or `from` is set. */
struct nrl_state_io {
    arena *a;             /* of `into` */
    nrl_node *into;       /* a map: values are saved */
    const nrl_node *from; /* a map: values are restored */
    bool optional;        /* `from` is absent where the state was made on another number of ranks: then
                             nothing is restored and nothing is an error */

    /* for tensors of this rank; without both none is saved, none found */
    checkpoint_writer *writer; /* while saving */
    checkpoint *saved;         /* while restoring */
    int32_t rank, world;
    const char *owner; /* in front of their names: "parallel" */
};

/* A saved number, NaN and infinities among them; false where the node is none. */
bool visitor_read_f64(const nrl_node *node, double *value);

#endif
