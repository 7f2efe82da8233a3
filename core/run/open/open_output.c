/*
 * open_output.c - the output directory of a run: creates it and proves that it can be written before anything long
 * begins. Refuses a directory with a run, unless that run is continued or replaced, and a directory where the run would
 * overwrite its inputs or files that no run wrote.
 */
#include "run/output/out.h"
#include "base/disk.h"
#include "base/paths.h"
#include "base/yaml.h"
#include "model/save.h"
#include "run/open/session.h"
#include "config/config.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void out_unlock(session *se)
{
    if (se->out_lock >= 0) close(se->out_lock);
    se->out_lock = -1;
}

/* Checks what `nrl check` can know without creating anything: whether the nearest existing folder can be written. */
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
    return nrl_fail(NRL_ERR_CONFIG, "%s: cannot write to '%s': %s", key, path, strerror(error));
}

/* ---- what a run reads ---- */

/* Refuses a directory in which files of this run would become data of the next one. */
static nrl_status check_apart(const char *key, const char *name, const char *path, const char *absolute_out)
{
    struct stat st;
    char *folder = !stat(path, &st) && S_ISDIR(st.st_mode) ? realpath(path, NULL) : NULL;
    char *home = realpath(absolute_out, NULL);
    const char *out = home ? home : absolute_out;
    const size_t n = folder ? strlen(folder) : 0;
    nrl_status status = NRL_OK;
    if (n && !strncmp(out, folder, n) && (out[n] == '/' || !out[n]))
        status = nrl_fail(NRL_ERR_CONFIG,
                          "%s: '%s' is inside '%s', which %s reads as a whole\n"
                          "hint: choose another %s, or select the files with a pattern",
                          key, out, path, name, key);
    free(folder);
    free(home);
    return status;
}

static nrl_status add_source(session *se, const char *name, const nrl_node *sources)
{
    for (size_t i = 0; i < nrl_node_size(sources); i++) {
        const char *path = nrl_node_string(nrl_node_find(nrl_node_at(sources, i), "path"), NULL);
        paths files = {0};
        const char *cache = se->config.data.cache;
        if (path) NRL_TRY(check_apart("out", name, path, paths_absolute(&se->memory, se->config.out)));
        if (path && *cache) NRL_TRY(check_apart("data.cache", name, path, paths_absolute(&se->memory, cache)));
        if (path && paths_expand(path, &files) == NRL_OK)
            for (size_t k = 0; k < files.n; k++)
                inputs_add(&se->claims.inputs, name, files.items[k]);
        paths_free(&files);
    }
    return NRL_OK;
}

/* Whether resume names a checkpoint of another folder. */
static bool resumes_elsewhere(const session *se)
{
    struct stat home, out;
    const char *from = se->config.resume;
    if (!strcmp(from, "never") || !strcmp(from, "auto")) return false;
    char *parent = mem_printf("%s/../..", from);
    bool is_here =
        !stat(parent, &home) && !stat(se->config.out, &out) && home.st_dev == out.st_dev && home.st_ino == out.st_ino;
    free(parent);
    return !is_here;
}

/* ---- what a run writes ---- */

enum { N_OWN = 3 };
static const char *const own_names[N_OWN] = {"config.yaml", "checkpoints", "model"};

static bool replaces(const session *se)
{
    return se->config.overwrite && (!strcmp(se->config.resume, "never") || resumes_elsewhere(se));
}

/* Recognizes a run of a version without markers, or one that was copied without its hidden files, by its checkpoints
 * and the first line of its config.yaml. */
static bool is_run_without_marker(const session *se)
{
    char *dir = NULL, line[8] = "";
    if (se->claims.marked || !strcmp(se->config.resume, "never") || resumes_elsewhere(se)) return false;
    char *path = mem_printf("%s/config.yaml", se->config.out);
    FILE *f = fopen(path, "re");
    bool is = f ? fgets(line, sizeof line, f) && !strncmp(line, "# nrl ", 6) : errno == ENOENT;
    if (f) fclose(f);
    free(path);
    is = is && checkpoint_find_newest(se->config.out, &dir) == NRL_OK && dir;
    free(dir);
    return is;
}

