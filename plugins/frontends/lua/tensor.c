/*
 * tensor.c - tensors in a Lua loss: + - * / and named operations, each one call of an nrl_op_*
 * function, which records itself on the tape. A handle is valid only during the call that created it.
 */
#include "tensor.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char type_name[] = "nrl.tensor";

typedef struct {
    nrl_tensor *t;
    uint64_t call;
} handle;

/* ---- handles ---- */

void tensor_push(lua_State *L, nrl_tensor *t)
{
    script_limits_tensor(L, nrl_tensor_numel(t));
    handle *h = lua_newuserdatauv(L, sizeof *h, 0);
    *h = (handle){t, script_of(L)->call.number};
    luaL_setmetatable(L, type_name);
}

nrl_tensor *tensor_at(lua_State *L, int idx)
{
    const handle *h = luaL_checkudata(L, idx, type_name);
    const script_loss_call *call = &script_of(L)->call;
    if (!call->open || h->call != call->number)
        script_fail(L, "this tensor belongs to an earlier step\nhint: keep numbers (t:item()) instead of tensors");
    return h->t;
}

nrl_ctx *tensor_context(lua_State *L)
{
    nrl_ctx *ctx = script_of(L)->call.ctx;
    if (!ctx) script_fail(L, "tensors exist only while a loss is called");
    return ctx;
}

void tensor_try(lua_State *L, nrl_status st)
{
    if (st != NRL_OK) script_raise(L, st == NRL_ERR_BUG ? NRL_ERR_CONFIG : st);
}

nrl_tensor *tensor_or_number_at(lua_State *L, int idx)
{
    const int64_t one = 1;
    nrl_tensor *t;
    if (lua_type(L, idx) != LUA_TNUMBER) return tensor_at(L, idx);
    float value = (float)lua_tonumber(L, idx);
    tensor_try(L, nrl_tensor_from_host(tensor_context(L), NRL_DTYPE_F32, 1, &one, &value, &t));
    return t;
}

static int push_unary(lua_State *L, nrl_unary op, nrl_tensor *x, double alpha, double beta)
{
    nrl_tensor *y;
    tensor_try(L, nrl_op_unary(tensor_context(L), op, x, alpha, beta, &y));
    tensor_push(L, y);
    return 1;
}

static int push_binary(lua_State *L, nrl_binary op)
{
    nrl_tensor *a = tensor_or_number_at(L, 1), *b = tensor_or_number_at(L, 2), *y;
    tensor_try(L, nrl_op_binary(tensor_context(L), op, a, b, &y));
    tensor_push(L, y);
    return 1;
}

/* ---- operators: a number with a tensor is a scale or a shift, without a tensor of its own ---- */

static bool is_number(lua_State *L, int idx)
{
    return lua_type(L, idx) == LUA_TNUMBER;
}

static int add(lua_State *L)
{
    if (is_number(L, 1)) lua_insert(L, 1); /* a + x = x + a */
    if (!is_number(L, 2)) return push_binary(L, NRL_BINARY_ADD);
    return push_unary(L, NRL_UNARY_AFFINE, tensor_at(L, 1), 1, lua_tonumber(L, 2));
}

static int subtract(lua_State *L)
{
    if (is_number(L, 1)) return push_unary(L, NRL_UNARY_AFFINE, tensor_at(L, 2), -1, lua_tonumber(L, 1));
    if (!is_number(L, 2)) return push_binary(L, NRL_BINARY_SUB);
    return push_unary(L, NRL_UNARY_AFFINE, tensor_at(L, 1), 1, -lua_tonumber(L, 2));
}

static int multiply(lua_State *L)
{
    if (is_number(L, 1)) lua_insert(L, 1);
    if (!is_number(L, 2)) return push_binary(L, NRL_BINARY_MUL);
    return push_unary(L, NRL_UNARY_AFFINE, tensor_at(L, 1), lua_tonumber(L, 2), 0);
}

static int divide(lua_State *L)
{
    if (!is_number(L, 2)) return push_binary(L, NRL_BINARY_DIV);
    return push_unary(L, NRL_UNARY_AFFINE, tensor_at(L, 1), 1 / lua_tonumber(L, 2), 0);
}

static int negate(lua_State *L)
{
    return push_unary(L, NRL_UNARY_NEG, tensor_at(L, 1), 0, 0);
}

static int power(lua_State *L)
{
    return push_unary(L, NRL_UNARY_POW, tensor_at(L, 1), luaL_checknumber(L, 2), 0);
}

/* ---- methods ---- */

/* x:exp(), x:log_sigmoid() ...: the operation is upvalue 1. */
static int unary(lua_State *L)
{
    return push_unary(L, (nrl_unary)lua_tointeger(L, lua_upvalueindex(1)), tensor_at(L, 1), 0, 0);
}

static int clamp(lua_State *L)
{
    double low = luaL_checknumber(L, 2), high = luaL_checknumber(L, 3);
    luaL_argcheck(L, low <= high, 3, "the upper bound is below the lower bound");
    return push_unary(L, NRL_UNARY_CLAMP, tensor_at(L, 1), low, high);
}

static int minimum(lua_State *L)
{
    return push_binary(L, NRL_BINARY_MIN);
}

static int maximum(lua_State *L)
{
    return push_binary(L, NRL_BINARY_MAX);
}

static int greater(lua_State *L)
{
    return push_binary(L, NRL_BINARY_GREATER);
}

typedef nrl_status (*function)(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y);

static const struct {
    const char *name;
    function call;
} functions[] = {
    {"sum", nrl_op_sum},         {"mean", nrl_op_mean},
    {"detach", nrl_op_detach},   {"log_sum_exp", nrl_op_log_sum_exp},
    {"softmax", nrl_op_softmax}, {"log_softmax", nrl_op_log_softmax},
};

