/*
 * reward.c - see reward.h. The file is a Lua chunk that returns a function of one table:
 *     return function(sample) return sample.completion == sample.answer and 1 or 0 end
 * or a table of such functions. docs/reinforcement.md lists the fields of a sample. Each rank has a state of its own.
 */
#include "reward.h"
#include "base/file.h"
#include <lauxlib.h>
#include <lualib.h>
#include <math.h>
#include <nrl/run.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 24 };

struct reward_script {
    lua_State *lua;
    char *path;
    int32_t n;
    char names[REWARD_MAX][REWARD_NAME]; /* ascending */
};

/* ---- the file ---- */

/* Modules beside the file come first; LUA_PATH cannot change an experiment. Argument: the path of the file. */
static int open_libraries(lua_State *L)
{
    const char *path = lua_tostring(L, 1), *slash = strrchr(path, '/');
    lua_pushboolean(L, true);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    luaL_openlibs(L);
    lua_getglobal(L, "package");
    lua_pushlstring(L, slash ? path : ".", slash ? (size_t)(slash - path) : 1);
    lua_pushliteral(L, "/?.lua;");
    lua_getfield(L, -3, "path");
    lua_concat(L, 3);
    lua_setfield(L, -2, "path");
    return 0;
}

static int add_traceback(lua_State *L)
{
    const char *text = lua_tostring(L, 1);
    luaL_traceback(L, L, text ? text : "an error that is not a string", 1);
    return 1;
}

bool reward_name_fits(const char *name)
{
    const size_t n = strlen(name);
    return n > 0 && n < REWARD_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == n;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Arguments: the value of the file, the script. Returns a list of its functions. */
static int list_functions(lua_State *L)
{
    static const char *const expected =
        "expected a function of a sample that returns its reward, or a table of such "
        "functions by name\nhint: return function(sample) return #sample.completion end";
    reward_script *s = lua_touserdata(L, 2);
    lua_createtable(L, 1, 0);
    if (lua_isfunction(L, 1)) {
        s->n = 1;
        lua_pushvalue(L, 1);
        lua_rawseti(L, 3, 1);
        return 1;
    }
    if (!lua_istable(L, 1)) return luaL_error(L, "'%s' returns a %s; %s", s->path, luaL_typename(L, 1), expected);
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        const char *type = luaL_typename(L, -1);
        if (!reward_name_fits(name) || !lua_isfunction(L, -1))
            return luaL_error(L,
                              "'%s' returns a table with a %s of the name '%s'; expected functions, with names of up "
                              "to %d letters, digits, '_', '-' and '.'\n"
                              "hint: return {short = function(sample) return -#sample.completion end}",
                              s->path, type, luaL_tolstring(L, -2, NULL), REWARD_NAME - 1);
        if (s->n == REWARD_MAX)
            return luaL_error(L, "'%s' returns a table of more than %d functions", s->path, REWARD_MAX);
        strcpy(s->names[s->n++], name);
    }
    if (!s->n) return luaL_error(L, "'%s' returns an empty table; %s", s->path, expected);
    qsort(s->names, (size_t)s->n, sizeof *s->names, compare_names);
    for (int k = 0; k < s->n; k++) {
        lua_getfield(L, 1, s->names[k]);
        lua_rawseti(L, 3, k + 1);
    }
    return 1;
}

/* The list of functions stays at index 2 of the stack, above the handler of errors. */
static nrl_status run_file(reward_script *s, const char *text, size_t size)
{
    lua_State *L = s->lua;
    lua_pushcfunction(L, add_traceback);
    lua_pushcfunction(L, open_libraries);
    lua_pushstring(L, s->path);
    int code = lua_pcall(L, 1, 0, 1);
    const char *name = lua_pushfstring(L, "@%s", s->path);
    if (code == LUA_OK) code = luaL_loadbufferx(L, text, size, name, "t");
    if (code == LUA_OK) code = lua_pcall(L, 0, 1, 1);
    if (code != LUA_OK) return nrl_fail(NRL_ERR_CONFIG, "reward: %s", lua_tostring(L, -1));
    lua_pushcfunction(L, list_functions);
    lua_insert(L, -2);
    lua_pushlightuserdata(L, s);
    if (lua_pcall(L, 2, 1, 0) != LUA_OK) return nrl_fail(NRL_ERR_CONFIG, "reward: %s", lua_tostring(L, -1));
    lua_replace(L, 2);
    lua_settop(L, 2);
    return NRL_OK;
}

nrl_status reward_open(const char *path, reward_script **out)
{
    char *text;
    size_t size;
    const char *forbids = getenv("NRL_NO_SCRIPTS"); /* the flag --no-scripts sets it */
    *out = NULL;
    if (forbids && *forbids)
        return nrl_fail(NRL_ERR_CONFIG, "reward: cannot run '%s': scripts are disabled (--no-scripts, NRL_NO_SCRIPTS)",
                        path);
    if (file_read(path, MAX_BYTES, &text, &size) != NRL_OK) {
        nrl_add_context("reward");
        return NRL_ERR_CONFIG;
    }
    reward_script *s = calloc(1, sizeof *s);
    nrl_status st = NRL_OK;
    if (s) {
        s->path = strdup(path);
        s->lua = luaL_newstate();
    }
    if (!s || !s->path || !s->lua) st = nrl_fail(NRL_ERR_MEMORY, "no memory for the rewards of '%s'", path);
    if (st == NRL_OK) st = run_file(s, text, size);
    free(text);
    if (st == NRL_OK)
        *out = s;
    else
        reward_close(s);
    return st;
}

