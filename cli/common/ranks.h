/*
 * ranks.h - which rank of how many this process is, read from the environment that a launcher left:
 * nrl launch, torchrun, Open MPI, MPICH and its kin, Slurm; the first of these that speaks is
 * believed. Nothing is asked over the network here. [main]
 */
#ifndef CLI_COMMON_RANKS_H
#define CLI_COMMON_RANKS_H
#include "base/arena.h"
#include <nrl/run.h>

/* The value of an environment variable, NULL where it is unset or empty. */
typedef const char *(*ranks_variable)(const char *name);

/* Fills *place; strings live in `a`. One process without a launcher: world 1, origin NULL.
 * NRL_ERR_CONFIG names the variables that are missing or contradict each other. */
nrl_status ranks_read(arena *a, ranks_variable variable, nrl_rank_info *place);

/* Who started this process as one of several, for `nrl launch` to refuse; NULL: nobody. */
const char *ranks_launcher(ranks_variable variable);

bool ranks_is_loopback(const char *address); /* only this machine can mean it */

/* Processors for this rank: all that it may use, divided by the ranks that share them. A launcher
 * that gave each rank processors of its own has divided already; Slurm may grant fewer. */
int32_t ranks_threads(ranks_variable variable, const nrl_rank_info *place);

/* ---- Slurm's lists (ranks_slurm.c) ---- */

/* The first host of "node[07-09,12],gpu1": "node07"; NULL where the text is no such list. */
const char *ranks_first_host(arena *a, const char *nodelist);
/* Tasks on node number `node` of "2(x3),1"; 0 where the text does not say. */
int32_t ranks_tasks_on(const char *tasks_per_node, int64_t node);

#endif
