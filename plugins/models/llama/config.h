/*
 * config.h - the contents of a Llama-like config.json, with each family's defaults made explicit.
 * families.c has the differences between families, config.c reads sizes and switches, layers.c windows
 * and positions of each layer, rope.c rotary frequencies, experts_config.c mixtures of experts.
 */
#ifndef LLAMA_CONFIG_H
#define LLAMA_CONFIG_H
#include <nrl/op.h>

/* RMS norm of queries and keys: none, one weight [K] for each head, or one over all heads [H*K]. */
typedef enum { LLAMA_HEADS_PLAIN, LLAMA_HEADS_EACH, LLAMA_HEADS_ALL } llama_head_norm;

typedef struct {
    int64_t window;       /* keys seen by a query, 0 = all */
    const nrl_rope *rope; /* NULL = no positions (SmolLM3) */
} llama_attention;

enum { LLAMA_MAX_EXPERTS = 1024 };

/* Where a layer normalises, by the names of its norms in files; NULL = the layer does not have this norm. */
typedef struct {
    const char *attention_in, *attention_out, *mlp_in, *mlp_out;
    const char *q, *k; /* of queries and keys, if the family normalises them */
} llama_norms;

/* How the files of a mixture of experts name its parts. */
typedef struct {
    const char *module;           /* of the layer: "mlp" */
    const char *router;           /* "gate" */
    const char *gate, *up, *down; /* of an expert; up NULL = a matrix and a bias of gate and up, their rows in turns */
} llama_expert_names;

/* A mixture of experts in place of the MLP. A router computes E scores for each token, and the k largest choose
 * experts.
 */
typedef struct {
    const llama_expert_names *names; /* NULL = no layer has experts */
    int64_t n, chosen, inner;        /* E, k, and the width I of an expert */
    bool normalizes;                 /* the k probabilities are divided by their sum */
    bool biased;                     /* router and experts have biases, and the k probabilities are the softmax of the k
                                        scores alone (gpt-oss) */
    double limit, slope;             /* of the clamped gates of biased experts */
    double balance, z;               /* coefficients of the router's balance loss and z-loss, 0 = none */
    bool *dense;                     /* [n_layers] the layer has an MLP instead */
} llama_experts;

typedef struct {
    int64_t vocab, width, inner, n_layers, n_heads, n_kv_heads, head_dim, max_positions;
    double norm_eps, init_scale;
    double norm_offset;                                               /* added to norm weights: 1 in Gemma, else 0 */
    double embed_scale, residual_scale, attention_scale, logit_scale; /* factors, usually 1 */
    double soft_cap;                                                  /* of logits, 0 = none */
    double attention_cap;                                             /* of scores, 0 = none (Gemma 2) */
    double qkv_clip;                                                  /* bound of q, k and v, 0 = none (OLMoE) */
    llama_head_norm head_norm;
    bool qkv_bias, out_bias, mlp_bias; /* of q, k, v; of o; of gate, up, down */
    bool sinks;                        /* each query head has a score of a further key with value 0 */
    bool fused_qkv, fused_mlp;         /* q, k, v are one matrix; gate and up are one */
    bool interleaved;                  /* rotary pairs are adjacent columns (GLM), else halves of a head */
    bool norm_after_rope;              /* heads are rotated before they are normalised (Hunyuan) */
    bool gelu;                         /* gate through GELU (tanh), else SiLU */
    bool relu2;                        /* no gate: relu(up)^2 (Arcee) */
    bool tied;                         /* the head is the input embedding */
    const llama_norms *norms;
    llama_experts experts;
    llama_attention *layers; /* [n_layers] */
    nrl_rope *rope;          /* [2]: for most layers; for layers with a window (Gemma 3) */
} llama_config;

/* The supported model_type values, NULL-terminated. */
extern const char *const llama_model_types[];

/* NRL_ERR_DATA names the key, its value and what was expected. Free what was read in either case. */
nrl_status llama_config_read(const nrl_node *config, llama_config *out);
void llama_config_free(llama_config *c);

/* ---- private ---- */

/* Which layers have a window if `layer_types` is absent. */
typedef enum {
    LLAMA_WINDOW_NEVER,
    LLAMA_WINDOW_ALL,
    LLAMA_WINDOW_LATE,    /* from max_window_layers on (Qwen) */
    LLAMA_WINDOW_NO_ROPE, /* layers without positions (SmolLM3) */
    LLAMA_WINDOW_PATTERN, /* all but every sixth, or every window_period-th */
} llama_window_rule;

