/*
 * script.h - Lua experiments. Only this folder includes lua.h. A script sees the standard libraries
 * and `require "nrl"` (module.c lists it). It drives runs only through nrl/run.h: a C program can do
 * all that a script can.
 */
#ifndef SCRIPT_SCRIPT_H
#define SCRIPT_SCRIPT_H
#include <nrl/frontend.h>

/* Runs a script to its end. Errors carry script:line and the status of the call that failed; an error of
 * the script itself is NRL_ERR_CONFIG. *exit_code is the argument of os.exit, -1 if the script did not
 * call it. Open runs are closed. Words key=value of the job override every config; the others are Lua's
 * `arg`. [main] */
nrl_status script_run(const nrl_frontend_job *job, int *exit_code);

const char *script_describe(void); /* what a script can call: `nrl describe lua` */

#endif
