/*
 * resume.c - finds the checkpoint that a run resumes from. All ranks read the same one; if one of them finds damage,
 * either all turn to the next older one or none does.
 */
#include "run/state/resume.h"
#include "base/arena.h"
#include "run/weights/origin.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 4096 };

/* Returns the worst status of all ranks, with the text of this rank or the name of the rank that failed. */
static nrl_status agree(const resume_choice *r, nrl_status own)
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

/* Checks whether all ranks have opened the same checkpoint as `dir`. Its content is verified when it is read. */
static nrl_status compare_manifests(const resume_choice *r, const char *dir)
{
    char key[HASH_TEXT];
    NRL_TRY(agree(r, origin_checkpoint_key(dir, key)));
    char *line = mem_printf("checkpoint %s: %s\n", dir, key);
    nrl_status st =
        mesh_compare(r->mesh, "checkpoints", line, "every node must have the same files under the same path");
    free(line);
    return st;
}

static nrl_status open_named(const resume_choice *r, const char *dir, checkpoint **c)
{
    nrl_status st = checkpoint_open_signed(dir, r->public_key, c);
    if (st == NRL_ERR_CONFIG) /* a word that names no folder may have been meant as one of the others */
        nrl_fail(st, "%s\nhint: expected never, auto or the directory of a checkpoint", nrl_error_text());
    return st;
}

nrl_status resume_read(const resume_choice *r, const char *dir, bool *differ)
{
    checkpoint *c = NULL;
    nrl_status st = agree(r, open_named(r, dir, &c));
    if (st == NRL_OK) st = compare_manifests(r, dir);
    *differ = st == NRL_ERR_CONFIG && c;
    if (st == NRL_OK) st = checkpoint_use_threads(c, r->threads);
    if (st == NRL_OK) st = agree(r, r->restore(r->user, c));
    if (c) checkpoint_close(c);
    return st;
}

static nrl_status add_dir(nrl_status st, const char *dir)
{
    size_t n = strlen(dir);
    if (st == NRL_OK) return st;
    bool named = !strncmp(nrl_error_text(), dir, n) && nrl_error_text()[n] == ':'; /* the error has the path already */
    nrl_add_context(named ? "resuming" : "resuming from %s", dir);
    return st;
}

nrl_status resume_from(const resume_choice *r, const char *dir)
{
    bool differ;
    nrl_status st = resume_read(r, dir, &differ);
    return differ ? st : add_dir(st, dir); /* a difference names the path itself */
}

nrl_status resume_look(const resume_choice *r, const char *dir)
{
    checkpoint *c = NULL;
    nrl_status st = open_named(r, dir, &c);
    if (c) checkpoint_close(c);
    return add_dir(st, dir);
}

/* Sends the choice of rank 0 to all ranks: the next candidate that looks complete; "" if the run has no checkpoint. */
static nrl_status choose(const resume_choice *r, checkpoint_search *s, char path[MAX_PATH])
{
    const char *dir = NULL;
    memset(path, 0, MAX_PATH);
    nrl_status st = nrl_mesh_rank(r->mesh) == 0 ? checkpoint_search_next(s, &dir) : NRL_OK;
    if (st == NRL_ERR_CORRUPT)
        nrl_fail(st, "%s\nhint: overwrite=true starts a new run and replaces them, another out keeps them",
                 nrl_error_text());
    NRL_TRY(st);
    if (dir && strlen(dir) >= MAX_PATH) return nrl_fail(NRL_ERR_CONFIG, "out: '%s' is too long", r->out);
    if (dir) strcpy(path, dir);
    return mesh_broadcast(r->mesh, "checkpoint to resume", 0, path, MAX_PATH);
}

static nrl_status resume_next(const resume_choice *r, checkpoint_search *s, arena *a, const char **dir)
{
    char path[MAX_PATH];
    for (;;) {
        NRL_TRY(choose(r, s, path));
        if (!path[0]) return NRL_OK; /* a new run */
        nrl_status st = resume_from(r, path);
        if (st == NRL_OK) *dir = arena_strdup(a, path);
        if (st == NRL_ERR_CORRUPT && !r->falls_back)
            nrl_fail(st, "%s\nhint: checkpoint.fallback=previous continues from the previous one", nrl_error_text());
        if (st != NRL_ERR_CORRUPT || !r->falls_back) return st;
        if (nrl_mesh_rank(r->mesh) == 0) checkpoint_search_refuse(s);
    }
}

nrl_status resume_newest(const resume_choice *r, arena *a, const char **dir)
{
    checkpoint_search s = {0};
    *dir = NULL;
    if (nrl_mesh_rank(r->mesh) == 0) NRL_TRY(checkpoint_search_open(r->out, &s));
    nrl_status st = resume_next(r, &s, a, dir);
    checkpoint_search_close(&s);
    return st;
}
