/*
 * output.h - writing a directory of files that appears whole or not at all: a temporary directory
 * beside it, synced files, one exchange of names. Errors name the file; a full disk also the bytes that were
 * needed.
 */
#ifndef BASE_OUTPUT_H
#define BASE_OUTPUT_H
#include "base/inputs.h"
#include <nrl/status.h>
#include <stdbool.h>

typedef struct {
    char *given;     /* the directory as the caller named it, for messages */
    char *dir;       /* where the files shall be: of a link, where it is_rank0 */
    char *temporary; /* where they are until output_publish */
    bool exists;     /* dir was there before */
} output;

/* Makes missing parents and the temporary directory. NRL_ERR_CONFIG where `dir` is no directory, or
 * one of the inputs (may be NULL) or the home of one. */
nrl_status output_open(const char *dir, const inputs *read, output *out);

/* Before anything is written: NRL_ERR_CONFIG where the directory holds a file that `is_ours` names. */
nrl_status output_refuse(const output *o, bool (*is_ours)(const char *name));

/* One file in the temporary directory. */
typedef struct {
    int fd;
    char *path;       /* as written now */
    const char *name; /* borrowed */
    uint64_t needed;  /* bytes the whole file will have, for the message of a full disk */
} output_file;
nrl_status output_file_open(const output *o, const char *name, uint64_t needed, output_file *out);
nrl_status output_file_write(output_file *f, const void *bytes, size_t size);
/* Syncs (when st is NRL_OK) and closes; returns st or what went wrong here. */
nrl_status output_file_close(output_file *f, nrl_status st);

nrl_status output_text(const output *o, const char *name, const char *text);
nrl_status output_copy(const output *o, const char *from_dir, const char *name); /* absent: nothing */

/* Gives the temporary directory the name, in exchange for the one that had it: at any moment one of the
 * two is there, whole. What else was in that one moves along, except files that `is_stale` names (may be
 * NULL). Without `overwrite` a file that would be replaced or is stale is NRL_ERR_CONFIG. */
nrl_status output_publish(output *o, bool overwrite, bool (*is_stale)(const char *name));

/* Removes the files of a directory that `is_ours` names or that are in `also` (NULL-ended; NULL = none), and the
 * directory where nothing else is in it; what is left is named in a warning. A missing directory is fine. */
nrl_status output_remove(const char *dir, bool (*is_ours)(const char *name), const char *const *also);

/* Removes what is left of the temporary directory and frees. Call it in any case. */
void output_close(output *o);

#endif
