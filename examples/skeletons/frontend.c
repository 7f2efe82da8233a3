/*
 * @NAME@.c - a frontend: replace it by your own. It reads files NAME.@NAME@ of lines: `key=value`
 * sets an option of the config, `train` opens a run with the options set so far and trains it, #
 * begins a comment. An argument key=value of the command line overrides the file. nrl/frontend.h
 * describes the contract of a frontend, nrl/run.h the functions of a run.
 */
#include <nrl/nrl.h>
#include <stdio.h>
#include <string.h>

static bool @NAME@_probe(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && !strcmp(dot, ".@NAME@");
}

/* Trains a run of this config, with the overrides of the command line and ${env:NAME} applied. */
static nrl_status @NAME@_train(const nrl_frontend_job *job, nrl_config *config)
{
    nrl_run *run;
    for (size_t i = 0; i < job->n_words; i++) nrl_config_override(config, job->words[i]);
    nrl_config_substitute(config, job->environment->variable);
    nrl_status st = nrl_run_open(config, job->environment, &run);
    if (st == NRL_OK && !job->environment->check_only) st = nrl_run_train(run);
    nrl_run_close(run);
    return st;
}

/* Reads to the end of the script, or with check_only to the first run. */
static nrl_status @NAME@_lines(const nrl_frontend_job *job, FILE *file, nrl_arena *memory)
{
    char line[4096];
    nrl_config *config = nrl_config_create(memory);
    nrl_status st = NRL_OK;
    for (int number = 1; st == NRL_OK && fgets(line, sizeof line, file); number++) {
        line[strcspn(line, "\r\n#")] = 0;
        if (!*line) continue;
        if (strchr(line, '=')) nrl_config_override(config, line);
        else if (strcmp(line, "train"))
            st = nrl_fail(NRL_ERR_CONFIG, "%s:%d: cannot read '%.60s'; expected key=value or train", job->script, number, line);
        else st = @NAME@_train(job, config);
        if (!strcmp(line, "train") && job->environment->check_only) break;
    }
    nrl_config_destroy(config);
    return st;
}

static nrl_status @NAME@_run(const void *options, const nrl_frontend_job *job, int *exit_code)
{
    (void)options;
    (void)exit_code;
    FILE *file = fopen(job->script, "rb");
    if (!file) return nrl_fail(NRL_ERR_CONFIG, "cannot open %s", job->script);
    nrl_arena *memory = nrl_arena_create();
    nrl_status st = @NAME@_lines(job, file, memory);
    nrl_arena_destroy(memory);
    fclose(file);
    return st;
}

static const char *@NAME@_describe(void)
{
    return "  key=value   sets an option of the config\n"
           "  train       opens a run and trains it\n"
           "  # ...       a comment\n";
}

static const nrl_frontend @NAME@ = {
    NRL_PLUGIN_PLAIN(NRL_KIND_FRONTEND, nrl_frontend, "@NAME@", "0.1", "one line for `nrl plugins`"),
    .probe = @NAME@_probe,
    .run = @NAME@_run,
    .describe = @NAME@_describe,
};
NRL_EXPORT(@NAME@)
