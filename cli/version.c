/*
 * version.c - `nrl version`.
 */
#include "cli/verbs.h"
#include <stdio.h>

nrl_status cli_version(int argc, char **argv)
{
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(cli_expect(argc, argv, 0, 0));
    if (json)
        printf("{\"version\": \"%s\", \"abi\": %d}\n", NRL_VERSION, NRL_ABI);
    else
        printf("nrl %s (plugin interface %d)\n", NRL_VERSION, NRL_ABI);
    return NRL_OK;
}
