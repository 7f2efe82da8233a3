/*
 * frontend.c - finds the frontend of a script, and runs the script.
 */
#include "cli/verbs.h"
#include "plugin/component.h"
#include <nrl/host.h>
#include <string.h>

static int32_t frontend_ask(const plugin *p, const void *path)
{
    const nrl_frontend *t = (const nrl_frontend *)p->table;
    return t->probe && t->probe(path);
}

/* Asks each frontend in turn. A frontend that cannot be opened is skipped with a warning. */
static nrl_status frontend_probe(const nrl_environment *env, const char *path, nrl_component **out)
{
    arena a = {0};
    nrl_status st = NRL_OK;
    plugin_host *h = component_host(env, NULL);
    const plugin *p;
    for (const char *const *names = nrl_plugin_names(env, NRL_KIND_FRONTEND, &a); st == NRL_OK && *names; names++) {
        nrl_component *c;
        if (plugin_open_candidate(h, NRL_KIND_FRONTEND, *names, &p) != NRL_OK) continue;
        if (!plugin_ask(h, p, frontend_ask, path, false)) continue;
        const nrl_node *name = node_text(&a, *names);
        if (nrl_component_open(env, NRL_KIND_FRONTEND, "frontend", name, &c) != NRL_OK) continue;
        if (!*out) {
            *out = c;
            continue;
        }
        st = nrl_fail(NRL_ERR_CONFIG,
                      "cannot run %s: the frontends %s and %s both accept it\nhint: choose one with --frontend NAME",
                      path, nrl_component_table(*out)->name, p->name);
        nrl_component_close(c);
    }
    if (st != NRL_OK) nrl_component_close(*out);
    if (st != NRL_OK) *out = NULL;
    plugin_host_destroy(h);
    arena_free(&a);
    return st;
}

nrl_status frontend_find(const nrl_environment *env, const char *name, const char *path, nrl_component **out)
{
    nrl_node *slot;
    *out = NULL;
    if (!name) return frontend_probe(env, path, out);
    arena *a = nrl_arena_create(); /* the component's options may point into this arena */
    nrl_status st = nrl_yaml_value(a, "--frontend", name, &slot);
    if (st == NRL_OK) st = nrl_component_open(env, NRL_KIND_FRONTEND, "frontend", slot, out);
    if (st == NRL_OK)
        (*out)->own = a;
    else
        nrl_arena_destroy(a);
    return st;
}

nrl_status frontend_run(nrl_component *frontend, const nrl_frontend_job *job, int *exit_code)
{
    const nrl_frontend *table = (const nrl_frontend *)nrl_component_table(frontend);
    nrl_environment env = {0};
    nrl_frontend_job own = {0};
    memcpy(&own, job, job->size < sizeof own ? job->size : sizeof own);
    memcpy(&env, job->environment, job->environment->size < sizeof env ? job->environment->size : sizeof env);
    char hash[HASH_TEXT];
    const char *identity = nrl_component_identity(frontend);
    if (!identity) return NRL_ERR_IO;
    if (hash_file(job->script, hash) != NRL_OK)
        return NRL_ERR_CONFIG; /* CONFIG, because the path comes from the command line */
    env.size = sizeof env;
    env.frontend = arena_printf(&frontend->memory, "%s %s", table->plugin.name, identity);
    env.script = job->script;
    env.script_hash = hash;
    own.size = sizeof own;
    own.environment = &env;
    *exit_code = -1;
    return table->run(nrl_component_options(frontend), &own, exit_code);
}
