/*
 * resume.c - which checkpoint a run goes on from: all ranks read the same one, and where one of them finds
 * damage all turn to the next older one or none does.
 */
#include "run/state/saver.h"
#include "run/state/state.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 4096 };

/* The worst of all ranks' statuses; the own text, or whose it is. */
static nrl_status agree(saver *sv, nrl_status own)
{
    int32_t world = nrl_mesh_world(sv->session->mesh), mine = own, *all = mem_alloc((size_t)world * sizeof *all);
    char *why = mem_strdup(own == NRL_OK ? "" : nrl_error_text());
    nrl_status st = mesh_exchange(sv->session->mesh, "resuming", &mine, sizeof mine, all);
    for (int32_t i = 0; st == NRL_OK && own == NRL_OK && i < world; i++)
        if (all[i] != NRL_OK) own = nrl_fail((nrl_status)all[i], "rank %d cannot read it", i);
    if (*why) nrl_fail(own, "%s", why);
    free(why);
    free(all);
    return st == NRL_OK ? own : st;
}

/* All ranks have opened `dir`: is it the same checkpoint? What it holds is verified as it is read. */
static nrl_status compare_manifests(saver *sv, const char *dir)
{
    char key[HASH_TEXT];
    NRL_TRY(agree(sv, origin_checkpoint_key(dir, key)));
    char *line = mem_printf("checkpoint %s: %s\n", dir, key);
    nrl_status st =
        mesh_compare(sv->session->mesh, "checkpoints", line, "every node must have the same files under the same path");
    free(line);
    return st;
}

static nrl_status read_one(saver *sv, const char *dir, nrl_status (*restore)(trainer *, checkpoint *), bool *differ)
{
    checkpoint *c = NULL;
    nrl_status st = checkpoint_open_signed(dir, sv->session->public_key, &c);
    if (st == NRL_ERR_CONFIG) /* a word that names no folder may have been meant as one of the others */
        nrl_fail(st, "%s\nhint: resume is never, auto or the directory of a checkpoint", nrl_error_text());
    st = agree(sv, st);
    if (st == NRL_OK) st = compare_manifests(sv, dir);
    *differ = st == NRL_ERR_CONFIG && c;
    if (st == NRL_OK) st = checkpoint_use_threads(c, (int)sv->session->config.checkpoint.threads);
    if (st == NRL_OK) st = agree(sv, restore(sv->trainer, c));
    if (c) checkpoint_close(c);
    return st;
}

static nrl_status resume_from(saver *sv, const char *dir)
{
    bool differ;
    nrl_status st = read_one(sv, dir, state_restore, &differ);
    if (differ) return st; /* the message says where */
    if (st != NRL_OK) {
        size_t n = strlen(dir);
        bool named = !strncmp(nrl_error_text(), dir, n) && nrl_error_text()[n] == ':'; /* not twice in one line */
        nrl_add_context(named ? "resuming" : "resuming from %s", dir);
        return st;
    }
    sv->last_saved = sv->trainer->progress.step;
    sv->last_save = arena_strdup(&sv->session->memory, dir);
    return NRL_OK;
}

/* Rank 0's choice for all: the next candidate that looks complete; "" where the run has no checkpoint. */
static nrl_status choose(saver *sv, checkpoint_search *s, char path[MAX_PATH])
{
    const char *dir = NULL;
    path[0] = 0;
    nrl_status st = session_is_rank0(sv->session) ? checkpoint_search_next(s, &dir) : NRL_OK;
    if (st == NRL_ERR_CORRUPT)
        nrl_fail(st, "%s\nhint: overwrite=true starts afresh and replaces them, another out keeps them",
                 nrl_error_text());
    NRL_TRY(st);
    if (dir && strlen(dir) >= MAX_PATH)
        return nrl_fail(NRL_ERR_CONFIG, "out: '%s' is too long", sv->session->config.out);
    if (dir) strcpy(path, dir);
    return mesh_broadcast(sv->session->mesh, "checkpoint to resume", 0, path, MAX_PATH);
}

static nrl_status resume_newest(saver *sv, checkpoint_search *s)
{
    char path[MAX_PATH];
    for (;;) {
        NRL_TRY(choose(sv, s, path));
        if (!path[0]) return NRL_OK; /* a fresh run */
        nrl_status st = resume_from(sv, path);
        if (st == NRL_OK ||
            !(st == NRL_ERR_CORRUPT && sv->session->config.checkpoint.fallback == CONFIG_FALLBACK_PREVIOUS)) {
            if (st == NRL_ERR_CORRUPT)
                nrl_fail(st, "%s\nhint: checkpoint.fallback=previous goes on from the one before it", nrl_error_text());
            return st;
        }
        if (session_is_rank0(sv->session)) checkpoint_search_refuse(s);
    }
}

/* An exported model holds adapters merged: there is nothing to put into this run's. */
static nrl_status exported_weights(saver *sv, const char *dir)
{
    model_origin from = {.formats = &sv->session->formats};
    const nrl_node *config;
    if (sv->session->model->adapters)
        return nrl_fail(NRL_ERR_CONFIG,
                        "it is an exported model, and this run trains adapters (%s); expected one of its checkpoints",
                        sv->session->adapter->plugin.name);
    NRL_TRY(origin_find(dir, &sv->session->model_memory, &from, &config));
    NRL_TRY(origin_check(&from, sv->session->model));
    NRL_TRY(origin_load(&from, sv->session->ctx, sv->session->model, sv->session->mesh));
    return strategy_updated(&sv->session->strategy, sv->session->ctx, 0);
}

nrl_status saver_resume_weights(saver *sv)
{
    const char *path = sv->session->env.weights, *dir;
    bool differ;
    if (!path) return NRL_OK;
    nrl_status st = origin_checkpoint(path, &sv->session->memory, &dir);
    if (st == NRL_OK) st = dir ? read_one(sv, dir, state_restore_weights, &differ) : exported_weights(sv, path);
    if (st != NRL_OK) nrl_add_context("evaluating %s", path);
    return st;
}

nrl_status saver_resume(saver *sv)
{
    const char *how = sv->session->config.resume;
    checkpoint_search s = {0};
    if (!strcmp(how, "never")) return NRL_OK;
    if (strcmp(how, "auto")) return resume_from(sv, how);
    if (session_is_rank0(sv->session)) NRL_TRY(checkpoint_search_open(sv->session->config.out, &s));
    nrl_status st = resume_newest(sv, &s);
    checkpoint_search_close(&s);
    return st;
}
