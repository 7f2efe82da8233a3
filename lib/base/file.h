/*
 * file.h - reading a small file into one text, names for files that are not complete yet, and temporary files.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H
#include <nrl/status.h>
#include <stdio.h>

/* Reads a whole file into malloc'd, NUL-terminated text and drops a leading UTF-8 byte order mark. Returns NRL_ERR_IO
 * if the file cannot be read, NRL_ERR_DATA if it has more than max_bytes, NRL_ERR_MEMORY. */
nrl_status file_read(const char *path, size_t max_bytes, char **text, size_t *size);

/* Returns `path`, a dot, 16 random digits and `end`, malloc'd. The name is unique across hosts: processes that share a
 * disk may have equal process ids, so the digits are random. */
char *file_temporary_name(const char *path, const char *end);

/* The directory of temporary files: $TMPDIR, or /tmp. */
const char *file_temporary_folder(void);

/* Opens a new file there for reading and writing, which has no name and disappears when it is closed. NULL: errno. */
FILE *file_open_temporary(void);

#endif
