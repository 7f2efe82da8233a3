/*
 * out.c - the output directory of a run: made and proved writable before anything long begins; one
 * that holds a run is refused unless that run is continued or replaced.
 */
#include "run/out.h"
#include "checkpoint/disk.h"
#include "run/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder whose name is not durable loses all that is in it with the power. One that may not be read
 * cannot be synced. */
static void sync_parent(const char *path)
{
    char parent[4096];
    const char *slash = strrchr(path, '/');
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    disk_sync_folder(parent);
}

nrl_status out_make(const char *path)
{
    char buffer[4096];
    size_t n = strlen(path);
    if (n >= sizeof buffer) return nrl_fail(NRL_ERR_CONFIG, "out: '%s' is too long", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i]) continue;
        memcpy(buffer, path, i);
        buffer[i] = 0;
        bool made = mkdir(buffer, 0777) == 0;
        if (made) sync_parent(buffer);
        else if (errno != EEXIST)
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

/* The folder itself is locked, by the process: nothing is left behind however it ends. */
bool out_take(const char *path, int *fd)
{
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0 || !flock(*fd, LOCK_EX | LOCK_NB)) return true;
    bool is_held = errno == EWOULDBLOCK;
    close(*fd);
    *fd = -1;
    return !is_held;
}

/* Two runs at once would write each other's checkpoints. */
static nrl_status lock(run *r)
{
    if (out_take(r->config.out, &r->out_lock)) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "out: another run is under way in '%s'\nhint: wait for its end, or choose another out",
                    r->config.out);
}

void out_unlock(run *r)
{
    if (r->out_lock >= 0) close(r->out_lock);
    r->out_lock = -1;
}

/* What `nrl check` can tell without making anything: the nearest folder there is can be written. */
static nrl_status may_make(const char *key, const char *folder)
{
    char path[4096];
    struct stat s;
    bool too_long = snprintf(path, sizeof path, "%s", folder) >= (int)sizeof path;
    while (!too_long && stat(path, &s)) {
        char *slash = strrchr(path, '/');
        too_long = errno == ENAMETOOLONG;
        if (!slash)
            strcpy(path, ".");
        else if (slash == path)
            path[1] = 0;
        else
            *slash = 0;
    }
    if (too_long) return nrl_fail(NRL_ERR_CONFIG, "%s: '%s' is too long", key, folder);
    int error = !S_ISDIR(s.st_mode) ? ENOTDIR : access(path, W_OK | X_OK) ? errno : 0;
    if (!error) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s: cannot write into '%s': %s", key, path, strerror(error));
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

/* Refused unless the earlier run is continued or replaced. */
static nrl_status check_used(const run *r)
{
    const char *out = r->config.out;
    bool used = holds(out, "metrics.jsonl") || holds(out, "checkpoints") || holds(out, "config.yaml");
    if (!used || r->config.overwrite || strcmp(r->config.resume, "never")) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "out: '%s' already holds a run\nhint: resume=auto continues it, overwrite=true "
                    "replaces it, another out keeps both",
                    out);
}

nrl_status out_prepare(run *r)
{
    const char *out = r->config.out, *cache = r->config.data.cache;
    if (r->env.no_output || !run_leads(r)) return NRL_OK;
    if (r->env.check_only) {
        NRL_TRY(check_used(r));
        NRL_TRY(may_make("out", out));
        return *cache ? may_make("data.cache", cache) : NRL_OK;
    }
    NRL_TRY(out_make(out));
    NRL_TRY(lock(r));
    NRL_TRY(check_used(r));
    return prove_writable(out);
}

nrl_status out_clear(run *r)
{
    bool replace = r->config.overwrite && !strcmp(r->config.resume, "never");
    return replace ? remove_run(r->config.out) : NRL_OK;
}
