/*
 * hooks.c - run:on(name, function): calls Lua functions from the core's callbacks. The core is on the
 * C stack, so nothing here may raise outside script_call.
 */
#include "handle.h"
#include <math.h>
#include <string.h>

/* The arguments of a callback. */
typedef struct {
    const char *name;
    handle *h;
    const nrl_run_event *e; /* step, eval */
    int64_t step;           /* save */
    const char *path;
} call;

static void set_number(lua_State *L, const char *name, double value)
{
    lua_pushnumber(L, value);
    lua_setfield(L, -2, name);
}

void handle_push_values(lua_State *L, const nrl_value *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        set_number(L, values[i].name, values[i].value);
}

void handle_push_event(lua_State *L, const nrl_run_event *e)
{
    lua_createtable(L, 0, 9 + (int)e->n_values);
    handle_push_values(L, e->values, e->n_values);
    set_number(L, "loss", e->loss);
    set_number(L, "grad_norm", e->grad_norm);
    set_number(L, "lr", e->lr);
    set_number(L, "epoch", e->epoch);
    set_number(L, "tokens", e->tokens);
    set_number(L, "tokens_per_s", e->tokens_per_s);
    set_number(L, "seconds", e->seconds);
    lua_pushinteger(L, e->step);
    lua_setfield(L, -2, "step");
    lua_pushboolean(L, e->skipped);
    lua_setfield(L, -2, "skipped");
}

static void set_text(lua_State *L, const char *name, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
}

/* {step =, samples = {{prompt =, text =, answer =, tokens =, index =, cut =}, ...}} */
static void push_samples(lua_State *L, const nrl_run_event *e)
{
    lua_createtable(L, 0, 2);
    lua_pushinteger(L, e->step);
    lua_setfield(L, -2, "step");
    lua_createtable(L, (int)e->n_samples, 0);
    for (size_t i = 0; i < e->n_samples; i++) {
        const nrl_sample_text *s = &e->samples[i];
        lua_createtable(L, 0, 7);
        set_text(L, "prompt", s->prompt);
        set_text(L, "text", s->text);
        set_text(L, "answer", s->answer);
        lua_pushinteger(L, s->tokens);
        lua_setfield(L, -2, "tokens");
        lua_pushinteger(L, s->index + 1);
        lua_setfield(L, -2, "index");
        lua_pushboolean(L, s->is_cut);
        lua_setfield(L, -2, "cut");
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "samples");
}

/* What the hooks have set as score of each text: a boolean, or a number from 0 to 1. The argument is on top. */
static void take_scores(lua_State *L, const nrl_run_event *e)
{
    const int top = lua_gettop(L);
    lua_getfield(L, top, "samples");
    for (size_t i = 0; i < e->n_samples && lua_istable(L, top + 1); i++) {
        lua_settop(L, top + 1);
        if (lua_rawgeti(L, top + 1, (lua_Integer)i + 1) != LUA_TTABLE) continue;
        if (lua_getfield(L, top + 2, "score") == LUA_TNIL) continue;
        double score = lua_isboolean(L, -1) ? lua_toboolean(L, -1) : luaL_checknumber(L, -1);
        if (!(score >= 0 && score <= 1))
            script_fail(L, "samples hook: score of text %d: expected true, false or 0 to 1, found %f", (int)i + 1,
                        score);
        *e->samples[i].score = score;
    }
    lua_settop(L, top);
}

static void push_argument(lua_State *L, const call *c)
{
    if (c->e && c->e->kind == NRL_EVENT_SAMPLES) {
        push_samples(L, c->e);
        return;
    }
    if (c->e) {
        handle_push_event(L, c->e);
        return;
    }
    lua_createtable(L, 0, 2);
    lua_pushinteger(L, c->step);
    lua_setfield(L, -2, "step");
    lua_pushstring(L, c->path);
    lua_setfield(L, -2, "path");
}

/* Protected: calls every hook of one name in the order of run:on. (run, call) */
static int call_hooks(lua_State *L)
{
    const call *c = lua_touserdata(L, 2);
    lua_getiuservalue(L, 1, HANDLE_HOOKS);
    if (lua_getfield(L, -1, c->name) == LUA_TTABLE) {
        push_argument(L, c);
        lua_Integer n = (lua_Integer)lua_rawlen(L, -2);
        for (lua_Integer i = 1; i <= n; i++) {
            lua_rawgeti(L, -2, i);
            lua_pushvalue(L, -2);
            lua_pushvalue(L, 1);
            lua_call(L, 2, 0);
        }
        if (c->e && c->e->kind == NRL_EVENT_SAMPLES) take_scores(L, c->e);
    }
    lua_settop(L, 2);
    handle_sync_state(L, c->h); /* changes by the hooks are saved with this step */
    return 0;
}

static nrl_status enter_lua(const call *c)
{
    lua_State *L = c->h->host->L;
    int top = lua_gettop(L);
    if (!lua_checkstack(L, LUA_MINSTACK)) return nrl_fail(NRL_ERR_MEMORY, "the Lua stack is full");
    lua_pushcfunction(L, call_hooks);
    lua_pushvalue(L, 1); /* the run, at index 1 of the function above: see handle.h */
    lua_pushlightuserdata(L, (void *)c);
    nrl_status st = script_callback(L, 2);
    c->h->host->L = L; /* a hook may have called the core from a coroutine, or for another run */
    c->h->host->rules = c->h->rules;
    lua_settop(L, top);
    script_of(L)->from_callback = st != NRL_OK;
    return st;
}

static nrl_status on_step(handle *h, const nrl_run_event *e)
{
    h->lr = e->lr;
    h->last = *e;
    h->last.values = NULL;
    h->last.n_values = 0;
    return enter_lua(&(call){.name = "step", .h = h, .e = e});
}

nrl_status handle_event(void *user, nrl_run *r, const nrl_run_event *e)
{
    handle *h = user;
    const nrl_environment *given = &h->host->run;
    if ((e->text || e->plan) && given->event)
        return given->event(given->event_user, r, e); /* `nrl check` prints them */
    if (!r) return NRL_OK;                            /* the run is still being opened */
    if (e->kind == NRL_EVENT_STEP) return on_step(h, e);
    if (e->kind == NRL_EVENT_EVAL) return enter_lua(&(call){.name = "eval", .h = h, .e = e});
    if (e->kind == NRL_EVENT_SAMPLES) return enter_lua(&(call){.name = "samples", .h = h, .e = e});
    if (e->kind != NRL_EVENT_SAVE) return NRL_OK;
    return enter_lua(&(call){.name = "save", .h = h, .step = e->step, .path = e->path});
}

int handle_on(lua_State *L)
{
    handle_at(L, 1);
    const char *name = luaL_checkstring(L, 2);
    luaL_checktype(L, 3, LUA_TFUNCTION);
    if (strcmp(name, "step") && strcmp(name, "eval") && strcmp(name, "samples") && strcmp(name, "save"))
        return script_fail(L, "run:on: unknown event '%s'; expected step, eval, samples or save", name);
    lua_getiuservalue(L, 1, HANDLE_HOOKS);
    luaL_getsubtable(L, -1, name);
    lua_pushvalue(L, 3);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
    return 0;
}
