/*
 * script.h - Lua experiments. This folder is the only home of lua.h.
 * A script sees the standard libraries and `require "nrl"` (module.c lists it). It drives runs
 * through nrl/run.h alone: what a script can do, a C caller can.
 */
#ifndef SCRIPT_SCRIPT_H
#define SCRIPT_SCRIPT_H
#include <nrl/frontend.h>

/* Runs a script to its end. Errors carry script:line, and the status of the call that failed;
 * a mistake of the script itself is NRL_ERR_CONFIG. *exit_code is what os.exit was given, -1 where
 * the script did not call it. Runs that the script left open are closed. Of the job's words key=value is laid over
 * every config, the others are Lua's `arg`. [main] */
nrl_status script_run(const nrl_frontend_job *job, int *exit_code);

const char *script_describe(void); /* what a script can call: `nrl describe lua` */

#endif
