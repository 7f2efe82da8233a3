/*
 * open_mesh.c - the other ranks of the run: joined before anything is read, so that a rank that was started
 * with another config or version is told of before hours are spent.
 */
#include "base/buffer.h"
#include "base/json.h"
#include "run/internal.h"
#include <stdlib.h>
#include <string.h>

bool run_leads(const run *r)
{
    return !r->env.place || r->env.place->rank == 0;
}

/* "train.seed: 1", a line a value. */
static void add_lines(buffer *b, const char *key, const nrl_node *node)
{
    if (nrl_node_kind(node) != NRL_NODE_MAP) {
        char *text = json_write(node, 0);
        buffer_print(b, "%s: %s\n", key, text);
        free(text);
        return;
    }
    for (size_t i = 0; i < nrl_node_size(node); i++) {
        char *inner = mem_printf("%s%s%s", key, *key ? "." : "", nrl_node_key(node, i));
        add_lines(b, inner, nrl_node_at(node, i));
        free(inner);
    }
}

/* What must be alike on all ranks, a line each: versions, script, every value of the config. */
static char *fingerprint(const run *r)
{
    buffer b = {0};
    buffer_print(&b, "nrl: %s\nabi: %d\n", NRL_VERSION, NRL_ABI);
    if (r->env.script_hash) buffer_print(&b, "script: %s\n", r->env.script_hash);
    add_lines(&b, "", r->config.resolved);
    return b.text;
}

int32_t run_world(const run *r)
{
    if (r->env.place) return r->env.place->world;
    return r->env.check_only && r->config.data_size > 1 ? (int32_t)r->config.data_size : 1;
}

static nrl_status check_world(const run *r)
{
    const config_run *c = &r->config;
    int32_t world = run_world(r);
    if (c->data_size && c->data_size != world)
        return nrl_fail(NRL_ERR_CONFIG, "parallel.data asks for %lld ranks, there %s %d", (long long)c->data_size,
                        world == 1 ? "is" : "are", world);
    if (world > 1 && !r->strategy_choice.table && !c->parallel_unset)
        return nrl_fail(NRL_ERR_CONFIG, "parallel: none, but there are %d ranks (%s): expected ddp or fsdp", world,
                        r->env.place ? r->env.place->origin : "parallel.data");
    return NRL_OK;
}

nrl_status open_mesh(run *r)
{
    mesh_setup setup = {.place = {.world = 1, .local_world = 1},
                        .timeout_init = r->config.launch.timeout_init,
                        .timeout_step = r->config.launch.timeout_step,
                        .signal = r->env.signal};
    if (run_world(r) > 1) {
        setup.planned = r->env.check_only;
        setup.place = r->env.place ? *r->env.place
                                   : (mesh_place){.world = run_world(r), .local_world = run_world(r)};
        setup.session = r->env.session;
        setup.collective = r->collective;
        setup.collective_options = r->collective_options;
    }
    NRL_TRY(check_world(r));
    char *lines = fingerprint(r);
    setup.fingerprint = lines;
    nrl_status st = mesh_open(&setup, &r->mesh);
    free(lines);
    return st;
}
