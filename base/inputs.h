/*
 * inputs.h - the files and folders that a process reads, told apart by device and inode: nothing is
 * written over them or removed, by whatever path they are reached.
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

/* Adds a file, or a folder with the files in it. `name` tells the user who named it ("model.path").
 * Both are copied. A path that does not exist adds nothing: whoever opens it reports that. */
void inputs_add(inputs *in, const char *name, const char *path);
void inputs_free(inputs *in);

/* Whether a file may be written or removed. NRL_ERR_CONFIG where it is an input. */
nrl_status inputs_check_file(const inputs *in, const char *path);
/* Whether a folder may be replaced or removed with all that is in it. NRL_ERR_CONFIG where it is an
 * input, holds a file that is one, or an input lies anywhere below it. */
nrl_status inputs_check_folder(const inputs *in, const char *path);

#endif
