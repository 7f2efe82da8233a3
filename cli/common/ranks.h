/*
 * ranks.h - this process's rank and the number of ranks, from the environment that a launcher set: nrl
 * launch, torchrun, Open MPI, MPICH and derivatives, Slurm; the first that is found is used. Reads
 * nothing from the network. [main]
 */
#ifndef CLI_COMMON_RANKS_H
#define CLI_COMMON_RANKS_H
#include "base/arena.h"
#include <nrl/run.h>

/* The value of an environment variable; NULL if it is unset or empty. */
typedef const char *(*ranks_variable)(const char *name);

/* Fills *place; `a` owns the strings. One process without a launcher: world 1, origin NULL. NRL_ERR_CONFIG
 * names the variables that are missing or contradict each other. */
nrl_status ranks_read(arena *a, ranks_variable variable, nrl_rank_info *place);

/* The launcher that started this process as one of several, so that `nrl launch` can refuse; NULL: none. */
const char *ranks_launcher(ranks_variable variable);

bool ranks_is_loopback(const char *address); /* an address that only this machine can use */

/* Processors for this rank: all that it may use, divided by the ranks that share them. If a launcher bound
 * each rank to its own processors, they are already divided; Slurm may grant fewer. */
int32_t ranks_threads(ranks_variable variable, const nrl_rank_info *place);

/* ---- Slurm's lists (ranks_slurm.c) ---- */

/* The first host of "node[07-09,12],gpu1": "node07"; NULL if the text is not such a list. */
const char *ranks_first_host(arena *a, const char *nodelist);
/* Tasks on node number `node` of "2(x3),1"; 0 if the text does not contain it. */
int32_t ranks_tasks_on(const char *tasks_per_node, int64_t node);

#endif
