/*
 * out.c - the output directory of a run: made and proved writable before anything long begins; one
 * that holds a run is refused unless that run is continued or replaced, and so is one where a run would
 * write over what it reads or what no run made.
 */
#include "run/output/out.h"
#include "checkpoint/disk.h"
#include "run/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
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
        if (made)
            sync_parent(buffer);
        else if (errno != EEXIST)
            return nrl_fail(errno == ENOSPC ? NRL_ERR_FULL : NRL_ERR_CONFIG, "out: cannot make the folder '%s': %s",
                            buffer, strerror(errno));
    }
    return NRL_OK;
}

/* A file is written and removed: a read-only or full place shows now, not after the first epoch. */
static nrl_status prove_writable(const char *out)
{
    char name[4200];
    snprintf(name, sizeof name, "%s/.write-test-%ld", out, (long)getpid());
    FILE *f = fopen(name, "wex");
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
    return nrl_fail(NRL_ERR_CONFIG,
                    "out: another run is under way in '%s'\nhint: wait for its end, or choose another out",
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

/* ---- what a run reads ---- */

static void add_source(run *r, const char *name, const nrl_node *sources)
{
    for (size_t i = 0; i < nrl_node_size(sources); i++) {
        const char *path = nrl_node_string(nrl_node_find(nrl_node_at(sources, i), "path"), NULL);
        if (path) inputs_add(&r->claims.inputs, name, path);
    }
}

/* Whether resume names a checkpoint of another folder. */
static bool resumes_elsewhere(const run *r)
{
    struct stat home, out;
    const char *from = r->config.resume;
    if (!strcmp(from, "never") || !strcmp(from, "auto")) return false;
    char *parent = mem_printf("%s/../..", from);
    bool is_here =
        !stat(parent, &home) && !stat(r->config.out, &out) && home.st_dev == out.st_dev && home.st_ino == out.st_ino;
    free(parent);
    return !is_here;
}

static void add_inputs(run *r)
{
    inputs *in = &r->claims.inputs;
    const char *own = r->reference_options.reference_model;
    const nrl_node *config;
    model_origin other = {.formats = &r->formats};
    origin_add_inputs(&r->origin, "model.path", in);
    if (r->tokenizer_dir) inputs_add(in, "the tokenizer of model.path", r->tokenizer_dir);
    if (*r->config.model.config) inputs_add(in, "model.config", r->config.model.config);
    if (r->config.model.tokenizer_from.source) inputs_add(in, "model.tokenizer", r->config.model.tokenizer_from.source);
    if (own && *own && origin_find(own, &r->model_memory, &other, &config) == NRL_OK)
        origin_add_inputs(&other, "algorithm.reference_model", in);
    add_source(r, "data.train", r->config.data.train);
    add_source(r, "data.eval", r->config.data.eval);
    const char *template = r->config.data.template_from.source;
    if (template && strpbrk(template, "/.")) inputs_add(in, "data.template", template);
    if (r->env.script) inputs_add(in, "the script", r->env.script);
    if (*r->config.checkpoint.sign) inputs_add(in, "checkpoint.sign", r->config.checkpoint.sign);
    if (*r->config.checkpoint.public_key) inputs_add(in, "checkpoint.public_key", r->config.checkpoint.public_key);
    if (resumes_elsewhere(r)) inputs_add(in, "resume", r->config.resume);
}

/* ---- what a run writes ---- */

static bool replaces(const run *r)
{
    return r->config.overwrite && (!strcmp(r->config.resume, "never") || resumes_elsewhere(r));
}

/* A run of a version without markers, or one that was copied without its hidden files: its checkpoints and the first
 * line of its config.yaml tell. */
static bool is_run_without_marker(const run *r)
{
    char *dir = NULL, line[8] = "";
    if (r->claims.marked || !strcmp(r->config.resume, "never") || resumes_elsewhere(r)) return false;
    char *path = mem_printf("%s/config.yaml", r->config.out);
    FILE *f = fopen(path, "re");
    bool is = f ? fgets(line, sizeof line, f) && !strncmp(line, "# nrl ", 6) : errno == ENOENT;
    if (f) fclose(f);
    free(path);
    is = is && checkpoint_find_newest(r->config.out, &dir) == NRL_OK && dir;
    free(dir);
    return is;
}

static bool holds_run(const run *r)
{
    struct stat s;
    bool holds = false;
    for (size_t i = 0; i < r->claims.n_made && !holds; i++) {
        char *path = mem_printf("%s/%s", r->config.out, r->claims.made[i]);
        holds = *r->claims.made[i] != '/' && !lstat(path, &s);
        free(path);
    }
    return holds;
}

/* Refused unless the earlier run is continued or replaced. */
static nrl_status check_used(const run *r)
{
    const char *out = r->config.out;
    if (!holds_run(r) || r->config.overwrite) return NRL_OK;
    if (resumes_elsewhere(r))
        return nrl_fail(NRL_ERR_CONFIG,
                        "out: '%s' already holds a run, and resume names a checkpoint of another one\nhint: "
                        "overwrite=true replaces it, another out keeps both",
                        out);
    if (strcmp(r->config.resume, "never")) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "out: '%s' already holds a run\nhint: resume=auto continues it, overwrite=true "
                    "replaces it, another out keeps both",
                    out);
}

enum { N_OWN = 3 };
static const char *const own_names[N_OWN] = {"config.yaml", "checkpoints", "model"};

/* The last one is written where the config wants an export. */
static size_t n_own(const run *r)
{
    return r->config.checkpoint.export ? N_OWN : N_OWN - 1;
}

bool out_is_own(const char *name)
{
    for (size_t i = 0; i < N_OWN; i++)
        if (!strcmp(own_names[i], name)) return true;
    return !strcmp(name, "cache") || !strcmp(name, CLAIMS_MARKER);
}

/* What a logger will open is known when it asks for it. To replace a run all else must be right before: of what its
 * options name in `out`, whatever they mean, nothing may be in the way. */
static nrl_status check_loggers(const run *r)
{
    for (size_t i = 0; i < r->config.n_loggers; i++) {
        const nrl_node *options = r->config.loggers[i].resolved;
        for (size_t k = 0; k < nrl_node_size(options); k++) {
            const char *name = nrl_node_string(nrl_node_at(options, k), "");
            bool is_name =
                *name && !strchr(name, '/') && strlen(name) <= NAME_MAX && strcmp(name, ".") && strcmp(name, "..");
            if (!is_name) continue;
            NRL_TRY(replaces(r) ? claims_check(&r->claims, name) : claims_check_input(&r->claims, name));
        }
    }
    return NRL_OK;
}

static nrl_status check_claims(run *r)
{
    NRL_TRY(claims_open(&r->claims, r->config.out));
    claims_settle(&r->claims, r->config.out, r->out_lock);
    r->claims.adopted = is_run_without_marker(r);
    add_inputs(r);
    NRL_TRY(check_used(r));
    for (size_t i = 0; i < n_own(r); i++)
        NRL_TRY(claims_check(&r->claims, own_names[i]));
    NRL_TRY(check_loggers(r));
    return replaces(r) ? claims_check_clear(&r->claims) : NRL_OK;
}

nrl_status out_prepare(run *r)
{
    const char *out = r->config.out, *cache = r->config.data.cache;
    if (r->env.no_output || !run_is_rank0(r)) return NRL_OK;
    if (r->env.check_only) {
        NRL_TRY(check_claims(r));
        NRL_TRY(may_make("out", out));
        return *cache ? may_make("data.cache", cache) : NRL_OK;
    }
    NRL_TRY(out_make(out));
    NRL_TRY(lock(r));
    NRL_TRY(check_claims(r));
    return prove_writable(out);
}

nrl_status out_mark(run *r)
{
    if (replaces(r)) claims_tell_left(&r->claims);
    return claims_flush(&r->claims);
}

nrl_status out_claim(run *r)
{
    if (replaces(r)) NRL_TRY(claims_clear(&r->claims));
    for (size_t i = 0; i < n_own(r); i++)
        NRL_TRY(claims_take(&r->claims, own_names[i]));
    return NRL_OK;
}