/* Refuses the directory unless the earlier run is continued or replaced. A run that failed before its first step is
 * replaced without a message. */
static nrl_status check_used(const session *se)
{
    const char *out = se->config.out;
    if (se->config.overwrite || !claims_hold_results(&se->claims, own_names[0])) return NRL_OK;
    if (resumes_elsewhere(se))
        return nrl_fail(NRL_ERR_CONFIG,
                        "out: '%s' already contains a run, and resume names a checkpoint of another run\n"
                        "hint: overwrite=true replaces it, another out keeps both",
                        out);
    if (strcmp(se->config.resume, "never")) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "out: '%s' already contains a run\n"
                    "hint: resume=auto continues it, overwrite=true replaces it, another out keeps both",
                    out);
}

/* The last name is only written if the config requests an export. */
static size_t n_own(const session *se)
{
    return se->config.checkpoint.export ? N_OWN : N_OWN - 1;
}

bool out_is_own(const char *name)
{
    for (size_t i = 0; i < N_OWN; i++)
        if (!strcmp(own_names[i], name)) return true;
    return !strcmp(name, "cache") || !strcmp(name, CLAIMS_MARKER);
}

static nrl_status clear_checkpoints(void *user, const char *out)
{
    (void)user;
    return checkpoint_clear(out);
}

static nrl_status remove_model(void *formats, const char *out)
{
    char *path = mem_printf("%s/model", out);
    nrl_status st = model_remove(formats, path);
    free(path);
    return st;
}

/* The files and models that options of the algorithm name, such as its rewards. */
static void add_algorithm_inputs(session *se)
{
    for (uint32_t i = 0; i < se->algorithm->plugin.n_options; i++) {
        const char *path = session_algorithm_path(se, i);
        const nrl_node *config;
        model_origin origin = {.formats = &se->formats};
        if (!path) continue;
        const char *name = arena_printf(&se->memory, "algorithm.%s", se->algorithm->plugin.options[i].name);
        if (origin_find(path, &se->model_memory, &origin, &config) == NRL_OK)
            origin_add_inputs(&origin, name, &se->claims.inputs);
        else
            inputs_add(&se->claims.inputs, name, path);
    }
}

static nrl_status check_claims(session *se)
{
    static const claims_known known[] = {{"checkpoints", "", true, checkpoint_check_clear, clear_checkpoints},
                                         {"model", ", or checkpoint.export=none", false, NULL, remove_model},
                                         {0}};
    se->claims.known = known;
    se->claims.is_debris = checkpoint_is_trial;
    se->claims.user = &se->formats;
    NRL_TRY(claims_open(&se->claims, se->config.out));
    claims_settle(&se->claims, se->config.out, se->out_lock);
    se->claims.adopted = is_run_without_marker(se);
    inputs *in = &se->claims.inputs;
    const char *own = se->reference_options.reference_model;
    const nrl_node *config;
    model_origin other = {.formats = &se->formats};
    origin_add_inputs(&se->origin, "model.path", in);
    if (se->tokenizer_dir) inputs_add(in, "the tokenizer of model.path", se->tokenizer_dir);
    if (*se->config.model.config) inputs_add(in, "model.config", se->config.model.config);
    if (se->config.model.tokenizer_from.source)
        inputs_add(in, "model.tokenizer", se->config.model.tokenizer_from.source);
    if (own && *own && origin_find(own, &se->model_memory, &other, &config) == NRL_OK)
        origin_add_inputs(&other, reference_key(se->algorithm), in);
    add_algorithm_inputs(se);
    NRL_TRY(add_source(se, "data.train", se->config.data.train));
    for (size_t i = 0; i < se->config.data.n_evals; i++)
        NRL_TRY(add_source(se, "data.eval", se->config.data.evals[i].sources));
    const char *template = se->config.data.template_from.source;
    if (template && strpbrk(template, "/.")) inputs_add(in, "data.template", template);
    if (se->env.script) inputs_add(in, "the script", se->env.script);
    if (*se->config.checkpoint.sign) inputs_add(in, "checkpoint.sign", se->config.checkpoint.sign);
    if (*se->config.checkpoint.public_key) inputs_add(in, "checkpoint.public_key", se->config.checkpoint.public_key);
    if (resumes_elsewhere(se)) inputs_add(in, "resume", se->config.resume);
    NRL_TRY(check_used(se));
    for (size_t i = 0; i < n_own(se); i++)
        NRL_TRY(claims_check(&se->claims, own_names[i]));
    /* The files of a logger are only known when it asks for them. So that an earlier run is not removed in vain, names
     * in `out` that an option of a logger contains, whatever it means, must be writable. */
    for (size_t i = 0; i < se->config.n_loggers; i++) {
        const nrl_node *options = se->config.loggers[i].resolved;
        for (size_t k = 0; k < nrl_node_size(options); k++) {
            const char *name = nrl_node_string(nrl_node_at(options, k), "");
            bool is_name =
                *name && !strchr(name, '/') && strlen(name) <= NAME_MAX && strcmp(name, ".") && strcmp(name, "..");
            if (!is_name) continue;
            NRL_TRY(replaces(se) ? claims_check(&se->claims, name) : claims_check_input(&se->claims, name));
        }
    }
    return replaces(se) ? claims_check_clear(&se->claims) : NRL_OK;
}

