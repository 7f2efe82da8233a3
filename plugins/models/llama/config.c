/*
 * config.c - reads config.json of the Llama family. The families share one forward; they differ in
 * which biases exist, in head norms, in windows and in what an absent key means, which is one
 * table.
 */
#include "config.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 4096, MAX_HEADS = 65536, MAX_SIZE = INT32_MAX };

typedef enum { WINDOW_NEVER, WINDOW_ALL_LAYERS, WINDOW_BY_LAYER } window_rule;

typedef struct {
    const char *model_type;
    int64_t n_kv_heads; /* where the key is absent; 0 = as many as query heads */
    int64_t head_dim;   /* likewise; 0 = width / heads */
    int64_t max_positions;
    window_rule window;
    bool qkv_bias;             /* always there, whatever the config says (Qwen2) */
    bool reads_attention_bias; /* attention_bias adds one to q, k, v and o */
    bool reads_mlp_bias;
    bool head_norm;
} family;

static const family families[] = {
    {"llama", 0, 0, 2048, WINDOW_NEVER, false, true, true, false},
    {"mistral", 8, 0, 131072, WINDOW_ALL_LAYERS, false, false, false, false},
    {"qwen2", 32, 0, 32768, WINDOW_BY_LAYER, true, false, false, false},
    {"qwen3", 32, 128, 32768, WINDOW_BY_LAYER, false, true, false, true},
};
const char *const llama_model_types[] = {"llama", "mistral", "qwen2", "qwen3", NULL};

static bool is_absent(const nrl_node *node)
{
    return nrl_node_kind(node) == NRL_NODE_NONE || nrl_node_kind(node) == NRL_NODE_NULL;
}

nrl_status llama_read_int(const nrl_node *map, const char *key, int64_t least, int64_t most,
                          int64_t or_value, int64_t *out)
{
    const nrl_node *node = nrl_node_find(map, key);
    if (is_absent(node) && or_value != -1) {
        *out = or_value;
        return NRL_OK;
    }
    *out = nrl_node_int(node, INT64_MIN);
    if (*out == INT64_MIN)
        return nrl_fail(NRL_ERR_DATA, "%s: '%s' is %s, expected an integer", nrl_node_place(map),
                        key, is_absent(node) ? "missing" : "no integer");
    if (*out < least || *out > most)
        return nrl_fail(NRL_ERR_DATA, "%s: '%s' is %lld, expected %lld to %lld",
                        nrl_node_place(map), key, (long long)*out, (long long)least,
                        (long long)most);
    return NRL_OK;
}

nrl_status llama_read_number(const nrl_node *map, const char *key, double above, double or_value,
                             double *out)
{
    const nrl_node *node = nrl_node_find(map, key);
    if (is_absent(node) && !isnan(or_value)) {
        *out = or_value;
        return NRL_OK;
    }
    *out = nrl_node_f64(node, NAN);
    if (isfinite(*out) && *out > above) return NRL_OK;
    if (isnan(*out))
        return nrl_fail(NRL_ERR_DATA, "%s: '%s' is %s, expected a number", nrl_node_place(map), key,
                        is_absent(node) ? "missing" : "no number");
    return nrl_fail(NRL_ERR_DATA, "%s: '%s' is %g, expected more than %g", nrl_node_place(map), key,
                    *out, above);
}

static const family *find_family(const nrl_node *config)
{
    const char *type = nrl_node_string(nrl_node_find(config, "model_type"), "");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(type, families[i].model_type)) return &families[i];
    return NULL;
}

/* Given, or the family's, or what the heads leave of the width. */
static nrl_status read_head_dim(const nrl_node *j, const family *f, llama_config *c)
{
    const nrl_node *node = nrl_node_find(j, "head_dim");
    bool derived = f->head_dim && !node ? false : is_absent(node);
    NRL_TRY(llama_read_int(j, "head_dim", 1, MAX_HEADS, f->head_dim, &c->head_dim));
    if (derived && c->width % c->n_heads)
        return nrl_fail(NRL_ERR_DATA,
                        "%s: without head_dim, hidden_size %lld must be a multiple of "
                        "num_attention_heads %lld",
                        nrl_node_place(j), (long long)c->width, (long long)c->n_heads);
    if (derived) c->head_dim = c->width / c->n_heads;
    if (c->head_dim % 2 || c->head_dim > MAX_HEADS)
        return nrl_fail(NRL_ERR_DATA,
                        "%s: head_dim is %lld, rotary positions need an even one up to %d",
                        nrl_node_place(j), (long long)c->head_dim, (int)MAX_HEADS);
    return NRL_OK;
}

static nrl_status read_sizes(const nrl_node *j, const family *f, llama_config *c)
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
        return nrl_fail(
            NRL_ERR_DATA,
            "%s: num_attention_heads %lld is not a multiple of num_key_value_heads %lld",
            nrl_node_place(j), (long long)c->n_heads, (long long)c->n_kv_heads);
    NRL_TRY(read_head_dim(j, f, c));
    return llama_read_int(j, "max_position_embeddings", 1, MAX_SIZE, f->max_positions,
                          &c->max_positions);
}

