/*
 * model.c - what llama.cpp calls the parts of a model: keys of its config and names of its tensors. Source: gguf-py's
 * constants.py and tensor_mapping.py, and convert_hf_to_gguf.py of llama.cpp.
 */
#include "gguf.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gguf_architecture architectures[] = {
    {.model_type = "llama",
     .name = "llama",
     .positions = 2048,
     .permutes = true,
     .has_divisors = true,
     .biases_attention = true,
     .biases_mlp = true},
    {.model_type = "mistral",
     .name = "llama",
     .kv_heads = 8,
     .positions = 131072,
     .permutes = true,
     .has_divisors = true,
     .window = 4096},
    {.model_type = "qwen2",
     .name = "qwen2",
     .kv_heads = 32,
     .positions = 32768,
     .switches_window = true,
     .biases_attention = true},
    {.model_type = "qwen3",
     .name = "qwen3",
     .kv_heads = 32,
     .head_dim = 128,
     .positions = 32768,
     .switches_window = true},
    {.model_type = "phi3", .name = "phi3", .positions = 4096, .eps = 1e-5, .names_window = true},
    {.model_type = "granite",
     .name = "granite",
     .positions = 2048,
     .permutes = true,
     .has_divisors = true,
     .multiplies = true,
     .biases_attention = true,
     .biases_mlp = true},
    {.model_type = "smollm3",
     .name = "smollm3",
     .kv_heads = 4,
     .positions = 32768,
     .permutes = true,
     .switches_window = true,
     .theta = 2e6},
    {.model_type = "olmo2", .name = "olmo2", .positions = 2048, .eps = 1e-5, .norms_outputs = true},
    {.model_type = "olmo3",
     .name = "olmo2",
     .positions = 2048,
     .eps = 1e-5,
     .norms_outputs = true,
     .names_window = true,
     .window = 4096,
     .period = 4,
     .theta = 5e5},
    {.model_type = "gemma", .name = "gemma", .kv_heads = 16, .head_dim = 256, .positions = 8192, .adds_one = true},
    {.model_type = "gemma2",
     .name = "gemma2",
     .kv_heads = 4,
     .head_dim = 256,
     .positions = 8192,
     .names_window = true,
     .window = 4096,
     .period = 2,
     .adds_one = true,
     .norms_outputs = true,
     .caps = true,
     .layers_of_27b = 46},
    {.model_type = "gemma3_text",
     .name = "gemma3",
     .kv_heads = 4,
     .head_dim = 256,
     .positions = 131072,
     .names_window = true,
     .window = 4096,
     .period = 6,
     .theta = 1e6,
     .local_theta = 1e4,
     .adds_one = true,
     .norms_outputs = true,
     .caps = true,
     .layers_of_27b = 62},
    {.model_type = "mixtral",
     .name = "llama",
     .kv_heads = 8,
     .positions = 131072,
     .eps = 1e-5,
     .permutes = true,
     .has_divisors = true,
     .theta = 1e6,
     .has_experts = true,
     .normalizes = true,
     .n_experts = 8,
     .chosen = 2},
    {.model_type = "qwen3_moe",
     .name = "qwen3moe",
     .kv_heads = 4,
     .positions = 32768,
     .switches_window = true,
     .has_experts = true,
     .normalizes = true,
     .n_experts = 128,
     .chosen = 8},
    {.model_type = "olmoe",
     .name = "olmoe",
     .positions = 4096,
     .eps = 1e-5,
     .has_experts = true,
     .n_experts = 64,
     .chosen = 8},
    {.model_type = "gpt_oss",
     .name = "gpt-oss",
     .kv_heads = 8,
     .head_dim = 64,
     .positions = 131072,
     .eps = 1e-5,
     .names_window = true,
     .window = 128,
     .period = 2,
     .theta = 150000,
     .biases_attention = true,
     .biases_mlp = true,
     .has_experts = true,
     .n_experts = 128,
     .chosen = 4,
     .is_gpt_oss = true},
    {.model_type = "gpt2", .name = "gpt2", .is_gpt2 = true, .biases_attention = true, .biases_mlp = true},
};

enum { N_ARCHITECTURES = sizeof architectures / sizeof *architectures };

