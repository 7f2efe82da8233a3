/*
 * model.h - an instance of an architecture: its units, parameters and head, from a model plugin and a
 * config.json. Storage is bound elsewhere (core/run/walk/storage.c or a strategy); files are read and written by
 * weights.h and save.h, part by part.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H
#include "model/adapter.h"
#include "tensor/ctx.h"
#include "tensor/param.h"
#include <nrl/model.h>

enum { MODEL_MAX_NAMES = 32 };

typedef struct {
    const char *name;
    int32_t n_uses;
    nrl_param **uses; /* in order of declaration, each once */
} model_unit;

typedef struct model {
    nrl_model table;
    void *self; /* the plugin's instance */
    int32_t n_units;
    model_unit *units;
    int32_t n_params;
    nrl_param **params;          /* each once, in order of declaration; those of adapters behind them */
    int32_t n_own;               /* declared by the plugin: what a file of the model holds */
    const adapter_set *adapters; /* that model_adapt attached; NULL = none, and everything is trained */
    int32_t n_carry;
    int64_t carry_width[NRL_MAX_CARRY];
    head_spec head;
    nrl_model_info info;
    const char *ignored[MODEL_MAX_NAMES]; /* suffixes of tensors that are no parameters */
    int n_ignored;
    const char *optional_prefix; /* NULL = none */
    const nrl_node *config;      /* the parsed config.json */
    const char *type;            /* its model_type */
    arena memory;                /* owns all of the above */
} model;

/* Runs the plugin's create and layout. `config` (config.json) is borrowed and must outlive the model.
 * Errors: whatever the plugin says; no head, no unit, a parameter without dimensions. [main] */
nrl_status model_create(const nrl_model *table, const nrl_node *config, model **out);
void model_destroy(model *m);

int64_t model_n_params(const model *m); /* elements, tied ones once */
int64_t model_n_own(const model *m);    /* without those of adapters */
int64_t model_n_trained(const model *m);
/* The lowest unit that uses something trained: no gradient is needed below it. The last one where nothing is. */
int32_t model_first_trained(const model *m);
nrl_param *model_param(const model *m, const char *name); /* NULL if absent */
/* Matrix FLOPs of one token's forward and backward in unit u, the head's with the last, without attention: 6 *
 * (matrix elements used by linear and head, the input embedding not counted), 4 * where the weight is frozen. What
 * strategies weigh units by; what a step has computed is counted by ctx_flops. */
double model_unit_flops(const model *m, int32_t u);

/* Fills one parameter's f32 values (numel, whole) from its declared initialiser: a counter-based
 * generator keyed by (seed, name, element), so any slice on any rank gets the same numbers.
 * [begin, begin+n) elements are written. [any] */
void model_init_values(const nrl_param *p, uint64_t seed, int64_t begin, int64_t n, float *out);

#endif
