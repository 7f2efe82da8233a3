/*
 * adapter.h - which linear weights of a model carry adapters (nrl/adapter.h), and attaching them. Models declare
 * nothing for it. Modules are named like their weights, without ".weight".
 */
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H
#include "base/node.h"
#include "plugin/host.h"
#include "tensor/adapter.h"

struct model;

/* Settings, and the plugin's instance of them. */
typedef struct {
    const nrl_node *settings; /* as checkpoints keep them */
    int32_t n;
    const char **modules; /* [n] */
    const nrl_adapter *table;
    void *self;
} adapter_set;

/* Opens the plugin that settings name and makes an instance; the settings outlive it. NRL_ERR_CORRUPT. [main] */
nrl_status adapter_set_open(arena *a, plugin_host *host, const nrl_node *settings, adapter_set *out);
void adapter_set_close(adapter_set *s);
bool adapter_set_is_random(const adapter_set *s); /* NULL is fine */

/* Whether `linear` multiplies by p: a matrix named *.weight that is neither looked up in (those of the first
 * unit) nor the head, which is not `linear`'s. */
bool adapter_fits(const struct model *m, const nrl_param *p);
/* The module of a weight, in `a`. */
const char *adapter_module(arena *a, const nrl_param *p);
/* What a plugin is told of a weight; `module` is the caller's. */
nrl_adapter_target adapter_target(const nrl_param *p, const char *module);

/* Freezes what the model has and attaches the set, of which the model makes an instance of its own: parameters stand
 * behind the model's and in the uses of every unit that uses the weight. NRL_ERR_CONFIG: no module of that name, and
 * which there are; one that is named twice. Once a model, before anything is planned. [main] */
nrl_status model_adapt(struct model *m, const adapter_set *set);

#endif
