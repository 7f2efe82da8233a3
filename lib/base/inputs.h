/*
 * inputs.h - the files and directories that a process reads, identified by device and inode. The process never
 * overwrites or removes an input, whichever path leads to it.
 */
#ifndef BASE_INPUTS_H
#define BASE_INPUTS_H
#include <nrl/status.h>
#include <stddef.h>

typedef struct inputs_entry inputs_entry;

/* Zero-initialise. One thread at a time. */
typedef struct {
    inputs_entry *list;
    size_t n, capacity;
} inputs;

/* Adds a file, or a directory with the files in it. `name` is the option that named the path ("model.path"), for error
 * messages. Both texts are copied. A path that does not exist adds nothing: the code that opens the path reports it. */
void inputs_add(inputs *in, const char *name, const char *path);
void inputs_free(inputs *in);

/* Checks that a file may be written or removed. NRL_ERR_CONFIG if the file is an input. */
nrl_status inputs_check_file(const inputs *in, const char *path);
/* Checks that a directory may be replaced or removed with everything in it. NRL_ERR_CONFIG if the directory is an
 * input, has a file that is an input, or has an input anywhere below it. */
nrl_status inputs_check_folder(const inputs *in, const char *path);

#endif
