/*
 * verbs.h - the verbs of the program `nrl` itself, one file each; a new verb is a line here, a row in
 * main.c and its texts in common/verbs.c. Verbs that are programs of their own are in ../tools.
 */
#ifndef CLI_VERBS_H
#define CLI_VERBS_H
#include "cli/common/cli.h"
#include "cli/common/experiment.h"
#include "base/problems.h"
#include "plugin/host.h"
#include <nrl/host.h>

nrl_status cli_check(int argc, char **argv);
nrl_status cli_complete(int argc, char **argv);
nrl_status cli_describe(int argc, char **argv);
nrl_status cli_env(int argc, char **argv);
nrl_status cli_launch(int argc, char **argv);
nrl_status cli_plugins(int argc, char **argv);
nrl_status cli_plugins_install(int argc, char **argv); /* `nrl plugins install ...` */
nrl_status cli_plugins_list(int argc, char **argv);    /* `nrl plugins list` */
nrl_status cli_plugins_new(int argc, char **argv);     /* `nrl plugins new ...` */
nrl_status cli_plugins_remove(int argc, char **argv);  /* `nrl plugins remove ...` */
nrl_status cli_resume(int argc, char **argv);
nrl_status cli_run(int argc, char **argv);
nrl_status cli_version(int argc, char **argv);

/* run.c, for `run` and `check`. argv: VERB FILE [key=value ...], a config or a script. Trains, or runs the
 * script; with check_only it stops where the first run would open its device. `frontend` names the plugin
 * that runs the file; NULL: the plugin that serves the file's name, if any. */
typedef struct {
    int64_t samples; /* samples of data.train that are printed */
    bool full;       /* whole samples; else their beginnings */
    bool verbose;    /* print the resolved config */
} experiment_view;
nrl_status experiment_run(arena *a, int argc, char **argv, const nrl_environment *env, const char *frontend,
                          const experiment_view *view);
/* Removes -q and -v, with their long names, from argv. */
nrl_status experiment_take_flags(int *argc, char **argv, nrl_environment *env, experiment_view *view);
void experiment_show(nrl_run *r, const experiment_view *view);
/* After a restart by `nrl launch --max-restarts`, rank 0 adds a line to OUT/restarts.jsonl; a warning if it cannot. */
void experiment_record_restart(const nrl_run *r, const nrl_environment *env);
bool experiment_is_config(const char *path); /* by its name: a YAML file, which no frontend runs */

/* frontend.c: finds the frontend for a script: by `name` (a word, or {name: NAME, option: value}), or, if `name` is
 * NULL, by the frontends' probes. *out is NULL if no probe accepts the path. NRL_ERR_CONFIG if several do. */
nrl_status frontend_find(const nrl_environment *env, const char *name, const char *path, nrl_component **out);
/* Runs a script to its end with the frontend. `job` as in nrl/frontend.h; this function sets script, script_hash and
 * frontend of its environment. */
nrl_status frontend_run(nrl_component *frontend, const nrl_frontend_job *job, int *exit_code);

/* plugins.c: searches NRL_PLUGIN_PATH, the directory of the user and the directory next to the program. */
plugin_host *verbs_plugin_host(arena *a);

/* What a listing shows of a plugin. */
typedef struct {
    const char *version, *summary;
    const nrl_option *options; /* [n_options] */
    size_t n_options;
    const char *const *model_types; /* of a model: NULL-terminated; else NULL */
    const char *relaxed;            /* of a backend: what train.deterministic: false changes; NULL = nothing */
    const char *axis;               /* of a strategy: the axis that it serves; NULL = none */
    uint32_t axis_divides;          /* nrl_divides */
    bool axis_takes_rest;
    const char *page; /* of a frontend: what a script can call; NULL = none */
} plugin_about;

typedef struct {
    const plugin_kind *kind;
    const char *name, *path;
    plugin_about about;    /* unless there is a problem */
    const char *problem;   /* the reason why the plugin cannot be used; NULL = none */
    const char *hidden_by; /* path of the plugin of this name that is used instead; NULL = this plugin is used */
} listed_plugin;

/* plugin_about.c: plugin_list with descriptions; everything is in `a`. */
size_t verbs_plugin_list(plugin_host *h, arena *a, listed_plugin **list);

/* programs.c: executes the program nrl-NAME: an installed one, else one on PATH. Returns only on failure:
 * NRL_ERR_CONFIG, there is no such program; NRL_ERR_IO, it cannot be started. Replaces argv[0]. */
nrl_status programs_exec(const char *name, char **argv);
/* Names of programs on PATH that are not verbs of nrl, sorted and unique; in `a`. */
size_t programs_list(arena *a, const char ***names);

#endif
