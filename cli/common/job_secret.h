/*
 * job_secret.h - the secret by which the ranks of a job know each other, from where the user or `nrl launch`
 * left it: a file (NRL_JOB_SECRET_FILE), a variable (NRL_JOB_SECRET), or a descriptor that the launcher handed
 * down (NRL_JOB_SECRET_FD). Variables are wiped as they are read: neither `ps e`, nor a script, nor a child of
 * this process sees them afterwards, and no command line or file ever holds them. [main]
 */
#ifndef CLI_JOB_SECRET_H
#define CLI_JOB_SECRET_H
#include "base/arena.h"
#include <nrl/run.h>

typedef struct {
    size_t size; /* 0 = the user gave none */
    unsigned char bytes[NRL_SECRET_MAX];
} job_secret;

/* Once a process. NRL_ERR_CONFIG where a file can be read by others, or a secret is too short. */
nrl_status job_secret_take(job_secret *s);
void job_secret_make(job_secret *s); /* a new one */
/* A descriptor from which any number of processes can take it; closed on exec until the child decides otherwise. */
nrl_status job_secret_share(const job_secret *s, int *fd);
/* The key of the job `run_id`, in `a`; NULL where there is no secret. Wipes *s. */
const nrl_job_secret *job_secret_key(arena *a, job_secret *s, const char *run_id);

#endif
