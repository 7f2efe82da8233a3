/*
 * kinds.c - one row for each kind; a new kind needs a header in include/nrl and a row here.
 */
#include "plugin/kinds.h"
#include <nrl/nrl.h>
#include <string.h>

const plugin_kind plugin_kinds[] = {
    {NRL_KIND_ALGORITHM, "algorithms", "algorithm", sizeof(nrl_algorithm)},
    {NRL_KIND_PARALLEL, "parallel", "parallel strategy", sizeof(nrl_parallel)},
    {NRL_KIND_OPTIMIZER, "optimizers", "optimizer", sizeof(nrl_optimizer)},
    {NRL_KIND_BACKEND, "backends", "backend", sizeof(nrl_backend)},
    {NRL_KIND_COLLECTIVE, "collectives", "collective", sizeof(nrl_collective)},
    {NRL_KIND_LOGGER, "loggers", "logger", sizeof(nrl_logger)},
    {NRL_KIND_MODEL, "models", "model", sizeof(nrl_model)},
    {NRL_KIND_TOKENIZER, "tokenizers", "tokenizer", sizeof(nrl_tokenizer)},
    {NRL_KIND_TEMPLATE, "templates", "template", sizeof(nrl_template)},
    {NRL_KIND_DATASET, "datasets", "dataset", sizeof(nrl_dataset)},
    {NRL_KIND_FORMAT, "formats", "format", sizeof(nrl_format)},
    {NRL_KIND_FRONTEND, "frontends", "frontend", sizeof(nrl_frontend)},
    {NRL_KIND_ADAPTER, "adapters", "adapter", sizeof(nrl_adapter)},
    {NRL_KIND_STORE, "stores", "store", sizeof(nrl_store_plugin)},
    {NRL_KIND_SCHEDULE, "schedules", "schedule", sizeof(nrl_schedule)},
    {NRL_KIND_NONE, NULL, NULL, 0},
};

const plugin_kind *plugin_kind_find(uint32_t kind)
{
    const plugin_kind *k = plugin_kinds;
    while (k->kind && k->kind != kind)
        k++;
    return k->kind ? k : NULL;
}

const plugin_kind *plugin_kind_by_name(const char *word)
{
    const plugin_kind *k = plugin_kinds;
    while (k->kind && strcmp(k->folder, word) && strcmp(k->name, word))
        k++;
    return k->kind ? k : NULL;
}
