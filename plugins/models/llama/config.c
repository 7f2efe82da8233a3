/*
 * config.c - reads sizes and switches from config.json, by the family's row in families.c.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 4096, MAX_HEADS = 65536, MAX_SIZE = INT32_MAX };

bool llama_is_absent(const nrl_node *node)
{
    return nrl_node_kind(node) == NRL_NODE_NONE || nrl_node_kind(node) == NRL_NODE_NULL;
}

nrl_status llama_read_int(const nrl_node *map, const char *key, int64_t least, int64_t most, int64_t or_value,
                          int64_t *out)
{
    const nrl_node *node = nrl_node_find(map, key);
    if (llama_is_absent(node) && or_value != -1) {
        *out = or_value;
        return NRL_OK;
    }
    *out = nrl_node_int(node, INT64_MIN);
    if (*out == INT64_MIN)
        return nrl_fail(NRL_ERR_DATA, "%s: '%s' is %s; expected an integer", nrl_node_place(map), key,
                        llama_is_absent(node) ? "missing" : "not an integer");
    if (*out < least || *out > most)
        return nrl_fail(NRL_ERR_DATA, "%s: '%s' is %lld; expected %lld to %lld", nrl_node_place(map), key,
                        (long long)*out, (long long)least, (long long)most);
    return NRL_OK;
}

nrl_status llama_read_number(const nrl_node *map, const char *key, double above, double or_value, double *out)
{
    const nrl_node *node = nrl_node_find(map, key);
    if (llama_is_absent(node) && !isnan(or_value)) {
        *out = or_value;
        return NRL_OK;
    }
    *out = nrl_node_f64(node, NAN);
    if (isfinite(*out) && *out > above) return NRL_OK;
    if (isnan(*out))
        return nrl_fail(NRL_ERR_DATA, "%s: '%s' is %s; expected a number", nrl_node_place(map), key,
                        llama_is_absent(node) ? "missing" : "not a number");
    return nrl_fail(NRL_ERR_DATA, "%s: '%s' is %g; expected more than %g", nrl_node_place(map), key, *out, above);
}

/* ---- sizes ---- */

/* As given, or the family's, or the width divided by the number of heads. */
static nrl_status read_head_dim(const nrl_node *j, const llama_family *f, llama_config *c)
{
    const nrl_node *node = nrl_node_find(j, "head_dim");
    bool derived = f->head_dim && !node ? false : llama_is_absent(node);
    NRL_TRY(llama_read_int(j, "head_dim", 1, MAX_HEADS, f->head_dim, &c->head_dim));
    if (derived && c->width % c->n_heads)
        return nrl_fail(NRL_ERR_DATA,
                        "%s: without head_dim, hidden_size %lld must be a multiple of "
                        "num_attention_heads %lld",
                        nrl_node_place(j), (long long)c->width, (long long)c->n_heads);
    if (derived) c->head_dim = c->width / c->n_heads;
    if (c->head_dim % 2 || c->head_dim > MAX_HEADS)
        return nrl_fail(NRL_ERR_DATA, "%s: head_dim is %lld; rotary positions need an even number up to %d",
                        nrl_node_place(j), (long long)c->head_dim, (int)MAX_HEADS);
    return NRL_OK;
}

static nrl_status read_sizes(const nrl_node *j, const llama_family *f, llama_config *c)
{
    NRL_TRY(llama_read_int(j, "vocab_size", 1, MAX_SIZE, -1, &c->vocab));
    NRL_TRY(llama_read_int(j, "hidden_size", 1, MAX_SIZE, -1, &c->width));
    NRL_TRY(llama_read_int(j, "intermediate_size", 1, MAX_SIZE, -1, &c->inner));
    NRL_TRY(llama_read_int(j, "num_hidden_layers", 1, MAX_LAYERS, -1, &c->n_layers));
    NRL_TRY(llama_read_int(j, "num_attention_heads", 1, MAX_HEADS, -1, &c->n_heads));
    const nrl_node *kv = nrl_node_find(j, "num_key_value_heads");
    int64_t n_kv = f->n_kv_heads && !kv ? f->n_kv_heads : c->n_heads;
    NRL_TRY(llama_read_int(j, "num_key_value_heads", 1, MAX_HEADS, n_kv, &c->n_kv_heads));
    if (c->n_heads % c->n_kv_heads)
        return nrl_fail(NRL_ERR_DATA, "%s: num_attention_heads %lld is not a multiple of num_key_value_heads %lld",
                        nrl_node_place(j), (long long)c->n_heads, (long long)c->n_kv_heads);
    NRL_TRY(read_head_dim(j, f, c));
    return llama_read_int(j, "max_position_embeddings", 1, MAX_SIZE, f->max_positions, &c->max_positions);
}

/* ---- switches ---- */

/* Gemma's files have "gelu" in hidden_act and mean the tanh form; newer files set it in hidden_activation. */
static nrl_status read_activation(const nrl_node *j, const llama_family *f, llama_config *c)
{
    static const char *const silu[] = {"silu", "swish"}, *const gelu[] = {"gelu_pytorch_tanh", "gelu_tanh"},
                             *const relu2[] = {"relu2", "relu2"};
    const char *const *built = f->gemma ? gelu : f->relu2 ? relu2 : silu, *key = "hidden_act";
    const char *act = nrl_node_string(nrl_node_find(j, key), built[0]);
    if (f->gemma) {
        if (!strcmp(act, "gelu")) act = built[0];
        if (!llama_is_absent(nrl_node_find(j, "hidden_activation"))) key = "hidden_activation";
        if (strcmp(key, "hidden_act")) act = nrl_node_string(nrl_node_find(j, key), "");
    }
    c->gelu = f->gemma;
    c->relu2 = f->relu2;
    if (!strcmp(act, built[0]) || !strcmp(act, built[1])) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "%s: %s is '%.60s'; only '%s' is supported", nrl_node_place(j), key, act, built[0]);
}

