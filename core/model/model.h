/*
 * model.h - an instance of an architecture: its units, parameters and head, from a model plugin and a config.json.
 * Other code binds the storage (the run, or a parallel strategy); weights.h and save.h read and write files.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H
#include "model/adapter.h"
#include "tensor/ctx.h"
#include "tensor/param.h"
#include <nrl/algorithm.h>

enum { MODEL_MAX_NAMES = 32 };

typedef struct {
    const char *name;
    int32_t n_uses;
    nrl_param **uses; /* [n_uses] in order of declaration, each once */
} model_unit;

typedef struct model {
    nrl_model table;
    void *self; /* the plugin's instance */
    int32_t n_units;
    model_unit *units;
    int32_t n_params;
    nrl_param **params;          /* each once, in order of declaration; parameters of adapters follow */
    int32_t n_own;               /* declared by the plugin, without adapters: the contents of a model file */
    const adapter_set *adapters; /* attached by model_adapt; NULL = none, and every parameter is trained */
    int32_t n_carry;
    int64_t carry_width[NRL_MAX_CARRY];
    head_spec head;
    bool drops_head; /* an algorithm has replaced it: there are no logits */
    nrl_model_info info;
    const char *ignored[MODEL_MAX_NAMES]; /* suffixes of tensors in files that are not parameters */
    int n_ignored;
    const char *optional_prefix; /* NULL = none */
    int32_t n_terms;
    nrl_loss_term terms[NRL_MAX_MODEL_TERMS]; /* that it adds to the loss */
    bool is_random;                           /* forward draws random numbers in training */
    const nrl_node *config;                   /* the parsed config.json */
    const char *type;                         /* its model_type */
    arena memory;                             /* owns all of the above */
} model;

/* Runs the plugin's create and layout. `config` (config.json) is borrowed and must outlive the model.
 * Errors: those of the plugin; a model without head or units, or a parameter without dimensions. [main] */
nrl_status model_create(const nrl_model *table, const nrl_node *config, model **out);
void model_destroy(model *m);

int64_t model_n_params(const model *m); /* number of elements; tied parameters count once */
int64_t model_n_own(const model *m);    /* the same without adapters */
int64_t model_n_trained(const model *m);
/* Moves the totals of the terms since the last call to sums[n_terms]; NULL drops them. */
nrl_status model_take_terms(model *m, nrl_ctx *ctx, double *sums);
/* The first unit that uses a trained parameter: units before it need no gradient. The last unit if none is trained. */
int32_t model_first_trained(const model *m);
nrl_param *model_param(const model *m, const char *name); /* NULL if absent */
/* A parameter with one part, whose name, shape and initial values are those of `spec`; not in the model yet. */
nrl_param *model_param_new(model *m, const nrl_param_spec *spec);
/* FLOPs of the matrix products for one token's forward and backward in unit u, without attention: 6 per element of the
 * matrices of linear operations and the head (counted with the last unit), 4 per element of a frozen matrix, 0 for the
 * input embedding. Strategies use it to balance units; ctx_settings.flops counts the FLOPs that a step has computed. */
double model_unit_flops(const model *m, int32_t u);

/* Adds the parameters of an algorithm to the last unit, and may drop the output layer. Parameters that the model has
 * already are kept, because config.json describes them under "nrl", where they are added by model_create; m->config
 * becomes a copy that describes them. NRL_ERR_PLUGIN: a name of the architecture; NRL_ERR_DATA: another shape. [main]
 */
nrl_status model_extend(model *m, const nrl_algorithm_model *add);
nrl_status model_extend_again(model *m); /* adds what config.json describes under "nrl" */

/* Writes elements [begin, begin+n) of a parameter's initial f32 values to out[n], from its declared initialiser. The
 * random numbers depend only on (seed, name, element), so every slice on every rank gets the same numbers. [any] */
void model_init_values(const nrl_param *p, uint64_t seed, int64_t begin, int64_t n, float *out);

#endif
