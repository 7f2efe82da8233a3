/*
 * rules.c - what the functions that a run calls may do: limits of a loss, and the sandbox.
 *
 * The sandbox restricts a run's hooks and losses to what a later run can repeat. It is not a security
 * boundary: a script keeps what it stored in its own locals.
 */
#include "host.h"
#include <stdio.h>

#define MIB ((size_t)1 << 20)

script_rules script_rules_of(const nrl_node *config)
{
    const nrl_node *section = nrl_node_find(config, "script");
    return (script_rules){
        .sandbox = nrl_node_bool(nrl_node_find(section, "sandbox"), false),
        .loss_instructions = nrl_node_int(nrl_node_find(section, "loss_instructions"), 200000000),
        .loss_bytes = (size_t)nrl_node_int(nrl_node_find(section, "loss_memory_mb"), 1024) * MIB,
    };
}

/* ---- the sandbox ---- */

static const char saved_key; /* registry: the globals while they are hidden */
static const char *const outward[] = {"os", "io", "debug", "package", "require", "load", "loadfile", "dofile"};
enum { N_OUTWARD = sizeof outward / sizeof *outward };

static int hide(lua_State *L)
{
    lua_createtable(L, 0, N_OUTWARD);
    for (size_t i = 0; i < N_OUTWARD; i++) {
        lua_getglobal(L, outward[i]);
        lua_setfield(L, -2, outward[i]);
    }
    lua_rawsetp(L, LUA_REGISTRYINDEX, &saved_key);
    for (size_t i = 0; i < N_OUTWARD; i++) {
        lua_pushnil(L);
        lua_setglobal(L, outward[i]);
    }
    return 0;
}

static int show(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &saved_key);
    for (size_t i = 0; i < N_OUTWARD; i++) {
        lua_getfield(L, -1, outward[i]);
        lua_setglobal(L, outward[i]);
    }
    return 0;
}

/* Sandboxes nest: a hook may call the run, which calls hooks. */
static nrl_status enter(lua_State *L)
{
    script_host *h = script_of(L);
    if (h->sandboxes++) return NRL_OK;
    lua_pushcfunction(L, hide);
    nrl_status st = script_call(L, 0, 0);
    if (st != NRL_OK) h->sandboxes--;
    return st;
}

static nrl_status leave(lua_State *L)
{
    if (--script_of(L)->sandboxes) return NRL_OK;
    lua_pushcfunction(L, show);
    return script_call(L, 0, 0);
}

nrl_status script_callback(lua_State *L, int n_arguments)
{
    if (!script_of(L)->rules.sandbox) return script_call(L, n_arguments, 0);
    NRL_TRY(enter(L));
    nrl_status st = script_call(L, n_arguments, 0);
    nrl_status left = leave(L);
    return st != NRL_OK ? st : left;
}

/* ---- limits of a loss ---- */

void script_limits_begin(script_host *h)
{
    h->call.left = h->rules.loss_instructions;
    h->call.most_bytes = h->lua_bytes + h->rules.loss_bytes;
}

static void describe_memory(const script_host *h, char *text, size_t size)
{
    snprintf(text, size, "this loss takes more than %zu MiB of memory\nhint: script.loss_memory_mb sets the limit",
             h->rules.loss_bytes / MIB);
}

/* Lua's own out-of-memory error has no place, so the text is built here. */
nrl_status script_limits_end(script_host *h, lua_State *L, nrl_status st)
{
    char text[160];
    if (h->call.left < 0) script_watch(L, SCRIPT_PERIOD);
    if (st != NRL_ERR_MEMORY || !h->call.refused) return st;
    describe_memory(h, text, sizeof text);
    return nrl_fail(NRL_ERR_CONFIG, "%s%s", h->call.place, text);
}

static int fail_here(lua_State *L, const char *text)
{
    luaL_where(L, 0); /* the function that was interrupted */
    return script_fail_at(L, lua_tostring(L, -1), "%s", text);
}

void script_limits_check(lua_State *L)
{
    script_host *h = script_of(L);
    char text[160];
    if (h->lua_bytes > h->call.most_bytes) lua_gc(L, LUA_GCCOLLECT);
    if (h->lua_bytes > h->call.most_bytes) {
        describe_memory(h, text, sizeof text);
        fail_here(L, text);
    }
    if (h->call.left >= 0 && (h->call.left -= SCRIPT_PERIOD) >= 0) return;
    script_watch(L, 1); /* the loss may catch this error with pcall, but not the one after each further instruction */
    snprintf(text, sizeof text,
             "this loss takes too long: more than %lld Lua instructions\n"
             "hint: script.loss_instructions sets the limit",
             (long long)h->rules.loss_instructions);
    fail_here(L, text);
}

/* Called from inside Lua's allocator. While an object grows, Lua's stack may be moving, so the place is
 * unknown: the object gets extra room, and script_limits_check stops the loss soon after. */
bool script_limits_allow(script_host *h, size_t held, size_t more, bool is_new)
{
    lua_Debug info;
    size_t most = h->call.most_bytes;
    if (!is_new) most += 2 * h->rules.loss_bytes; /* arrays double */
    if (held <= most && more <= most - held) return true;
    h->call.refused = true;
    for (int level = 0; is_new && lua_getstack(h->L, level, &info); level++) {
        lua_getinfo(h->L, "Sl", &info);
        if (info.currentline <= 0) continue;
        snprintf(h->call.place, sizeof h->call.place, "%s:%d: ", info.short_src, info.currentline);
        break;
    }
    return false;
}

void script_limits_tensor(lua_State *L, int64_t numel)
{
    script_host *h = script_of(L);
    char text[160];
    h->call.tensor_bytes += (size_t)numel * sizeof(float);
    if (h->call.tensor_bytes <= h->rules.loss_bytes) return;
    describe_memory(h, text, sizeof text);
    script_fail(L, "%s", text);
}
