/*
 * adapter.h - a parameter-efficient method: a few trained parameters for a frozen linear weight W [outputs, inputs],
 * which weights of a model have them, how they change the product with W, and how they are merged into W.
 *
 * A config chooses an adapter by the component `adapter: {name: NAME, ...}`, or by a section that is called NAME. Its
 * options are the plugin's rows, and the core's `use`, an adapter on disk to start from.
 *
 * Settings are a tree that is stored in checkpoints: {"modules": [{"module": "model.layers.0.mlp.up_proj", ...}, ...],
 * ...}. The core reads the list of modules and adds the plugin's name as "adapter"; all other keys belong to the
 * plugin. A module has the name of its weight without ".weight".
 *
 * An instance is created from settings. Ownership: the settings outlive the instance; texts and names that it returns
 * live until `destroy`. `forward` calls operations of nrl/op.h and those below, so the tape computes its backward.
 */
#ifndef NRL_ADAPTER_H
#define NRL_ADAPTER_H
#include <nrl/model.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { NRL_ADAPTER_MAX_PARAMS = 4 };

/* A linear weight that can have an adapter. Sizes are those of the unsharded weight. */
typedef struct {
    uint32_t size;
    uint32_t tp; /* nrl_tp: how tensor parallelism divides it */
    const char *module;
    int64_t outputs, inputs;
    int32_t groups; /* of nrl_part; 1 = none */
    int32_t reserved;
} nrl_adapter_target;

/* The input of `choose`; lives as long as the call. */
typedef struct {
    uint32_t size;
    uint32_t target_size;              /* stride of targets */
    const char *section;               /* name of the component in the config: errors begin "SECTION.OPTION: " */
    const nrl_adapter_target *targets; /* [n_targets] in the order of the model */
    int64_t n_targets;
    const char *const *others; /* [n_others] modules with a matrix that cannot carry an adapter: embeddings, the head */
    int64_t n_others;
} nrl_adapter_model;

/* Collects the parameters that `declare` declares for a module, at most NRL_ADAPTER_MAX_PARAMS. [main] */
typedef struct nrl_adapter_builder nrl_adapter_builder;
NRL_API nrl_status nrl_adapter_build_param(nrl_adapter_builder *b, const nrl_param_spec *spec);

/* A product with an adapted weight, during its computation. */
typedef struct nrl_adapter_site nrl_adapter_site;

/* The i-th parameter that `declare` has declared for this module. */
NRL_API nrl_param *nrl_adapter_param(const nrl_adapter_site *site, int32_t i);
/* The weight, for its dimensions, and for nrl_op_param: it may be stored quantized. */
NRL_API nrl_param *nrl_adapter_weight(const nrl_adapter_site *site);
/* Dropout in training: each element of y is 0 with probability p, else x / (1 - p). Ranks with different columns of the
 * same x drop different elements. [step] */
NRL_API nrl_status nrl_adapter_dropout(nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x, double p,
                                       nrl_tensor **y);
/* y [R, outputs] = x W^T + bias, plus scale u b^T if u [R, r] is not NULL, with b [outputs, r]. The second product is
 * added in place, without a temporary tensor. Call it once in each forward. [step] */
NRL_API nrl_status nrl_adapter_product(nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x, nrl_tensor *u,
                                       nrl_param *b, double scale, nrl_tensor **y);
/* The same in two parts, for an adapter that changes the product before the bias is added: y = x W^T, and then, in
 * place, y += bias, if the module has a bias and it is added here (of a row-parallel weight it is added to the sum of
 * all ranks). `add_bias` comes last: no operation may have read y. [step] */
NRL_API nrl_status nrl_adapter_weight_product(nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x,
                                              nrl_tensor **y);
NRL_API nrl_status nrl_adapter_add_bias(nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *y);

typedef struct {
    nrl_plugin plugin;
    uint32_t starts_as_base; /* 1: with the parameters' initial values the product equals that of W alone, also with
                                random numbers */
    uint32_t merges_rows;    /* 1: ranges of merge are whole rows */
    /* [main] settings of a new adapter on this model, in `memory`. NRL_ERR_CONFIG: the options do not fit it */
    nrl_status (*choose)(const void *options, const nrl_adapter_model *model, nrl_arena *memory, nrl_node **settings);
    /* [main] optional: returns the settings of a run that starts from an adapter on disk with the settings `saved`; the
     * map `given` has the options that the config sets in addition to `use`. *settings as by `choose`; *resolved maps
     * every option to the value that the run has, so that a config with these values gives the same settings.
     * NRL_ERR_CONFIG: an option contradicts the adapter on disk. NULL: the settings are `saved`, and any option given
     * is a mistake */
    nrl_status (*adopt)(const void *options, const nrl_node *given, const nrl_adapter_model *model,
                        const nrl_node *saved, nrl_arena *memory, nrl_node **settings, nrl_node **resolved);
    /* [main] NRL_ERR_CORRUPT: the settings are invalid or belong to another adapter */
    nrl_status (*create)(const nrl_node *settings, void **self);
    void (*destroy)(void *self); /* [main] */
    /* [main] declares the parameters of entry `module` of the settings: names as on disk, shapes, initialisers, how
     * tensor parallelism divides them. NRL_ERR_CONFIG: the target does not fit */
    nrl_status (*declare)(void *self, int32_t module, const nrl_adapter_target *target, nrl_adapter_builder *builder);
    /* [step] the product of an adapted weight; x [R, inputs] */
    nrl_status (*forward)(void *self, int32_t module, nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x,
                          nrl_tensor **y);
    /* [main] replaces elements [begin, begin + n) of W, in row-major order, by those of the merged weight. values: all
     * elements of each parameter, in the order of declare */
    void (*merge)(void *self, int32_t module, const nrl_adapter_target *target, const float *const *values,
                  int64_t begin, int64_t n, float *w);
    bool (*random)(const void *self); /* [main] whether forward draws random numbers; NULL: no */
    /* [main] optional: a description for the plan, "rank 8, alpha 16" */
    const char *(*summary)(const void *self);
    /* optional: pairs of a name in other programs and the name of the option here, "" = the whole section;
     * NULL-terminated. Used by errors for unknown keys */
    const char *const *known_as;
} nrl_adapter;

#ifdef __cplusplus
}
#endif
#endif
