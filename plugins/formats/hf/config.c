/*
 * config.c - reads config.json and rejects everything but causal language models, plain or with a score in the place of
 * their output layer.
 */
#include "base/json.h"
#include "base/file.h"
#include "hf.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CONFIG_BYTES = 16 << 20 };

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* "architectures": absent, or a list that names a causal language model or one with a score in the place of its head.
 */
static nrl_status check_architectures(const nrl_node *config)
{
    const nrl_node *list = nrl_node_find(config, "architectures");
    size_t n = nrl_node_kind(list) == NRL_NODE_LIST ? nrl_node_size(list) : 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = nrl_node_string(nrl_node_at(list, i), "");
        if (ends_with(name, "ForCausalLM") || ends_with(name, "LMHeadModel") ||
            ends_with(name, "ForSequenceClassification"))
            return NRL_OK;
    }
    if (!n) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA,
                    "%s: architecture '%.100s' is not a causal language model, expected a name that "
                    "ends in ForCausalLM, LMHeadModel or ForSequenceClassification",
                    nrl_node_place(config), nrl_node_string(nrl_node_at(list, 0), "?"));
}

static bool is_mxfp4(const nrl_node *quantization)
{
    return !strcmp(nrl_node_string(nrl_node_find(quantization, "quant_method"), ""), "mxfp4");
}

static nrl_status check_config(const nrl_node *config)
{
    if (nrl_node_kind(config) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_DATA, "%s: not a JSON map", nrl_node_place(config));
    if (!*nrl_node_string(nrl_node_find(config, "model_type"), ""))
        return nrl_fail(NRL_ERR_DATA, "%s: 'model_type' is missing: not the config of a model", nrl_node_place(config));
    NRL_TRY(check_architectures(config));
    if (nrl_node_bool(nrl_node_find(config, "is_encoder_decoder"), false))
        return nrl_fail(NRL_ERR_DATA, "%s: is_encoder_decoder is true; expected a decoder", nrl_node_place(config));
    const nrl_node *quantized = nrl_node_find(config, "quantization_config");
    if (nrl_node_kind(quantized) == NRL_NODE_MAP && !is_mxfp4(quantized))
        return nrl_fail(NRL_ERR_DATA,
                        "%s: quantization_config: cannot train quantized weights; expected "
                        "f32, bf16, f16 or mxfp4 weights",
                        nrl_node_place(config));
    return NRL_OK;
}

static void replace_config(hf *h, const nrl_node *config)
{
    free(h->config);
    h->config = json_write(config, 0);
    h->config_size = strlen(h->config);
}

/* transformers knows by the class that the output layer is a score [num_labels, width]; core knows it by the key "nrl",
 * which exports of nrl have. */
static void describe_score(hf *h, arena *a, nrl_node *config)
{
    const nrl_node *labels = nrl_node_find(config, "id2label"), *width = nrl_node_find(config, "hidden_size");
    const char *class = nrl_node_string(nrl_node_at(nrl_node_find(config, "architectures"), 0), "");
    if (!ends_with(class, "ForSequenceClassification") || nrl_node_find(config, "nrl")) return;
    int64_t n_labels = labels ? (int64_t)nrl_node_size(labels) : 2; /* 2 is the default of transformers */
    nrl_node *nrl = node_new(a, NRL_NODE_MAP), *list = node_new(a, NRL_NODE_LIST);
    nrl_node *score = node_new(a, NRL_NODE_MAP), *dims = node_new(a, NRL_NODE_LIST);
    node_append(a, dims, NULL, node_int(a, nrl_node_int(nrl_node_find(config, "num_labels"), n_labels)));
    node_append(a, dims, NULL, node_int(a, nrl_node_int(width ? width : nrl_node_find(config, "n_embd"), 0)));
    node_append_text(a, score, "name", "score.weight");
    node_append(a, score, "dims", dims);
    node_append(a, list, NULL, score);
    node_append(a, nrl, "parameters", list);
    node_append(a, nrl, "head", node_bool(a, false));
    node_set(a, config, "nrl", nrl);
    replace_config(h, config);
}

static nrl_status parse_config(hf *h)
{
    arena a = {0};
    nrl_node *config, *text;
    nrl_status st = json_parse(&a, h->config_path, h->config, h->config_size, &config);
    if (st == NRL_OK && (text = hf_text_config(h, &a, config))) {
        config = text;
        replace_config(h, config);
    }
    if (st == NRL_OK) st = check_config(config);
    if (st == NRL_OK && nrl_node_find(config, "quantization_config")) { /* values are read as if it were not there */
        config = node_without(&a, config, "quantization_config");
        replace_config(h, config);
    }
    if (st == NRL_OK) describe_score(h, &a, config);
    arena_free(&a);
    return st;
}

nrl_status hf_read_config(hf *h)
{
    h->config_path = h->is_file ? h->path : arena_printf(&h->memory, "%s/config.json", h->path);
    bool absent = access(h->config_path, F_OK);
    if (absent && errno != ENOENT && errno != ENOTDIR)
        return nrl_fail(NRL_ERR_IO, "%s: %s", h->config_path, strerror(errno));
    if (absent && !h->is_file && !access(arena_printf(&h->memory, "%s/adapter_config.json", h->path), F_OK))
        return nrl_fail(NRL_ERR_DATA,
                        "%s: an adapter without its model; expected a model\nhint: set adapter.use to the adapter, "
                        "and model.path to its base model",
                        h->path);
    if (absent && access(h->path, F_OK))
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: No such file or directory; expected the config.json of a model, or its directory",
                        h->path);
    if (absent)
        return nrl_fail(NRL_ERR_DATA,
                        "%s: no config.json; expected a Hugging Face model directory, a run or a checkpoint", h->path);
    NRL_TRY(file_read(h->config_path, MAX_CONFIG_BYTES, &h->config, &h->config_size));
    return parse_config(h);
}
