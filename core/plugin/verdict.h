/*
 * verdict.h - what this process knows of plugin files that it tried in a child process, so that no file is tried or
 * reported twice, whatever the number of hosts and runs. Private to core/plugin.
 */
#ifndef PLUGIN_VERDICT_H
#define PLUGIN_VERDICT_H
#include "plugin/load.h"

/* Whether the file opens, as load_try found out now or earlier; a file that has changed since is tried again. The error
 * is the reason. [main] */
nrl_status verdict_of(const char *path, const plugin_kind *kind, const char *name, double seconds);

/* Whether nobody asked before whether this file, as it is now, was reported. [main] */
bool verdict_is_unreported(const char *path);

#endif
