/*
 * host.c - where programs look for plugins.
 */
#include "cli/common/cli.h"

plugin_host *cli_plugin_host(arena *a, const char *const *folders, size_t n_folders)
{
    return plugin_host_create(cli_getenv("NRL_PLUGIN_PATH"), folders, n_folders, cli_exe_dir(a));
}
