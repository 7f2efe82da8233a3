/*
 * files.c - see files.h.
 */
#include "files.h"
#include "base/file.h"
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

size_t files_list(arena *a, const char *folder, const char *names[FILES_MAX])
{
    size_t n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (*e->d_name != '.' && n < FILES_MAX) names[n++] = arena_strdup(a, e->d_name);
    if (d) closedir(d);
    return n;
}

bool files_write(const char *path, const char *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    bool written = fwrite(bytes, 1, size, f) == size;
    return !fclose(f) && written;
}

/* Less a byte order mark of UTF-8, as file_read reads it. */
static bool files_copy_one(const char *from, const char *to, size_t max_bytes)
{
    struct stat info;
    char *bytes;
    size_t size;
    if (stat(from, &info) || !S_ISREG(info.st_mode) || (size_t)info.st_size > max_bytes) return true;
    if (file_read(from, max_bytes, &bytes, &size) != NRL_OK) return false;
    bool written = files_write(to, bytes, size);
    free(bytes);
    return written;
}

const char *files_copy(arena *a, const char *from, const char *to, size_t max_bytes)
{
    struct stat info;
    const char *names[FILES_MAX], *slash = strrchr(from, '/');
    if (stat(from, &info) || mkdir(to, 0777)) return NULL;
    if (!S_ISDIR(info.st_mode)) {
        const char *path = arena_printf(a, "%s/%s", to, slash ? slash + 1 : from);
        return files_copy_one(from, path, max_bytes) ? path : NULL;
    }
    size_t n = files_list(a, from, names);
    for (size_t i = 0; i < n; i++)
        if (!files_copy_one(arena_printf(a, "%s/%s", from, names[i]), arena_printf(a, "%s/%s", to, names[i]),
                            max_bytes))
            return NULL;
    return to;
}

int files_open_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d) closedir(d);
    return n;
}

size_t files_memory_in_use(void)
{
#ifdef __GLIBC__
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}
