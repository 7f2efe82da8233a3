/*
 * config.h - what a Llama-like config.json means, with each family's own defaults made explicit.
 */
#ifndef LLAMA_CONFIG_H
#define LLAMA_CONFIG_H
#include <nrl/op.h>

typedef struct {
    int64_t vocab, width, inner, n_layers, n_heads, n_kv_heads, head_dim, max_positions;
    double norm_eps, init_scale;
    bool qkv_bias, out_bias, mlp_bias; /* of q, k, v; of o; of gate, up, down */
    bool head_norm;                    /* RMS norm of each query and key head (Qwen3) */
    bool tied;                         /* the head is the input embedding */
    int64_t *window;                   /* [n_layers] keys seen by a query, 0 = all */
    nrl_rope rope;                     /* of inv_freq [head_dim / 2] */
} llama_config;

/* The model_type values that are served, NULL-ended. */
extern const char *const llama_model_types[];

/* NRL_ERR_DATA names the key, its value and what was expected. Free what was read in either case.
 */
nrl_status llama_config_read(const nrl_node *config, llama_config *out);
void llama_config_free(llama_config *c);

/* ---- getters with errors, for config.c and rope.c ---- */

/* An integer in [least, most]; absent or null gives or_value, or an error if that is -1. */
nrl_status llama_read_int(const nrl_node *map, const char *key, int64_t least, int64_t most,
                          int64_t or_value, int64_t *out);
/* A finite number above `above`; absent or null gives or_value, or an error if that is NAN. */
nrl_status llama_read_number(const nrl_node *map, const char *key, double above, double or_value,
                             double *out);

/* rope.c: frequencies and scale from rope_parameters or rope_theta with rope_scaling. */
nrl_status llama_rope_read(const nrl_node *config, const llama_config *sizes, nrl_rope *out);

#endif
