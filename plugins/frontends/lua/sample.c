/*
 * sample.c - run:sample{prompts = {...}, max_tokens = 40} returns a list of texts. Uses the same code of inference/ as
 * `nrl sample`.
 */
#include "handle.h"
#include <nrl/inference.h>
#include <stdlib.h>

static const char name[] = "run:sample";
static const char *const keys[] = {
    "prompts", "conversations", "max_tokens", "temperature",  "top_p", "top_k", "min_p", "repetition_penalty",
    "stop",    "seed",          "chat",       "keep_special", NULL};

static void read_options(lua_State *L, nrl_sample_options *o)
{
    *o = (nrl_sample_options){
        .size = sizeof *o,
        .max_tokens = script_int(L, 2, name, "max_tokens", 64),
        .temperature = script_f64(L, 2, name, "temperature", 0),
        .top_p = script_f64(L, 2, name, "top_p", 1),
        .top_k = script_int(L, 2, name, "top_k", 0),
        .min_p = script_f64(L, 2, name, "min_p", 0),
        .repetition_penalty = script_f64(L, 2, name, "repetition_penalty", 1),
        .seed = (uint64_t)script_int(L, 2, name, "seed", 0),
        .chat = script_bool(L, 2, name, "chat", false),
        .keep_special = script_bool(L, 2, name, "keep_special", false),
    };
    if (o->max_tokens < 1) script_fail(L, "%s: max_tokens: expected 1 or more", name);
    if (o->temperature < 0) script_fail(L, "%s: temperature: expected 0 or more", name);
    if (o->top_p <= 0 || o->top_p > 1) script_fail(L, "%s: top_p: expected more than 0, up to 1", name);
    if (o->top_k < 0) script_fail(L, "%s: top_k: expected 0 or more", name);
    if (o->min_p < 0 || o->min_p > 1) script_fail(L, "%s: min_p: expected 0 to 1", name);
    if (o->repetition_penalty <= 0) script_fail(L, "%s: repetition_penalty: expected more than 0", name);
    o->stop = script_texts(L, 2, name, "stop", &o->n_stop);
}

/* Texts that the core allocated; the collector frees them in any case. */
typedef struct {
    size_t n;
    char *texts[];
} results;

static int free_results(lua_State *L)
{
    results *r = lua_touserdata(L, 1);
    for (size_t i = 0; i < r->n; i++)
        free(r->texts[i]);
    r->n = 0;
    return 0;
}

static results *push_results(lua_State *L, size_t n)
{
    results *r = lua_newuserdatauv(L, sizeof *r + n * sizeof *r->texts, 0);
    r->n = n;
    for (size_t i = 0; i < n; i++)
        r->texts[i] = NULL;
    if (luaL_newmetatable(L, "nrl.results")) {
        lua_pushcfunction(L, free_results);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return r;
}

/* A list of conversations, each a list of messages; false if there is none. The collector frees the trees. */
static bool read_conversations(lua_State *L, nrl_sample_options *o, size_t *n)
{
    if (lua_getfield(L, 2, "conversations") == LUA_TNIL) return false;
    int at = lua_gettop(L);
    arena *a = script_arena(L);
    const nrl_node *list = script_to_node(L, at, a, "conversations");
    *n = nrl_node_size(list);
    const nrl_node **nodes = arena_alloc(a, (*n + 1) * sizeof *nodes);
    for (size_t i = 0; i < *n; i++)
        nodes[i] = nrl_node_at(list, i);
    o->conversations = nodes;
    if (nrl_node_kind(list) == NRL_NODE_LIST) return true;
    script_fail(L, "%s: conversations: expected a list of lists of messages", name);
    return false;
}

int handle_sample(lua_State *L)
{
    nrl_sample_options o;
    size_t n;
    handle_at(L, 1);
    script_check_keys(L, 2, name, keys);
    read_options(L, &o);
    const char **prompts = script_texts(L, 2, name, "prompts", &n);
    if (!read_conversations(L, &o, &n) == !prompts)
        return script_fail(L, "%s: expected one of prompts = {...} and conversations = {...}", name);
    results *r = push_results(L, n);
    handle *h = handle_enter(L);
    handle_leave(L, h, n ? nrl_run_sample(h->r, prompts, n, &o, r->texts, NULL) : NRL_OK);
    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_pushstring(L, r->texts[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}