nrl_status gguf_find_architecture(const nrl_node *config, const gguf_architecture **out)
{
    const char *type = nrl_node_string(nrl_node_find(config, "model_type"), "");
    buffer known = {0};
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        *out = &architectures[i];
        if (!strcmp(architectures[i].model_type, type)) return NRL_OK;
        buffer_print(&known, "%s%s", i ? ", " : "", architectures[i].model_type);
    }
    nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF: model_type '%s' is not supported; expected one of %s", type,
             known.text);
    buffer_free(&known);
    return NRL_ERR_CONFIG;
}

const gguf_architecture *gguf_architecture_named(const char *name)
{
    for (int i = 0; i < N_ARCHITECTURES; i++)
        if (!strcmp(architectures[i].name, name)) return &architectures[i];
    return NULL;
}

void gguf_complete(const gguf_architecture *arch, arena *a, nrl_node *config)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"num_key_value_heads", arch->kv_heads},
                 {"head_dim", arch->head_dim},
                 {"max_position_embeddings", arch->positions}};
    if (arch->is_gpt2) return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value && !nrl_node_find(config, sizes[i].key))
            node_set(a, config, sizes[i].key, node_int(a, sizes[i].value));
    if (!nrl_node_find(config, "rms_norm_eps"))
        node_set(a, config, "rms_norm_eps", node_f64(a, arch->eps > 0 ? arch->eps : 1e-6));
}

/* ---- keys ---- */

typedef struct {
    const char *hf, *key; /* the key follows "ARCHITECTURE." */
    gguf_value_type type;
} number_row;

static const number_row numbers[] = {
    {"num_hidden_layers", "block_count", GGUF_UINT32},
    {"hidden_size", "embedding_length", GGUF_UINT32},
    {"intermediate_size", "feed_forward_length", GGUF_UINT32},
    {"num_attention_heads", "attention.head_count", GGUF_UINT32},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", GGUF_FLOAT32},
    {"vocab_size", "vocab_size", GGUF_UINT32},
};

/* 1 if absent */
static const number_row multipliers[] = {
    {"embedding_multiplier", "embedding_scale", GGUF_FLOAT32},
    {"residual_multiplier", "residual_scale", GGUF_FLOAT32},
    {"attention_multiplier", "attention.scale", GGUF_FLOAT32},
    {"logits_scaling", "logit_scale", GGUF_FLOAT32},
};

static const number_row gpt2_numbers[] = {
    {"n_layer", "block_count", GGUF_UINT32},
    {"n_positions", "context_length", GGUF_UINT32},
    {"n_embd", "embedding_length", GGUF_UINT32},
    {"n_head", "attention.head_count", GGUF_UINT32},
    {"layer_norm_epsilon", "attention.layer_norm_epsilon", GGUF_FLOAT32},
    {"vocab_size", "vocab_size", GGUF_UINT32},
};

static const nrl_node *find_number(const nrl_node *config, const char *key)
{
    const nrl_node *node = nrl_node_find(config, key);
    nrl_node_type kind = nrl_node_kind(node);
    return kind == NRL_NODE_INT || kind == NRL_NODE_FLOAT ? node : NULL;
}

static int64_t config_int(const nrl_node *config, const char *key, int64_t or_value)
{
    return nrl_node_int(find_number(config, key), or_value);
}

static void put_key(gguf_metadata *m, const gguf_architecture *arch, const char *key, gguf_value_type type,
                    double value)
{
    char name[GGUF_NAME];
    snprintf(name, sizeof name, "%s.%s", arch->name, key);
    if (type == GGUF_FLOAT32)
        gguf_put_f32(m, name, value);
    else
        gguf_put_u32(m, name, (uint32_t)value);
}

static void put_numbers(gguf_metadata *m, const gguf_architecture *arch, const nrl_node *config, const number_row *rows,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const nrl_node *value = find_number(config, rows[i].hf);
        if (value) put_key(m, arch, rows[i].key, rows[i].type, nrl_node_f64(value, 0));
    }
}

/* The parameters of rotary embeddings: `rope_parameters` of transformers 5, of gemma3 those of full attention, or the
 * keys `rope_theta` and `rope_scaling` of earlier versions. */
typedef struct {
    double theta, local_theta;     /* local: of layers with a sliding window */
    const nrl_node *scaling;       /* map with "rope_type" or "type" and more; NULL = none */
    const char *type, *local_type; /* "default" without scaling */
} rope_info;

