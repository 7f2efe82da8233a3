/*
 * check.h - may this shared object be used? Private to core/plugin.
 */
#ifndef PLUGIN_CHECK_H
#define PLUGIN_CHECK_H
#include "plugin/kinds.h"

/* Checks what the entry function returned, in an order in which each field may be trusted when it
 * is read: abi, build, kind, size, texts, members, rows. NRL_ERR_PLUGIN says what to do about it. `name` is
 * the file's name without .so. */
nrl_status plugin_check(const nrl_plugin *table, const plugin_kind *kind, const char *name);

#endif
