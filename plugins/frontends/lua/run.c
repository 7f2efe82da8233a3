/*
 * run.c - nrl.open(config) and the methods of what it returns. Each method is one call of
 * nrl/run.h.
 */
#include "handle.h"
#include "loss.h"
#include "state.h"
#include <math.h>
#include <nrl/inference.h>
#include <nrl/profile.h>
#include <stdlib.h>
#include <string.h>

static const char type_name[] = "nrl.run";

/* ---- entering and leaving the core ---- */

handle *handle_at(lua_State *L, int idx)
{
    handle *h = luaL_checkudata(L, idx, type_name);
    if (!h->r) script_fail(L, "this run is closed");
    return h;
}

handle *handle_enter(lua_State *L)
{
    handle *h = handle_at(L, 1);
    luaL_checkstack(L, LUA_MINSTACK, "a run's method");
    handle_sync_state(L, h);
    script_of(L)->from_callback = false;
    h->host->L = L;
    h->host->rules = h->rules;
    h->depth++;
    return h;
}

handle *handle_enter_outside(lua_State *L, const char *method)
{
    if (handle_at(L, 1)->depth) script_fail(L, "cannot call run:%s from a hook or a loss", method);
    return handle_enter(L);
}

void handle_leave(lua_State *L, handle *h, nrl_status st)
{
    h->depth--;
    if (st != NRL_OK) script_raise(L, st);
}

void handle_sync_state(lua_State *L, handle *h)
{
    lua_getiuservalue(L, 1, HANDLE_STATE);
    lua_pushnil(L);
    bool is_empty = !lua_next(L, -2);
    if (!is_empty) lua_pop(L, 2);
    if (!is_empty || h->has_state) {
        arena *a = script_arena(L);
        char *json = script_state_write(script_to_node(L, -2, a, "run.state"));
        nrl_run_set_state(h->r, json);
        free(json);
        h->has_state = true;
        arena_free(a);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static void set_training(lua_State *L, handle *h, bool training)
{
    script_of(L)->n_training += training - h->training;
    h->training = training;
}

/* ---- opening ---- */

static void load_state(lua_State *L, handle *h)
{
    const char *json = nrl_run_state(h->r);
    nrl_node *state = NULL;
    arena *a = script_arena(L);
    nrl_status st = json ? script_state_read(a, json, &state) : NRL_OK;
    if (st != NRL_OK) script_raise(L, st);
    if (nrl_node_kind(state) == NRL_NODE_MAP || nrl_node_kind(state) == NRL_NODE_LIST)
        script_push_node(L, state, 0);
    else
        lua_newtable(L);
    lua_setiuservalue(L, -3, HANDLE_STATE);
    arena_free(a);
    lua_pop(L, 1);
    h->has_state = json != NULL;
}

static handle *push_handle(lua_State *L)
{
    handle *h = lua_newuserdatauv(L, sizeof *h, HANDLE_VALUES);
    *h = (handle){.host = script_of(L), .lr = NAN};
    luaL_setmetatable(L, type_name);
    lua_newtable(L);
    lua_setiuservalue(L, -2, HANDLE_STATE);
    lua_newtable(L);
    lua_setiuservalue(L, -2, HANDLE_HOOKS);
    return h;
}

static const char *const open_keys[] = {"quiet", "out", "model", NULL};

/* Second argument of nrl.open: settings of the script that override the command line. */
typedef struct {
    const char *out, *model; /* on the Lua stack; NULL = not given */
} settings;

static settings read_settings(lua_State *L, nrl_environment *env)
{
    if (lua_isnoneornil(L, 2)) return (settings){0};
    script_check_keys(L, 2, "nrl.open", open_keys);
    env->quiet = script_bool(L, 2, "nrl.open", "quiet", env->quiet);
    const char *out = script_text(L, 2, "nrl.open", "out");
    return (settings){out, script_text(L, 2, "nrl.open", "model")};
}

static void apply_settings(arena *a, nrl_node *root, const settings *s)
{
    if (s->out) node_set(a, root, "out", node_text(a, s->out));
    if (!s->model) return;
    nrl_node *model = node_set(a, root, "model", node_new(a, NRL_NODE_MAP));
    node_set(a, model, "path", node_text(a, s->model));
}

/* The user of find_loss. */
typedef struct {
    handle *h;
    nrl_config *config;
} opening;

/* For nrl_environment: the run's own instance of the loss of that name. */
static const nrl_algorithm *find_loss(void *user, const char *name, void **self)
{
    const opening *o = user;
    script_host *host = o->h->host;
    const nrl_node *plugins = nrl_node_find(nrl_config_root(o->config), "plugins");
    script_loss *loss = NULL;
    if (script_loss_create(host, name, plugins, &loss) == NRL_OK) {
        o->h->loss = loss;
    } else { /* the definition stands for it until this mistake is reported: no plugin of its name is missing */
        nrl_config_mistake(o->config, NULL, nrl_error_text());
        loss = script_find_loss(host, name);
    }
    *self = loss;
    return loss ? &loss->table : NULL;
}

/* The whole tree: the script's table, the command line, ${env:}, settings. Nothing here raises: run_open
 * reports the problems found so far with its own. */
static nrl_status open_config(handle *h, nrl_environment *env, arena *a, nrl_node *root, const settings *decided)
{
    const nrl_frontend_job *given = h->host->job;
    nrl_config *config = nrl_config_create(a);
    nrl_config_set_root(config, root);
    for (size_t i = 0; i < given->n_words; i++)
        if (strchr(given->words[i], '=')) nrl_config_override(config, given->words[i]);
    nrl_config_substitute(config, given->environment->variable);
    apply_settings(a, root, decided);
    opening o = {h, config};
    env->find_algorithm = find_loss;
    env->algorithm_user = &o;
    env->event = handle_event;
    env->event_user = h;
    nrl_status st = nrl_run_open(config, env, &h->r);
    nrl_config_destroy(config);
    return st;
}

static const char outs_key; /* in the registry: the set of `out` of the runs that the script has opened */

/* Whether the script has opened a run in `out`, and remembers one that is open now. */
static bool out_is_own(lua_State *L, const char *out, bool is_open)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &outs_key) != LUA_TTABLE) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &outs_key);
    }
    const bool is_own = lua_getfield(L, -1, out) != LUA_TNIL;
    lua_pop(L, 1);
    if (is_open) {
        lua_pushboolean(L, true);
        lua_setfield(L, -2, out);
    }
    lua_pop(L, 1);
    return is_own;
}

