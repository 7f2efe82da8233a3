/*
 * config.c - config.json of Qwen2-MoE.
 */
#include "qwen2_moe.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

nrl_status moe_config_read(const nrl_node *j, moe_config *c)
{
    const struct {
        const char *key;
        int64_t *to, most, initial; /* initial 0: required */
    } sizes[] = {{"vocab_size", &c->vocab, INT32_MAX, 0},
                 {"hidden_size", &c->width, 1 << 20, 0},
                 {"num_hidden_layers", &c->n_layers, 1 << 12, 0},
                 {"num_attention_heads", &c->n_heads, 1 << 12, 0},
                 {"num_key_value_heads", &c->n_kv_heads, 1 << 12, 0},
                 {"num_experts", &c->n_experts, MAX_EXPERTS, 0},
                 {"num_experts_per_tok", &c->n_chosen, MAX_EXPERTS, 0},
                 {"moe_intermediate_size", &c->inner, 1 << 20, 0},
                 {"shared_expert_intermediate_size", &c->shared_inner, 1 << 20, 0},
                 {"max_position_embeddings", &c->max_positions, INT32_MAX, 32768}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        *sizes[i].to = nrl_node_int(nrl_node_find(j, sizes[i].key), sizes[i].initial);
        if (*sizes[i].to < 1 || *sizes[i].to > sizes[i].most)
            return nrl_fail(NRL_ERR_DATA, "%s: '%s' is %lld, expected 1 to %lld", nrl_node_place(j), sizes[i].key,
                            (long long)*sizes[i].to, (long long)sizes[i].most);
    }
    if (c->width % c->n_heads || c->n_heads % c->n_kv_heads || c->n_chosen > c->n_experts)
        return nrl_fail(NRL_ERR_DATA, "%s: heads do not divide the width, or more experts are chosen than there are",
                        nrl_node_place(j));
    if (nrl_node_int(nrl_node_find(j, "decoder_sparse_step"), 1) != 1 ||
        nrl_node_size(nrl_node_find(j, "mlp_only_layers")) ||
        nrl_node_bool(nrl_node_find(j, "use_sliding_window"), false) ||
        strcmp(nrl_node_string(nrl_node_find(j, "hidden_act"), "silu"), "silu"))
        return nrl_fail(NRL_ERR_DATA,
                        "%s: expected experts in all layers (decoder_sparse_step 1, mlp_only_layers []), silu and no "
                        "sliding window",
                        nrl_node_place(j));
    const nrl_node *rope = nrl_node_find(j, "rope_parameters"), *theta = nrl_node_find(j, "rope_theta");
    if (nrl_node_size(rope)) theta = nrl_node_find(rope, "rope_theta");
    c->head_dim = c->width / c->n_heads;
    c->normalizes = nrl_node_bool(nrl_node_find(j, "norm_topk_prob"), false);
    c->ties = nrl_node_bool(nrl_node_find(j, "tie_word_embeddings"), false);
    c->eps = nrl_node_f64(nrl_node_find(j, "rms_norm_eps"), 1e-6);
    c->router_coefficient = nrl_node_f64(nrl_node_find(j, "router_aux_loss_coef"), 0.001);
    c->init_scale = nrl_node_f64(nrl_node_find(j, "initializer_range"), 0.02);
    c->rope.half = c->head_dim / 2;
    c->rope.scale = 1;
    double *inv_freq = malloc((size_t)(c->rope.half + 1) * sizeof *inv_freq);
    if (!inv_freq) return nrl_fail(NRL_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < c->rope.half; i++)
        inv_freq[i] = pow(nrl_node_f64(theta, 10000), -2.0 * (double)i / (double)c->head_dim);
    c->rope.inv_freq = inv_freq;
    return NRL_OK;
}
