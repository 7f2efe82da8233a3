/*
 * adapter.h - a low-rank addition to a linear weight W [M,K] (LoRA, Hu et al. 2021):
 *   y = x W^T + b + scale (dropout(x) A^T) B^T,   A [r,K], B [M,r]
 * A and B are parameters of their own. W + scale B A is never made: `linear` computes as above, and W needs
 * nothing but WORK. Made by core/model/adapter.c.
 */
#ifndef TENSOR_ADAPTER_H
#define TENSOR_ADAPTER_H
#include "tensor/param.h"
#include <nrl/tape.h>

typedef struct adapter {
    nrl_param *a, *b;
    double scale;
    double dropout; /* of x, in training */
} adapter;

/* u [R,r] = dropout(x) A^T, on the tape. */
nrl_status adapter_down(nrl_ctx *ctx, const adapter *l, nrl_tensor *x, nrl_tensor **u);
/* y += scale u B^T. The caller's node has y as its output and u as an input, and saves u at the same place. */
nrl_status adapter_up(nrl_ctx *ctx, const adapter *l, const nrl_tensor *u, nrl_tensor *y);
/* Inside that node's backward: gives input i, which is u, its gradient, and B its own. */
nrl_status adapter_up_backward(nrl_ctx *ctx, nrl_tape_node *node, int i, const adapter *l);

#endif
