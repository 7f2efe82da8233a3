/*
 * programs.c - verbs that are programs, as in git: `nrl VERB` executes nrl-VERB, from
 * PREFIX/libexec/nrl or else from PATH. The program replaces this process, so terminal, signals and
 * exit code are the program's.
 */
#include "cli/verbs.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "nrl-"
enum { LONGEST_NAME = 64, MOST_PROGRAMS = 256 };

/* What may follow "nrl-": not a path, not a flag. */
static bool is_name(const char *name)
{
    return *name && *name != '-' && strlen(name) <= LONGEST_NAME && !strchr(name, '/');
}

nrl_status programs_exec(const char *name, char **argv)
{
    arena a = {0};
    if (!is_name(name)) return nrl_fail(NRL_ERR_CONFIG, "'%s' is not the name of a program", name);
    const char *bin = cli_exe_dir(&a);
    char *own = arena_printf(&a, "%s/../" NRL_LIBEXEC_SUBDIR "/" PREFIX "%s", bin ? bin : ".", name);
    argv[0] = strrchr(own, '/') + 1;
    execv(own, argv);
    int error = errno;
    const char *path = own;
    if (error == ENOENT && !cli_find_verb(name)) {
        path = argv[0];
        execvp(argv[0], argv);
        error = errno;
    }
    nrl_status st = error == ENOENT && !cli_find_verb(name)
                        ? nrl_fail(NRL_ERR_CONFIG, "cannot find the program '%s'", path)
                        : nrl_fail(NRL_ERR_IO, "cannot start '%s': %s%s", path, strerror(error),
                                   error == ENOENT ? "\nhint: some verbs are only built if their library is found; "
                                                     "serve needs libmicrohttpd; download and upload need libcurl"
                                                   : "");
    arena_free(&a);
    return st;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static size_t list_folder(arena *a, const char *folder, const char **names, size_t n)
{
    DIR *d = opendir(*folder ? folder : ".");
    for (const struct dirent *e; d && (e = readdir(d)) && n < MOST_PROGRAMS;) {
        const char *name = e->d_name + strlen(PREFIX);
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) || !is_name(name) || cli_find_verb(name)) continue;
        if (!access(arena_printf(a, "%s/%s", *folder ? folder : ".", e->d_name), X_OK))
            names[n++] = arena_strdup(a, name);
    }
    if (d) closedir(d);
    return n;
}

size_t programs_list(arena *a, const char ***names)
{
    size_t n = 0, kept = 0;
    const char *path = cli_getenv("PATH");
    *names = arena_alloc(a, MOST_PROGRAMS * sizeof **names);
    while (path) {
        const char *end = strchr(path, ':');
        n = list_folder(a, arena_strndup(a, path, end ? (size_t)(end - path) : strlen(path)), *names, n);
        path = end ? end + 1 : NULL;
    }
    qsort(*names, n, sizeof **names, compare_names);
    for (size_t i = 0; i < n; i++)
        if (!kept || strcmp((*names)[kept - 1], (*names)[i])) (*names)[kept++] = (*names)[i];
    return kept;
}
