/*
 * loss.c - nrl.loss{name =, needs =, weight =, loss =, ...}: fills the same nrl_algorithm as a plugin,
 * with functions over Lua tensors. The trainer does not distinguish them. Definitions exist as long as the
 * script; runs find them by name before they look for plugin files, and each has a copy of its own.
 */
#include "loss.h"
#include "base/node.h"
#include "base/suggest.h"
#include <stdlib.h>
#include <string.h>

enum {
    PAIRS = 1 /* nrl_algorithm.example_kind */
};

static const char *const keys[] = {"name",  "needs",     "weight",   "loss", "metrics",
                                   "terms", "tokenwise", "step_end", "base", NULL};
static const char *const columns[] = {"logps",  "ref_logps", "entropy",        "sum_p2", "lse",
                                      "logits", "hidden",    "prompt_targets", NULL};
static const char *const counts[] = {"answer_tokens", "prompt_tokens", "sequences", "pairs",
                                     "examples",      "tokens",        NULL};

static bool is_in(const char *word, const char *const *words, suggestion *near)
{
    for (; *words; words++) {
        if (!strcmp(word, *words)) return true;
        suggest_offer(near, *words);
    }
    return false;
}

/* Columns are passed to the core; counts are always available; "pairs" sets the kind of example. */
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
            script_fail(L, "nrl.loss: needs: there is no '%s'%s%s%s", words[i], near.best ? "; did you mean '" : "",
                        near.best ? near.best : "", near.best ? "'?" : "");
        if (!strcmp(words[i], "pairs")) l->table.example_kind = PAIRS;
    }
    l->table.needs = list;
}

/* The index of a word in a list that begins with "", which stands for none; 0 = not in the list. */
static uint32_t word_index(const nrl_node *node, const char *const *words, uint32_t n)
{
    const char *word = nrl_node_string(node, "");
    for (uint32_t i = 1; i < n; i++)
        if (!strcmp(word, words[i])) return i;
    return 0;
}

/* "mean", or {reduce = "mean", better = "larger"}. */
static void read_metric(lua_State *L, const nrl_node *node, nrl_metric *row)
{
    static const char *const reduces[] = {"", "mean", "sum", "max", "min"}, *const betters[] = {"", "smaller",
                                                                                                "larger"};
    bool is_map = nrl_node_kind(node) == NRL_NODE_MAP;
    const nrl_node *better = nrl_node_find(node, "better");
    row->reduce = word_index(is_map ? nrl_node_find(node, "reduce") : node, reduces, 5);
    row->better = word_index(better, betters, 3);
    for (size_t i = 0; is_map && i < nrl_node_size(node); i++)
        if (strcmp(nrl_node_key(node, i), "reduce") && strcmp(nrl_node_key(node, i), "better"))
            script_fail(L, "nrl.loss: metrics: %s: unknown key '%s'; expected reduce or better", row->name,
                        nrl_node_key(node, i));
    if (!row->reduce) script_fail(L, "nrl.loss: metrics: %s: expected mean, sum, max or min", row->name);
    if (better && !row->better) script_fail(L, "nrl.loss: metrics: %s: better: expected smaller or larger", row->name);
}

/* metrics = {["rewards/chosen"] = "mean"}, sorted by name so that every rank has the same rows. */
static void read_metrics(lua_State *L, script_loss *l)
{
    if (lua_getfield(L, 1, "metrics") == LUA_TNIL) return;
    arena *a = script_arena(L);
    const nrl_node *map = script_to_node(L, -2, a, "nrl.loss: metrics");
    size_t n = nrl_node_size(map);
    if (nrl_node_kind(map) != NRL_NODE_MAP) script_fail(L, "nrl.loss: metrics: expected {name = \"mean\"}");
    nrl_metric *rows = arena_alloc(&l->host->memory, (n + 1) * sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        rows[i] = (nrl_metric){.name = arena_strdup(&l->host->memory, nrl_node_key(map, i)), .unit = "1"};
        read_metric(L, nrl_node_at(map, i), &rows[i]);
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
    script_fail(L, "this loss has no metric '%s'\nhint: metrics = {[\"%s\"] = \"mean\"}", name, name);
    return 0;
}

static void check_function(lua_State *L, const char *name, bool required)
{
    int type = lua_getfield(L, 1, name);
    if (type != LUA_TFUNCTION && (required || type != LUA_TNIL))
        script_fail(L, "nrl.loss: %s: expected a function, found %s", name, luaL_typename(L, -1));
    lua_pop(L, 1);
}

static void read_terms(lua_State *L, script_loss *l)
{
    const int64_t terms = script_int(L, 1, "nrl.loss", "terms", 1);
    if (terms < 1 || terms > NRL_MAX_TERMS) script_fail(L, "nrl.loss: terms: expected 1 to %d", NRL_MAX_TERMS);
    const bool is_given = lua_getfield(L, 1, "terms") != LUA_TNIL;
    l->table.n_terms = is_given || !l->base_config ? (uint32_t)terms : 0;
}

static void read_definition(lua_State *L, script_loss *l)
{
    if (lua_getfield(L, 1, "base") != LUA_TNIL)
        l->base_config = script_to_node(L, -1, &l->host->memory, "nrl.loss: base");
    check_function(L, "weight", true);
    check_function(L, "loss", true);
    check_function(L, "step_end", false);
    read_terms(L, l);
    l->table.tokenwise = script_bool(L, 1, "nrl.loss", "tokenwise", false);
    read_needs(L, l);
    read_metrics(L, l);
    if (lua_getfield(L, 1, "step_end") != LUA_TNIL) l->table.step_end = loss_step_end;
}

/* Invalid definitions are not found. */
script_loss *script_find_loss(script_host *h, const char *name)
{
    script_loss *l = h->losses;
    while (l && (!l->definition || strcmp(l->table.plugin.name, name)))
        l = l->next;
    return l;
}

nrl_status script_loss_create(script_host *h, const char *name, const nrl_node *plugins, script_loss **out)
{
    const script_loss *definition = script_find_loss(h, name);
    *out = NULL;
    if (!definition) return NRL_OK;
    script_loss *l = mem_alloc(sizeof *l);
    *l = *definition;
    nrl_status st = l->base_config ? loss_base_open(l, plugins) : NRL_OK;
    if (st == NRL_OK)
        *out = l;
    else
        script_loss_destroy(l);
    return st;
}

void script_loss_destroy(script_loss *l)
{
    if (!l) return;
    loss_base_close(l);
    free(l);
}

/* nrl.loss{...} -> its name, for cfg.algorithm */
static int define(lua_State *L)
{
    script_host *h = script_of(L);
    lua_settop(L, 1);
    script_check_keys(L, 1, "nrl.loss", keys);
    const char *name = script_text(L, 1, "nrl.loss", "name");
    if (!name || !*name) return script_fail(L, "nrl.loss: name = \"...\" is missing");
    if (script_find_loss(h, name)) return script_fail(L, "nrl.loss: loss '%s' is already defined", name);
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
                  .weight = loss_weight,
                  .loss = loss_sums},
        .host = h,
        .next = h->losses,
    };
    h->losses = l;
    read_definition(L, l);
    lua_pushvalue(L, 1);
    l->definition = luaL_ref(L, LUA_REGISTRYINDEX);
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
