/*
 * fp8_scaling.h - the scales of products of 8 bits (nrl_gemm_fp8), by the delayed recipe of NVIDIA's Transformer
 * Engine: the scale of an operand is the largest power of two for which its largest value in the last `history` steps
 * is not beyond the largest number of the format, divided by 2^margin. So no product waits for its operand's largest
 * value. All ranks have the same scales, from the largest values of all ranks.
 */
#ifndef OPTIM_FP8_SCALING_H
#define OPTIM_FP8_SCALING_H
#include "config/schema.h"
#include "mesh/mesh.h"
#include "model/model.h"

typedef struct {
    config_fp8 rule;
    nrl_param **params; /* [n] that may be fp8; their member `fp8` is their number here, from 1 */
    int64_t n;          /* 0: operands, or their blocks, are scaled by their own values */
    int8_t *exponents;  /* [n, history, 3], newest first: of the scale for the largest value of a step */
    float *host;        /* [n, 3] */
    nrl_tensor *scale, *amax;
} fp8_scaling;

/* Numbers the parameters and gives the context its scales. NRL_ERR_CONFIG: the model has no parameter for fp8. */
nrl_status fp8_scaling_open(fp8_scaling *s, const config_fp8 *rule, const model *m, nrl_ctx *ctx, arena *a);
/* Before the first micro-batch of a step, and after its last one. [step] */
nrl_status fp8_scaling_begin(fp8_scaling *s, nrl_ctx *ctx);
nrl_status fp8_scaling_end(fp8_scaling *s, nrl_ctx *ctx, nrl_mesh *mesh);
/* The history as a map from names to lists; NULL if n is 0. Reading takes the steps that fit into this history. */
nrl_node *fp8_scaling_node(const fp8_scaling *s, arena *a);
nrl_status fp8_scaling_read(fp8_scaling *s, const nrl_node *map);

#endif
