/*
 * serve.h - finds the plugin for a tokenizer, a chat template or a dataset: the one that the config names, or else the
 * one whose probe gives the highest score, the first by name if several do. Also the text and the spans that plugins
 * write into. Called by tokenizer.c, chat.c, core/data and the harness.
 */
#ifndef TEXT_SERVE_H
#define TEXT_SERVE_H
#include "base/buffer.h"
#include "plugin/host.h"
#include <nrl/template.h>

struct nrl_text {
    buffer b;
};

struct nrl_spans {
    struct {
        size_t begin, end;
    } * at;
    size_t n, room;
    bool lacks_memory;
};

/* The probe of one opened plugin. */
typedef int32_t (*serve_probe)(const plugin *p, const void *source);

/* NULL if no plugin serves the source. Adds to `asked` the names of the plugins, and why some cannot be used. [main] */
const plugin *serve_find(plugin_host *host, uint32_t kind, serve_probe probe, const void *source, buffer *asked);

/* Fills the plugin's options from the map of the config, in `a`. NRL_ERR_CONFIG with all mistakes. [main] */
nrl_status serve_options(arena *a, const char *section, const config_choice *choice, const plugin *p, void **options);

#endif
