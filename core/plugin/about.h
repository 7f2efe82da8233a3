/*
 * about.h - the description of a plugin as text, from a child process to its parent. Private to core/plugin.
 */
#ifndef PLUGIN_ABOUT_H
#define PLUGIN_ABOUT_H
#include "plugin/load.h"

char *about_write(const plugin_about *about); /* JSON, malloc'd */
/* NRL_ERR_DATA. The description and its texts are in `a`. */
nrl_status about_read(arena *a, const char *text, size_t size, plugin_about *out);

#endif