static rope_info read_rope(const gguf_architecture *arch, const nrl_node *config)
{
    double theta = arch->theta > 0 ? arch->theta : 10000;
    const nrl_node *p = nrl_node_find(config, "rope_parameters"), *full = nrl_node_find(p, "full_attention");
    const nrl_node *map = full ? full : p ? p : config, *local = nrl_node_find(p, "sliding_attention");
    rope_info f = {.theta = nrl_node_f64(nrl_node_find(map, "rope_theta"), theta)};
    double local_theta = arch->local_theta > 0 ? arch->local_theta : f.theta;
    if (!local) local = config;
    f.local_theta =
        nrl_node_f64(nrl_node_find(local, local == config ? "rope_local_base_freq" : "rope_theta"), local_theta);
    f.local_type = nrl_node_string(nrl_node_find(local, "rope_type"), "default");
    f.scaling = map == config ? nrl_node_find(config, "rope_scaling") : map;
    if (nrl_node_kind(f.scaling) != NRL_NODE_MAP) f.scaling = NULL;
    f.type = nrl_node_string(nrl_node_find(f.scaling, "rope_type"), NULL);
    if (!f.type) f.type = nrl_node_string(nrl_node_find(f.scaling, "type"), "default");
    return f;
}

static int64_t head_dim(const nrl_node *config)
{
    int64_t heads = config_int(config, "num_attention_heads", 1);
    return config_int(config, "head_dim", config_int(config, "hidden_size", 0) / (heads > 0 ? heads : 1));
}

int64_t gguf_rope_divisors(const gguf_architecture *arch, const nrl_node *config, float out[512])
{
    rope_info f = read_rope(arch, config);
    int64_t n = head_dim(config) / 2;
    if (strcmp(f.type, "llama3") || n > 512) return 0;
    double factor = nrl_node_f64(nrl_node_find(f.scaling, "factor"), 8);
    double low = nrl_node_f64(nrl_node_find(f.scaling, "low_freq_factor"), 1);
    double high = nrl_node_f64(nrl_node_find(f.scaling, "high_freq_factor"), 4);
    double original = nrl_node_f64(nrl_node_find(f.scaling, "original_max_position_embeddings"), 8192);
    for (int64_t i = 0; i < n; i++) {
        double length = 2 * M_PI * pow(f.theta, (double)i / (double)n); /* of a wave, in positions */
        double smooth = (original / length - low) / (high - low);
        if (length > original / low)
            out[i] = (float)factor;
        else if (length < original / high)
            out[i] = 1;
        else
            out[i] = (float)(1 / ((1 - smooth) / factor + smooth));
    }
    return n;
}

/* llama.cpp rounds the range of the ramp outwards and derives the factor of cos and sin from that of the positions. */
static nrl_status put_yarn(gguf_metadata *m, const gguf_architecture *arch, const nrl_node *config,
                           const nrl_node *scaling)
{
    const double longest = (double)config_int(config, "max_position_embeddings", 2048);
    const double inside = nrl_node_f64(find_number(scaling, "original_max_position_embeddings"), longest);
    const double original = nrl_node_f64(find_number(config, "original_max_position_embeddings"), inside);
    const double factor = nrl_node_f64(find_number(scaling, "factor"), longest / original);
    const double derived = factor > 1 ? 0.1 * log(factor) + 1 : 1;
    const double mscale = nrl_node_f64(find_number(scaling, "mscale"), 0);
    const double mscale_all = nrl_node_f64(find_number(scaling, "mscale_all_dim"), 0);
    const double given = nrl_node_f64(find_number(scaling, "attention_factor"), derived);
    const bool truncates = nrl_node_bool(nrl_node_find(scaling, "truncate"), true);
    if (!truncates && !arch->is_gpt_oss)
        return nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF: YaRN with truncate: false; llama.cpp always truncates");
    if (!truncates) /* published models have it too, and run in llama.cpp */
        nrl_warn(
            "GGUF: the config has YaRN with truncate: false, but llama.cpp always truncates: logits differ slightly");
    if (fabs(given - derived) > 1e-6 * derived || (mscale != 0 && mscale_all != 0))
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot write GGUF: YaRN with an explicit attention_factor or mscale; llama.cpp always uses "
                        "0.1 ln(factor) + 1, here %g",
                        derived);
    put_key(m, arch, "rope.scaling.factor", GGUF_FLOAT32, factor);
    put_key(m, arch, "rope.scaling.original_context_length", GGUF_UINT32, original);
    put_key(m, arch, "rope.scaling.yarn_beta_fast", GGUF_FLOAT32, nrl_node_f64(find_number(scaling, "beta_fast"), 32));
    put_key(m, arch, "rope.scaling.yarn_beta_slow", GGUF_FLOAT32, nrl_node_f64(find_number(scaling, "beta_slow"), 1));
    return NRL_OK;
}

