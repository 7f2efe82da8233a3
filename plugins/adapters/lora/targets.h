/*
 * targets.h - the option `targets`: which modules of a model get an adapter.
 */
#ifndef LORA_TARGETS_H
#define LORA_TARGETS_H
#include <nrl/adapter.h>

typedef struct {
    int64_t n;
    const char **modules; /* [n] each once, allocated in the arena of the choice */
} lora_targets;

/* Chooses modules by `targets`: all-linear, a list of (last parts of) names, or a regular
 * expression for whole names. NRL_ERR_CONFIG if it matches no module of this model; the error lists
 * those of the model. */
nrl_status targets_choose(const nrl_node *targets, const nrl_adapter_model *model, nrl_arena *memory,
                          lora_targets *out);
/* Whether each chosen module, or what follows a dot in it, matches the whole pattern, as in peft. *matches [t->n] is
 * the caller's to free, also after an error. NRL_ERR_CONFIG: not a regular expression. */
nrl_status targets_match_end(const char *pattern, const lora_targets *t, bool **matches);
bool targets_has(const lora_targets *t, const char *module);

#endif
