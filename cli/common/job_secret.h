/*
 * job_secret.h - the secret that the ranks of a job share. It comes from the user or from `nrl
 * launch`: a file (NRL_JOB_SECRET_FILE), a variable (NRL_JOB_SECRET), or an inherited descriptor
 * (NRL_JOB_SECRET_FD). Variables are wiped when they are read: neither `ps e`, nor a script, nor a
 * child of this process sees them afterwards, and no command line or file ever contains them. [main]
 */
#ifndef CLI_JOB_SECRET_H
#define CLI_JOB_SECRET_H
#include "base/arena.h"
#include <nrl/run.h>

typedef struct {
    size_t size; /* 0 = the user set none */
    unsigned char bytes[NRL_SECRET_MAX];
} job_secret;

/* Called once per process. NRL_ERR_CONFIG if others can read the file, or the secret is too short. */
nrl_status job_secret_take(job_secret *s);
void job_secret_make(job_secret *s); /* creates a new one */
/* A descriptor from which any number of processes can read the secret; closed on exec unless the child changes that. */
nrl_status job_secret_share(const job_secret *s, int *fd);
/* The key of the job `run_id`, in `a`; NULL if there is no secret. Wipes *s. */
const nrl_job_secret *job_secret_key(arena *a, job_secret *s, const char *run_id);

#endif
