/*
 * tokenizer.c - tokenizers without a run, for nrl/inference.h.
 */
#include "text/tokenizer.h"
#include "plugin/component.h"
#include <nrl/inference.h>
#include <stdlib.h>

/* The result of nrl_tokenizer_open. */
typedef struct {
    nrl_open_tokenizer open;
    tokenizer *tok;
    plugin_host *host;
} lone_tokenizer;

nrl_status nrl_tokenizer_open(const char *path, const char *plugin_name, const nrl_environment *env,
                              const nrl_open_tokenizer **out)
{
    const config_choice choice = {.name = plugin_name, .source = path};
    lone_tokenizer *lone = mem_alloc(sizeof *lone);
    lone->host = component_host(env, NULL);
    nrl_status st = tokenizer_open(lone->host, &choice, &lone->tok);
    *out = NULL;
    if (st == NRL_OK) {
        lone->open = lone->tok->open;
        *out = &lone->open;
        return NRL_OK;
    }
    plugin_host_destroy(lone->host);
    free(lone);
    return st;
}

void nrl_tokenizer_close(const nrl_open_tokenizer *t)
{
    lone_tokenizer *lone = (lone_tokenizer *)(uintptr_t)t; /* its first member */
    if (!lone) return;
    tokenizer_close(lone->tok);
    plugin_host_destroy(lone->host);
    free(lone);
}