/* The core refuses a second run in a directory without knowing that the first one is this script's, too. */
static nrl_status explain_out(lua_State *L, const nrl_node *config, nrl_status st)
{
    const char *out = nrl_node_string(nrl_node_find(config, "out"), "");
    if (st != NRL_ERR_CONFIG || !strstr(nrl_error_text(), "already contains a run") || !out_is_own(L, out, false))
        return st;
    return nrl_fail(
        NRL_ERR_CONFIG,
        "out: '%s' already contains a run that this script has opened before\n"
        "hint: nrl.open(config, {out = \"%s-2\"}) sets the directory of one run; out= on the command line applies to "
        "every run",
        out, out);
}

/* nrl.open(config [, {quiet = , out = , model = }]) -> nrl_run */
static int open_run(lua_State *L)
{
    nrl_environment env = script_of(L)->run;
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    settings decided = read_settings(L, &env);
    handle *h = push_handle(L);
    int self = lua_gettop(L);
    arena *a = script_arena(L); /* the run keeps it alive */
    nrl_node *root = script_to_node(L, 1, a, "config");
    if (nrl_node_kind(root) != NRL_NODE_MAP) return script_fail(L, "nrl.open: expected a config, found a list");
    lua_setiuservalue(L, self, HANDLE_CONFIG);
    if (env.ranks && env.ranks->world > 1) env.script_modules = script_required(L, a);
    nrl_status st = open_config(h, &env, a, root, &decided);
    if (st != NRL_OK) return script_raise(L, explain_out(L, root, st));
    (void)out_is_own(L, nrl_node_string(nrl_node_find(nrl_run_config(h->r), "out"), ""), true);
    if (env.check_only) return script_exit(L, 0);
    h->rules = script_rules_of(nrl_run_config(h->r));
    set_training(L, h, true);
    load_state(L, h);
    return 1;
}

