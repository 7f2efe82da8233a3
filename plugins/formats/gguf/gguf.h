/*
 * gguf.h - GGUF files: metadata and tensors of a model in one file, which llama.cpp and programs built on it read.
 * Layout of a file, all numbers little-endian: magic "GGUF", u32 version, u64 number of tensors, u64 number of metadata
 * keys; the keys; name, dimensions (fastest first), type and offset of each tensor; padding; the tensors, each aligned.
 * Source: the specification docs/gguf.md of ggml.
 */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H
#include "base/buffer.h"
#include "base/node.h"
#include "encode.h"
#include <nrl/format.h>

enum { GGUF_VERSION = 3, GGUF_ALIGNMENT = 32, GGUF_NAME = 256 };

/* ---- metadata ---- */

typedef enum {
    GGUF_UINT8 = 0,
    GGUF_INT8,
    GGUF_UINT16,
    GGUF_INT16,
    GGUF_UINT32,
    GGUF_INT32,
    GGUF_FLOAT32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_UINT64,
    GGUF_INT64,
    GGUF_FLOAT64
} gguf_value_type;

/* Metadata to be written. */
typedef struct {
    buffer bytes;
    uint64_t n;
} gguf_metadata;

void gguf_put_u32(gguf_metadata *m, const char *key, uint32_t value);
void gguf_put_f32(gguf_metadata *m, const char *key, double value);
void gguf_put_bool(gguf_metadata *m, const char *key, bool value);
void gguf_put_text(gguf_metadata *m, const char *key, const char *text, size_t size);
/* Begins an array; the caller then adds n values of the type with gguf_add. */
void gguf_put_array(gguf_metadata *m, const char *key, gguf_value_type type, uint64_t n);
void gguf_add(buffer *b, const void *value, size_t size);
void gguf_add_text(buffer *b, const char *text, size_t size);

/* ---- architectures ---- */

/* What differs between the architectures of llama.cpp that nrl can write. */
typedef struct {
    const char *model_type;            /* of config.json */
    const char *name;                  /* of llama.cpp */
    bool permutes;                     /* rows of q and k of a head are interleaved: rotary pairs are neighbours */
    bool has_divisors;                 /* rope_freqs.weight is read */
    bool names_window;                 /* has the key attention.sliding_window */
    bool switches_window;              /* use_sliding_window turns the window on */
    bool adds_one;                     /* norms have 1 + weight */
    bool norms_outputs;                /* post_attention_layernorm is a norm of the attention's output */
    bool multiplies;                   /* has the multipliers of granite */
    bool caps;                         /* has the caps and the query_pre_attn_scalar of gemma 2 and 3 */
    bool biases_attention, biases_mlp; /* biases of these modules are read */
    uint32_t window;                   /* if absent in config.json */
    uint32_t period;                   /* layers whose last one has no window; 0 = llama.cpp computes no window */
    uint32_t layers_of_27b;            /* of the model whose attention is scaled by the width, not by head_dim */
    /* If absent in config.json, as in transformers: 0 = the number of heads, width / heads, not written, 1e-6. */
    int64_t kv_heads, head_dim, positions;
    double eps;
    double theta, local_theta;  /* if absent in config.json, 0 = 10000; local: of layers with a window, 0 = theta */
    bool is_gpt2;               /* keys and names of GPT-2; matrices are [in, out] in Hugging Face files */
    bool has_experts;           /* every layer has a mixture of experts */
    bool normalizes;            /* the weights of the chosen experts are divided by their sum */
    uint32_t n_experts, chosen; /* if absent in config.json */
    bool is_gpt_oss; /* sinks; names without ".weight"; matrices of experts are [in, out], gate and up in one */
} gguf_architecture;

/* NRL_ERR_CONFIG: no architecture for this model_type. */
nrl_status gguf_find_architecture(const nrl_node *config, const gguf_architecture **out);
const gguf_architecture *gguf_architecture_named(const char *name); /* NULL: unknown */

/* Adds the sizes that transformers has for absent keys, which published configs leave out. */
void gguf_complete(const gguf_architecture *arch, arena *a, nrl_node *config);

/* Puts the metadata of the model. NRL_ERR_CONFIG if GGUF or llama.cpp cannot express the config. */
nrl_status gguf_describe(const gguf_architecture *arch, const nrl_node *config, gguf_metadata *m);

/* Writes the name in GGUF of a tensor of Hugging Face, or false if it has none; and the reverse. GGUF has a matrix of
 * all experts of a layer in one tensor: *expert is the number of the matrix in it, -1 for other tensors. The reverse
 * takes that number, and says in *is_stacked whether the tensor has one. A tensor whose columns alternate has the name
 * of the even ones; in reverse both give its name. */
bool gguf_name_of(const gguf_architecture *arch, const char *hf, char out[GGUF_NAME], int64_t *expert);
bool gguf_hf_name_of(const gguf_architecture *arch, const char *name, int64_t expert, char out[GGUF_NAME],
                     bool *is_stacked);

/* How the values of a tensor differ between the two. */
typedef struct {
    int64_t heads;   /* rows are permuted within this many heads; 0 = not */
    bool transposed; /* [in, out] in Hugging Face files */
    bool plus_one;   /* GGUF has the value plus 1 */
    bool alternates; /* GGUF has the even columns in this tensor and the odd ones in another: gate and up */
} gguf_change;
gguf_change gguf_change_of(const gguf_architecture *arch, const nrl_node *config, const char *hf);

/* The divisors of the frequencies of rotary embeddings with `rope_type: llama3`, [head_dim / 2], in `out` (room for
 * 512), which a file has as the tensor rope_freqs.weight. Returns their number; 0: the config has no such scaling. */
int64_t gguf_rope_divisors(const gguf_architecture *arch, const nrl_node *config, float out[512]);

/* ---- tokenizer ---- */

/* Puts the tokenizer and the chat template of the directory `companions`, with the files of `what` in place of those
 * there. `vocab_size`: tokens of the model, which may be more than the tokenizer's. NRL_ERR_CONFIG if the tokenizer
 * cannot be expressed, NRL_ERR_DATA if its files are damaged. */
nrl_status gguf_put_tokenizer(gguf_metadata *m, const nrl_format_write *what, const nrl_node *config,
                              int64_t vocab_size);

/* ---- the two sides of the table ---- */

int32_t gguf_probe(const char *path, const nrl_format_host *host);
nrl_status gguf_open(const char *path, uint32_t flags, const nrl_format_host *host, void **reader);
void gguf_close(void *reader);
void gguf_info(const void *reader, nrl_format_info *info);
nrl_status gguf_load(void *reader);
int64_t gguf_n_tensors(const void *reader);
void gguf_tensor(const void *reader, int64_t i, nrl_format_tensor *tensor);
nrl_status gguf_read(const void *reader, int64_t i, int64_t begin, int64_t n, float *out);

nrl_status gguf_begin(const nrl_format_write *what, void **writer);
nrl_status gguf_write(void *writer, int64_t i, int64_t n, const float *values);
nrl_status gguf_finish(void *writer);
void gguf_abandon(void *writer);
bool gguf_owns(const char *name);

#endif
