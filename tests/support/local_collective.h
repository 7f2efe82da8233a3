/*
 * local_collective.h - a collective for tests: ranks are threads of one process.
 *
 * It implements nrl/collective.h in the simplest way: the last rank that joins an operation
 * computes it for all, under one lock. Sums are computed once, in rank order, and copied. Ranks
 * that make different calls get an error that names both calls. Ranks find each other by the key
 * "local_collective" of the store; a store serves one group.
 *
 * As a plugin it is build/tests/plugins/collectives/local.so. local_ranks.h gives each rank a mesh.
 */
#ifndef SUPPORT_LOCAL_COLLECTIVE_H
#define SUPPORT_LOCAL_COLLECTIVE_H
#include <nrl/collective.h>

extern const nrl_collective local_collective;

typedef enum {
    LOCAL_BARRIER = 0,
    LOCAL_BROADCAST,
    LOCAL_ALL_REDUCE,
    LOCAL_ALL_GATHER,
    LOCAL_REDUCE,
    LOCAL_REDUCE_SCATTER,
    LOCAL_GATHER,
    LOCAL_SCATTER,
    LOCAL_ALL_TO_ALL,
    LOCAL_SPLIT
} local_kind;

/* Computes an operation for all `size` ranks of a group from the operands of all ranks
 * (local_compute.c). NRL_ERR_PEER if the operands do not match. */
nrl_status local_compute(local_kind kind, int32_t size, const nrl_comm_args *operands);

#endif