nrl_status out_prepare(session *se)
{
    const char *out = se->config.out, *cache = se->config.data.cache, *from = se->config.resume;
    char *dir = NULL;
    bool is_named = strcmp(from, "never") && strcmp(from, "auto"); /* RUN@STEP is looked up once, before any is moved */
    if (is_named) NRL_TRY(checkpoint_locate(from, &dir));
    if (dir) se->config.resume = arena_strdup(&se->memory, dir);
    free(dir);
    if (se->env.no_output || !session_is_rank0(se)) return NRL_OK;
    if (se->env.check_only) {
        NRL_TRY(check_claims(se));
        NRL_TRY(may_make("out", out));
        return *cache ? may_make("data.cache", cache) : NRL_OK;
    }
    NRL_TRY(disk_make_folders("out", out));
    if (!disk_lock_folder(out, &se->out_lock)) /* two runs at once would write each other's checkpoints */
        return nrl_fail(NRL_ERR_CONFIG,
                        "out: another run is writing to '%s'\nhint: wait until it ends, or choose another out", out);
    NRL_TRY(check_claims(se));
    /* Writes a file and removes it, so that a read-only or full place is found now and not after the first epoch. */
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
                        "out: cannot write to '%s': %s", out, strerror(error));
    return NRL_OK;
}

nrl_status out_mark(session *se)
{
    if (replaces(se)) claims_warn_left(&se->claims);
    return claims_flush(&se->claims);
}

nrl_status out_claim(session *se)
{
    if (replaces(se)) NRL_TRY(claims_clear(&se->claims));
    for (size_t i = 0; i < n_own(se); i++)
        NRL_TRY(claims_take(&se->claims, own_names[i]));
    return NRL_OK;
}

/* Writes OUT/config.yaml, the resolved config with what it was made of. `nrl resume` needs it after a crash, so the
 * file is durable and replaces an earlier one as a whole. */
nrl_status out_write_config(session *se)
{
    char *yaml = yaml_write(se->config.resolved);
    char *text = mem_printf("# nrl %s, data %s, tokenizer %s\n%s", NRL_VERSION, dataset_info(se->train.set)->hash,
                            se->tokenizer ? se->tokenizer->identity : "none", yaml);
    const char *path = arena_printf(&se->memory, "%s/config.yaml", se->config.out);
    const char *temporary = arena_printf(&se->memory, "%s.tmp", path);
    int fd;
    unlink(temporary); /* left by a run that was killed here */
    nrl_status st = disk_create(temporary, &fd);
    if (st == NRL_OK) st = disk_finish(fd, temporary, disk_write(fd, temporary, text, strlen(text)));
    if (st == NRL_OK && rename(temporary, path) != 0) st = disk_fail(path, errno);
    if (st == NRL_OK) st = disk_sync_folder(se->config.out);
    if (st != NRL_OK) unlink(temporary);
    free(text);
    free(yaml);
    return st;
}