void reward_close(reward_script *s)
{
    if (!s) return;
    if (s->lua) lua_close(s->lua);
    free(s->path);
    free(s);
}

int32_t reward_n(const reward_script *s)
{
    return s->n;
}

const char *reward_name(const reward_script *s, int32_t k)
{
    return s->names[k];
}

/* ---- a sample ---- */

static int set_seed(lua_State *L)
{
    lua_getglobal(L, "math");
    lua_getfield(L, -1, "randomseed");
    lua_pushvalue(L, 1);
    lua_call(L, 1, 0);
    return 0;
}

void reward_begin(reward_script *s, int64_t step)
{
    lua_pushcfunction(s->lua, set_seed);
    lua_pushinteger(s->lua, step);
    (void)lua_pcall(s->lua, 1, 0, 1); /* a script may have taken `math` away */
    lua_settop(s->lua, 2);
}

/* What the protected function below gets. */
typedef struct {
    const nrl_rollout *rollout;
    int64_t i;
    nrl_rollout_sequence sequence;
    char *texts[3]; /* prompt, completion, answer; NULL without a tokenizer */
    char place[256];
    int32_t k;   /* of the function that runs */
    bool is_nil; /* the function has returned nil: the sample has no such reward */
    double *rewards;
} reward_call;

static void set_ids(lua_State *L, const char *name, const int32_t *ids, int64_t n)
{
    lua_createtable(L, (int)n, 0);
    for (int64_t t = 0; t < n; t++) {
        lua_pushinteger(L, ids[t]);
        lua_rawseti(L, -2, t + 1);
    }
    lua_setfield(L, -2, name);
}

/* Arguments: the functions, the call. Each function gets a table of its own, as it may change it. */
static int call_reward(lua_State *L)
{
    static const char *const names[] = {"prompt", "completion", "answer"};
    reward_call *c = lua_touserdata(L, 2);
    const nrl_rollout_sequence *q = &c->sequence;
    const char *key;
    lua_rawgeti(L, 1, c->k + 1);
    lua_createtable(L, 0, 10);
    for (int k = 0; k < 3; k++) {
        if (!c->texts[k]) continue;
        lua_pushstring(L, c->texts[k]);
        lua_setfield(L, -2, names[k]);
    }
    set_ids(L, "prompt_ids", q->ids, q->n_prompt);
    set_ids(L, "completion_ids", q->ids + q->n_prompt, q->n_completion);
    set_ids(L, "answer_ids", q->answer, q->n_answer);
    lua_pushboolean(L, q->is_finished);
    lua_setfield(L, -2, "finished");
    lua_pushstring(L, c->place);
    lua_setfield(L, -2, "place");
    lua_newtable(L);
    for (int32_t k = 0; (key = nrl_rollout_extra_name(c->rollout, k)); k++) {
        lua_pushnumber(L, nrl_rollout_extra(c->rollout, c->i, key));
        lua_setfield(L, -2, key);
    }
    lua_setfield(L, -2, "extra");
    lua_call(L, 1, 1);
    c->is_nil = lua_isnil(L, -1);
    if (!c->is_nil && !lua_isnumber(L, -1))
        return luaL_error(L, "the reward is a %s; expected a number, or nil for a sample without a reward",
                          luaL_typename(L, -1));
    c->rewards[c->k] = c->is_nil ? (double)NAN : lua_tonumber(L, -1);
    return 0;
}

nrl_status reward_of(reward_script *s, const nrl_rollout *r, int64_t i, double *out)
{
    reward_call c = {.rollout = r, .i = i, .sequence = {.size = sizeof c.sequence}, .rewards = out};
    nrl_rollout_info info = {.size = sizeof info};
    const nrl_rollout_sequence *q = &c.sequence;
    nrl_status st = NRL_OK;
    nrl_rollout_sequence_fill(r, i, &c.sequence);
    nrl_rollout_place(r, i, c.place, sizeof c.place);
    nrl_rollout_info_fill(r, &info);
    if (info.has_text) {
        st = nrl_rollout_text(r, q->ids, q->n_prompt, &c.texts[0]);
        if (st == NRL_OK) st = nrl_rollout_text(r, q->ids + q->n_prompt, q->n_completion, &c.texts[1]);
        if (st == NRL_OK) st = nrl_rollout_text(r, q->answer, q->n_answer, &c.texts[2]);
    }
    for (; c.k < s->n && st == NRL_OK; c.k++) {
        const char *name = s->names[c.k], *quote = *name ? " '" : "", *end = *name ? "'" : "";
        lua_State *L = s->lua;
        lua_pushcfunction(L, call_reward);
        lua_pushvalue(L, 2);
        lua_pushlightuserdata(L, &c);
        if (lua_pcall(L, 2, 0, 1) != LUA_OK)
            st = nrl_fail(NRL_ERR_CONFIG, "reward%s%s%s of %s: %s", quote, name, end, c.place, lua_tostring(L, -1));
        else if (!c.is_nil && !isfinite(out[c.k]))
            st = nrl_fail(NRL_ERR_CONFIG, "reward%s%s%s of %s: %s returned %g; expected a finite number", quote, name,
                          end, c.place, s->path, isnan(out[c.k]) ? (double)NAN : out[c.k]); /* without a sign */
        lua_settop(L, 2);
    }
    for (int k = 0; k < 3; k++)
        nrl_free(c.texts[k]);
    return st;
}
