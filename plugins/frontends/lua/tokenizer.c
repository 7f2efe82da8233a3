/*
 * tokenizer.c - nrl.tokenizer_train{texts = {...}, vocab_size = 512, out = dir}: a byte-level BPE
 * vocabulary from a script's own texts or files.
 */
#include "base/file.h"
#include "folder.h"
#include "host.h"
#include <nrl/host.h>
#include <stdlib.h>

static const char name[] = "nrl.tokenizer_train";
static const char *const keys[] = {"texts", "files",         "vocab_size", "special",
                                   "out",   "min_frequency", "pattern",    "overwrite", NULL};

/* The trainer as a Lua value, so that errors free it. */
static int free_trainer(lua_State *L)
{
    nrl_trainer **t = lua_touserdata(L, 1);
    nrl_trainer_destroy(*t);
    *t = NULL;
    return 0;
}

static nrl_trainer **push_trainer(lua_State *L)
{
    nrl_trainer **t = lua_newuserdatauv(L, sizeof *t, 0);
    *t = NULL;
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

static void add_texts(lua_State *L, nrl_trainer *t)
{
    if (lua_getfield(L, 1, "texts") == LUA_TNIL) return;
    if (!lua_istable(L, -1)) script_fail(L, "%s: texts: expected a list of texts", name);
    int texts = lua_gettop(L);
    lua_Integer n = (lua_Integer)lua_rawlen(L, texts);
    for (lua_Integer i = 1; i <= n; i++) {
        if (lua_rawgeti(L, texts, i) != LUA_TSTRING)
            script_fail(L, "%s: texts[%lld]: expected text, found %s", name, (long long)i,
                        luaL_typename(L, -1));
        size_t size;
        const char *text = lua_tolstring(L, -1, &size);
        check(L, nrl_trainer_add(t, text, size));
        lua_pop(L, 1);
    }
}

static nrl_status add_file(nrl_trainer *t, const char *path)
{
    char *text;
    size_t size;
    NRL_TRY(file_read(path, (size_t)1 << 30, &text, &size));
    nrl_status st = nrl_trainer_add(t, text, size);
    free(text);
    if (st != NRL_OK) nrl_note("%s", path);
    return st;
}

static int train(lua_State *L)
{
    script_check_keys(L, 1, name, keys);
    size_t n_files, n_special;
    int64_t n_tokens = 0;
    nrl_trainer_options o = {
        .size = sizeof o,
        .vocab_size = script_int(L, 1, name, "vocab_size", 0),
        .min_frequency = script_int(L, 1, name, "min_frequency", 0),
        .pattern = script_text(L, 1, name, "pattern"),
        .overwrite = script_bool(L, 1, name, "overwrite", false),
    };
    const char *out = script_text(L, 1, name, "out");
    if (!out) return script_fail(L, "%s: out = folder is missing", name);
    o.special = script_texts(L, 1, name, "special", &n_special);
    o.n_special = n_special;
    const char **files = script_texts(L, 1, name, "files", &n_files);
    nrl_trainer **t = push_trainer(L);
    check(L, nrl_trainer_create(&o, t));
    add_texts(L, *t);
    for (size_t i = 0; i < n_files; i++)
        check(L, add_file(*t, files[i]));
    check(L, folder_make_parents(out));
    check(L, nrl_trainer_save(*t, out, &n_tokens));
    lua_pushinteger(L, (lua_Integer)n_tokens);
    return 1;
}

void script_open_tokenizer(lua_State *L)
{
    lua_pushcfunction(L, train);
    lua_setfield(L, -2, "tokenizer_train");
}
