/*
 * folder.h - creates and removes directories for tests.
 */
#ifndef SUPPORT_FOLDER_H
#define SUPPORT_FOLDER_H
#include "base/arena.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Removes the directory with all its contents; does not follow links. */
static inline void test_folder_remove(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        char *path = mem_printf("%s/%s", dir, e->d_name);
        struct stat s;
        if (!lstat(path, &s) && S_ISDIR(s.st_mode))
            test_folder_remove(path);
        else
            unlink(path);
        free(path);
    }
    if (d) closedir(d);
    rmdir(dir);
}

#endif
