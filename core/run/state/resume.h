/*
 * resume.h - which checkpoint a run goes on from: by its directory, or the newest of a run that can be read. All ranks
 * call these together and read the same one.
 */
#ifndef RUN_RESUME_H
#define RUN_RESUME_H
#include "checkpoint/checkpoint.h"
#include "mesh/mesh.h"

typedef struct {
    nrl_mesh *mesh;
    const char *out;                   /* of the run */
    const sign_public_key *public_key; /* that must have signed it; NULL: anybody may have written it */
    int threads;                       /* that read it */
    bool falls_back;                   /* to the one before it, where one is damaged */
    /* Reads the state of the run. NRL_ERR_CONFIG: it is of another run; NRL_ERR_CORRUPT: damaged. */
    nrl_status (*restore)(void *user, checkpoint *c);
    void *user;
} resume_choice;

/* Reads the checkpoint at `dir`. *differ: ranks read different ones, or it is of another run. */
nrl_status resume_read(const resume_choice *r, const char *dir, bool *differ);
/* The same with an error that says what it was for. */
nrl_status resume_from(const resume_choice *r, const char *dir);
/* Whether there is a checkpoint at `dir`, for a check of the config: it reads no state and asks no other rank. */
nrl_status resume_look(const resume_choice *r, const char *dir);
/* Reads the newest complete one of `out`; *dir, in `a`: which; NULL: there is none, the run is a fresh one. */
nrl_status resume_newest(const resume_choice *r, arena *a, const char **dir);

#endif
