/*
 * loss.c - nrl.loss{name =, needs =, weight =, loss =, ...}: fills the same nrl_algorithm as a
 * plugin, from functions over Lua tensors. The trainer cannot tell them apart. Losses live as long
 * as the script; runs find them by name before they look for plugin files.
 */
#include "base/node.h"
#include "config/suggest.h"
#include "script/tensor.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_METRICS = 64 };

typedef struct script_loss {
    nrl_algorithm table;
    script_host *host;
    struct script_loss *next;
    int definition;    /* registry reference of the table given to nrl.loss */
    nrl_status failed; /* of a `weight`, which cannot report: told by the next call of the loss */
    const char *failure;
} script_loss;

/* ---- calling Lua ---- */

/* What a protected call is about: `function` of the loss with one argument or two lists. */
typedef struct {
    script_loss *loss;
    const char *function;
    const nrl_batch *batch;
    nrl_tensor **sums;             /* results of `loss` */
    double *weights;               /* results of `weight` */
    const double *total, *divisor; /* arguments of `step_end` */
} request;

enum { PLACE = 2, RESULT = 3 }; /* stack of call_function */

/* Pushes "file:line: " of the function on top, for mistakes in what it returned. */
static void insert_place(lua_State *L)
{
    lua_Debug info;
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &info);
    lua_pushfstring(L, "%s:%d: ", info.short_src, info.linedefined);
    lua_insert(L, PLACE);
}

/* One result, or a list of as many as there are terms: pushes result k. */
static void push_result(lua_State *L, uint32_t n_terms, uint32_t k)
{
    const char *place = lua_tostring(L, PLACE);
    bool list = lua_istable(L, RESULT);
    if (list && lua_rawlen(L, RESULT) != n_terms)
        script_fail_at(L, place, "expected %u results (terms = %u), found %d", n_terms, n_terms,
                       (int)lua_rawlen(L, RESULT));
    if (!list && n_terms > 1)
        script_fail_at(L, place, "expected a list of %u results, found one %s", n_terms,
                       luaL_typename(L, RESULT));
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
        script_fail_at(L, place, "a loss returns tensors, found a %s", luaL_typename(L, -1));
    *sum = tensor_at(L, -1);
    if (nrl_tensor_numel(*sum) != 1)
        script_fail_at(L, place,
                       "a loss returns one number, found %s\nhint: end it with :sum(); the core "
                       "divides by the weight",
                       luaL_tolstring(L, -1, NULL));
    if (nrl_tensor_n_dims(*sum) != 1)
        tensor_try(L, nrl_op_reshape(tensor_context(L), *sum, 1, &one, sum));
}

