/*
 * open_mesh.c - the other ranks of the run: joined before anything is read, so that a rank that was started
 * with another config or version is told of before hours are spent.
 */
#include "base/buffer.h"
#include "base/json.h"
#include "run/identity.h"
#include "run/internal.h"
#include <stdlib.h>
#include <string.h>

bool run_leads(const run *r)
{
    return !r->env.ranks || r->env.ranks->rank == 0;
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

/* What must be alike on all ranks, a line each: versions, script, every value of the config, code; malloc'd. */
static nrl_status fingerprint(run *r, char **lines)
{
    buffer b = {0};
    buffer_print(&b, "nrl: %s\nabi: %d\n", NRL_VERSION, NRL_ABI);
    if (r->env.script_hash) buffer_print(&b, "script: %s\n", r->env.script_hash);
    if (r->env.script_modules) buffer_puts(&b, r->env.script_modules);
    add_lines(&b, "", r->config.resolved);
    char *code = NULL;
    nrl_status st = run_world(r) > 1 && !r->env.check_only ? identity_of_code(r, &code) : NRL_OK;
    if (code) buffer_puts(&b, code);
    free(code);
    *lines = buffer_take(&b);
    return st;
}

/* Ranks that the axes beside data ask for; sizes are at most 2^20 each. */
static int64_t beside_data(const config_run *c)
{
    return c->axes[CONFIG_PIPELINE].size * c->axes[CONFIG_TENSOR].size;
}

int32_t run_world(const run *r)
{
    const config_run *c = &r->config;
    int64_t data = c->axes[CONFIG_DATA].size, world = (data ? data : 1) * beside_data(c);
    if (r->env.ranks) return r->env.ranks->world;
    return r->env.check_only && world > 1 && world <= INT32_MAX ? (int32_t)world : 1;
}

int32_t run_axis_size(const run *r, int axis)
{
    const config_run *c = &r->config;
    int64_t size = c->axes[axis].size, left = run_world(r) / beside_data(c);
    return (int32_t)(size ? size : left ? left : 1);
}

/* "pipeline 2 x tensor 2": axes that have a size. */
static const char *sizes_text(run *r)
{
    const char *text = "";
    for (int i = 0; i < CONFIG_N_AXES; i++) {
        const config_axis *axis = &r->config.axes[i];
        if (axis->size > (i != CONFIG_DATA))
            text = arena_printf(&r->memory, "%s%s%s %lld", text, *text ? " x " : "", axis->name, (long long)axis->size);
    }
    return text;
}

static nrl_status check_sizes(run *r)
{
    int64_t data = r->config.axes[CONFIG_DATA].size, beside = beside_data(&r->config);
    int32_t world = run_world(r);
    const char *are = world == 1 ? "is" : "are", *at = nrl_node_place(nrl_node_find(r->tree, "parallel"));
    const char *hint = "hint: `nrl launch -n RANKS --` before the verb starts them";
    if (data && data * beside != world)
        return nrl_fail(NRL_ERR_CONFIG, "%s: parallel: %s asks for %lld ranks, there %s %d\n%s", at, sizes_text(r),
                        (long long)(data * beside), are, world, hint);
    if (world % beside)
        return nrl_fail(NRL_ERR_CONFIG, "%s: parallel: %s asks for a multiple of %lld ranks, there %s %d\n%s", at,
                        sizes_text(r), (long long)beside, are, world, hint);
    return NRL_OK;
}

static nrl_status check_world(run *r)
{
    const config_run *c = &r->config;
    NRL_TRY(check_sizes(r));
    int32_t data = run_axis_size(r, CONFIG_DATA);
    if (data > 1 && !c->axes[CONFIG_DATA].strategy.name && !c->parallel_unset)
        return nrl_fail(NRL_ERR_CONFIG, "parallel: none, but there are %d ranks (%s): expected ddp or fsdp", data,
                        r->env.ranks ? r->env.ranks->origin : "parallel.data");
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
        setup.place = r->env.ranks ? *r->env.ranks
                                   : (mesh_place){.world = run_world(r), .local_world = run_world(r)};
        setup.session = r->env.session;
        setup.collective = r->collective;
        setup.collective_options = r->collective_options;
    }
    NRL_TRY(check_world(r));
    setup.n_axes = CONFIG_N_AXES;
    for (int i = 0; i < CONFIG_N_AXES; i++) setup.axes[i] = (mesh_axis){r->config.axes[i].name, run_axis_size(r, i)};
    char *lines;
    nrl_status st = fingerprint(r, &lines);
    setup.fingerprint = lines;
    if (st == NRL_OK) st = mesh_open(&setup, &r->mesh);
    free(lines);
    return st;
}
