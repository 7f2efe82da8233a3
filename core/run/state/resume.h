/*
 * resume.h - which checkpoint a run continues from: a given directory, or the newest one of a run that can be read. All
 * ranks call these together and read the same one.
 */
#ifndef RUN_RESUME_H
#define RUN_RESUME_H
#include "checkpoint/checkpoint.h"
#include "mesh/mesh.h"

typedef struct {
    nrl_mesh *mesh;
    const char *out;                   /* of the run */
    const sign_public_key *public_key; /* that must have signed it; NULL: no signature is required */
    int threads;                       /* that read it */
    bool falls_back;                   /* to the previous checkpoint if one is damaged */
    /* Reads the state of the run. NRL_ERR_CONFIG: it belongs to another run; NRL_ERR_CORRUPT: it is damaged. */
    nrl_status (*restore)(void *user, checkpoint *c);
    void *user;
} resume_choice;

/* Reads the checkpoint at `dir`. *differ: ranks read different ones, or it belongs to another run. */
nrl_status resume_read(const resume_choice *r, const char *dir, bool *differ);
/* The same; errors begin with "resuming". */
nrl_status resume_from(const resume_choice *r, const char *dir);
/* Checks that there is a checkpoint at `dir`, for `nrl check`: reads no state and does not communicate. */
nrl_status resume_look(const resume_choice *r, const char *dir);
/* Reads the newest complete checkpoint of `out`. *dir, in `a`, is its directory; NULL: there is none, so the run is
 * new. */
nrl_status resume_newest(const resume_choice *r, arena *a, const char **dir);

#endif
