/*
 * start.c - what a run starts from: the state of a checkpoint, or only its weights for an evaluation.
 */
#include "run/internal.h"
#include "run/state/resume.h"
#include <string.h>

static nrl_status describe(void *user, arena *a, nrl_node **map)
{
    return session_describe(user, a, map);
}

static nrl_status base_key(void *user, const char **key)
{
    return adapter_base(user, key);
}

state_parts run_state(run *r)
{
    session *se = &r->session;
    return (state_parts){.trainer = &r->trainer,
                         .model = se->model,
                         .origin = &se->origin,
                         .formats = &se->formats,
                         .host = se->host,
                         .given = se->tree,
                         .mismatch_warns = se->config.checkpoint.mismatch == CONFIG_ON_ERROR_WARN,
                         .restores_data = se->env.services,
                         .describe = describe,
                         .base_key = base_key,
                         .user = se};
}

static nrl_status restore_all(void *user, checkpoint *c)
{
    const state_parts parts = run_state(user);
    return state_restore(&parts, c);
}

static nrl_status restore_weights(void *user, checkpoint *c)
{
    const state_parts parts = run_state(user);
    return state_restore_weights(&parts, c);
}

static resume_choice choice_of(run *r, nrl_status (*restore)(void *user, checkpoint *c))
{
    const session *se = &r->session;
    return (resume_choice){.mesh = se->mesh,
                           .out = se->config.out,
                           .public_key = se->public_key,
                           .threads = (int)se->config.checkpoint.threads,
                           .falls_back = se->config.checkpoint.fallback == CONFIG_FALLBACK_PREVIOUS,
                           .restore = restore,
                           .user = r};
}

nrl_status run_resume(run *r)
{
    const char *how = r->session.config.resume, *dir = how;
    const resume_choice choice = choice_of(r, restore_all);
    if (!strcmp(how, "never")) return NRL_OK;
    if (r->session.env.check_only) return strcmp(how, "auto") ? resume_look(&choice, how) : NRL_OK;
    if (strcmp(how, "auto"))
        NRL_TRY(resume_from(&choice, how));
    else
        NRL_TRY(resume_newest(&choice, &r->session.memory, &dir));
    if (dir) saver_resumed(&r->saver, dir);
    return NRL_OK;
}

/* The adapters of an exported model are merged, so they cannot be restored to adapters of this run. */
static nrl_status exported_weights(session *se, const char *dir)
{
    model_origin from = {.formats = &se->formats};
    const nrl_node *config;
    if (se->model->adapters)
        return nrl_fail(NRL_ERR_CONFIG,
                        "it is an exported model, but this run trains adapters (%s); expected a checkpoint of the run",
                        se->adapter->plugin.name);
    NRL_TRY(origin_find(dir, &se->model_memory, &from, &config));
    NRL_TRY(origin_check(&from, se->model));
    NRL_TRY(origin_load(&from, se->ctx, se->model, se->mesh));
    return strategy_updated(&se->strategy, se->ctx, 0);
}

nrl_status run_take_weights(run *r)
{
    const char *path = r->session.env.weights, *dir;
    const resume_choice choice = choice_of(r, restore_weights);
    bool differ;
    if (!path) return NRL_OK;
    nrl_status st = origin_checkpoint(path, &r->session.memory, &dir);
    if (st == NRL_OK) st = dir ? resume_read(&choice, dir, &differ) : exported_weights(&r->session, path);
    if (st != NRL_OK) nrl_add_context("evaluating %s", path);
    return st;
}
