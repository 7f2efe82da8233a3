/*
 * context.h - the strategy `context`: ranks divide the tokens of each micro-batch.
 *
 * Legend: N tokens of a micro-batch, n of them this rank's, R ranks, H query heads, G key/value heads, K head width.
 */
#ifndef CONTEXT_H
#define CONTEXT_H
#include "gradient_sums.h"

enum { CONTEXT_ULYSSES = 0, CONTEXT_RING = 1 };

typedef struct {
    int64_t kind; /* CONTEXT_ULYSSES, ... */
} context_options;

typedef struct {
    context_options options;
    nrl_comm *comm;
    int32_t size, rank; /* of the axis */
    nrl_param *const *params;
    int32_t n_params;
    gradient_sums sums;
    int64_t *counts; /* [2 R] of an exchange: elements sent to each rank, and received from each */
    char text[200];
} context;

/* ---- ulysses.c ---- */
/* Whether R ranks can have whole heads of their own. */
nrl_status ulysses_check(const context *c, int64_t n_heads, int64_t n_kv_heads);
/* The token at which the tokens of a rank begin. */
int64_t ulysses_begin(const context *c, int64_t n, int32_t rank);
nrl_status ulysses_attention(context *c, nrl_ctx *ctx, int64_t n, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                             const nrl_attention_spec *spec, double soft_cap, nrl_tensor **y);

/* ---- ring.c ---- */
/* This rank's tokens of n, ascending, and their number; 0: too few for the ranks. */
int64_t ring_divide(const context *c, int64_t n, int32_t *own);
nrl_status ring_attention(context *c, nrl_ctx *ctx, int64_t n, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                          const nrl_attention_spec *spec, double soft_cap, nrl_tensor **y);

#endif
