/*
 * serve.h - the options of the plugin for a tokenizer, a chat template or a dataset, and the text and the spans that
 * plugins write into. Called by tokenizer.c, chat.c, core/data and the harness.
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

/* Fills the plugin's options from the map of the config, in `a`. NRL_ERR_CONFIG with all mistakes. [main] */
nrl_status serve_options(arena *a, const char *section, const config_choice *choice, const plugin *p, void **options);

#endif