static int close_run(lua_State *L)
{
    handle *h = luaL_checkudata(L, 1, type_name);
    if (h->depth) return script_fail(L, "cannot call run:close from a hook or a loss");
    set_training(L, h, false);
    nrl_status failure = script_of(L)->failure;
    if (h->r && failure != NRL_OK && failure != NRL_ERR_STOPPED) nrl_run_abandon(h->r, failure, nrl_error_text());
    nrl_run_close(h->r);
    script_loss_destroy(h->loss);
    h->r = NULL;
    h->loss = NULL;
    return 0;
}

/* ---- steps ---- */

static int train(lua_State *L)
{
    handle *h = handle_enter_outside(L, "train");
    nrl_status st = nrl_run_train(h->r);
    set_training(L, h, false);
    handle_leave(L, h, st);
    if (!h->last.step) return 0;
    handle_push_event(L, &h->last);
    return 1;
}

static int next_step(lua_State *L)
{
    nrl_run_event e = {.size = sizeof e};
    bool done = false;
    handle *h = handle_enter_outside(L, "steps");
    nrl_status st = nrl_run_step(h->r, &e, &done);
    if (st == NRL_OK && done) st = nrl_run_finish(h->r);
    if (st != NRL_OK || done) set_training(L, h, false);
    handle_leave(L, h, st);
    if (done) return 0;
    handle_push_event(L, &e);
    return 1;
}

/* for e in run:steps() do ... end */
static int steps(lua_State *L)
{
    handle_at(L, 1);
    lua_pushcfunction(L, next_step);
    lua_pushvalue(L, 1);
    return 2;
}

static int finish(lua_State *L)
{
    handle *h = handle_enter_outside(L, "finish");
    nrl_status st = nrl_run_finish(h->r);
    set_training(L, h, false);
    handle_leave(L, h, st);
    return 0;
}

static int stop(lua_State *L)
{
    nrl_run_stop(handle_at(L, 1)->r, luaL_optstring(L, 2, "stopped by the script"));
    return 0;
}

static int set_lr(lua_State *L)
{
    handle *h = handle_at(L, 1);
    double lr = luaL_checknumber(L, 2);
    if (!(lr >= 0) || isinf(lr)) return script_fail(L, "run:set_lr: expected 0 or more, found %g", lr);
    nrl_run_set_lr(h->r, lr);
    h->lr = lr;
    return 0;
}

/* run:set_data(value of data.train) */
static int set_data(lua_State *L)
{
    handle_at(L, 1);
    if (lua_type(L, 2) != LUA_TSTRING && !lua_istable(L, 2))
        return script_fail(L, "run:set_data: expected a file, or a table like data.train");
    arena *a = script_arena(L);
    const nrl_node *train = script_to_node(L, 2, a, "run:set_data");
    handle *h = handle_enter(L);
    handle_leave(L, h, nrl_run_set_data(h->r, train));
    return 0;
}

/* run:report(name, value [, {unit = }]) */
static int report(lua_State *L)
{
    static const char *const keys[] = {"unit", NULL};
    handle *h = handle_at(L, 1);
    const char *name = luaL_checkstring(L, 2), *unit = "1";
    double value = luaL_checknumber(L, 3);
    if (!*name || !strcmp(name, "step") || !strcmp(name, "time"))
        return script_fail(L, "run:report: '%s' cannot be the name of a value", name);
    if (!lua_isnoneornil(L, 4)) {
        script_check_keys(L, 4, "run:report", keys);
        const char *given = script_text(L, 4, "run:report", "unit");
        if (given) unit = given;
    }
    nrl_run_report(h->r, name, unit, value);
    return 0;
}

/* ---- results ---- */

static int evaluate(lua_State *L)
{
    const nrl_value *values = NULL;
    size_t n = 0;
    const char *file = luaL_optstring(L, 2, NULL); /* on the stack for the duration of this call */
    handle *h = handle_enter(L);
    handle_leave(L, h, nrl_run_evaluate(h->r, file, &values, &n));
    lua_newtable(L);
    handle_push_values(L, values, n);
    if (lua_getfield(L, -1, "eval_loss") != LUA_TNIL)
        lua_setfield(L, -2, "loss");
    else
        lua_pop(L, 1);
    return 1;
}

