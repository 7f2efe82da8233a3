/*
 * module.c - require "nrl": reading configs, exit codes, and the command line's assignments. The other
 * files of this folder add their functions.
 */
#include "host.h"
#include <string.h>

/* nrl.config(path) -> plain table; paths are relative to the working directory, as in io.open. */
static int read_config(lua_State *L)
{
    script_host *h = script_of(L);
    nrl_config *config = nrl_config_create(&h->memory);
    nrl_status st = nrl_config_read(config, luaL_checkstring(L, 1));
    const nrl_node *root = nrl_config_root(config);
    nrl_config_destroy(config);
    if (st != NRL_OK) return script_raise(L, st);
    script_push_node(L, root, VALUE_CONFIG);
    return 1;
}

/* nrl.args: {["optimizer.lr"] = 5e-6}; the last assignment of a key counts. */
static void push_args(lua_State *L, script_host *h)
{
    lua_newtable(L);
    for (size_t i = 0; i < h->job->n_words; i++) {
        const char *word = h->job->words[i], *equals = strchr(word, '=');
        nrl_node *value = NULL;
        if (!equals) continue;
        if (nrl_yaml_value(&h->memory, "command line", equals + 1, &value) != NRL_OK) script_raise(L, NRL_ERR_CONFIG);
        lua_pushlstring(L, word, (size_t)(equals - word));
        script_push_node(L, value, VALUE_CONFIG);
        lua_rawset(L, -3);
    }
    lua_setfield(L, -2, "args");
}

/* nrl.rank from 0, nrl.world: the processes that run this script together. */
static void push_ranks(lua_State *L, const script_host *h)
{
    const nrl_rank_info *ranks = h->run.ranks;
    lua_pushinteger(L, ranks ? ranks->rank : 0);
    lua_setfield(L, -2, "rank");
    lua_pushinteger(L, ranks ? ranks->world : 1);
    lua_setfield(L, -2, "world");
}

/* nrl.exit.preempted and the other exit codes, for os.exit. */
static void push_exit_codes(lua_State *L)
{
    static const struct {
        const char *name;
        int code;
    } codes[] = {
        {"done", 0},    {"failed", 1}, {"usage", 2}, {"diverged", 3}, {"peer_lost", 4},
        {"corrupt", 5}, {"memory", 6}, {"full", 7},  {"data", 65},    {"preempted", 75},
    };
    lua_newtable(L);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        lua_pushinteger(L, codes[i].code);
        lua_setfield(L, -2, codes[i].name);
    }
    lua_setfield(L, -2, "exit");
}

int script_open_module(lua_State *L)
{
    lua_newtable(L);
    lua_pushcfunction(L, read_config);
    lua_setfield(L, -2, "config");
    lua_pushcfunction(L, script_region);
    lua_setfield(L, -2, "region");
    lua_pushstring(L, nrl_version());
    lua_setfield(L, -2, "version");
    push_args(L, script_of(L));
    push_ranks(L, script_of(L));
    push_exit_codes(L);
    script_open_json(L);
    script_open_tokenizer(L);
    script_open_run(L);
    script_open_tensors(L);
    script_open_batches(L);
    script_open_losses(L);
    return 1;
}
