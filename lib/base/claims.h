/*
 * claims.h - what may be written in an output directory. The directory has a marker file with the names of all files
 * and directories that runs created there; a later run replaces only these. An input of the run is never replaced,
 * whatever path leads to it. Called on rank 0 only, except claims_settle and claims_check_home. [main]
 */
#ifndef BASE_CLAIMS_H
#define BASE_CLAIMS_H
#include "base/inputs.h"
#include <stdbool.h>
#include <stdint.h>

#define CLAIMS_MARKER ".nrl-run"

/* What the caller knows about an entry in `out`. */
typedef struct {
    const char *name;
    const char *hint;                                  /* ends a message that it would replace an input; "" = nothing */
    bool through_links;                                /* `remove` is also called for a link */
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
    uint64_t device, inode; /* of `out`, after claims_settle; else 0 */
    bool marked;            /* a run has used the directory */
    bool changed;           /* the list has changed since it was read or written */
    bool adopted;           /* a run without a marker: every entry with a name that runs write counts as made by it */
} claims;

/* Reads the marker. NRL_ERR_CONFIG if the file of that name is not a marker. */
nrl_status claims_open(claims *c, const char *out);
void claims_close(claims *c);

/* From now on `out` must stay the same directory; `lock` is a descriptor of it, or -1. On ranks other than 0 it is the
 * first call. */
void claims_settle(claims *c, const char *out, int lock);
/* NRL_ERR_IO: the directory was removed, or another one has its name. [any] */
nrl_status claims_check_home(const claims *c);

/* Whether a run has left results: an entry that is not empty, other than `config`, the description of the run. */
bool claims_hold_results(const claims *c, const char *config);
/* Whether `path` leads to a file or directory that runs in this directory have written. */
bool claims_has_path(const claims *c, const char *path);
/* NRL_ERR_CONFIG if `name` in `out` must not be written: it is an input, or no run made it. An empty file or directory
 * may always be written. */
nrl_status claims_check(const claims *c, const char *name);
nrl_status claims_check_input(const claims *c, const char *name); /* only whether it is an input */
/* The same, and adds `name` to the list. Call claims_flush, which writes the marker, before anything is written to
 * `name`. */
nrl_status claims_take(claims *c, const char *name);
/* Adds an export elsewhere by its absolute path; needs no claims_flush. Does nothing without claims_open. */
nrl_status claims_add(claims *c, const char *path);
/* Makes the marker durable if it has changed. */
nrl_status claims_flush(claims *c);

/* Before claims_clear: checks that everything that runs made here may be removed. */
nrl_status claims_check_clear(const claims *c);
/* Removes it: files, checkpoints, an exported model. Files among them that no run made stay, and a warning names them;
 * loggers clear their own directories. */
nrl_status claims_clear(claims *c);
/* After all names were taken: warns about directories of loggers that this run does not have, which stay. */
void claims_warn_left(const claims *c);

/* Whether two paths lead to the same file or directory. */
bool claims_are_same(const char *a, const char *b);

#endif
