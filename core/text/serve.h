/*
 * serve.h - which plugin serves a tokenizer, a chat template or a dataset: the one that the config names, else the
 * first in name order that is sure, else the first that may; and the text that plugins write into. Called
 * by tokenizer.c, chat.c and core/data.
 */
#ifndef TEXT_SERVE_H
#define TEXT_SERVE_H
#include "base/buffer.h"
#include "plugin/host.h"
#include <nrl/tokenizer.h>

struct nrl_text {
    buffer b;
};

/* The probe of one opened plugin. */
typedef int32_t (*serve_probe)(const plugin *p, const void *source);

/* NULL where none serves; `asked` gets their names and why others cannot be used. [main] */
const plugin *serve_find(plugin_host *host, uint32_t kind, serve_probe probe, const void *source, buffer *asked);

/* The plugin's options from the config's map, in `a`; NRL_ERR_CONFIG with all mistakes. [main] */
nrl_status serve_options(arena *a, const char *section, const config_choice *choice, const plugin *p, void **options);

#endif
