/*
 * config.h - the contents of a GPT-2 config.json.
 */
#ifndef GPT2_CONFIG_H
#define GPT2_CONFIG_H
#include <nrl/op.h>

typedef struct {
    int64_t vocab, width, inner, n_layers, n_heads, n_positions;
    double norm_eps, init_scale;
    bool tied, scale_by_width, scale_by_layer; /* scale of scores: 1 / sqrt(K), 1 / (layer + 1) */
    nrl_unary activation;
} gpt2_config;

/* NRL_ERR_DATA names the key and what was expected. */
nrl_status gpt2_config_read(const nrl_node *j, gpt2_config *c);

#endif
