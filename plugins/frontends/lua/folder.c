/*
 * folder.c - mkdir -p of the folders above a file.
 */
#include "folder.h"
#include "base/arena.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

nrl_status folder_make_parents(const char *path)
{
    char *name = mem_strdup(path);
    nrl_status st = NRL_OK;
    for (char *slash = strchr(name + (*name != 0), '/'); slash && st == NRL_OK; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(name, 0777) && errno != EEXIST)
            st = nrl_fail(NRL_ERR_IO, "cannot create directory %s: %s", name, strerror(errno));
        *slash = '/';
    }
    free(name);
    return st;
}
