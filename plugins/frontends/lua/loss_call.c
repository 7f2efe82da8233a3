/*
 * loss_call.c - calls the script's functions for the members of a loss's table, and converts their
 * results. Called by core/run on the step thread, inside a call of the core that Lua made.
 */
#include "loss.h"
#include <math.h>

/* The request of a protected call: `function` of the loss, with one argument or two lists. */
typedef struct {
    script_loss *loss;
    const char *function;
    const nrl_batch *batch;
    nrl_tensor **sums;             /* results of `loss` */
    double *weights;               /* results of `weight` */
    const double *total, *divisor; /* arguments of `step_end` */
} request;

enum { PLACE = 2, RESULT = 3 }; /* stack of call_function */

/* Pushes "file:line: " of the function on top, for errors in its results. */
static void insert_place(lua_State *L)
{
    lua_Debug info;
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &info);
    lua_pushfstring(L, "%s:%d: ", info.short_src, info.linedefined);
    lua_insert(L, PLACE);
}

/* One result, or a list of as many results as there are terms: pushes result k. */
static void push_result(lua_State *L, uint32_t n_terms, uint32_t k)
{
    const char *place = lua_tostring(L, PLACE);
    bool list = lua_istable(L, RESULT);
    if (list && lua_rawlen(L, RESULT) != n_terms)
        script_fail_at(L, place, "expected %u results (terms = %u), found %d", n_terms, n_terms,
                       (int)lua_rawlen(L, RESULT));
    if (!list && n_terms > 1)
        script_fail_at(L, place, "expected a list of %u results, found one %s", n_terms, luaL_typename(L, RESULT));
    if (list)
        lua_rawgeti(L, RESULT, (lua_Integer)k + 1);
    else
        lua_pushvalue(L, RESULT);
}

static void take_sum(lua_State *L, nrl_tensor **sum)
{
    const char *place = lua_tostring(L, PLACE);
    const int64_t one = 1;
    if (!lua_isuserdata(L, -1))
        script_fail_at(L, place, "a loss must return tensors, found a %s", luaL_typename(L, -1));
    *sum = tensor_at(L, -1);
    if (nrl_tensor_numel(*sum) != 1)
        script_fail_at(L, place,
                       "a loss must return one number, found %s\nhint: end it with :sum(); the core "
                       "divides by the weight",
                       luaL_tolstring(L, -1, NULL));
    if (nrl_tensor_n_dims(*sum) != 1) tensor_try(L, nrl_op_reshape(tensor_context(L), *sum, 1, &one, sum));
}

static void take_weight(lua_State *L, double *weight)
{
    int is_number;
    *weight = lua_tonumberx(L, -1, &is_number);
    if (!is_number || !isfinite(*weight) || *weight < 0)
        script_fail_at(L, lua_tostring(L, PLACE), "a weight must be a number of 0 or more, found %s",
                       luaL_tolstring(L, -1, NULL));
}

static void push_list(lua_State *L, const double *values, uint32_t n)
{
    lua_createtable(L, (int)n, 0);
    for (uint32_t k = 0; k < n; k++) {
        lua_pushnumber(L, values[k]);
        lua_rawseti(L, -2, (lua_Integer)k + 1);
    }
}

/* Protected: (request) */
static int call_function(lua_State *L)
{
    const request *q = lua_touserdata(L, 1);
    uint32_t n = q->loss->table.n_terms;
    lua_rawgeti(L, LUA_REGISTRYINDEX, q->loss->definition);
    if (lua_getfield(L, -1, q->function) != LUA_TFUNCTION) return 0;
    lua_remove(L, -2);
    insert_place(L);
    if (!q->batch) {
        push_list(L, q->total, n);
        push_list(L, q->divisor, n);
        lua_call(L, 2, 0);
        return 0;
    }
    batch_push(L, q->batch);
    lua_call(L, 1, 1);
    for (uint32_t k = 0; k < n; k++) {
        push_result(L, n, k);
        if (q->sums)
            take_sum(L, &q->sums[k]);
        else
            take_weight(L, &q->weights[k]);
    }
    return 0;
}

static nrl_status enter_lua(const request *q, nrl_ctx *ctx)
{
    script_host *h = q->loss->host;
    lua_State *L = h->L;
    int top = lua_gettop(L);
    const script_rules rules = h->rules;
    const script_loss_call outer = h->call; /* a call may be open: a loss may use another run, which has a loss too */
    if (!lua_checkstack(L, LUA_MINSTACK)) return nrl_fail(NRL_ERR_MEMORY, "the Lua stack is full");
    h->call = (script_loss_call){.number = ++h->n_calls, .ctx = ctx, .loss = q->loss, .open = true};
    script_limits_begin(h);
    lua_pushcfunction(L, call_function);
    lua_pushlightuserdata(L, (void *)q);
    nrl_status st = script_callback(L, 1);
    h->call.open = false;
    h->rules = rules;
    st = script_limits_end(h, L, st);
    h->call = outer;
    h->L = L;
    h->from_callback = st != NRL_OK;
    lua_settop(L, top);
    return st;
}

/* ---- the table's members ---- */

void loss_weight(void *self, const nrl_batch *batch, double *weight)
{
    script_loss *l = self;
    for (uint32_t k = 0; k < l->table.n_terms; k++)
        weight[k] = 1;
    if (l->failed) return;
    l->failed = enter_lua(&(request){l, "weight", batch, .weights = weight}, NULL);
    if (l->failed) l->failure = arena_strdup(&l->host->memory, nrl_error_text());
}

nrl_status loss_sums(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    script_loss *l = self;
    if (!l->failed) return enter_lua(&(request){l, "loss", batch, .sums = sums}, ctx);
    nrl_status st = nrl_fail(l->failed, "%s", l->failure);
    l->host->from_callback = true;
    l->failed = NRL_OK;
    return st;
}

nrl_status loss_step_end(void *self, const double *sums, const double *weights)
{
    script_loss *l = self;
    if (l->base && l->base->step_end) NRL_TRY(l->base->step_end(l->base_self, sums, weights));
    return enter_lua(&(request){l, "step_end", .total = sums, .divisor = weights}, NULL);
}
