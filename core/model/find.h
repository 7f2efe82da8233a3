/*
 * find.h - which model plugin serves a config.json.
 */
#ifndef MODEL_FIND_H
#define MODEL_FIND_H
#include "plugin/host.h"
#include <nrl/model.h>

/* The plugin whose model_types name the config's model_type: first the file of that name, then all
 * in name order. NRL_ERR_DATA lists what is served. The table lives as long as the host. [main] */
nrl_status model_find(plugin_host *host, const nrl_node *config, const nrl_model **out);

#endif
