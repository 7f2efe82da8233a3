/*
 * trials.h - what this process knows of plugin files that it tried in a child process, so that no file is tried or
 * reported twice, whatever the number of hosts and runs. Private to core/plugin.
 */
#ifndef PLUGIN_TRIALS_H
#define PLUGIN_TRIALS_H
#include "plugin/load.h"

/* Whether the file opens, as load_try found out now or earlier; a file that has changed since is tried again. The error
 * is the reason. [main] */
nrl_status trial_open(const char *path, const plugin_kind *kind, const char *name, double seconds);

/* Asks an open plugin in a child process. NRL_ERR_PLUGIN: it crashed, hung or ended the process, now or earlier. [main]
 */
nrl_status trial_ask(const plugin *p, plugin_question *ask, const void *user, double seconds, int32_t *answer);

/* Whether this is the first call for this file in its current state: its problem was not reported yet. [main] */
bool trial_is_unreported(const char *path);

#endif
