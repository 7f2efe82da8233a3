/*
 * plugin.c - one row of a header as a plugin: WRONG_HEADER has the table, WRONG_NAME is the row.
 */
#include WRONG_HEADER
#include <string.h>

NRL_API const nrl_plugin *nrl_plugin_entry(void);
const nrl_plugin *nrl_plugin_entry(void)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (!strcmp(wrong[i].plugin.name, WRONG_NAME)) return &wrong[i].plugin;
    return NULL;
}
