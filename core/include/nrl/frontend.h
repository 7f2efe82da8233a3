/*
 * frontend.h - frontends run scripts: programs in some language that open runs and control them through nrl/run.h.
 * `nrl run FILE` uses the frontend whose probe accepts the file's name, or the frontend named by --frontend; a file
 * that no frontend accepts is a config.
 *
 * A script is the user's own program: its mistakes are NRL_ERR_CONFIG with the script's file and line; failures of a
 * run keep their status. A frontend never ends the process, reads environment variables only through
 * environment->variable, and prints only what the script prints.
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
    const char *const *words; /* [n_words] the command line after the path; key=value is an override of configs */
    size_t n_words;
    /* The environment for every run that the script opens, with script, script_hash and frontend set. A frontend may
     * copy it and set events, algorithms, the loaded files (script_modules), and a session if it opens several runs. If
     * the frontend sets `event`, its function passes events with text on to the function given here, which prints them.
     * If `check_only` is set, the script ends after it has opened its first run. */
    const nrl_environment *environment;
} nrl_frontend_job;

typedef struct {
    nrl_plugin plugin;
    /* [any] optional: whether the frontend runs files of this name; does not open the file. NULL: only by --frontend */
    bool (*probe)(const char *path);
    /* [main] runs the script to its end and closes every run that is still open. *exit_code: the exit code that the
     * script requested, -1 = none; valid only with NRL_OK. `options` is the plugin's filled options struct. */
    nrl_status (*run)(const void *options, const nrl_frontend_job *job, int *exit_code);
    /* [any] optional: the functions that scripts can call, for `nrl describe NAME`; text that ends with a line end */
    const char *(*describe)(void);
} nrl_frontend;

#ifdef __cplusplus
}
#endif
#endif
