/*
 * workers.h - a few threads that do numbered jobs together with the one who asks. One run at a time.
 */
#ifndef CHECKPOINT_WORKERS_H
#define CHECKPOINT_WORKERS_H
#include <nrl/status.h>

typedef struct workers workers;

/* `n` threads beside the caller's own; 0 is fine. NRL_ERR_MEMORY. */
nrl_status workers_create(int n, workers **out);
void workers_destroy(workers *w); /* NULL is fine */

/* Job i of n; `who` (0 .. threads) tells scratch memory apart. */
typedef nrl_status (*workers_job)(void *user, int who, int64_t i);
/* Returns when all are done. After the first failure, which is returned with its text, no further job
 * begins. [any, one at a time] */
nrl_status workers_run(workers *w, int64_t n, workers_job job, void *user);

#endif
