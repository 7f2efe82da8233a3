/*
 * qwen2_moe.h - what the files of this plugin share.
 * Legend: N tokens, D width, H heads, G key/value heads, K head width, E experts, k of them chosen for a token, I inner
 * width of an expert, L layers, V vocabulary.
 */
#ifndef QWEN2_MOE_H
#define QWEN2_MOE_H
#include <nrl/model.h>

enum { MAX_EXPERTS = 256 };

typedef struct {
    int64_t vocab, width, n_layers, n_heads, n_kv_heads, head_dim, max_positions;
    int64_t n_experts, n_chosen, inner, shared_inner;
    bool normalizes, ties;
    double eps, router_coefficient, init_scale;
    nrl_rope rope;
} moe_config;

typedef struct {
    nrl_param *gate, *up, *down; /* [I,D], [I,D], [D,I] */
} moe_mlp;

typedef struct {
    nrl_param *norm1, *norm2;                   /* [D] */
    nrl_param *q, *k, *v, *o, *q_b, *k_b, *v_b; /* [H*K,D], [G*K,D], [G*K,D], [D,H*K] */
    nrl_param *router;                          /* [E,D] */
    nrl_param *shared_gate;                     /* [1,D] */
    moe_mlp shared, *experts;                   /* [E] */
} moe_layer;

/* Sizes of config.json, NRL_ERR_DATA if one is missing or not supported. inv_freq is malloc'd. */
nrl_status moe_config_read(const nrl_node *j, moe_config *c);
/* *h [N,D] becomes the output of the experts and the shared expert. *stats [N,2E] gets, for each token, 1 for each
 * chosen expert and the probability of each, added to what earlier layers left. */
nrl_status moe_block(nrl_ctx *ctx, const moe_config *c, const moe_layer *l, nrl_tensor **h, nrl_tensor **stats);

#endif