/* x:sum() ...: a row of the table above, upvalue 1. */
static int apply(lua_State *L)
{
    nrl_tensor *y;
    function call = functions[lua_tointeger(L, lua_upvalueindex(1))].call;
    tensor_try(L, call(tensor_context(L), tensor_at(L, 1), &y));
    tensor_push(L, y);
    return 1;
}

static int item(lua_State *L)
{
    double value;
    nrl_tensor *t = tensor_at(L, 1);
    if (nrl_tensor_numel(t) != 1)
        return script_fail(L, "item: expected one element, found %lld", (long long)nrl_tensor_numel(t));
    tensor_try(L, nrl_tensor_fetch(tensor_context(L), t, &value, 1));
    lua_pushnumber(L, value);
    return 1;
}

static int shape(lua_State *L)
{
    const nrl_tensor *t = tensor_at(L, 1);
    lua_createtable(L, nrl_tensor_n_dims(t), 0);
    for (int i = 0; i < nrl_tensor_n_dims(t); i++) {
        lua_pushinteger(L, nrl_tensor_dim(t, i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* nrl.where(mask, a, b): a where the mask is not 0; numbers are broadcast to its shape. */
static int where(lua_State *L)
{
    nrl_ctx *ctx = tensor_context(L);
    nrl_tensor *mask = tensor_at(L, 1), *sides[2], *zero, *y;
    tensor_try(L, nrl_op_binary(ctx, NRL_BINARY_GREATER, mask, mask, &zero)); /* 0 also for what is not finite */
    for (int i = 0; i < 2; i++) {
        sides[i] = tensor_or_number_at(L, 2 + i);
        if (nrl_tensor_numel(sides[i]) == nrl_tensor_numel(mask)) continue;
        tensor_try(L, nrl_op_binary(ctx, NRL_BINARY_ADD, zero, sides[i], &sides[i]));
    }
    tensor_try(L, nrl_op_where(ctx, mask, sides[0], sides[1], &y));
    tensor_push(L, y);
    return 1;
}

static int describe(lua_State *L)
{
    const nrl_tensor *t = tensor_at(L, 1);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    luaL_addstring(&b, "tensor [");
    for (int i = 0; i < nrl_tensor_n_dims(t); i++) {
        char text[32];
        snprintf(text, sizeof text, "%s%lld", i ? "," : "", (long long)nrl_tensor_dim(t, i));
        luaL_addstring(&b, text);
    }
    luaL_addstring(&b, "]");
    luaL_pushresult(&b);
    return 1;
}

static int count(lua_State *L)
{
    lua_pushinteger(L, nrl_tensor_numel(tensor_at(L, 1)));
    return 1;
}

/* Upvalue 1: the methods. */
static int get(lua_State *L)
{
    tensor_at(L, 1);
    lua_pushvalue(L, 2);
    if (lua_type(L, 2) == LUA_TSTRING && lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
    if (lua_isnumber(L, 2))
        return script_fail(L, "a tensor has no elements to loop over\nhint: operations on whole "
                              "tensors (x:sum(), b:seq_sum(x), nrl.where) are recorded for the gradient");
    return script_fail(L, "a tensor has no operation '%s'", luaL_tolstring(L, 2, NULL));
}

/* ---- registration ---- */

static const struct {
    const char *name;
    nrl_unary op;
} unaries[] = {
    {"neg", NRL_UNARY_NEG},           {"exp", NRL_UNARY_EXP},
    {"log", NRL_UNARY_LOG},           {"sqrt", NRL_UNARY_SQRT},
    {"square", NRL_UNARY_SQUARE},     {"reciprocal", NRL_UNARY_RECIPROCAL},
    {"abs", NRL_UNARY_ABS},           {"relu", NRL_UNARY_RELU},
    {"sigmoid", NRL_UNARY_SIGMOID},   {"log_sigmoid", NRL_UNARY_LOG_SIGMOID},
    {"softplus", NRL_UNARY_SOFTPLUS}, {"tanh", NRL_UNARY_TANH},
    {"silu", NRL_UNARY_SILU},         {"gelu", NRL_UNARY_GELU},
    {"expm1", NRL_UNARY_EXPM1},       {"log1p", NRL_UNARY_LOG1P},
};

static const luaL_Reg methods[] = {
    {"clamp", clamp}, {"pow", power}, {"min", minimum}, {"max", maximum},
    {"gt", greater},  {"item", item}, {"shape", shape}, {NULL, NULL},
};

static const luaL_Reg operators[] = {
    {"__add", add},   {"__sub", subtract},      {"__mul", multiply}, {"__div", divide}, {"__unm", negate},
    {"__pow", power}, {"__tostring", describe}, {"__len", count},    {NULL, NULL},
};

static void push_methods(lua_State *L)
{
    luaL_newlib(L, methods);
    for (size_t i = 0; i < sizeof unaries / sizeof *unaries; i++) {
        lua_pushinteger(L, unaries[i].op);
        lua_pushcclosure(L, unary, 1);
        lua_setfield(L, -2, unaries[i].name);
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        lua_pushinteger(L, (lua_Integer)i);
        lua_pushcclosure(L, apply, 1);
        lua_setfield(L, -2, functions[i].name);
    }
}

void script_open_tensors(lua_State *L)
{
    luaL_newmetatable(L, type_name);
    luaL_setfuncs(L, operators, 0);
    push_methods(L);
    lua_pushcclosure(L, get, 1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_pushcfunction(L, where);
    lua_setfield(L, -2, "where");
}
