/*
 * adapter.h - which linear weights of a model can have adapters (nrl/adapter.h), and attaching them. Model plugins
 * declare nothing for adapters. A module has the name of its weight without ".weight".
 */
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H
#include "base/node.h"
#include "plugin/host.h"
#include "tensor/adapter.h"

struct model;

/* The settings of the adapters, and the plugin instance made from them. */
typedef struct {
    const nrl_node *settings; /* as stored in checkpoints */
    int32_t n;
    const char **modules; /* [n] */
    const nrl_adapter *table;
    void *self;
} adapter_set;

/* Opens the plugin that `settings` names and creates an instance. The settings must outlive the instance.
 * NRL_ERR_CORRUPT: the settings are malformed. [main] */
nrl_status adapter_set_open(arena *a, plugin_host *host, const nrl_node *settings, adapter_set *out);
void adapter_set_close(adapter_set *s);
bool adapter_set_is_random(const adapter_set *s); /* whether forward draws random numbers; s may be NULL */

/* Whether nrl_op_linear multiplies by p: a matrix named *.weight that is neither an embedding (a matrix of the first
 * unit) nor the head, which has an operation of its own. */
bool adapter_fits(const struct model *m, const nrl_param *p);
/* The module of a weight, in `a`. */
const char *adapter_module(arena *a, const nrl_param *p);
/* The description of a weight for the plugin. `module` is borrowed. */
nrl_adapter_target adapter_target(const nrl_param *p, const char *module);

/* Freezes the model's parameters and attaches adapters. The model creates its own instance from the settings of `set`.
 * The new parameters follow the model's own, and are uses of every unit that uses the adapted weight. NRL_ERR_CONFIG:
 * a module does not exist (the error lists those that do) or is named twice. Call it at most once for each model,
 * before the run is planned. [main] */
nrl_status model_adapt(struct model *m, const adapter_set *set);

#endif
