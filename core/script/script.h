/*
 * script.h - Lua experiments, for the command line. This folder is the only home of lua.h.
 * A script sees the standard libraries and `require "nrl"` (module.c lists it). It drives runs
 * through nrl/run.h alone: what a script can do, a C caller can.
 */
#ifndef SCRIPT_SCRIPT_H
#define SCRIPT_SCRIPT_H
#include <nrl/run.h>

typedef struct {
    const nrl_environment *run; /* `script`, `script_hash` and `find_algorithm` are filled here */
    const char *const *words;   /* what follows the script's name on the command line */
    size_t n_words;             /* key=value: laid over every config; others: Lua's `arg` */
    const char *(*lookup)(const char *name); /* getenv, for ${env:VAR} in configs */
} script_environment;

/* Runs a script to its end. Errors carry script:line, and the status of the call that failed;
 * a mistake of the script itself is NRL_ERR_CONFIG. *exit_code is what os.exit was given, -1 where
 * the script did not call it. Runs that the script left open are closed. [main] */
nrl_status script_run(const char *path, const script_environment *env, int *exit_code);

#endif
