/*
 * open_mesh.c - the other ranks of the run: joined before anything is read, so that a rank that was started
 * with another config or version is told of before hours are spent.
 */
#include "base/buffer.h"
#include "base/json.h"
#include "run/open/identity.h"
#include "run/internal.h"
#include <stdlib.h>
#include <string.h>

bool run_is_rank0(const run *r)
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

/* Ranks that the axes with a size ask for; sizes are at most 2^20 each. */
static int64_t sized(const config_run *c)
{
    int64_t ranks = 1;
    for (size_t i = 0; i < c->n_axes; i++)
        ranks *= c->axes[i].size && ranks <= INT32_MAX ? c->axes[i].size : 1;
    return ranks;
}

int32_t run_world(const run *r)
{
    int64_t world = sized(&r->config);
    if (r->env.ranks) return r->env.ranks->world;
    return r->env.check_only && world > 1 && world <= INT32_MAX ? (int32_t)world : 1;
}

int32_t run_axis_size(const run *r, const config_axis *axis)
{
    int64_t left = run_world(r) / sized(&r->config);
    return (int32_t)(axis->size ? axis->size : left ? left : 1);
}

/* "pipeline 2 x tensor 2": axes that have a size. */
static const char *sizes_text(run *r)
{
    const char *text = "";
    for (size_t i = 0; i < r->config.n_axes; i++) {
        const config_axis *x = &r->config.axes[i];
        if (x->size > 1 || (x->size && x->axis->takes_rest))
            text = arena_printf(&r->memory, "%s%s%s %lld", text, *text ? " x " : "", x->axis->name, (long long)x->size);
    }
    return text;
}

static nrl_status check_sizes(run *r)
{
    int64_t ranks = sized(&r->config);
    int32_t world = run_world(r);
    bool rest = false;
    for (size_t i = 0; i < r->config.n_axes; i++)
        rest = rest || !r->config.axes[i].size;
    if (rest ? world % ranks == 0 : ranks == world) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "%s: parallel: %s asks for %s%lld ranks, there %s %d\n"
                    "hint: `nrl launch -n RANKS --` before the verb starts them",
                    nrl_node_place(nrl_node_find(r->tree, "parallel")), sizes_text(r), rest ? "a multiple of " : "",
                    (long long)ranks, world == 1 ? "is" : "are", world);
}

static nrl_status check_world(run *r)
{
    NRL_TRY(check_sizes(r));
    for (size_t i = 0; i < r->config.n_axes; i++) {
        const config_axis *x = &r->config.axes[i];
        int32_t size = run_axis_size(r, x);
        if (size > 1 && !x->strategy.name && !x->is_auto)
            return nrl_fail(
                NRL_ERR_CONFIG, "parallel: none, but there are %d ranks (%s): expected a strategy of the axis %s", size,
                r->env.ranks ? r->env.ranks->origin : arena_printf(&r->memory, "parallel.%s", x->axis->name),
                x->axis->name);
    }
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
        setup.place =
            r->env.ranks ? *r->env.ranks : (mesh_rank_info){.world = run_world(r), .local_world = run_world(r)};
        setup.session = r->env.session;
        setup.collective = r->collective;
        setup.collective_options = r->collective_options;
    }
    NRL_TRY(check_world(r));
    for (size_t i = 0; i < r->config.n_axes; i++) {
        const config_axis *x = &r->config.axes[i];
        setup.axes[setup.n_axes++] = (mesh_axis){x->axis->name, run_axis_size(r, x), x->axis->divides};
    }
    char *lines;
    nrl_status st = fingerprint(r, &lines);
    setup.fingerprint = lines;
    if (st == NRL_OK) st = mesh_open(&setup, &r->mesh);
    free(lines);
    return st;
}
