/*
 * members.h - checks the required members of a plugin's table. Private to core/plugin.
 */
#ifndef PLUGIN_MEMBERS_H
#define PLUGIN_MEMBERS_H
#include <nrl/plugin.h>

/* NRL_ERR_PLUGIN names all required members that are NULL or beyond the table's size. */
nrl_status members_check(const nrl_plugin *table);

#endif
