/*
 * hf_config.c - reads config.json and refuses what is no plain causal language model.
 */
#include "base/json.h"
#include "model/hf.h"
#include <string.h>
#include <unistd.h>

enum { MAX_CONFIG_BYTES = 16 << 20 };

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* "architectures": absent, or a list that names a causal language model. */
static nrl_status check_architectures(const nrl_node *config)
{
    const nrl_node *list = nrl_node_find(config, "architectures");
    size_t n = nrl_node_kind(list) == NRL_NODE_LIST ? nrl_node_size(list) : 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = nrl_node_string(nrl_node_at(list, i), "");
        if (ends_with(name, "ForCausalLM") || ends_with(name, "LMHeadModel")) return NRL_OK;
    }
    if (!n) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA,
                    "%s: architecture '%.100s' is no causal language model, expected a name that "
                    "ends in ForCausalLM or LMHeadModel",
                    nrl_node_place(config), nrl_node_string(nrl_node_at(list, 0), "?"));
}

static nrl_status check_config(const nrl_node *config)
{
    if (nrl_node_kind(config) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_DATA, "%s: not a JSON map", nrl_node_place(config));
    if (!*nrl_node_string(nrl_node_find(config, "model_type"), ""))
        return nrl_fail(NRL_ERR_DATA, "%s: 'model_type' is missing: not the config of a model",
                        nrl_node_place(config));
    NRL_TRY(check_architectures(config));
    if (nrl_node_bool(nrl_node_find(config, "is_encoder_decoder"), false))
        return nrl_fail(NRL_ERR_DATA, "%s: is_encoder_decoder is true, expected a decoder",
                        nrl_node_place(config));
    if (nrl_node_kind(nrl_node_find(config, "quantization_config")) == NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_DATA,
                        "%s: quantization_config: quantized weights cannot be trained, expected "
                        "f32, bf16 or f16 weights",
                        nrl_node_place(config));
    return NRL_OK;
}

nrl_status hf_config_file(const char *path, arena *a, const nrl_node **out)
{
    nrl_node *config;
    NRL_TRY(json_read_file(a, path, MAX_CONFIG_BYTES, &config));
    NRL_TRY(check_config(config));
    *out = config;
    return NRL_OK;
}

nrl_status hf_config(const char *dir, arena *a, const nrl_node **out)
{
    const char *path = arena_printf(a, "%s/config.json", dir);
    if (access(path, F_OK) && !access(arena_printf(a, "%s/adapter_config.json", dir), F_OK))
        return nrl_fail(NRL_ERR_DATA, "%s: an adapter alone, expected a model: lora.use starts from one, beside model.path",
                        dir);
    if (access(path, F_OK))
        return nrl_fail(NRL_ERR_DATA,
                        "%s: no config.json there: neither a Hugging Face model directory nor a run or checkpoint", dir);
    return hf_config_file(path, a, out);
}
