/*
 * claims.h - what may be written in an output directory. The directory has a marker file with the names of
 * all that runs made there; a later run replaces these, and nothing else. Nothing that the run reads is
 * replaced, by whatever path. Called on rank 0 alone, but for claims_settle and claims_check_home. [main]
 */
#ifndef BASE_CLAIMS_H
#define BASE_CLAIMS_H
#include "base/inputs.h"
#include <stdbool.h>
#include <stdint.h>

#define CLAIMS_MARKER ".nrl-run"

/* What the caller knows of an entry in `out`. */
typedef struct {
    const char *name;
    const char *hint;                                  /* ends a message that it would replace an input; "" = nothing */
    bool through_links;                                /* removed where it lies, even if it is a link */
    nrl_status (*check)(const char *out);              /* whether it may be removed; NULL: it may */
    nrl_status (*remove)(void *user, const char *out); /* removes it, if it is a directory */
} claims_known;

/* Zero-initialise; the caller fills `inputs` and the two members after it. */
typedef struct {
    char *out;
    inputs inputs;
    const claims_known *known;           /* ends with a NULL name; NULL = nothing */
    bool (*is_debris)(const char *name); /* a file that an interrupted process left; NULL: there are none */
    void *user;
    char **made; /* names in `out`, and absolute paths of models that were exported elsewhere */
    bool *taken; /* by this process */
    size_t n_made;
    uint64_t device, inode; /* of `out`, once claims_settle was called; 0 before */
    bool marked;            /* a run was here */
    bool changed;           /* the list, since it was read or written */
    bool adopted;           /* a run without a marker: whatever has a name that a run writes was made by it */
} claims;

/* Reads the marker. NRL_ERR_CONFIG where the file of that name is none. */
nrl_status claims_open(claims *c, const char *out);
void claims_close(claims *c);

/* From now on `out` must stay the folder that it is: `lock` is a descriptor of it, or -1. Other ranks than 0 have
 * called nothing before. */
void claims_settle(claims *c, const char *out, int lock);
/* Whether it is. NRL_ERR_IO: it was removed, or another folder has its name. [any] */
nrl_status claims_check_home(const claims *c);

/* Whether a run has left a result here: another entry than `config`, the description of the run, that is not empty. */
bool claims_hold_results(const claims *c, const char *config);
/* Whether `path` leads to a file or directory that runs in this directory have written. */
bool claims_has_path(const claims *c, const char *path);
/* Whether `name` in `out` may be written. NRL_ERR_CONFIG where it is an input, or where no run made it. An empty file
 * or folder is nobody's. */
nrl_status claims_check(const claims *c, const char *name);
nrl_status claims_check_input(const claims *c, const char *name); /* the former alone */
/* The same, and from now on it is made by a run. The marker says so after claims_flush, which comes before anything is
 * written into it. */
nrl_status claims_take(claims *c, const char *name);
/* An export elsewhere, by its absolute path; needs no claims_flush. Nothing without claims_open. */
nrl_status claims_add(claims *c, const char *path);
/* Makes the marker durable where it has changed. */
nrl_status claims_flush(claims *c);

/* Before claims_clear: whether all that runs made here may go. */
nrl_status claims_check_clear(const claims *c);
/* Removes it: files, checkpoints, an exported model. What lies between them and was not made by a run stays and is
 * named in a warning; folders of loggers are theirs to clear. */
nrl_status claims_clear(claims *c);
/* After all was taken: names in warnings the folders of loggers that this run has not, which stay. */
void claims_warn_left(const claims *c);

/* Whether two paths lead to the same file or directory. */
bool claims_are_same(const char *a, const char *b);

#endif