static nrl_status put_rope(gguf_metadata *m, const gguf_architecture *arch, const nrl_node *config)
{
    char key[GGUF_NAME];
    rope_info f = read_rope(arch, config);
    double partial = nrl_node_f64(nrl_node_find(f.scaling, "partial_rotary_factor"),
                                  nrl_node_f64(nrl_node_find(config, "partial_rotary_factor"), 1));
    put_key(m, arch, "rope.freq_base", GGUF_FLOAT32, f.theta);
    put_key(m, arch, "rope.dimension_count", GGUF_UINT32, (double)head_dim(config) * partial);
    double local_theta = arch->local_theta > 0 ? arch->local_theta : f.theta;
    if (arch->period && (f.local_theta != local_theta || strcmp(f.local_type, "default")))
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot write GGUF: layers with a sliding window have rope_theta %g and rope_type '%s'; for %s "
                        "llama.cpp always uses %g without scaling",
                        f.local_theta, f.local_type, arch->name, local_theta);
    if (!strcmp(f.type, "default")) return NRL_OK;
    if (arch->has_divisors && !strcmp(f.type, "llama3")) return NRL_OK; /* rope_freqs.weight */
    if (strcmp(f.type, "linear") && strcmp(f.type, "yarn"))
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot write GGUF: rope_type '%s' is not supported for %s; expected default, %s", f.type,
                        arch->model_type, arch->has_divisors ? "linear, yarn or llama3" : "linear or yarn");
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch->name);
    gguf_put_text(m, key, f.type, strlen(f.type));
    if (!strcmp(f.type, "yarn")) return put_yarn(m, arch, config, f.scaling);
    put_key(m, arch, "rope.scaling.factor", GGUF_FLOAT32, nrl_node_f64(nrl_node_find(f.scaling, "factor"), 1));
    return NRL_OK;
}

/* llama.cpp fixes which layers differ from the others: the last of every `period` attends to all positions, every
 * fourth of smollm3 has no rotary embedding. */
static nrl_status check_layers(const gguf_architecture *arch, const nrl_node *config)
{
    const nrl_node *types = nrl_node_find(config, "layer_types"), *rotary = nrl_node_find(config, "no_rope_layers");
    bool no_rope = !strcmp(arch->name, "smollm3");
    int64_t interval = config_int(config, "no_rope_layer_interval", 4);
    int64_t period = config_int(config, "sliding_window_pattern", arch->period);
    for (size_t i = 0; arch->period && i < nrl_node_size(types); i++)
        if (!strcmp(nrl_node_string(nrl_node_at(types, i), ""), "full_attention") != ((i + 1) % arch->period == 0))
            return nrl_fail(
                NRL_ERR_CONFIG,
                "cannot write GGUF: layer_types[%zu] is %s; llama.cpp expects full attention in the last of "
                "every %u layers and in no other",
                i, nrl_node_string(nrl_node_at(types, i), "?"), (unsigned)arch->period);
    if (arch->period && !nrl_node_size(types) && period != arch->period)
        return nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF: sliding_window_pattern is %lld; llama.cpp expects %u",
                        (long long)period, (unsigned)arch->period);
    for (size_t i = 0; no_rope && i < nrl_node_size(rotary); i++)
        if (!nrl_node_int(nrl_node_at(rotary, i), 1) != ((i + 1) % 4 == 0))
            return nrl_fail(NRL_ERR_CONFIG,
                            "cannot write GGUF: no_rope_layers[%zu] is %lld; llama.cpp expects 0 in every fourth "
                            "layer and in no other",
                            i, (long long)nrl_node_int(nrl_node_at(rotary, i), 1));
    if (no_rope && !nrl_node_size(rotary) && interval != 4)
        return nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF: no_rope_layer_interval is %lld; llama.cpp expects 4",
                        (long long)interval);
    return NRL_OK;
}

