/*
 * check.h - checks whether a shared object is a usable plugin. Private to core/plugin.
 */
#ifndef PLUGIN_CHECK_H
#define PLUGIN_CHECK_H
#include "plugin/kinds.h"

/* Checks the table that the entry function returned, in an order that makes each field safe to read: abi, build, kind,
 * size, texts, members, options. `name` is the file's name without .so. NRL_ERR_PLUGIN. */
nrl_status plugin_check(const nrl_plugin *table, const plugin_kind *kind, const char *name);

#endif
