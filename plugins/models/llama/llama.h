/*
 * llama.h - an instance: the contents of config.json, and the parameters that layout.c declared and
 * llama.c uses.
 *
 * Legend: N tokens, D width, H query heads, G key/value heads, K head width, I inner width, V
 * vocabulary, E experts, k of them chosen for a token.
 */
#ifndef LLAMA_LLAMA_H
#define LLAMA_LLAMA_H
#include "config.h"
#include <nrl/model.h>

typedef struct {
    nrl_param *weight, *bias; /* bias NULL = none */
} llama_affine;

typedef struct {
    nrl_param *gate, *up, *down; /* [I, D] twice, [D, I]; up NULL: gate is both [2I, D] */
} llama_expert;

/* A norm that the family does not have is NULL. */
typedef struct {
    nrl_param *attention_in, *attention_out, *mlp_in, *mlp_out; /* [D] */
    llama_affine q, k, v, o;                 /* [H*K, D], [G*K, D] twice, [D, H*K]; fused: q is all three */
    nrl_param *q_norm, *k_norm;              /* [K], or [H*K] and [G*K] */
    nrl_param *sinks;                        /* [H] */
    llama_affine gate, up, down;             /* [I, D] twice, [D, I]; fused: gate is both */
    llama_affine router;                     /* [E, D], NULL = the layer has an MLP */
    llama_expert *experts;                   /* [E] */
    nrl_param *gate_up_biases, *down_biases; /* [E, 2I], [D, E] */
} llama_layer;

typedef struct {
    llama_config config;
    nrl_param *embed, *norm, *head; /* [V, D], [D], [V, D] */
    llama_layer *layers;
    llama_expert *experts;      /* those of the layers, one after the other */
    nrl_loss_term *balance, *z; /* NULL = none */
} llama;

/* A norm over all heads needs all heads, and a fused matrix has groups of rows of unequal size that cannot
 * be sharded alike: tensor parallelism keeps such attention whole. */
static inline bool llama_attention_is_whole(const llama_config *c)
{
    return c->head_norm == LLAMA_HEADS_ALL || (c->fused_qkv && c->n_heads != c->n_kv_heads);
}

nrl_status llama_layout(void *instance, nrl_builder *builder);

/* experts.c: y [N,D] = the weighted sum of the experts that the router chooses for each row of h [N,D]. With a balance
 * loss, *stats [N,2E] gets, for each token, 1 for each chosen expert and the probability of each expert, added to what
 * earlier layers left; otherwise stats is not used. With a z-loss, the layer's value is given, and *y carries it. */
nrl_status llama_experts_forward(const llama *self, nrl_ctx *ctx, const llama_layer *l, nrl_tensor *h,
                                 nrl_tensor **stats, nrl_tensor **y);
nrl_status llama_balance_loss(const llama *self, nrl_ctx *ctx, nrl_tensor *stats, nrl_tensor **loss);

#endif
