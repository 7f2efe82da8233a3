/*
 * gguf.c - the format plugin gguf: one file with a model and its tokenizer for llama.cpp and programs built on it.
 * model.c maps configs and names of tensors, vocab.c the tokenizer, encode.c the quantized encodings.
 */
#include "gguf.h"
#include <nrl/plugin.h>

static const nrl_format_tensor example_tensors[] = {
    {.name = "model.embed_tokens.weight", .n_dims = 2, .dims = {5, 4}},
    {.name = "model.layers.0.self_attn.q_proj.weight", .n_dims = 2, .dims = {8, 4}},
    {.name = "model.layers.0.self_attn.q_proj.bias", .n_dims = 1, .dims = {8}},
};

static const nrl_format_example example = {
    .size = sizeof example,
    .tensor_size = sizeof *example_tensors,
    .config =
        "{\"model_type\":\"llama\",\"hidden_size\":4,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
        "\"num_key_value_heads\":2,\"head_dim\":4,\"intermediate_size\":8,\"vocab_size\":5,\"rms_norm_eps\":1e-05,"
        "\"rope_theta\":10000.5}",
    .n_tensors = sizeof example_tensors / sizeof *example_tensors,
    .tensors = example_tensors,
};

static const char *const encodings[] = {"q8_0", "q6_k", "q4_k", NULL};

static const nrl_format table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_FORMAT, nrl_format, "gguf", "0.1", "GGUF files, as llama.cpp reads them"),
    .holds = NRL_HOLDS_MODEL,
    .probe = gguf_probe,
    .open = gguf_open,
    .close = gguf_close,
    .info = gguf_info,
    .load = gguf_load,
    .n_tensors = gguf_n_tensors,
    .tensor = gguf_tensor,
    .read = gguf_read,
    .begin = gguf_begin,
    .write = gguf_write,
    .finish = gguf_finish,
    .abandon = gguf_abandon,
    .owns = gguf_owns,
    .encodings = encodings,
    .example = &example,
};
NRL_EXPORT(table)
