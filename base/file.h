/*
 * file.h - a small file as one text; names for files that are not complete yet.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H
#include <nrl/status.h>

/* Reads a whole file into malloc'd, NUL-ended text, less a byte order mark of UTF-8 at its beginning. NRL_ERR_IO where
 * it cannot be read, NRL_ERR_DATA where it holds more than max_bytes; nothing beyond that is read or allocated. */
nrl_status file_read(const char *path, size_t max_bytes, char **text, size_t *size);

/* Malloc'd: `path`, a dot, 16 random digits, `end`. No other process has it, on whatever host: those that
 * share a disk may have equal ids. */
char *file_temporary_name(const char *path, const char *end);

#endif
