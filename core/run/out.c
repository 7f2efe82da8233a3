/*
 * out.c - the output directory of a run: made and proved writable before anything long begins; one
 * that holds a run is refused unless that run is continued or replaced.
 */
#include "run/internal.h"
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* mkdir -p */
static nrl_status make_folders(const char *path)
{
    char buffer[4096];
    size_t n = strlen(path);
    if (n >= sizeof buffer) return nrl_fail(NRL_ERR_CONFIG, "out: '%s' is too long", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i]) continue;
        memcpy(buffer, path, i);
        buffer[i] = 0;
        if (mkdir(buffer, 0777) && errno != EEXIST)
            return nrl_fail(errno == ENOSPC ? NRL_ERR_FULL : NRL_ERR_CONFIG,
                            "out: cannot make the folder '%s': %s", buffer, strerror(errno));
    }
    return NRL_OK;
}

/* A file is written and removed: a read-only or full place shows now, not after the first epoch. */
static nrl_status prove_writable(const char *out)
{
    char name[4200];
    snprintf(name, sizeof name, "%s/.write-test-%ld", out, (long)getpid());
    FILE *f = fopen(name, "w");
    bool bad = !f || fputs("nrl\n", f) < 0;
    int error = errno;
    if (f && fclose(f)) {
        bad = true;
        error = errno;
    }
    unlink(name);
    if (bad)
        return nrl_fail(error == ENOSPC || error == EDQUOT ? NRL_ERR_FULL : NRL_ERR_CONFIG,
                        "out: cannot write into '%s': %s", out, strerror(error));
    return NRL_OK;
}

/* What `nrl check` can tell without making anything: the nearest folder there is can be written. */
static nrl_status may_make(const char *out)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s", out) >= (int)sizeof path)
        return nrl_fail(NRL_ERR_CONFIG, "out: '%s' is too long", out);
    while (access(path, F_OK)) {
        char *slash = strrchr(path, '/');
        if (!slash) strcpy(path, ".");
        else if (slash == path) path[1] = 0;
        else *slash = 0;
    }
    if (!access(path, W_OK | X_OK)) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "out: cannot write into '%s': %s", path, strerror(errno));
}

static bool holds(const char *out, const char *name)
{
    char path[4200];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s", out, name);
    return stat(path, &s) == 0;
}

static int remove_entry(const char *path, const struct stat *s, int type, struct FTW *at)
{
    (void)s;
    (void)type;
    (void)at;
    return remove(path);
}

/* overwrite: what an earlier run left, by the names a run writes; nothing else in the folder. */
static nrl_status remove_run(const char *out)
{
    static const char *const names[] = {"checkpoints", "metrics.jsonl", "config.yaml"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/%s", out, names[i]);
        if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
            return nrl_fail(NRL_ERR_IO, "cannot remove '%s': %s", path, strerror(errno));
    }
    return NRL_OK;
}

nrl_status out_prepare(run *r)
{
    const char *out = r->config.out;
    bool used = holds(out, "metrics.jsonl") || holds(out, "checkpoints") || holds(out, "config.yaml");
    if (used && !r->config.overwrite && !strcmp(r->config.resume, "never"))
        return nrl_fail(NRL_ERR_CONFIG,
                        "out: '%s' already holds a run\nhint: resume=auto continues it, overwrite=true "
                        "replaces it, another out keeps both",
                        out);
    if (r->env.check_only) return may_make(out);
    NRL_TRY(make_folders(out));
    NRL_TRY(prove_writable(out));
    bool replace = r->config.overwrite && !strcmp(r->config.resume, "never");
    return used && replace ? remove_run(out) : NRL_OK;
}
