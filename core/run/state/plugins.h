/*
 * plugins.h - the plugins of a run in its checkpoints: recorded by kind and name with version and hash, compared at a
 * resume.
 */
#ifndef RUN_STATE_PLUGINS_H
#define RUN_STATE_PLUGINS_H
#include "run/step/trainer.h"

/* {"KIND/NAME": "VERSION, HASH", ...}: the plugins that compute, read or write something of the run; in `a`. */
nrl_node *plugins_node(arena *a, const trainer *tr);

/* Compares the plugins of the run with those of a checkpoint (NULL: none recorded). `tell` is called for each plugin
 * whose version is incompatible by semantic versioning (another major version, or below 1.0 another minor version).
 * Other versions, and other files of plugins that are not nrl's own, are one warning. Plugins that only one of the two
 * has are not compared. */
void plugins_compare(const trainer *tr, const nrl_node *was,
                     void (*tell)(void *user, const char *plugin, const nrl_node *was, const nrl_node *is), void *user);

#endif
