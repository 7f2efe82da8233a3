/*
 * state_io.h - the state serializer behind nrl_state_io_*: saves values into a map of a checkpoint or restores them
 * from it. Tensors need the writer or the open checkpoint in addition.
 */
#ifndef RUN_STATE_IO_H
#define RUN_STATE_IO_H
#include "checkpoint/checkpoint.h"
#include <nrl/algorithm.h>

/* Either `into` or `from` is set, unless `optional`. */
struct nrl_state_io {
    arena *a;             /* of `into` */
    nrl_node *into;       /* a map: values are saved */
    const nrl_node *from; /* a map: values are restored */
    bool optional;        /* `from` may be NULL, because the checkpoint was saved by another number of ranks: then
                             nothing is restored, without an error */
    bool may_lack;        /* single values may be missing from `from`, because the checkpoint was saved with other
                             settings: they stay as they are, with a warning */

    /* For tensors of this rank, and for long lists of numbers that are the same on all ranks. If both are NULL, no
     * tensor is saved or found, and lists of any length are in the map. */
    checkpoint_writer *writer; /* while saving */
    checkpoint *saved;         /* while restoring */
    bool same_on_all_ranks;
    int32_t rank, world;
    const char *owner; /* prefix of the tensors' names, such as "parallel" */
};

#endif
