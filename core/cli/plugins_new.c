/*
 * plugins_new.c - `nrl plugins new KIND NAME DIR`: begins a plugin.
 */
#include "cli/cli.h"

nrl_status cli_plugins_new(int argc, char **argv)
{
    return cli_expect(argc, argv, 4, 4);
}
