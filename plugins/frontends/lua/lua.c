/*
 * lua.c - the frontend for Lua scripts. host.c runs a script, module.c lists what scripts can call.
 */
#include "host.h"
#include <nrl/frontend.h>
#include <string.h>

static bool lua_probe(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && !strcmp(dot, ".lua");
}

static nrl_status lua_run(const void *options, const nrl_frontend_job *job, int *exit_code)
{
    (void)options;
    return script_run(job, exit_code);
}

static const nrl_frontend lua = {
    NRL_PLUGIN_PLAIN(NRL_KIND_FRONTEND, nrl_frontend, "lua", "0.1", "experiments as Lua scripts"),
    .probe = lua_probe,
    .run = lua_run,
    .describe = script_describe,
};
NRL_EXPORT(lua)