static nrl_status read_switches(const nrl_node *j, const family *f, llama_config *c)
{
    const char *act = nrl_node_string(nrl_node_find(j, "hidden_act"), "silu");
    if (strcmp(act, "silu") && strcmp(act, "swish"))
        return nrl_fail(NRL_ERR_DATA, "%s: hidden_act is '%.60s', only 'silu' is built",
                        nrl_node_place(j), act);
    if (nrl_node_bool(nrl_node_find(j, "rope_interleaved"), false))
        return nrl_fail(NRL_ERR_DATA, "%s: rope_interleaved is true, only false is built",
                        nrl_node_place(j));
    bool bias = f->reads_attention_bias && nrl_node_bool(nrl_node_find(j, "attention_bias"), false);
    c->qkv_bias = f->qkv_bias || bias;
    c->out_bias = bias;
    c->mlp_bias = f->reads_mlp_bias && nrl_node_bool(nrl_node_find(j, "mlp_bias"), false);
    c->head_norm = f->head_norm;
    c->tied = nrl_node_bool(nrl_node_find(j, "tie_word_embeddings"), false);
    NRL_TRY(llama_read_number(j, "rms_norm_eps", 0, 1e-6, &c->norm_eps));
    return llama_read_number(j, "initializer_range", 0, 0.02, &c->init_scale);
}

/* An explicit list of layer types; else Qwen's rule: layers from max_window_layers on. */
static nrl_status read_layer_types(const nrl_node *j, int64_t window, llama_config *c)
{
    const nrl_node *list = nrl_node_find(j, "layer_types");
    int64_t first;
    NRL_TRY(llama_read_int(j, "max_window_layers", 0, MAX_SIZE, 28, &first));
    if (!is_absent(list) &&
        (nrl_node_kind(list) != NRL_NODE_LIST || (int64_t)nrl_node_size(list) != c->n_layers))
        return nrl_fail(NRL_ERR_DATA, "%s: 'layer_types' is no list of %lld names",
                        nrl_node_place(j), (long long)c->n_layers);
    for (int64_t i = 0; i < c->n_layers; i++) {
        bool sliding = window && i >= first;
        if (!is_absent(list)) {
            const char *type = nrl_node_string(nrl_node_at(list, (size_t)i), "");
            sliding = !strcmp(type, "sliding_attention");
            if (!sliding && strcmp(type, "full_attention"))
                return nrl_fail(NRL_ERR_DATA,
                                "%s: layer_types[%lld] is '%.60s', expected 'full_attention' or "
                                "'sliding_attention'",
                                nrl_node_place(j), (long long)i, type);
            if (sliding && !window)
                return nrl_fail(NRL_ERR_DATA,
                                "%s: layer_types[%lld] slides, but there is no sliding_window or "
                                "use_sliding_window is false",
                                nrl_node_place(j), (long long)i);
        }
        c->window[i] = sliding ? window : 0;
    }
    return NRL_OK;
}

static nrl_status read_windows(const nrl_node *j, const family *f, llama_config *c)
{
    c->window = calloc((size_t)c->n_layers, sizeof *c->window);
    if (!c->window)
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for %lld layers", (long long)c->n_layers);
    if (f->window == WINDOW_NEVER) return NRL_OK;
    /* absent: 4096 in both families; null: no window */
    int64_t window, absent = nrl_node_find(j, "sliding_window") ? 0 : 4096;
    NRL_TRY(llama_read_int(j, "sliding_window", 1, MAX_SIZE, absent, &window));
    if (f->window == WINDOW_BY_LAYER) {
        if (!nrl_node_bool(nrl_node_find(j, "use_sliding_window"), false)) window = 0;
        return read_layer_types(j, window, c);
    }
    for (int64_t i = 0; i < c->n_layers; i++)
        c->window[i] = window;
    return NRL_OK;
}

nrl_status llama_config_read(const nrl_node *config, llama_config *out)
{
    *out = (llama_config){0};
    const family *f = find_family(config);
    if (!f)
        return nrl_fail(
            NRL_ERR_DATA, "%s: model_type '%.60s' is none of llama, mistral, qwen2, qwen3",
            nrl_node_place(config), nrl_node_string(nrl_node_find(config, "model_type"), ""));
    NRL_TRY(read_sizes(config, f, out));
    NRL_TRY(read_switches(config, f, out));
    NRL_TRY(read_windows(config, f, out));
    return llama_rope_read(config, out, &out->rope);
}

void llama_config_free(llama_config *c)
{
    free(c->window);
    free((void *)(uintptr_t)c->rope.inv_freq);
    *c = (llama_config){0};
}
