/*
 * adapter.h - a linear weight with an adapter (nrl/adapter.h). nrl_op_linear calls the plugin for such a weight, and
 * the plugin calls back for the product with the weight itself. core/model/adapter.c creates sites.
 */
#ifndef TENSOR_ADAPTER_H
#define TENSOR_ADAPTER_H
#include "tensor/param.h"
#include <nrl/adapter.h>

struct nrl_adapter_site {
    const nrl_adapter *table;
    void *self;
    int32_t module; /* entry of the settings */
    int32_t n;
    nrl_param *params[NRL_ADAPTER_MAX_PARAMS];
    nrl_param *weight;
    /* of the current product */
    nrl_param *bias;
    bool adds; /* this rank adds the bias */
};

#endif
