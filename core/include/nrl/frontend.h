/*
 * frontend.h - what runs a script: a program in some language that opens runs and drives them through nrl/run.h.
 * `nrl run FILE` opens the frontend whose probe serves the file's name, or the one that --frontend names; a file that
 * none serves is a config.
 *
 * A script is the user's own program: its mistakes are NRL_ERR_CONFIG with the script's file and line, failures of a
 * run keep their status. A frontend never ends the process, reads variables by environment->variable alone, and prints
 * only what the script asks it to print.
 */
#ifndef NRL_FRONTEND_H
#define NRL_FRONTEND_H
#include <nrl/run.h>
#ifdef __cplusplus
extern "C" {
#endif

/* One script to run. Borrowed until `run` returns. */
typedef struct {
    uint32_t size;
    const char *script;       /* its path */
    const char *const *words; /* [n_words] what follows the path on the command line; key=value is meant for configs */
    size_t n_words;
    /* For every run that the script opens, with script, script_hash and frontend filled: a frontend may copy it and set
     * events, algorithms, what the script has loaded (script_modules), and a session where it opens several runs. An
     * `event` that it sets passes those with text on to the one given here, which prints them. Where `check_only` is
     * set the script ends once its first run was opened. */
    const nrl_environment *environment;
} nrl_frontend_job;

typedef struct {
    nrl_plugin plugin;
    /* [any] optional: whether this frontend runs files of that name; opens nothing. NULL: only where it is named */
    bool (*probe)(const char *path);
    /* [main] runs the script to its end and closes every run that it left open. *exit_code: what the script asked the
     * process to end with, -1 = it did not ask; read only with NRL_OK. `options` are the plugin's. */
    nrl_status (*run)(const void *options, const nrl_frontend_job *job, int *exit_code);
    /* [any] optional: what a script can call, for `nrl describe NAME`; a page of text that ends with a line's end */
    const char *(*describe)(void);
} nrl_frontend;

#ifdef __cplusplus
}
#endif
#endif