/* The experts of a family: names, keys of config.json and their defaults. */
typedef struct {
    llama_expert_names names;
    const char *inner_key;    /* "intermediate_size" if all layers have experts */
    int64_t n, chosen, inner; /* if the keys are absent */
    double balance;           /* likewise, router_aux_loss_coef */
    bool normalizes;          /* always; else norm_topk_prob decides */
    bool biased;              /* of llama_experts */
    bool some_layers;         /* decoder_sparse_step and mlp_only_layers say which layers have experts */
} llama_expert_family;

/* A row of the table: defaults of absent keys, which keys are read, how layers are built. */
typedef struct {
    const char *model_type;
    int64_t n_kv_heads;    /* if the key is absent; 0 = as many as query heads */
    int64_t head_dim;      /* likewise; 0 = width / heads */
    int64_t max_positions; /* likewise */
    double norm_eps, theta;
    double local_theta; /* of layers with a window; 0 = the same rope for all */
    int64_t window;     /* likewise; 0 = none */
    llama_window_rule window_rule;
    int64_t window_period;
    bool window_switch; /* no window unless use_sliding_window is true */
    const llama_norms *norms;
    llama_head_norm head_norm;
    bool qkv_bias;             /* always present, whatever the config has (Qwen2) */
    bool reads_attention_bias; /* attention_bias adds a bias to q, k, v and o */
    bool attention_bias;       /* if that key is absent */
    bool no_out_bias;          /* attention_bias adds none to o (GLM) */
    bool reads_use_bias;       /* use_bias adds a bias to all matrices of a layer (ERNIE) */
    bool needs_rope;           /* the config must say how positions are scaled */
    bool sinks;
    bool reads_mlp_bias;
    bool tied;                   /* if the key is absent */
    bool fused_qkv, fused_mlp;   /* one matrix for q, k, v; one for gate and up */
    double rotary_part;          /* default of partial_rotary_factor; 0 = only whole heads are rotated */
    bool interleaved, relu2;     /* of llama_config */
    bool norm_after_rope;        /* likewise */
    bool ntk_alpha;              /* the rope type "dynamic" has a fixed alpha (Hunyuan) */
    bool full_without_positions; /* if some layers have a window, the others have no positions (EXAONE 4) */
    bool gemma;                  /* GELU, norm weights around 0, embeddings times sqrt(width) */
    double query_scalar;         /* default of query_pre_attn_scalar; 0 = not read (Gemma 2 and 3) */
    double soft_cap;             /* default of final_logit_softcapping, which is read with query_pre_attn_scalar */
    double attention_cap;        /* default of attn_logit_softcapping; 0 = refused */
    bool multipliers;            /* Granite's four */
    bool no_rope;                /* no_rope_layers (SmolLM3) */
    bool qkv_clip;               /* clip_qkv bounds queries, keys and values (OLMoE) */
    const llama_expert_family *experts; /* NULL = none */
} llama_family;

const llama_family *llama_family_find(const char *model_type); /* NULL = not supported */

/* layers.c: fills c->layers from c->rope. */
nrl_status llama_layers_read(const nrl_node *config, const llama_family *f, llama_config *c);

/* experts_config.c: fills c->experts. */
nrl_status llama_experts_read(const nrl_node *config, const llama_family *f, llama_config *c);

/* rope.c: frequencies and scale from rope_parameters, or from rope_theta with rope_scaling, into c->rope.
 * May lower c->max_positions to what the frequencies are valid for. */
nrl_status llama_rope_read(const nrl_node *config, const llama_family *f, llama_config *c);

/* Getters with errors. */

bool llama_is_absent(const nrl_node *node); /* or null */
/* An integer in [least, most]; if absent or null or_value, or an error if that is -1. */
nrl_status llama_read_int(const nrl_node *map, const char *key, int64_t least, int64_t most, int64_t or_value,
                          int64_t *out);
/* A finite number above `above`; if absent or null or_value, or an error if that is NAN. */
nrl_status llama_read_number(const nrl_node *map, const char *key, double above, double or_value, double *out);

#endif
