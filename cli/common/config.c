/*
 * config.c - what verbs share that read configs or open plugins.
 */
#include "cli/common/cli.h"
#include "config/config.h"

plugin_host *cli_plugin_host(arena *a, const char *const *folders, size_t n_folders)
{
    return plugin_host_create(cli_getenv("NRL_PLUGIN_PATH"), folders, n_folders, cli_exe_dir(a));
}

nrl_status cli_read_config(arena *a, config_problems *problems, const char *file, int n_overrides,
                           char **overrides, nrl_node **root)
{
    NRL_TRY(config_read(a, file, root));
    for (int i = 0; i < n_overrides; i++)
        config_override(a, problems, *root, overrides[i]);
    config_substitute(a, problems, *root, cli_variable);
    return NRL_OK;
}
