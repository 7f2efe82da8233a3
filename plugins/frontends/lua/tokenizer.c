/*
 * tokenizer.c - nrl.tokenizer_train{texts = {...}, vocab_size = 512, out = dir}: trains a vocabulary
 * on a script's own texts or files with a tokenizer plugin: the one in `plugin`, else the first that
 * supports training.
 */
#include "base/file.h"
#include "folder.h"
#include "permit.h"
#include <nrl/tokenizer.h>
#include <stdlib.h>
#include <string.h>

static const char name[] = "nrl.tokenizer_train";
static const char *const keys[] = {"texts",  "files",         "vocab_size", "special",   "out",
                                   "plugin", "min_frequency", "pattern",    "overwrite", NULL};

/* The trainer as a Lua value, so that the collector frees it after errors. */
typedef struct {
    nrl_component *plugin;
    void *trainer;
} handle;

static const nrl_tokenizer *handle_table(const handle *t)
{
    return (const nrl_tokenizer *)nrl_component_table(t->plugin);
}

static int free_trainer(lua_State *L)
{
    handle *t = lua_touserdata(L, 1);
    if (t->trainer) handle_table(t)->train_end(t->trainer);
    nrl_component_close(t->plugin);
    *t = (handle){0};
    return 0;
}

static handle *push_trainer(lua_State *L)
{
    handle *t = lua_newuserdatauv(L, sizeof *t, 0);
    *t = (handle){0};
    if (luaL_newmetatable(L, "nrl.trainer")) {
        lua_pushcfunction(L, free_trainer);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return t;
}

static void check(lua_State *L, nrl_status st)
{
    if (st != NRL_OK) script_raise(L, st);
}

/* The plugin of that name, or the first that can train. */
static void open_plugin(lua_State *L, handle *t, const char *word)
{
    script_host *h = script_of(L);
    const nrl_node *plugins = script_plugins(h);
    arena *a = script_arena(L);
    const nrl_environment env = script_places(h, plugins, a);
    const char *const *names = nrl_plugin_names(&env, NRL_KIND_TOKENIZER, a);
    for (const char *one = word ? word : *names; one; one = word ? NULL : *++names) {
        nrl_status st =
            script_component_open(h, plugins, NRL_KIND_TOKENIZER, "tokenizer", node_text(&h->memory, one), &t->plugin);
        if (st != NRL_OK && !word) continue; /* another plugin may be able to train */
        check(L, st);
        if (handle_table(t)->train_begin) break;
        if (word) script_fail(L, "%s: tokenizer '%s' cannot be trained", name, word);
        nrl_component_close(t->plugin);
        t->plugin = NULL;
    }
    if (!t->plugin) script_fail(L, "%s: no installed tokenizer plugin can be trained", name);
    lua_pop(L, 1);
}

static void add_texts(lua_State *L, handle *t)
{
    if (lua_getfield(L, 1, "texts") == LUA_TNIL) return;
    if (!lua_istable(L, -1)) script_fail(L, "%s: texts: expected a list of texts", name);
    int texts = lua_gettop(L);
    lua_Integer n = (lua_Integer)lua_rawlen(L, texts);
    for (lua_Integer i = 1; i <= n; i++) {
        if (lua_rawgeti(L, texts, i) != LUA_TSTRING)
            script_fail(L, "%s: texts[%lld]: expected text, found %s", name, (long long)i, luaL_typename(L, -1));
        size_t size;
        const char *text = lua_tolstring(L, -1, &size);
        check(L, handle_table(t)->train_add(t->trainer, text, size));
        lua_pop(L, 1);
    }
}

static nrl_status add_file(handle *t, const char *path)
{
    char *text;
    size_t size;
    NRL_TRY(file_read(path, (size_t)1 << 30, &text, &size));
    nrl_status st = handle_table(t)->train_add(t->trainer, text, size);
    free(text);
    if (st != NRL_OK) nrl_add_context("%s", path);
    return st;
}

static int train(lua_State *L)
{
    script_check_keys(L, 1, name, keys);
    size_t n_files, n_special;
    int64_t n_tokens = 0;
    nrl_train_tokenizer o = {
        .size = sizeof o,
        .vocab_size = script_int(L, 1, name, "vocab_size", 0),
        .min_frequency = script_int(L, 1, name, "min_frequency", 0),
        .pattern = script_text(L, 1, name, "pattern"),
        .overwrite = script_bool(L, 1, name, "overwrite", false),
    };
    const char *out = script_text(L, 1, name, "out"), *plugin = script_text(L, 1, name, "plugin");
    if (!out) return script_fail(L, "%s: out = DIRECTORY is missing", name);
    o.special = script_texts(L, 1, name, "special", &n_special);
    o.n_special = n_special;
    const char **files = script_texts(L, 1, name, "files", &n_files);
    handle *t = push_trainer(L);
    open_plugin(L, t, plugin);
    check(L, handle_table(t)->train_begin(nrl_component_options(t->plugin), &o, &t->trainer));
    add_texts(L, t);
    for (size_t i = 0; i < n_files; i++)
        check(L, add_file(t, files[i]));
    check(L, folder_make_parents(out));
    check(L, handle_table(t)->train_save(t->trainer, out, &n_tokens));
    lua_pushinteger(L, (lua_Integer)n_tokens);
    return 1;
}

void script_open_tokenizer(lua_State *L)
{
    lua_pushcfunction(L, train);
    lua_setfield(L, -2, "tokenizer_train");
}
