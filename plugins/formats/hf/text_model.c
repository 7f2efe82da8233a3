/*
 * text_model.c - the language model inside a model of texts and images, such as Gemma 3, Mistral 3 or LLaVA. Its config
 * is the map "text_config" of config.json, and its tensors have a prefix of their own. Both are presented as those of
 * the language model alone, and the tensors of the other parts are left out: a text needs none of them.
 */
#include "hf.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

/* Keys that may stand beside "text_config" and mean the language model. */
static const char *const shared_keys[] = {
    "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype", NULL};

/* The class of the language model alone, by which other programs find the code of an export, and the sizes that
 * transformers has for absent keys. Older releases of it left out of "text_config" what equals its defaults: the
 * published files of Gemma 3 have no vocab_size, and those of LLaVA no hidden_size. */
static const char *const size_keys[] = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                        "num_attention_heads"};
enum { N_SIZES = sizeof size_keys / sizeof *size_keys };
static const struct {
    const char *model_type, *class;
    int32_t sizes[N_SIZES];
} classes[] = {
    {"llama", "LlamaForCausalLM", {32000, 4096, 11008, 32, 32}},
    {"mistral", "MistralForCausalLM", {32000, 4096, 14336, 32, 32}},
    {"qwen2", "Qwen2ForCausalLM", {151936, 4096, 22016, 32, 32}},
    {"qwen3", "Qwen3ForCausalLM", {151936, 4096, 22016, 32, 32}},
    {"gemma", "GemmaForCausalLM", {256000, 3072, 24576, 28, 16}},
    {"gemma2", "Gemma2ForCausalLM", {256000, 2304, 9216, 26, 8}},
    {"phi3", "Phi3ForCausalLM", {32064, 3072, 8192, 32, 32}},
    {"granite", "GraniteForCausalLM", {32000, 4096, 11008, 32, 32}},
    {"gemma3_text", "Gemma3ForCausalLM", {262208, 2304, 9216, 26, 8}},
};

nrl_node *hf_text_config(hf *h, arena *a, const nrl_node *config)
{
    const nrl_node *text = nrl_node_find(config, "text_config");
    const char *type = nrl_node_string(nrl_node_find(text, "model_type"), "");
    if (!*type || nrl_node_find(config, "quantization_config")) return NULL;
    nrl_node *out = node_without(a, text, "architectures");
    for (int i = 0; shared_keys[i]; i++) {
        const nrl_node *given = nrl_node_find(config, shared_keys[i]);
        if (given && !nrl_node_find(out, shared_keys[i])) node_set(a, out, shared_keys[i], node_copy(a, given));
    }
    /* transformers 5 ties the matrices if either config says so. */
    if (nrl_node_bool(nrl_node_find(config, "tie_word_embeddings"), false))
        node_set(a, out, "tie_word_embeddings", node_bool(a, true));
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strcmp(type, classes[i].model_type)) continue;
        nrl_node *list = node_new(a, NRL_NODE_LIST);
        node_append(a, list, NULL, node_text(a, classes[i].class));
        node_set(a, out, "architectures", list);
        for (int k = 0; k < N_SIZES; k++)
            if (!nrl_node_find(out, size_keys[k])) node_set(a, out, size_keys[k], node_int(a, classes[i].sizes[k]));
    }
    h->whole = arena_strdup(&h->memory, nrl_node_string(nrl_node_find(config, "model_type"), "?"));
    return out;
}

/* Files of today put the language model inside "model.", files of 2023 to 2025 put a causal model, which has a "model."
 * of its own, at the top. */
const char *hf_text_name(hf *h, const char *name)
{
    static const char *const inside[] = {"language_model.model.", "model.language_model.", "model.text_model."};
    static const char top[] = "language_model.";
    if (!h->whole) return name;
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (!strncmp(name, inside[i], strlen(inside[i])))
            return arena_printf(&h->memory, "model.%s", name + strlen(inside[i]));
    if (!strncmp(name, top, sizeof top - 1)) return arena_strdup(&h->memory, name + sizeof top - 1);
    return strncmp(name, "lm_head.", 8) ? NULL : name;
}
