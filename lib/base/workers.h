/*
 * workers.h - a thread pool that runs numbered jobs together with the calling thread. One run at a time.
 */
#ifndef BASE_WORKERS_H
#define BASE_WORKERS_H
#include <nrl/status.h>

typedef struct workers workers;

/* Starts `n` threads in addition to the calling thread; n may be 0. NRL_ERR_MEMORY. */
nrl_status workers_create(int n, workers **out);
void workers_destroy(workers *w); /* NULL is allowed */

/* Runs job i. `who` is the index of the thread (0 .. n), for scratch memory. */
typedef nrl_status (*workers_job)(void *user, int who, int64_t i);
/* Runs n jobs and returns when all are done. After the first failure no further job begins; the failure is returned
 * with its text. [any, one at a time] */
nrl_status workers_run(workers *w, int64_t n, workers_job job, void *user);

#endif
