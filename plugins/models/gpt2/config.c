/*
 * config.c - reads config.json of GPT-2; absent keys have the defaults of transformers' GPT2Config.
 */
#include "config.h"
#include <math.h>
#include <string.h>

enum { MAX_LAYERS = 4096, MAX_HEADS = 65536, MAX_SIZE = INT32_MAX / 4 };

/* or_value -1: the key is required. */
static nrl_status read_int(const nrl_node *j, const char *key, int64_t most, int64_t or_value, int64_t *out)
{
    const nrl_node *node = nrl_node_find(j, key);
    bool absent = nrl_node_kind(node) <= NRL_NODE_NULL;
    *out = nrl_node_int(node, absent ? or_value : INT64_MIN);
    if (*out >= 1 && *out <= most) return NRL_OK;
    if (absent) return nrl_fail(NRL_ERR_DATA, "%s: '%s' is missing", nrl_node_place(j), key);
    return nrl_fail(NRL_ERR_DATA, "%s: '%s' is not an integer from 1 to %lld", nrl_node_place(j), key, (long long)most);
}

static nrl_status read_number(const nrl_node *j, const char *key, double or_value, double *out)
{
    const nrl_node *node = nrl_node_find(j, key);
    *out = nrl_node_f64(node, nrl_node_kind(node) <= NRL_NODE_NULL ? or_value : NAN);
    if (isfinite(*out) && *out > 0) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "%s: '%s' is not a number above 0", nrl_node_place(j), key);
}

static nrl_status read_activation(const nrl_node *j, nrl_unary *out)
{
    static const struct {
        const char *name;
        nrl_unary op;
    } rows[] = {{"gelu_new", NRL_UNARY_GELU_TANH}, {"gelu_pytorch_tanh", NRL_UNARY_GELU_TANH},
                {"gelu", NRL_UNARY_GELU},          {"relu", NRL_UNARY_RELU},
                {"silu", NRL_UNARY_SILU},          {"swish", NRL_UNARY_SILU},
                {"tanh", NRL_UNARY_TANH},          {"sigmoid", NRL_UNARY_SIGMOID}};
    const char *name = nrl_node_string(nrl_node_find(j, "activation_function"), "gelu_new");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(name, rows[i].name)) {
            *out = rows[i].op;
            return NRL_OK;
        }
    return nrl_fail(NRL_ERR_DATA,
                    "%s: activation_function '%.60s' is not supported; expected one of: gelu_new, gelu, relu, "
                    "silu, tanh, sigmoid",
                    nrl_node_place(j), name);
}

nrl_status gpt2_config_read(const nrl_node *j, gpt2_config *c)
{
    NRL_TRY(read_int(j, "vocab_size", MAX_SIZE, -1, &c->vocab));
    NRL_TRY(read_int(j, "n_embd", MAX_SIZE, -1, &c->width));
    NRL_TRY(read_int(j, "n_layer", MAX_LAYERS, -1, &c->n_layers));
    NRL_TRY(read_int(j, "n_head", MAX_HEADS, -1, &c->n_heads));
    NRL_TRY(read_int(j, "n_positions", MAX_SIZE, 1024, &c->n_positions));
    NRL_TRY(read_int(j, "n_inner", MAX_SIZE, 4 * c->width, &c->inner));
    NRL_TRY(read_number(j, "layer_norm_epsilon", 1e-5, &c->norm_eps));
    NRL_TRY(read_number(j, "initializer_range", 0.02, &c->init_scale));
    NRL_TRY(read_activation(j, &c->activation));
    if (c->width % c->n_heads)
        return nrl_fail(NRL_ERR_DATA, "%s: n_embd %lld is not a multiple of n_head %lld", nrl_node_place(j),
                        (long long)c->width, (long long)c->n_heads);
    if (nrl_node_bool(nrl_node_find(j, "add_cross_attention"), false))
        return nrl_fail(NRL_ERR_DATA, "%s: add_cross_attention is true; only false is supported", nrl_node_place(j));
    c->tied = nrl_node_bool(nrl_node_find(j, "tie_word_embeddings"), true);
    c->scale_by_width = nrl_node_bool(nrl_node_find(j, "scale_attn_weights"), true);
    c->scale_by_layer = nrl_node_bool(nrl_node_find(j, "scale_attn_by_inverse_layer_idx"), false);
    return NRL_OK;
}
