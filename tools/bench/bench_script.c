/*
 * bench_script.c - profiles the run of a script. The script takes its own steps; the profile begins and ends inside
 * them, where a run asks its services for the values of a step.
 */
#include "base/hash.h"
#include "bench.h"
#include "cli/common/experiment.h"
#include "cli/common/cli.h"
#include <nrl/host.h>
#include <nrl/inference.h>
#include <stdlib.h>
#include <string.h>

/* Services get no pointer of their own. */
static struct {
    arena *memory;
    const bench_options *options;
    bool speaks, is_done;
    nrl_run *run; /* the one that is profiled */
    int64_t n_steps;
    bench_found found;
    nrl_node *tree;
} script;

static nrl_status measure_step(nrl_run *r, nrl_run_event *e)
{
    bench_found *f = &script.found;
    NRL_TRY(nrl_inference_services()->measure(r, e));
    if (!script.run) script.run = r;
    if (script.run != r || script.is_done) return NRL_OK;
    if (++script.n_steps == 1) f->first_loss = e->loss;
    if (script.n_steps == BENCH_WARM_UP) {
        bench_begin_steps(&f->profiled, script.memory, script.options->steps);
        NRL_TRY(nrl_run_watch_begin(r));
        return nrl_run_profile_begin(r, bench_what(script.options));
    }
    if (script.n_steps < BENCH_WARM_UP) return NRL_OK;
    bench_add_step(&f->profiled, e);
    if (f->profiled.n < script.options->steps) return NRL_OK;
    script.is_done = true;
    NRL_TRY(nrl_run_profile_end_step(r));
    NRL_TRY(nrl_run_watch_end(r, f->watched, &f->n_watched));
    NRL_TRY(bench_collect(script.memory, r, script.options, f));
    if (script.speaks) NRL_TRY(bench_tree(script.memory, r, f, &script.tree));
    NRL_TRY(nrl_run_profile(r, false));
    nrl_run_stop(r, "the profile is complete");
    return NRL_OK;
}

/* The first frontend that runs files of this name. */
static nrl_status find_frontend(arena *a, const nrl_environment *env, const char *path, nrl_component **out)
{
    for (const char *const *names = nrl_plugin_names(env, NRL_KIND_FRONTEND, a); *names; names++) {
        if (nrl_component_open(env, NRL_KIND_FRONTEND, "frontend", node_text(a, *names), out) != NRL_OK) continue;
        const nrl_frontend *t = (const nrl_frontend *)nrl_component_table(*out);
        if (t->probe && t->probe(path)) return NRL_OK;
        nrl_component_close(*out);
    }
    return nrl_fail(NRL_ERR_CONFIG, "cannot profile %s: expected a config, FILE.yaml, or a script of a frontend", path);
}

nrl_status bench_script(arena *a, int argc, char **argv, const nrl_environment *env, const bench_options *o,
                        nrl_node **tree)
{
    nrl_run_services services = *nrl_inference_services();
    nrl_environment own = *env;
    nrl_component *frontend;
    char hash[HASH_TEXT];
    int code = -1;
    if (cli_getenv(CLI_NO_SCRIPTS))
        return nrl_fail(NRL_ERR_CONFIG, "cannot profile %s: scripts are disabled (--no-scripts, " CLI_NO_SCRIPTS ")",
                        argv[1]);
    NRL_TRY(find_frontend(a, env, argv[1], &frontend));
    const nrl_frontend *table = (const nrl_frontend *)nrl_component_table(frontend);
    const nrl_frontend_job job = {.size = sizeof job,
                                  .script = argv[1],
                                  .words = (const char *const *)argv + 2,
                                  .n_words = (size_t)argc - 2,
                                  .environment = &own};
    services.measure = measure_step;
    own.services = &services;
    own.script = argv[1];
    own.script_hash = hash;
    own.frontend = arena_printf(a, "%s %s", table->plugin.name, nrl_component_identity(frontend));
    script.memory = a;
    script.options = o;
    script.speaks = experiment_speaks(env);
    nrl_status st = hash_file(argv[1], hash);
    if (st == NRL_OK) st = table->run(nrl_component_options(frontend), &job, &code);
    nrl_component_close(frontend);
    if (st == NRL_OK && !script.is_done)
        st = nrl_fail(NRL_ERR_CONFIG,
                      "%s: its first run took %lld steps, but %d warm-up steps and %lld measured steps (--steps) are "
                      "needed",
                      argv[1], (long long)script.n_steps, BENCH_WARM_UP, (long long)o->steps);
    *tree = script.tree;
    return st;
}