/* Without support for the window, the model is exact up to the window's length, which becomes its context. */
static void put_context(gguf_metadata *m, const gguf_architecture *arch, const nrl_node *config)
{
    int64_t context = config_int(config, "max_position_embeddings", 2048);
    int64_t window = config_int(config, "sliding_window", nrl_node_find(config, "sliding_window") ? 0 : arch->window);
    if (arch->switches_window && !nrl_node_bool(nrl_node_find(config, "use_sliding_window"), false)) window = 0;
    if (arch->names_window) put_key(m, arch, "attention.sliding_window", GGUF_UINT32, (double)window);
    if (!arch->period && window > 0 && window < context) {
        nrl_warn("GGUF: llama.cpp has no sliding window for '%s'; the context is limited to the window of %lld tokens "
                 "instead of %lld",
                 arch->model_type, (long long)window, (long long)context);
        context = window;
    }
    put_key(m, arch, "context_length", GGUF_UINT32, (double)context);
}

static nrl_status put_cap(gguf_metadata *m, const gguf_architecture *arch, const nrl_node *config, const char *hf,
                          double or_value)
{
    const nrl_node *node = nrl_node_find(config, hf), *cap = find_number(config, hf);
    /* the keys have the same names */
    if (cap || (!node && or_value > 0)) put_key(m, arch, hf, GGUF_FLOAT32, nrl_node_f64(cap, or_value));
    if (cap || or_value <= 0 || !node) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF: %s is null; for %s llama.cpp always caps, expected a number",
                    hf, arch->name);
}

/* llama.cpp knows no key for query_pre_attn_scalar: it is head_dim, but hidden_size / num_attention_heads in a model
 * with as many layers as the one of 27 billion parameters. */
static nrl_status put_caps(gguf_metadata *m, const gguf_architecture *arch, const nrl_node *config)
{
    int64_t heads = config_int(config, "num_attention_heads", 1), dim = head_dim(config);
    if (config_int(config, "num_hidden_layers", 0) == arch->layers_of_27b && heads > 0)
        dim = config_int(config, "hidden_size", 0) / heads;
    double scalar = nrl_node_f64(find_number(config, "query_pre_attn_scalar"), 256);
    if (scalar != (double)dim)
        return nrl_fail(
            NRL_ERR_CONFIG,
            "cannot write GGUF: query_pre_attn_scalar is %g; for this size of %s llama.cpp always uses %lld", scalar,
            arch->name, (long long)dim);
    bool capped = !strcmp(arch->name, "gemma2"); /* llama.cpp cannot leave its caps out */
    if (capped) NRL_TRY(put_cap(m, arch, config, "attn_logit_softcapping", 50));
    return put_cap(m, arch, config, "final_logit_softcapping", capped ? 30 : 0);
}

/* In llama.cpp an architecture with experts has them in every layer, and fixes whether their weights are normalized. */
static nrl_status put_experts(gguf_metadata *m, const gguf_architecture *arch, const nrl_node *config)
{
    const nrl_node *dense = nrl_node_find(config, "mlp_only_layers");
    const bool normalizes =
        !strcmp(arch->model_type, "mixtral") || nrl_node_bool(nrl_node_find(config, "norm_topk_prob"), false);
    if (nrl_node_size(dense) || config_int(config, "decoder_sparse_step", 1) != 1)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot write GGUF: some layers have no experts (mlp_only_layers, decoder_sparse_step); for %s "
                        "llama.cpp expects experts in every layer",
                        arch->name);
    if (normalizes != arch->normalizes)
        return nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF: norm_topk_prob is %s; for %s llama.cpp expects %s",
                        normalizes ? "true" : "false", arch->name, arch->normalizes ? "true" : "false");
    if (find_number(config, "clip_qkv"))
        return nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF: clip_qkv is set; llama.cpp does not clip for %s",
                        arch->name);
    if (arch->is_gpt_oss && (nrl_node_f64(find_number(config, "swiglu_limit"), 7) != 7 ||
                             nrl_node_f64(find_number(config, "swiglu_alpha"), 1.702) != 1.702))
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot write GGUF: swiglu_limit is %g and swiglu_alpha %g; llama.cpp always uses 7 and 1.702",
                        nrl_node_f64(find_number(config, "swiglu_limit"), 7),
                        nrl_node_f64(find_number(config, "swiglu_alpha"), 1.702));
    if (arch->is_gpt_oss && !nrl_node_bool(nrl_node_find(config, "attention_bias"), true))
        return nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF: attention_bias is false; for %s llama.cpp expects biases",
                        arch->name);
    put_key(m, arch, "expert_count", GGUF_UINT32,
            (double)config_int(config, "num_experts", config_int(config, "num_local_experts", arch->n_experts)));
    put_key(m, arch, "expert_used_count", GGUF_UINT32, (double)config_int(config, "num_experts_per_tok", arch->chosen));
    put_key(m, arch, "expert_feed_forward_length", GGUF_UINT32,
            (double)config_int(config, "moe_intermediate_size", config_int(config, "intermediate_size", 0)));
    return NRL_OK;
}

