/*
 * open_mesh.c - joins the other ranks of the run before anything is read, so that a rank that was started with another
 * config or version is reported before hours are spent.
 */
#include "base/buffer.h"
#include "base/hash.h"
#include "base/json.h"
#include "run/open/session.h"
#include <stdlib.h>
#include <string.h>

bool session_is_rank0(const session *se)
{
    return !se->env.ranks || se->env.ranks->rank == 0;
}

bool session_is_planned(const session *se)
{
    return se->env.check_only || se->env.dry_run;
}

/* Prints one line for each value, such as "train.seed: 1". A value with ${env:NAME} is printed as written, because it
 * may be a secret. It may differ between machines if it is a path or an option of a logger; a hash shows a difference
 * of any other one. */
static void add_lines(buffer *b, const char *key, const nrl_node *node)
{
    if (nrl_node_kind(node) != NRL_NODE_MAP) {
        arena a = {0};
        char *value = json_write(node, 0), *written = json_write(node_as_written(&a, node), 0), hash[HASH_TEXT] = "";
        if (strcmp(value, written) && !strchr(value, '/') && strcmp(key, "loggers"))
            hash_bytes(value, strlen(value), hash);
        buffer_print(b, "%s: %s%s%s\n", key, written, *hash ? " " : "", hash);
        free(written);
        free(value);
        arena_free(&a);
        return;
    }
    for (size_t i = 0; i < nrl_node_size(node); i++) {
        char *inner = mem_printf("%s%s%s", key, *key ? "." : "", nrl_node_key(node, i));
        add_lines(b, inner, nrl_node_at(node, i));
        free(inner);
    }
}

/* Prints everything that must be equal on all ranks, one line each: versions, script, every value of the config, code;
 * malloc'd. */
static nrl_status fingerprint(session *se, char **lines)
{
    buffer b = {0};
    buffer_print(&b, "nrl: %s\nabi: %d\n", NRL_VERSION, NRL_ABI);
    if (se->env.script_hash) buffer_print(&b, "script: %s\n", se->env.script_hash);
    if (se->env.script_modules) buffer_puts(&b, se->env.script_modules);
    add_lines(&b, "", se->config.resolved);
    char *code = NULL;
    nrl_status st = session_world(se) > 1 && !session_is_planned(se) ? identity_of_code(se, &code) : NRL_OK;
    if (code) buffer_puts(&b, code);
    free(code);
    *lines = buffer_take(&b);
    return st;
}

/* The product of the sizes of axes that have one; each is at most 2^20. */
static int64_t sized(const config_run *c)
{
    int64_t ranks = 1;
    for (size_t i = 0; i < c->n_axes; i++)
        ranks *= c->axes[i].size && ranks <= INT32_MAX ? c->axes[i].size : 1;
    return ranks;
}

int32_t session_world(const session *se)
{
    int64_t world = sized(&se->config);
    if (se->env.ranks) return se->env.ranks->world;
    return session_is_planned(se) && world > 1 && world <= INT32_MAX ? (int32_t)world : 1;
}

int32_t session_axis_size(const session *se, const config_axis *axis)
{
    int64_t left = session_world(se) / sized(&se->config);
    return (int32_t)(axis->size ? axis->size : left ? left : 1);
}

/* "pipeline 2 x tensor 2": axes that have a size. */
static const char *sizes_text(session *se)
{
    const char *text = "";
    for (size_t i = 0; i < se->config.n_axes; i++) {
        const config_axis *x = &se->config.axes[i];
        if (x->size > 1 || (x->size && x->axis->takes_rest))
            text =
                arena_printf(&se->memory, "%s%s%s %lld", text, *text ? " x " : "", x->axis->name, (long long)x->size);
    }
    return text;
}

static nrl_status check_world(session *se)
{
    int64_t ranks = sized(&se->config);
    int32_t world = session_world(se);
    bool rest = false;
    for (size_t i = 0; i < se->config.n_axes; i++)
        rest = rest || !se->config.axes[i].size;
    if (rest ? world % ranks : ranks != world)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: parallel: %s requires %s%lld ranks, but there %s %d\n"
                        "hint: nrl launch -n %lld -- run FILE",
                        nrl_node_place(nrl_node_find(se->tree, "parallel")), sizes_text(se),
                        rest ? "a multiple of " : "", (long long)ranks, world == 1 ? "is" : "are", world,
                        (long long)ranks);
    for (size_t i = 0; i < se->config.n_axes; i++) {
        const config_axis *x = &se->config.axes[i];
        int32_t size = session_axis_size(se, x);
        if (size > 1 && !x->strategy.name && !x->is_default)
            return nrl_fail(
                NRL_ERR_CONFIG, "parallel: none, but there are %d ranks (%s): expected a strategy of the axis %s", size,
                se->env.ranks ? se->env.ranks->origin : arena_printf(&se->memory, "parallel.%s", x->axis->name),
                x->axis->name);
    }
    return NRL_OK;
}

nrl_status session_open_mesh(session *se)
{
    mesh_setup setup = {.place = {.world = 1, .local_world = 1},
                        .timeout_init = se->config.launch.timeout_init,
                        .timeout_step = se->config.launch.timeout_step,
                        .signal = se->env.signal};
    if (session_world(se) > 1) {
        setup.planned = session_is_planned(se);
        setup.place = se->env.ranks ? *se->env.ranks
                                    : (mesh_rank_info){.world = session_world(se), .local_world = session_world(se)};
        setup.session = se->env.session;
        setup.collective = session_is_planned(se) ? se->env.dry_run : se->collective;
        setup.collective_options = se->collective_options;
        setup.bucket_bytes = se->collective ? se->collective->bucket_bytes : 0;
        setup.store = (store_kind){se->store, se->store_options};
    }
    NRL_TRY(check_world(se));
    for (size_t i = 0; i < se->config.n_axes; i++) {
        const config_axis *x = &se->config.axes[i];
        setup.axes[setup.n_axes++] = (mesh_axis){x->axis->name, session_axis_size(se, x), x->axis->divides};
    }
    char *lines;
    nrl_status st = fingerprint(se, &lines);
    setup.fingerprint = lines;
    if (st == NRL_OK) st = mesh_open(&setup, &se->mesh);
    free(lines);
    return st == NRL_OK ? strategy_shards(&se->strategy_choices, se->mesh, &se->shards) : st;
}
