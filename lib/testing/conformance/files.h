/*
 * files.h - files that suites write, list and copy, and what the process holds.
 */
#ifndef CONFORMANCE_FILES_H
#define CONFORMANCE_FILES_H
#include "base/arena.h"
#include <stdbool.h>

enum { FILES_MAX = 64 };

/* The names in the directory that do not begin with a dot, at most FILES_MAX; in `a`. */
size_t files_list(arena *a, const char *folder, const char *names[FILES_MAX]);
bool files_write(const char *path, const char *bytes, size_t size);
/* Creates the directory `to` and copies a file, or the files of a directory, into it; files larger
 * than max_bytes are skipped. Returns the path of the copied file or of the directory; NULL on
 * failure. */
const char *files_copy(arena *a, const char *from, const char *to, size_t max_bytes);
int files_open_descriptors(void);
size_t files_memory_in_use(void); /* bytes of the heap; 0 if the C library does not count them */

#endif
