/*
 * serve.h - the options of the plugin for a tokenizer, a chat template or a dataset. Called by tokenizer.c, chat.c and
 * core/data.
 */
#ifndef TEXT_SERVE_H
#define TEXT_SERVE_H
#include "plugin/host.h"

/* Fills the plugin's options from the map of the config, in `a`. NRL_ERR_CONFIG with all mistakes. [main] */
nrl_status serve_options(arena *a, const char *section, const config_choice *choice, const plugin *p, void **options);

#endif
