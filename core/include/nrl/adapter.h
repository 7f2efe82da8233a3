/*
 * adapter.h - what is trained beside a frozen linear weight W [outputs, inputs]: a few parameters, how they take part
 * in the product, and how they are merged into W.
 *
 * Settings are a tree that a checkpoint keeps: {"adapter": NAME, "modules": [{"module": "model.layers.0.mlp.up_proj",
 * ...}, ...], ...}. The core reads these two keys; everything else in it is the adapter's own. A module is named like
 * its weight, without ".weight".
 *
 * An instance is made of settings. Ownership: the settings outlive the instance; texts and names that it returns live
 * until `destroy`. The tape gives the backward: `forward` calls operations of nrl/op.h and those below.
 */
#ifndef NRL_ADAPTER_H
#define NRL_ADAPTER_H
#include <nrl/model.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { NRL_ADAPTER_MAX_PARAMS = 4 };

/* A linear weight that may carry an adapter; sizes of the whole, whatever lies on this rank. */
typedef struct {
    uint32_t size;
    uint32_t tp; /* nrl_tp: how tensor parallelism divides it */
    const char *module;
    int64_t outputs, inputs;
    int32_t groups; /* of nrl_part; 1 = none */
    int32_t reserved;
} nrl_adapter_target;

/* One product with an adapted weight, while it is computed. */
typedef struct nrl_adapter_site nrl_adapter_site;

/* The i-th parameter that `declare` gave this module. */
NRL_API nrl_param *nrl_adapter_param(const nrl_adapter_site *site, int32_t i);
/* y = x with each element 0 at probability p, else divided by 1 - p, in training; ranks that hold other columns of the
 * same x drop other elements. [step] */
NRL_API nrl_status nrl_adapter_dropout(nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x, double p,
                                       nrl_tensor **y);
/* y [R, outputs] = x W^T + bias, and where u [R, r] is not NULL + scale u b^T with b [outputs, r], in one operation:
 * the sum is never a tensor of its own. Once in each forward. [step] */
NRL_API nrl_status nrl_adapter_product(nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x, nrl_tensor *u,
                                       nrl_param *b, double scale, nrl_tensor **y);

typedef struct {
    nrl_plugin plugin;
    /* [main] NRL_ERR_CORRUPT: the settings are not this adapter's, or make no sense */
    nrl_status (*create)(const nrl_node *settings, void **self);
    void (*destroy)(void *self); /* [main] */
    /* [main] the parameters of entry `module` of the settings: names as they are on disk, shapes, initialisers, how
     * tensor parallelism divides them. specs is zeroed, sizes are set. NRL_ERR_CONFIG: this target cannot carry it */
    nrl_status (*declare)(void *self, int32_t module, const nrl_adapter_target *target,
                          nrl_param_spec specs[NRL_ADAPTER_MAX_PARAMS], int32_t *n);
    /* [step] the product of an adapted weight; x [R, inputs] */
    nrl_status (*forward)(void *self, int32_t module, nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x,
                          nrl_tensor **y);
    /* [main] elements [begin, begin + n) of W, row by row, become those of the merged weight; values: each parameter
     * whole, in the order of declare */
    void (*merge)(void *self, int32_t module, const nrl_adapter_target *target, const float *const *values,
                  int64_t begin, int64_t n, float *w);
    bool (*random)(const void *self); /* [main] forward draws random numbers; NULL: it does not */
} nrl_adapter;

#ifdef __cplusplus
}
#endif
#endif
