/*
 * fuzz_config_json.c - any bytes as a config.json: an error or a model with a valid layout. Needs
 * NRL_PLUGIN_PATH, so that the model plugins read it too.
 */
#include "base/json.h"
#include "model/find.h"
#include "model/model.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void try_model(const nrl_node *config)
{
    plugin_host *host = plugin_host_create(getenv("NRL_PLUGIN_PATH"), NULL, 0, NULL);
    const nrl_model *table;
    model *m;
    if (model_find(host, config, &table) == NRL_OK && model_create(table, config, &m) == NRL_OK) {
        NRL_ASSERT(model_n_params(m), >, 0);
        NRL_ASSERT(m->n_units, >=, 3);
        model_destroy(m);
    }
    plugin_host_destroy(host);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    arena a = {0};
    nrl_node *config;
    if (json_parse(&a, "config.json", (const char *)bytes, size, &config) == NRL_OK &&
        nrl_node_kind(config) == NRL_NODE_MAP)
        try_model(config);
    arena_free(&a);
    return 0;
}
