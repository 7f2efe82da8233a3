/*
 * members.h - what a table must have for the core to call it without asking. Private to core/plugin.
 */
#ifndef PLUGIN_MEMBERS_H
#define PLUGIN_MEMBERS_H
#include <nrl/plugin.h>

/* NRL_ERR_PLUGIN names all members that are NULL or lie beyond the table's size, and must not. */
nrl_status members_check(const nrl_plugin *table);

#endif
