/*
 * batch.c - the packed batch as a Lua loss sees it. P target positions, S segments (documents, or
 * sides of pairs). In `weight` only counts are available, because no forward has run.
 */
#include "base/suggest.h"
#include "loss.h"
#include <stdlib.h>
#include <string.h>

static const char type_name[] = "nrl.batch";

typedef struct {
    const nrl_batch *b;
    uint64_t call;
} handle;

void batch_push(lua_State *L, const nrl_batch *b)
{
    handle *h = lua_newuserdatauv(L, sizeof *h, 0);
    *h = (handle){b, script_of(L)->call.number};
    luaL_setmetatable(L, type_name);
}

static const nrl_batch *batch_at(lua_State *L)
{
    const handle *h = luaL_checkudata(L, 1, type_name);
    const script_loss_call *call = &script_of(L)->call;
    if (!call->open || h->call != call->number) script_fail(L, "this batch belongs to an earlier step");
    return h->b;
}

/* ---- columns ---- */

static int push_column(lua_State *L, const char *name)
{
    const nrl_batch *b = batch_at(L);
    nrl_tensor *t;
    if (!script_of(L)->call.ctx)
        return script_fail(
            L,
            "%s: not available in `weight`, which runs before any forward\nhint: compute weights from counts (b:count)",
            name);
    tensor_try(L, nrl_batch_column(script_of(L)->call.ctx, b, name, &t));
    tensor_push(L, t);
    return 1;
}

/* b:logps() ...: the column is upvalue 1. */
static int column(lua_State *L)
{
    return push_column(L, lua_tostring(L, lua_upvalueindex(1)));
}

/* b:extra "score" [S] */
static int extra(lua_State *L)
{
    return push_column(L, luaL_checkstring(L, 2));
}

/* ---- counts ---- */

static const char *const counts[] = {"answer_tokens", "prompt_tokens", "sequences", "pairs",
                                     "examples",      "tokens",        NULL};

static int count(lua_State *L)
{
    const nrl_batch *b = batch_at(L);
    const char *name = luaL_checkstring(L, 2);
    suggestion near = {.word = name};
    for (int i = 0; counts[i]; i++) {
        suggest_offer(&near, counts[i]);
        if (strcmp(counts[i], name)) continue;
        lua_pushnumber(L, nrl_batch_count(b, name));
        return 1;
    }
    if (near.best) return script_fail(L, "count: unknown count '%s'\nhint: did you mean '%s'?", name, near.best);
    return script_fail(L,
                       "count: unknown count '%s'; expected answer_tokens, prompt_tokens, sequences, "
                       "pairs, examples or tokens",
                       name);
}

/* ---- from target positions to segments, from segments to pairs ---- */

/* b:seq_sum(x): x [P] -> [S] */
static int seq_sum(lua_State *L)
{
    const nrl_batch *b = batch_at(L);
    nrl_tensor *x = tensor_at(L, 2), *y;
    int64_t n = nrl_batch_n_targets(b);
    if (nrl_tensor_numel(x) != n)
        return script_fail(L, "seq_sum: expected one value per target position (%lld), found %lld", (long long)n,
                           (long long)nrl_tensor_numel(x));
    tensor_try(L,
               nrl_op_segment_sum(tensor_context(L), x, nrl_batch_target_segments(b), n, nrl_batch_n_segments(b), &y));
    tensor_push(L, y);
    return 1;
}

/* Segments of one side, in the order of their examples; the collector owns the array. */
static int64_t side_index(lua_State *L, const nrl_batch *b, int32_t side, int32_t **index)
{
    const int32_t *sides = nrl_batch_segment_side(b);
    int64_t n_segments = nrl_batch_n_segments(b), n = 0;
    *index = lua_newuserdatauv(L, (size_t)(n_segments + 1) * sizeof **index, 0);
    for (int64_t s = 0; s < n_segments; s++)
        if (sides[s] == side) (*index)[n++] = (int32_t)s;
    return n;
}

/* b:chosen(x), b:rejected(x): x [S] -> one value per pair; the side is upvalue 1. */
static int one_side(lua_State *L)
{
    const nrl_batch *b = batch_at(L);
    nrl_tensor *x = tensor_at(L, 2), *y;
    int32_t *index, side = (int32_t)lua_tointeger(L, lua_upvalueindex(1));
    if (nrl_tensor_numel(x) != nrl_batch_n_segments(b))
        return script_fail(L, "%s: expected one value per sequence (%lld), found %lld", side ? "rejected" : "chosen",
                           (long long)nrl_batch_n_segments(b), (long long)nrl_tensor_numel(x));
    int64_t n = side_index(L, b, side, &index);
    if ((double)n != nrl_batch_count(b, "pairs"))
        return script_fail(L, "%s: this batch has no pairs\nhint: needs = {\"pairs\", ...}",
                           side ? "rejected" : "chosen");
    tensor_try(L, nrl_op_gather_rows(tensor_context(L), x, index, n, &y));
    tensor_push(L, y);
    return 1;
}

/* ---- metrics ---- */

/* b:metric(name, x [, weight]): a mean is the sum over x / the sum of weights, one weight per value of x. */
static int metric(lua_State *L)
{
    uint32_t reduce, index = loss_metric(L, luaL_checkstring(L, 2), &reduce);
    nrl_ctx *ctx = tensor_context(L);
    nrl_tensor *x = tensor_or_number_at(L, 3);
    batch_at(L);
    double weight = luaL_optnumber(L, 4, (double)nrl_tensor_numel(x));
    if ((reduce == NRL_REDUCE_MAX || reduce == NRL_REDUCE_MIN) && nrl_tensor_numel(x) != 1)
        return script_fail(L, "metric: a max or min takes one value, found %lld", (long long)nrl_tensor_numel(x));
    tensor_try(L, nrl_op_detach(ctx, x, &x));
    if (nrl_tensor_numel(x) != 1) tensor_try(L, nrl_op_sum(ctx, x, &x));
    tensor_try(L, nrl_metric_add(ctx, index, x, weight));
    return 0;
}

/* ---- the base of the loss ---- */

static int base_weight(lua_State *L)
{
    return loss_base_push_weight(L, batch_at(L));
}

static int base_loss(lua_State *L)
{
    return loss_base_push_loss(L, batch_at(L));
}

static const luaL_Reg methods[] = {
    {"count", count},         {"seq_sum", seq_sum}, {"extra", extra}, {"metric", metric}, {"base_weight", base_weight},
    {"base_loss", base_loss}, {NULL, NULL},
};

void script_open_batches(lua_State *L)
{
    static const char *const columns[][2] = {
        {"logps", "logps"},   {"ref_logps", "ref_logps"}, {"entropy", "entropy"}, {"sum_p2", "sum_p2"},  {"lse", "lse"},
        {"logits", "logits"}, {"hidden", "hidden"},       {"mask", "weights"},    {"weights", "weights"}};
    luaL_newmetatable(L, type_name);
    luaL_newlib(L, methods);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        lua_pushstring(L, columns[i][1]);
        lua_pushcclosure(L, column, 1);
        lua_setfield(L, -2, columns[i][0]);
    }
    for (int side = 0; side < 2; side++) {
        lua_pushinteger(L, side);
        lua_pushcclosure(L, one_side, 1);
        lua_setfield(L, -2, side ? "rejected" : "chosen");
    }
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
