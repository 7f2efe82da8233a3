/*
 * region.c - nrl.region(name, f, ...): a region of time for profilers (nrl/region.h) around a call of f.
 */
#include "host.h"
#include <nrl/region.h>

/* Returns what f returns, and raises what f raises; the region ends either way. */
int script_region(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    nrl_region_begin(name);
    int failed = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
    nrl_region_end();
    return failed ? lua_error(L) : lua_gettop(L) - 1;
}
