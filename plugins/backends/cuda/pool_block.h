/*
 * pool_block.h - a piece of a segment; the blocks of a segment form a list in address order.
 */
#ifndef CUDA_POOL_BLOCK_H
#define CUDA_POOL_BLOCK_H
#include "pool.h"
#include "pool_table.h"

typedef enum { CUDA_BLOCK_IDLE = 0, CUDA_BLOCK_USED, CUDA_BLOCK_WAITING } cuda_block_state;
typedef enum { CUDA_POOL_SMALL = 0, CUDA_POOL_MIDDLE, CUDA_POOL_LARGE, CUDA_POOL_KINDS } cuda_pool_kind;

struct cuda_block {
    char *memory;
    size_t bytes;
    cuda_block *before, *after;  /* neighbours in the segment, NULL at its ends */
    cuda_block *next, *previous; /* in an idle list; next also in the list of waiting blocks */
    cuda_block_state state;
    cuda_pool_kind kind;
    void *events[CUDA_MAX_STREAMS + 1]; /* while waiting */
    int n_events;
};

#endif
