/*
 * resume.c - which checkpoint a run goes on from: all ranks read the same one, and where one of them finds
 * damage all turn to the next older one or none does.
 */
#include "checkpoint/checkpoint.h"
#include "run/state.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 4096 };

/* The worst of all ranks' statuses; the own text, or whose it is. */
static nrl_status agree(run *r, nrl_status own)
{
    int32_t world = nrl_mesh_world(r->mesh), mine = own, *all = mem_alloc((size_t)world * sizeof *all);
    char *why = mem_strdup(own == NRL_OK ? "" : nrl_error_text());
    nrl_status st = mesh_exchange(r->mesh, "resuming", &mine, sizeof mine, all);
    for (int32_t i = 0; st == NRL_OK && own == NRL_OK && i < world; i++)
        if (all[i] != NRL_OK) own = nrl_fail((nrl_status)all[i], "rank %d cannot read it", i);
    if (*why) nrl_fail(own, "%s", why);
    free(why);
    free(all);
    return st == NRL_OK ? own : st;
}

/* A word that names no folder may have been meant as one of the others. */
static nrl_status open_one(const char *dir, checkpoint **c)
{
    nrl_status st = checkpoint_open(dir, c);
    if (st == NRL_ERR_CONFIG)
        nrl_fail(st, "%s\nhint: resume is never, auto or the folder of a checkpoint", nrl_error_text());
    return st;
}

static nrl_status read_one(run *r, const char *dir)
{
    checkpoint *c = NULL;
    nrl_status st = open_one(dir, &c);
    if (st == NRL_OK) st = checkpoint_use_threads(c, (int)r->config.checkpoint.threads);
    if (st == NRL_OK) st = state_restore(r, c);
    if (c) checkpoint_close(c);
    return st;
}

static nrl_status resume_from(run *r, const char *dir)
{
    nrl_status st = agree(r, read_one(r, dir));
    if (st != NRL_OK) {
        size_t n = strlen(dir);
        bool named = !strncmp(nrl_error_text(), dir, n) && nrl_error_text()[n] == ':'; /* not twice in one line */
        nrl_note(named ? "resuming" : "resuming from %s", dir);
        return st;
    }
    r->last_saved = r->progress.step;
    r->last_save = arena_strdup(&r->memory, dir);
    return NRL_OK;
}

/* Rank 0's choice for all: the next of the list that looks complete; "" where there is none. */
static nrl_status choose(run *r, char **dirs, size_t n, size_t *at, char path[MAX_PATH])
{
    int64_t step;
    double metric;
    path[0] = 0;
    for (; run_leads(r) && *at < n && !path[0]; ++*at) {
        if (strlen(dirs[*at]) >= MAX_PATH) continue;
        if (checkpoint_look(dirs[*at], &step, &metric) == NRL_OK) strcpy(path, dirs[*at]);
        else nrl_warn("passed over: %s", nrl_error_text());
    }
    return mesh_broadcast(r->mesh, "checkpoint to resume", 0, path, MAX_PATH);
}

static bool may_fall_back(const run *r, nrl_status st)
{
    return st == NRL_ERR_CORRUPT && r->config.checkpoint.fallback == CONFIG_FALLBACK_PREVIOUS;
}

static nrl_status resume_newest(run *r, char **dirs, size_t n)
{
    char path[MAX_PATH], *damage = NULL;
    nrl_status st = NRL_OK;
    for (size_t at = 0;;) {
        NRL_TRY(choose(r, dirs, n, &at, path));
        if (!path[0]) break; /* nothing there: a fresh run; or nothing that could be read */
        st = resume_from(r, path);
        if (st == NRL_ERR_CORRUPT && !may_fall_back(r, st))
            nrl_fail(st, "%s\nhint: checkpoint.fallback=previous goes on from the one before it", nrl_error_text());
        if (!may_fall_back(r, st)) break;
        if (run_leads(r)) nrl_warn("%s (checkpoint.fallback: previous)", nrl_error_text());
        free(damage);
        damage = mem_strdup(nrl_error_text());
    }
    if (!path[0] && damage) st = nrl_fail(NRL_ERR_CORRUPT, "%s\nand no earlier one is left", damage);
    free(damage);
    return st;
}

nrl_status resume_due(run *r)
{
    const char *how = r->config.resume;
    char **dirs = NULL;
    size_t n = 0;
    if (!strcmp(how, "never")) return NRL_OK;
    if (strcmp(how, "auto")) return resume_from(r, how);
    if (run_leads(r)) NRL_TRY(checkpoint_list(r->config.out, &dirs, &n));
    nrl_status st = resume_newest(r, dirs, n);
    checkpoint_list_free(dirs, n);
    return st;
}