static void take_weight(lua_State *L, double *weight)
{
    int is_number;
    *weight = lua_tonumberx(L, -1, &is_number);
    if (!is_number || !isfinite(*weight) || *weight < 0)
        script_fail_at(L, lua_tostring(L, PLACE), "a weight is a number of 0 or more, found %s",
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
    if (!lua_checkstack(L, LUA_MINSTACK))
        return nrl_fail(NRL_ERR_MEMORY, "no room on the Lua stack");
    h->call = (script_loss_call){.number = h->call.number + 1,
                                 .ctx = ctx,
                                 .loss = q->loss,
                                 .open = true,
                                 .left = SCRIPT_LOSS_INSTRUCTIONS};
    lua_pushcfunction(L, call_function);
    lua_pushlightuserdata(L, (void *)q);
    nrl_status st = script_call(L, 1, 0);
    h->call.open = false;
    h->call.ctx = NULL;
    h->L = L;
    h->from_callback = st != NRL_OK;
    lua_settop(L, top);
    return st;
}

/* ---- the table's members ---- */

static void weigh(void *self, const nrl_batch *batch, double *weight)
{
    script_loss *l = self;
    for (uint32_t k = 0; k < l->table.n_terms; k++)
        weight[k] = 1;
    if (l->failed) return;
    l->failed = enter_lua(&(request){l, "weight", batch, .weights = weight}, NULL);
    if (l->failed) l->failure = arena_strdup(&l->host->memory, nrl_error_text());
}

static nrl_status lose(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    script_loss *l = self;
    if (!l->failed) return enter_lua(&(request){l, "loss", batch, .sums = sums}, ctx);
    nrl_status st = nrl_fail(l->failed, "%s", l->failure);
    l->host->from_callback = true;
    l->failed = NRL_OK;
    return st;
}

static nrl_status step_end(void *self, const double *sums, const double *weights)
{
    script_loss *l = self;
    return enter_lua(&(request){l, "step_end", .total = sums, .divisor = weights}, NULL);
}

/* ---- the definition ---- */

static const char *const keys[] = {"name",  "needs",     "weight",   "loss", "metrics",
                                   "terms", "separable", "step_end", NULL};
static const char *const columns[] = {"logps",  "ref_logps",   "entropy",
                                      "sum_p2", "prompt_rows", NULL};
static const char *const counts[] = {"answer_tokens", "prompt_tokens", "sequences", "pairs",
                                     "blocks",        "tokens",        NULL};

static bool is_in(const char *word, const char *const *words, suggestion *near)
{
    for (; *words; words++) {
        if (!strcmp(word, *words)) return true;
        suggest_offer(near, *words);
    }
    return false;
}

/* Columns go to the core; counts are always there, "pairs" says what a block of data is. */
static void read_needs(lua_State *L, script_loss *l)
{
    size_t n, kept = 0;
    const char **words = script_texts(L, 1, "nrl.loss", "needs", &n);
    const char **list = arena_alloc(&l->host->memory, (n + 1) * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        suggestion near = {.word = words[i]};
        if (is_in(words[i], columns, &near)) {
            list[kept++] = arena_strdup(&l->host->memory, words[i]);
            continue;
        }
        if (!is_in(words[i], counts, &near))
            script_fail(L, "nrl.loss: needs: there is no '%s'%s%s%s", words[i],
                        near.best ? "; did you mean '" : "", near.best ? near.best : "",
                        near.best ? "'?" : "");
        if (!strcmp(words[i], "pairs")) l->table.block_kind = 1;
    }
    l->table.needs = list;
}

/* metrics = {["rewards/chosen"] = "mean"}, sorted by name so that every rank has the same rows. */
static void read_metrics(lua_State *L, script_loss *l)
{
    static const char *const words[] = {"", "mean", "sum", "max", "min"};
    if (lua_getfield(L, 1, "metrics") == LUA_TNIL) return;
    arena *a = script_arena(L);
    const nrl_node *map = script_to_node(L, -2, a, "nrl.loss: metrics");
    size_t n = nrl_node_size(map);
    if (nrl_node_kind(map) != NRL_NODE_MAP || n > MAX_METRICS)
        script_fail(L, "nrl.loss: metrics: expected {name = \"mean\"}, up to %d names",
                    MAX_METRICS);
    nrl_metric *rows = arena_alloc(&l->host->memory, (n + 1) * sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        const char *word = nrl_node_string(nrl_node_at(map, i), "");
        rows[i] = (nrl_metric){arena_strdup(&l->host->memory, nrl_node_key(map, i)), "1", 0};
        for (uint32_t r = NRL_REDUCE_MEAN; r <= NRL_REDUCE_MIN; r++)
            if (!strcmp(word, words[r])) rows[i].reduce = r;
        if (!rows[i].reduce)
            script_fail(L, "nrl.loss: metrics: %s: expected mean, sum, max or min", rows[i].name);
    }
    l->table.metrics = rows;
}

uint32_t loss_metric(lua_State *L, const char *name, uint32_t *reduce)
{
    const script_loss *l = script_of(L)->call.loss;
    const nrl_metric *rows = l ? l->table.metrics : NULL;
    for (uint32_t i = 0; rows && rows[i].name; i++)
        if (!strcmp(rows[i].name, name)) {
            *reduce = rows[i].reduce;
            return i;
        }
    script_fail(L, "this loss has no metric '%s'\nhint: metrics = {[\"%s\"] = \"mean\"}", name,
                name);
    return 0;
}

static void check_function(lua_State *L, const char *name, bool required)
{
    int type = lua_getfield(L, 1, name);
    if (type != LUA_TFUNCTION && (required || type != LUA_TNIL))
        script_fail(L, "nrl.loss: %s: expected a function, found %s", name, luaL_typename(L, -1));
    lua_pop(L, 1);
}

static void read_definition(lua_State *L, script_loss *l)
{
    int64_t terms = script_int(L, 1, "nrl.loss", "terms", 1);
    check_function(L, "weight", true);
    check_function(L, "loss", true);
    check_function(L, "step_end", false);
    if (terms < 1 || terms > NRL_MAX_TERMS)
        script_fail(L, "nrl.loss: terms: expected 1 to %d", NRL_MAX_TERMS);
    l->table.n_terms = (uint32_t)terms;
    l->table.separable = script_bool(L, 1, "nrl.loss", "separable", false);
    read_needs(L, l);
    read_metrics(L, l);
    if (lua_getfield(L, 1, "step_end") != LUA_TNIL) l->table.step_end = step_end;
}

static script_loss *find(script_host *h, const char *name)
{
    script_loss *l = h->losses;
    while (l && strcmp(l->table.plugin.name, name))
        l = l->next;
    return l;
}

const nrl_algorithm *script_find_loss(void *user, const char *name, void **self)
{
    script_loss *l = find(user, name);
    *self = l;
    return l ? &l->table : NULL;
}

/* nrl.loss{...} -> its name, for cfg.algorithm */
static int define(lua_State *L)
{
    script_host *h = script_of(L);
    lua_settop(L, 1);
    script_check_keys(L, 1, "nrl.loss", keys);
    const char *name = script_text(L, 1, "nrl.loss", "name");
    if (!name || !*name) return script_fail(L, "nrl.loss: name = \"...\" is missing");
    if (find(h, name)) return script_fail(L, "nrl.loss: there is a loss '%s' already", name);
    script_loss *l = arena_alloc(&h->memory, sizeof *l);
    *l = (script_loss){
        .table = {.plugin = {.abi = NRL_ABI,
                             .build = NRL_BUILD,
                             .kind = NRL_KIND_ALGORITHM,
                             .size = sizeof l->table,
                             .option_size = sizeof(nrl_option),
                             .name = arena_strdup(&h->memory, name),
                             .version = "script",
                             .summary = "a loss of the script"},
                  .weight = weigh,
                  .loss = lose},
        .host = h,
        .next = h->losses,
    };
    read_definition(L, l);
    lua_pushvalue(L, 1);
    l->definition = luaL_ref(L, LUA_REGISTRYINDEX);
    h->losses = l;
    lua_pushstring(L, l->table.plugin.name);
    return 1;
}

void script_open_losses(lua_State *L)
{
    lua_pushcfunction(L, define);
    lua_setfield(L, -2, "loss");
    lua_pushcfunction(L, script_gradcheck);
    lua_setfield(L, -2, "gradcheck");
}
