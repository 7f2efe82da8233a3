/*
 * plugin_options.h - the options of a plugin that a bench opens by itself: name=value words,
 * everything else at its default.
 */
#ifndef BENCH_PLUGIN_OPTIONS_H
#define BENCH_PLUGIN_OPTIONS_H
#include <nrl/plugin.h>

/* The options struct, malloc'd; NULL where a word names no option or a required one has no value.
 */
void *plugin_options(const nrl_plugin *plugin, const char *const *words, int n_words);

#endif
