/*
 * plugin_options.h - the options of a plugin that a benchmark opens itself: name=value arguments,
 * other options have their defaults.
 */
#ifndef BENCH_PLUGIN_OPTIONS_H
#define BENCH_PLUGIN_OPTIONS_H
#include <nrl/plugin.h>

/* The options struct, malloc'd; NULL where a word names no option or a required one has no value.
 */
void *plugin_options(const nrl_plugin *plugin, const char *const *words, int n_words);

#endif
