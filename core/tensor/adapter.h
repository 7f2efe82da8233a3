/*
 * adapter.h - a linear weight with an adapter (nrl/adapter.h): `linear` leaves its product to the plugin, which calls
 * back for W's own. Made by core/model/adapter.c.
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
    /* of one product */
    nrl_param *bias;
    bool adds; /* the bias is added here */
};

#endif
