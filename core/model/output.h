/*
 * output.h - writing a directory of files that appears whole or not at all: a temporary directory
 * beside it, synced files, one rename. Errors name the file; a full disk also the bytes that were
 * needed.
 */
#ifndef MODEL_OUTPUT_H
#define MODEL_OUTPUT_H
#include <nrl/status.h>
#include <stdbool.h>

typedef struct {
    char *dir;       /* where the files shall be */
    char *temporary; /* where they are until output_publish */
    bool exists;     /* dir was there before */
} output;

/* Makes missing parents and the temporary directory. */
nrl_status output_open(const char *dir, output *out);

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
nrl_status output_copy(const output *o, const char *from_dir,
                       const char *name); /* absent: nothing */

/* Moves everything to its place. A directory that existed keeps its other files, except those that
 * `is_stale` names (may be NULL). */
nrl_status output_publish(output *o, bool (*is_stale)(const char *name, void *user), void *user);

/* Removes what is left of the temporary directory and frees. Call it in any case. */
void output_close(output *o);

#endif
