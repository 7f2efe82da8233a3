/*
 * sample.c - run:sample{prompts = {...}, max_tokens = 40} returns a list of texts, and a list of tables with their
 * tokens. Uses the same code of inference/ as `nrl sample`.
 */
#include "handle.h"
#include <nrl/inference.h>
#include <stdlib.h>
#include <string.h>

static const char name[] = "run:sample";
enum { MAX_N = 65536 };
static const char *const keys[] = {
    "prompts", "conversations", "max_tokens", "temperature",  "top_p", "top_k",    "min_p", "repetition_penalty",
    "stop",    "seed",          "chat",       "keep_special", "n",     "logprobs", NULL};

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
        .n = script_int(L, 2, name, "n", 1),
        .top_logprobs = script_int(L, 2, name, "logprobs", -1),
    };
    o->logprobs = o->top_logprobs >= 0;
    if (!o->logprobs) o->top_logprobs = 0;
    if (o->n < 1 || o->n > MAX_N) script_fail(L, "%s: n: expected 1 to %d", name, MAX_N);
    if (o->max_tokens < 1) script_fail(L, "%s: max_tokens: expected 1 or more", name);
    if (o->temperature < 0) script_fail(L, "%s: temperature: expected 0 or more", name);
    if (o->top_p <= 0 || o->top_p > 1) script_fail(L, "%s: top_p: expected more than 0, up to 1", name);
    if (o->top_k < 0) script_fail(L, "%s: top_k: expected 0 or more", name);
    if (o->min_p < 0 || o->min_p > 1) script_fail(L, "%s: min_p: expected 0 to 1", name);
    if (o->repetition_penalty <= 0) script_fail(L, "%s: repetition_penalty: expected more than 0", name);
    o->stop = script_texts(L, 2, name, "stop", &o->n_stop);
}

/* A token of a text. */
typedef struct {
    int32_t id, n_top;
    float logp;
    int32_t *top_ids; /* [n_top] and their log-probs; malloc'd */
    float *top_logps;
} result_token;

/* A text and its tokens, which are collected outside of Lua, because a callback must not raise. */
typedef struct {
    char *text;
    result_token *tokens;
    size_t n, room;
    uint32_t finish;
} result;

/* The collector frees them in any case. */
typedef struct {
    size_t n;
    result list[];
} results;

static int free_results(lua_State *L)
{
    results *r = lua_touserdata(L, 1);
    for (size_t i = 0; i < r->n; i++) {
        for (size_t t = 0; t < r->list[i].n; t++)
            free(r->list[i].tokens[t].top_ids);
        free(r->list[i].tokens);
        free(r->list[i].text);
    }
    r->n = 0;
    return 0;
}

static results *push_results(lua_State *L, size_t n)
{
    results *r = lua_newuserdatauv(L, sizeof *r + n * sizeof *r->list, 0);
    memset(r, 0, sizeof *r + n * sizeof *r->list);
    r->n = n;
    if (luaL_newmetatable(L, "nrl.results")) {
        lua_pushcfunction(L, free_results);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return r;
}

static nrl_status take_token(void *user, const nrl_sampled_token *t)
{
    result *r = &((results *)user)->list[t->text];
    if (r->n == r->room) {
        r->room = 2 * r->room + 16;
        result_token *grown = realloc(r->tokens, r->room * sizeof *grown);
        if (!grown) return nrl_fail(NRL_ERR_MEMORY, "out of memory");
        r->tokens = grown;
    }
    result_token *k = &r->tokens[r->n];
    *k = (result_token){.id = t->id, .logp = t->logp, .n_top = (int32_t)t->n_top};
    if (t->n_top) {
        k->top_ids = malloc(t->n_top * (sizeof *k->top_ids + sizeof *k->top_logps));
        if (!k->top_ids) return nrl_fail(NRL_ERR_MEMORY, "out of memory");
        k->top_logps = (float *)(void *)(k->top_ids + t->n_top);
        memcpy(k->top_ids, t->top_ids, t->n_top * sizeof *k->top_ids);
        memcpy(k->top_logps, t->top_logps, t->n_top * sizeof *k->top_logps);
    }
    r->n++;
    r->finish = t->finish;
    return NRL_OK;
}

/* {ids = {...}, finish = "stop", logprobs = {...}, top = {{{id = 1, logprob = -0.5}, ...}, ...}} */
static void push_details(lua_State *L, const result *r, const nrl_sample_options *o)
{
    lua_createtable(L, 0, 4);
    lua_pushstring(L, r->finish == NRL_FINISH_STOP ? "stop" : "length");
    lua_setfield(L, -2, "finish");
    lua_createtable(L, (int)r->n, 0);
    for (size_t t = 0; t < r->n; t++) {
        lua_pushinteger(L, r->tokens[t].id);
        lua_rawseti(L, -2, (lua_Integer)t + 1);
    }
    lua_setfield(L, -2, "ids");
    if (!o->logprobs) return;
    lua_createtable(L, (int)r->n, 0);
    lua_createtable(L, (int)r->n, 0);
    for (size_t t = 0; t < r->n; t++) {
        const result_token *k = &r->tokens[t];
        lua_pushnumber(L, (lua_Number)k->logp);
        lua_rawseti(L, -3, (lua_Integer)t + 1);
        lua_createtable(L, k->n_top, 0);
        for (int32_t i = 0; i < k->n_top; i++) {
            lua_createtable(L, 0, 2);
            lua_pushinteger(L, k->top_ids[i]);
            lua_setfield(L, -2, "id");
            lua_pushnumber(L, (lua_Number)k->top_logps[i]);
            lua_setfield(L, -2, "logprob");
            lua_rawseti(L, -2, i + 1);
        }
        lua_rawseti(L, -2, (lua_Integer)t + 1);
    }
    lua_setfield(L, -3, "top");
    lua_setfield(L, -2, "logprobs");
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
    const size_t n_texts = n * (size_t)o.n;
    results *r = push_results(L, n_texts);
    char **texts = arena_alloc(script_arena(L), (n_texts + 1) * sizeof *texts);
    o.token = take_token;
    o.token_user = r;
    handle *h = handle_enter(L);
    nrl_status st = n ? nrl_run_sample(h->r, prompts, n, &o, texts, NULL) : NRL_OK;
    for (size_t i = 0; i < n_texts; i++)
        r->list[i].text = texts[i];
    handle_leave(L, h, st);
    lua_createtable(L, (int)n_texts, 0);
    lua_createtable(L, (int)n_texts, 0);
    for (size_t i = 0; i < n_texts; i++) {
        lua_pushstring(L, r->list[i].text);
        lua_rawseti(L, -3, (lua_Integer)i + 1);
        push_details(L, &r->list[i], &o);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 2;
}
