/*
 * targets.h - the option `targets`: which modules of a model get an adapter.
 */
#ifndef LORA_TARGETS_H
#define LORA_TARGETS_H
#include <nrl/adapter.h>

typedef struct {
    int64_t n;
    const char **modules; /* [n] each once, in the memory of the choice */
} lora_targets;

/* Modules by `targets`: all-linear, a list of (last parts of) names, or a regular expression of whole names.
 * NRL_ERR_CONFIG: it names no module of this model, and which there are. */
nrl_status targets_choose(const nrl_node *targets, const nrl_adapter_model *model, nrl_arena *memory,
                          lora_targets *out);
bool targets_has(const lora_targets *t, const char *module);

#endif
