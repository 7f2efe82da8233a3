/*
 * file.h - a small file as one text.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H
#include <nrl/status.h>

/* Reads a whole file into malloc'd, NUL-ended text. NRL_ERR_IO where it cannot be read,
 * NRL_ERR_DATA where it holds more than max_bytes; nothing beyond that is read or allocated. */
nrl_status file_read(const char *path, size_t max_bytes, char **text, size_t *size);

#endif
