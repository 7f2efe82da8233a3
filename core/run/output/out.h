/*
 * out.h - folders for results, and who has them.
 */
#ifndef RUN_OUT_H
#define RUN_OUT_H
#include <nrl/status.h>
#include <stdbool.h>

/* Takes an existing folder for this process until *fd is closed; false where another process, a run, has it.
 * *fd is -1 then, and where the file system has no locks. [main] */
bool out_take(const char *path, int *fd);

bool out_is_own(const char *name); /* in `out`: what the core writes, and no logger may */

#endif