static int save(lua_State *L)
{
    const char *path = NULL;
    handle *h = handle_enter(L);
    handle_leave(L, h, nrl_run_save(h->r, &path));
    lua_pushstring(L, path);
    return 1;
}

static int export(lua_State *L)
{
    const char *dir = luaL_checkstring(L, 2);
    handle *h = handle_enter(L);
    handle_leave(L, h, nrl_run_export(h->r, dir));
    return 0;
}

/* run:profile(true): times operations from the next step on; run:profile() -> {{op =, seconds =, calls =},
 * ...}, slowest first. */
static int profile(lua_State *L)
{
    handle *h = handle_at(L, 1);
    nrl_op_time *rows;
    size_t n;
    if (!lua_isnoneornil(L, 2)) {
        nrl_status st = nrl_run_profile(h->r, lua_toboolean(L, 2));
        return st == NRL_OK ? 0 : script_raise(L, st);
    }
    nrl_status st = nrl_run_op_times(h->r, 0, &rows, &n, NULL);
    if (st != NRL_OK) script_raise(L, st);
    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, rows[i].name);
        lua_setfield(L, -2, "op");
        lua_pushnumber(L, rows[i].seconds);
        lua_setfield(L, -2, "seconds");
        lua_pushinteger(L, rows[i].calls);
        lua_setfield(L, -2, "calls");
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    free(rows);
    return 1;
}

/* ---- fields ---- */

static void push_field(lua_State *L, handle *h, const char *name)
{
    if (!strcmp(name, "step"))
        lua_pushinteger(L, nrl_run_steps_done(h->r));
    else if (!strcmp(name, "total_steps"))
        lua_pushinteger(L, nrl_run_total_steps(h->r));
    else if (!strcmp(name, "out"))
        lua_pushstring(L, nrl_run_out(h->r));
    else if (!strcmp(name, "lr") && isnan(h->lr))
        lua_pushnil(L);
    else if (!strcmp(name, "lr"))
        lua_pushnumber(L, h->lr);
    else if (!strcmp(name, "config"))
        script_push_node(L, nrl_run_config(h->r), 0);
    else if (!strcmp(name, "state"))
        lua_getiuservalue(L, 1, HANDLE_STATE);
    else
        script_fail(L, "a run has no field or method '%s'", name);
}

/* Upvalue 1: the methods. */
static int get_field(lua_State *L)
{
    const char *name = luaL_checkstring(L, 2);
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
    push_field(L, handle_at(L, 1), name);
    return 1;
}

static int set_field(lua_State *L)
{
    const char *name = luaL_checkstring(L, 2);
    handle_at(L, 1);
    if (!strcmp(name, "state")) {
        luaL_checktype(L, 3, LUA_TTABLE);
        lua_setiuservalue(L, 1, HANDLE_STATE);
        return 0;
    }
    if (strcmp(name, "lr"))
        return script_fail(L, "cannot set '%s' of a run; only run.lr and run.state can be set", name);
    lua_remove(L, 2);
    return set_lr(L);
}

static const luaL_Reg methods[] = {
    {"train", train},       {"steps", steps},   {"finish", finish},        {"stop", stop},       {"set_lr", set_lr},
    {"evaluate", evaluate}, {"save", save},     {"export", export},        {"profile", profile}, {"on", handle_on},
    {"set_data", set_data}, {"report", report}, {"sample", handle_sample}, {"close", close_run}, {NULL, NULL},
};

static const luaL_Reg meta[] = {
    {"__gc", close_run},
    {"__close", close_run},
    {"__newindex", set_field},
    {NULL, NULL},
};

void script_open_run(lua_State *L)
{
    luaL_newmetatable(L, type_name);
    luaL_setfuncs(L, meta, 0);
    luaL_newlib(L, methods);
    lua_pushcclosure(L, get_field, 1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_pushcfunction(L, open_run);
    lua_setfield(L, -2, "open");
}