/* Rejects switches that would change the numbers and are not supported. */
static nrl_status refuse(const nrl_node *j, const llama_family *f)
{
    static const char *const switches[] = {"rope_interleaved", "use_bidirectional_attention"};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (nrl_node_bool(nrl_node_find(j, switches[i]), false))
            return nrl_fail(NRL_ERR_DATA, "%s: %s is true; only false is supported", nrl_node_place(j), switches[i]);
    if (!f->attention_cap && !llama_is_absent(nrl_node_find(j, "attn_logit_softcapping")))
        return nrl_fail(NRL_ERR_DATA,
                        "%s: attn_logit_softcapping is set; only attention scores without a cap "
                        "are supported",
                        nrl_node_place(j));
    return NRL_OK;
}

static nrl_status read_multipliers(const nrl_node *j, llama_config *c)
{
    double divisor;
    NRL_TRY(llama_read_number(j, "embedding_multiplier", 0, 1, &c->embed_scale));
    NRL_TRY(llama_read_number(j, "attention_multiplier", 0, 1, &c->attention_scale));
    NRL_TRY(llama_read_number(j, "residual_multiplier", 0, 1, &c->residual_scale));
    NRL_TRY(llama_read_number(j, "logits_scaling", 0, 1, &divisor));
    c->logit_scale = 1 / divisor;
    return NRL_OK;
}

/* null means no cap, whatever the family's default is. */
static nrl_status read_cap(const nrl_node *j, const char *key, double or_value, double *out)
{
    bool none = nrl_node_kind(nrl_node_find(j, key)) == NRL_NODE_NULL;
    return llama_read_number(j, key, 0, none ? 0 : or_value, out);
}

static nrl_status read_scales(const nrl_node *j, const llama_family *f, llama_config *c)
{
    c->embed_scale = f->gemma ? sqrt((double)c->width) : 1;
    c->attention_scale = 1 / sqrt((double)c->head_dim);
    c->residual_scale = c->logit_scale = 1;
    c->norm_offset = f->gemma ? 1 : 0;
    if (f->multipliers) return read_multipliers(j, c);
    if (!f->query_scalar) return NRL_OK;
    double scalar;
    NRL_TRY(llama_read_number(j, "query_pre_attn_scalar", 0, f->query_scalar, &scalar));
    c->attention_scale = 1 / sqrt(scalar);
    if (f->attention_cap) NRL_TRY(read_cap(j, "attn_logit_softcapping", f->attention_cap, &c->attention_cap));
    return read_cap(j, "final_logit_softcapping", f->soft_cap, &c->soft_cap);
}

static nrl_status read_switches(const nrl_node *j, const llama_family *f, llama_config *c)
{
    bool bias = f->reads_attention_bias && nrl_node_bool(nrl_node_find(j, "attention_bias"), f->attention_bias);
    bool all = f->reads_use_bias && nrl_node_bool(nrl_node_find(j, "use_bias"), false);
    c->qkv_bias = f->qkv_bias || bias || all;
    c->out_bias = (bias && !f->no_out_bias) || all;
    c->mlp_bias = (f->reads_mlp_bias && nrl_node_bool(nrl_node_find(j, "mlp_bias"), false)) || all;
    c->sinks = f->sinks;
    c->norms = f->norms;
    c->head_norm = f->head_norm;
    c->norm_after_rope = f->norm_after_rope;
    c->fused_qkv = f->fused_qkv;
    c->fused_mlp = f->fused_mlp;
    c->interleaved = f->interleaved;
    c->tied = nrl_node_bool(nrl_node_find(j, "tie_word_embeddings"), f->tied);
    if (f->qkv_clip) NRL_TRY(llama_read_number(j, "clip_qkv", 0, 0, &c->qkv_clip));
    NRL_TRY(llama_read_number(j, "rms_norm_eps", 0, f->norm_eps, &c->norm_eps));
    return llama_read_number(j, "initializer_range", 0, 0.02, &c->init_scale);
}

nrl_status llama_config_read(const nrl_node *config, llama_config *out)
{
    *out = (llama_config){0};
    const char *type = nrl_node_string(nrl_node_find(config, "model_type"), "");
    const llama_family *f = llama_family_find(type);
    if (!f)
        return nrl_fail(NRL_ERR_DATA, "%s: model_type '%.60s' is not of the Llama family", nrl_node_place(config),
                        type);
    NRL_TRY(read_sizes(config, f, out));
    NRL_TRY(read_activation(config, f, out));
    NRL_TRY(refuse(config, f));
    NRL_TRY(read_switches(config, f, out));
    NRL_TRY(read_scales(config, f, out));
    NRL_TRY(llama_rope_read(config, f, out));
    NRL_TRY(llama_experts_read(config, f, out));
    return llama_layers_read(config, f, out);
}

void llama_config_free(llama_config *c)
{
    for (int i = 0; c->rope && i < 2; i++)
        free((void *)(uintptr_t)c->rope[i].inv_freq);
    free(c->rope);
    free(c->layers);
    free(c->experts.dense);
    *c = (llama_config){0};
}