nrl_status gguf_describe(const gguf_architecture *arch, const nrl_node *config, gguf_metadata *m)
{
    gguf_put_text(m, "general.architecture", arch->name, strlen(arch->name));
    if (arch->is_gpt2) {
        int64_t width = config_int(config, "n_embd", 0);
        put_numbers(m, arch, config, gpt2_numbers, sizeof gpt2_numbers / sizeof *gpt2_numbers);
        put_key(m, arch, "feed_forward_length", GGUF_UINT32, (double)config_int(config, "n_inner", 4 * width));
        return NRL_OK;
    }
    NRL_TRY(check_layers(arch, config));
    put_numbers(m, arch, config, numbers, sizeof numbers / sizeof *numbers);
    put_key(m, arch, "attention.head_count_kv", GGUF_UINT32,
            (double)config_int(config, "num_key_value_heads", config_int(config, "num_attention_heads", 1)));
    put_key(m, arch, "attention.key_length", GGUF_UINT32, (double)head_dim(config));
    put_key(m, arch, "attention.value_length", GGUF_UINT32, (double)head_dim(config));
    put_context(m, arch, config);
    for (size_t i = 0; arch->multiplies && i < sizeof multipliers / sizeof *multipliers; i++)
        put_key(m, arch, multipliers[i].key, multipliers[i].type,
                nrl_node_f64(find_number(config, multipliers[i].hf), 1));
    if (arch->caps) NRL_TRY(put_caps(m, arch, config));
    if (arch->has_experts) NRL_TRY(put_experts(m, arch, config));
    return put_rope(m, arch, config);
}

/* ---- names ---- */

typedef struct {
    const char *hf, *gguf;
} name_row;

