/*
 * adapter.h - which linear weights of a model can have adapters (nrl/adapter.h), and attaching them. Model plugins
 * declare nothing for adapters. A module has the name of its weight without ".weight".
 */
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H
#include "base/node.h"
#include "plugin/host.h"
#include "tensor/ops/adapter.h"

struct model;

/* The settings of the adapters, and the plugin instance made from them. */
typedef struct {
    const nrl_node *settings; /* as stored in checkpoints */
    int32_t n;
    const char **modules;  /* [n] */
    const nrl_node *whole; /* names of modules that are trained whole, of model_save_whole; NULL = none */
    const nrl_adapter *table;
    void *self;
} adapter_set;

/* Opens the plugin that `settings` names and creates an instance. The settings must outlive the instance.
 * NRL_ERR_CORRUPT: the settings are malformed. [main] */
nrl_status adapter_set_open(arena *a, plugin_host *host, const nrl_node *settings, adapter_set *out);
void adapter_set_close(adapter_set *s);
bool adapter_set_is_random(const adapter_set *s);      /* NULL is fine */
bool adapter_set_starts_as_base(const adapter_set *s); /* NULL is fine */

/* Whether nrl_op_linear multiplies by p: a matrix named *.weight that is neither an embedding (a matrix of the first
 * unit) nor the head, which has an operation of its own, nor one that its model excludes. */
bool adapter_fits(const struct model *m, const nrl_param *p);
/* The module of a weight, in `a`. */
const char *adapter_module(arena *a, const nrl_param *p);
/* The description of a weight for the plugin. `module` is borrowed. */
nrl_adapter_target adapter_target(const nrl_param *p, const char *module);

/* All weights of a model that may carry one, in `a`; `section` is the caller's. */
nrl_adapter_model adapter_scope(arena *a, const struct model *m, const char *section);

struct nrl_adapter_builder {
    nrl_param_spec specs[NRL_ADAPTER_MAX_PARAMS];
    int32_t n;
};
/* The parameters of module `module` of the set. NRL_ERR_CONFIG: the target cannot carry it. [main] */
nrl_status adapter_declare(const adapter_set *set, int32_t module, const nrl_adapter_target *target,
                           nrl_adapter_builder *out);

/* The modules of the architecture that `words` of modules_to_save select: those whose name, or that of a module around
 * them, ends in one of them. A tied head is the embedding. *modules lists their names, in `a`.
 * NRL_ERR_CONFIG: not a list of names, or one that selects nothing. [main] */
nrl_status model_match_whole(const struct model *m, const char *section, const nrl_node *words, arena *a,
                             nrl_node **modules);
void adapter_add_whole(arena *a, nrl_node *modules, const nrl_param *p); /* adds the module of p, once */
/* Their parameters are trained, and saved with the adapters; none of them can have an adapter. [main] */
void model_save_whole(struct model *m, const nrl_node *modules);

/* Freezes the model's parameters, except those of modules that the set trains in full, and attaches the set, from which
 * the model creates its own instance. Parameters of adapters follow those of the model, and are added to the uses of
 * every unit that uses the weight. NRL_ERR_CONFIG: a module does not exist (the text lists the modules) or is named
 * twice. Call it once per model, before layouts are planned. [main] */
nrl_status model_adapt(struct model *m, const adapter_set *set);

#endif