/* Names of modules; ".weight" or ".bias" follows. The first row that fits counts in either direction. */
static const name_row outer[] = {
    {"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}};
static const name_row outer_gpt2[] = {
    {"wte", "token_embd"}, {"wpe", "position_embd"}, {"ln_f", "output_norm"}, {"lm_head", "output"}};

static const name_row inner[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},      {"self_attn.qkv_proj", "attn_qkv"},  {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"}, {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},           {"mlp.gate_up_proj", "ffn_up"},      {"mlp.down_proj", "ffn_down"},
};
static const name_row norms_of_inputs[] = {{"post_attention_layernorm", "ffn_norm"}};
static const name_row norms_of_outputs[] = {{"post_attention_layernorm", "post_attention_norm"},
                                            {"pre_feedforward_layernorm", "ffn_norm"},
                                            {"post_feedforward_layernorm", "post_ffw_norm"}};
static const name_row inner_gpt2[] = {{"ln_1", "attn_norm"},          {"attn.c_attn", "attn_qkv"},
                                      {"attn.c_proj", "attn_output"}, {"ln_2", "ffn_norm"},
                                      {"mlp.c_fc", "ffn_up"},         {"mlp.c_proj", "ffn_down"}};

static const name_row experts[] = {{"mlp.gate", "ffn_gate_inp"},
                                   {"mlp.experts.gate_proj", "ffn_gate_exps"},
                                   {"mlp.experts.up_proj", "ffn_up_exps"},
                                   {"mlp.experts.down_proj", "ffn_down_exps"}};
static const name_row experts_mixtral[] = {{"block_sparse_moe.gate", "ffn_gate_inp"},
                                           {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
                                           {"block_sparse_moe.experts.w3", "ffn_up_exps"},
                                           {"block_sparse_moe.experts.w2", "ffn_down_exps"}};
static const name_row experts_gpt_oss[] = {{"self_attn.sinks", "attn_sinks"},
                                           {"post_attention_layernorm", "post_attention_norm"},
                                           {"mlp.router", "ffn_gate_inp"},
                                           {"mlp.experts.gate_up_proj", "ffn_gate_exps"},
                                           {"mlp.experts.gate_up_proj", "ffn_up_exps"},
                                           {"mlp.experts.down_proj", "ffn_down_exps"}};

typedef struct {
    const name_row *rows;
    size_t n;
} name_table;

enum { N_TABLES = 3 };

#define TABLE(rows) ((name_table){(rows), sizeof(rows) / sizeof *(rows)})

static void tables_of(const gguf_architecture *arch, bool is_inner, name_table out[N_TABLES])
{
    out[1] = out[2] = (name_table){NULL, 0};
    if (arch->is_gpt2) {
        out[0] = is_inner ? TABLE(inner_gpt2) : TABLE(outer_gpt2);
        return;
    }
    out[0] = is_inner ? TABLE(inner) : TABLE(outer);
    if (is_inner && arch->is_gpt_oss) {
        out[1] = TABLE(experts_gpt_oss);
        return;
    }
    if (is_inner) out[1] = arch->norms_outputs ? TABLE(norms_of_outputs) : TABLE(norms_of_inputs);
    if (is_inner && arch->has_experts)
        out[2] = strcmp(arch->model_type, "mixtral") ? TABLE(experts) : TABLE(experts_mixtral);
}

/* phi3 alone joins gate and up; GGUF calls both the joined and the single matrix ffn_up. */
static bool row_fits(const gguf_architecture *arch, const name_row *row, const char *from, size_t size, bool reverse)
{
    const char *name = reverse ? row->gguf : row->hf;
    bool joins = !strcmp(arch->name, "phi3"), joined = !strcmp(row->hf, "mlp.gate_up_proj");
    if (!strcmp(row->gguf, "ffn_up") && joins != joined && !arch->is_gpt2) return false;
    return strlen(name) == size && !strncmp(name, from, size);
}

/* Translates the name of a module; NULL: no row fits. */
static const char *translate(const gguf_architecture *arch, bool is_inner, const char *from, size_t size, bool reverse)
{
    name_table tables[N_TABLES];
    tables_of(arch, is_inner, tables);
    for (int t = 0; t < N_TABLES; t++)
        for (size_t i = 0; i < tables[t].n; i++)
            if (row_fits(arch, &tables[t].rows[i], from, size, reverse))
                return reverse ? tables[t].rows[i].hf : tables[t].rows[i].gguf;
    return NULL;
}

/* Whether llama.cpp reads the bias of a module of GGUF; it refuses files with tensors that it does not read. */
static bool has_bias(const gguf_architecture *arch, const char *gguf)
{
    return strncmp(gguf, "ffn_", 4) ? arch->biases_attention : arch->biases_mlp;
}

static bool translate_all(const gguf_architecture *arch, const char *from, const char *layers, const char *to_layers,
                          const char *to_outer, bool reverse, char out[GGUF_NAME])
{
    const char *dot = strrchr(from, '.');
    char *end;
    if (!dot || (strcmp(dot, ".weight") && strcmp(dot, ".bias"))) return false;
    int n = -1;
    if (!strncmp(from, layers, strlen(layers))) {
        const char *at = from + strlen(layers);
        long layer = strtol(at, &end, 10);
        const char *name = end > at && *end == '.' && end < dot
                               ? translate(arch, true, end + 1, (size_t)(dot - end - 1), reverse)
                               : NULL;
        if (name && !strcmp(dot, ".bias") && !has_bias(arch, reverse ? end + 1 : name)) return false;
        if (name) n = snprintf(out, GGUF_NAME, "%s%ld.%s%s", to_layers, layer, name, dot);
    } else {
        const char *name = translate(arch, false, from, (size_t)(dot - from), reverse);
        bool bare = name && (!strcmp(name, "lm_head") || !reverse);
        if (name) n = snprintf(out, GGUF_NAME, "%s%s%s", bare ? "" : to_outer, name, dot);
    }
    return n > 0 && n < GGUF_NAME;
}

static const char *without_prefix(const char *name)
{
    static const char prefix[] = "transformer.";
    return strncmp(name, prefix, sizeof prefix - 1) ? name : name + sizeof prefix - 1;
}

static const char of_experts[] = ".experts.";

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

/* gpt-oss has "experts.3.down_proj", "experts.down_proj_bias" and "sinks" where others have a suffix after a dot. */
static bool add_suffix(const char *hf, char out[GGUF_NAME])
{
    const bool bias = ends_in(hf, "_bias"), has = ends_in(hf, ".weight") || ends_in(hf, ".bias");
    const size_t n = strlen(hf) - (bias ? strlen("_bias") : 0);
    return snprintf(out, GGUF_NAME, "%.*s%s", (int)n, hf, has ? "" : bias ? ".bias" : ".weight") < GGUF_NAME;
}

static void cut_suffix(char *hf, bool in_experts)
{
    char *dot = strrchr(hf, '.');
    if (in_experts && !strcmp(dot, ".bias"))
        *dot = '_';
    else if (in_experts || ends_in(hf, ".sinks.weight"))
        *dot = 0;
}

bool gguf_name_of(const gguf_architecture *arch, const char *hf, char out[GGUF_NAME], int64_t *expert)
{
    const char *at = arch->has_experts ? strstr(hf, of_experts) : NULL;
    char all[GGUF_NAME], full[GGUF_NAME], *end;
    *expert = -1;
    if (at && !(arch->is_gpt_oss && ends_in(hf, "_bias"))) { /* "experts.3.w1.weight" to "experts.w1.weight" */
        at += sizeof of_experts - 1;
        *expert = strtol(at, &end, 10);
        int n = snprintf(all, sizeof all, "%.*s%s", (int)(at - hf), hf, *end == '.' ? end + 1 : "");
        if (end == at || *end != '.' || n >= GGUF_NAME) return false;
        hf = all;
    }
    if (arch->is_gpt_oss) {
        if (!add_suffix(hf, full)) return false;
        hf = full;
    }
    return translate_all(arch, arch->is_gpt2 ? without_prefix(hf) : hf, arch->is_gpt2 ? "h." : "model.layers.", "blk.",
                         "", false, out);
}

bool gguf_hf_name_of(const gguf_architecture *arch, const char *name, int64_t expert, char out[GGUF_NAME],
                     bool *is_stacked)
{
    char all[GGUF_NAME];
    if (!translate_all(arch, name, "blk.", arch->is_gpt2 ? "transformer.h." : "model.layers.",
                       arch->is_gpt2 ? "transformer." : "", true, all))
        return false;
    const char *at = arch->has_experts ? strstr(all, of_experts) : NULL;
    *is_stacked = at && !(arch->is_gpt_oss && ends_in(all, ".bias"));
    if (arch->is_gpt_oss) cut_suffix(all, at != NULL);
    if (!*is_stacked) at = NULL;
    const size_t before = at ? (size_t)(at - all) + sizeof of_experts - 1 : strlen(all);
    int n = at ? snprintf(out, GGUF_NAME, "%.*s%lld.%s", (int)before, all, (long long)expert, all + before)
               : snprintf(out, GGUF_NAME, "%s", all);
    return n < GGUF_NAME;
}

gguf_change gguf_change_of(const gguf_architecture *arch, const nrl_node *config, const char *hf)
{
    gguf_change c = {0};
    int64_t heads = config_int(config, "num_attention_heads", 0);
    if (arch->permutes && strstr(hf, ".self_attn.q_proj.")) c.heads = heads;
    if (arch->permutes && strstr(hf, ".self_attn.k_proj.")) c.heads = config_int(config, "num_key_value_heads", heads);
    c.plus_one = arch->adds_one && ends_in(hf, "norm.weight");
    c.transposed = arch->is_gpt2 &&
                   (ends_in(hf, ".c_attn.weight") || ends_in(hf, ".c_proj.weight") || ends_in(hf, ".c_fc.weight"));
    if (!arch->is_gpt_oss || !strstr(hf, of_experts)) return c;
    c.transposed = !ends_in(hf, "_bias");
    c.alternates = strstr(hf, ".gate_up_proj") != NULL;
    return c;
}
