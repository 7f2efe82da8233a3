/*
 * model.h - an architecture: a list of units, the parameters they use, and their forward.
 *
 * `layout` declares the model and computes nothing: units in order of execution, parameters (a unit
 * uses parameters but does not own them; tied weights are used twice), the carry that is passed from
 * unit to unit, and the head. `forward` runs one unit on one device; the tape provides backward.
 * The last unit returns hidden states. The core computes the head (logits, log-probs) from its
 * declaration, in chunks, so that the logits of a batch are never stored at once.
 */
#ifndef NRL_MODEL_H
#define NRL_MODEL_H
#include <nrl/op.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { NRL_MAX_CARRY = 4 };

/* Tensors that are passed from one unit to the next, [N, width] each. */
typedef struct {
    nrl_tensor *tensors[NRL_MAX_CARRY];
    int32_t n;
    int32_t reserved;
} nrl_carry;
NRL_STATIC_ASSERT(sizeof(nrl_carry) == 40, "nrl_carry is frozen: it has no size");

typedef enum {
    NRL_INIT_NONE = 0,
    NRL_INIT_NORMAL = 1, /* mean 0, standard deviation `init_scale`; a function of seed and parameter name */
    NRL_INIT_ZEROS = 2,
    NRL_INIT_ONES = 3,
    NRL_INIT_UNIFORM = 4, /* between -init_scale and init_scale; likewise */
    NRL_INIT_ROW_NORM = 5 /* of an adapter: [outputs], the length of each row of its weight */
} nrl_init;

/* How tensor parallelism may shard a parameter. A model that supports it calls nrl_op_tp_region (COLUMN_IN) on the
 * input of column-parallel products and nrl_op_row_parallel_linear for row-parallel ones; nothing else in the model
 * changes. train.precision: fp8 rounds operands of products with COLUMN, ROW, KEY_VALUE and WHOLE matrices alone. */
typedef enum {
    NRL_TP_NONE = 0,    /* replicated: all ranks compute the same, or each for its own tokens (sequence parallel) */
    NRL_TP_COLUMN = 1,  /* output features, dimension 0 */
    NRL_TP_ROW = 2,     /* input features, dimension 1 */
    NRL_TP_VOCAB = 3,   /* vocabulary, dimension 0 */
    NRL_TP_PARTIAL = 4, /* replicated, but each rank applies it to its own columns (norms of heads), so the
                      gradient is the sum over ranks */
    NRL_TP_WHOLE = 5,   /* replicated, and used between WHOLE_IN and WHOLE_OUT or as the bias of a row-parallel product:
                     every rank has the gradient of all tokens */
    NRL_TP_KEY_VALUE = 6 /* output features of key/value heads, dimension 0: ranks may share a head */
} nrl_tp;

typedef struct {
    uint32_t size;    /* of this struct */
    const char *name; /* Hugging Face name */
    int32_t n_dims;
    int64_t dims[NRL_MAX_DIMS]; /* linear weights are [out, in] */
    uint32_t init;              /* nrl_init */
    double init_scale;
    bool decay;      /* weight decay applies: matrices, not norms and biases */
    bool transposed; /* the file stores [in, out] (GPT-2's Conv1D) */
    uint32_t tp;     /* nrl_tp */
    int32_t groups;  /* of nrl_part; 0 = 1 */
    int32_t expert;  /* of the experts of a mixture: the number of the expert, from 1; 0 = none. In a unit, every expert
                        has parameters of the same shapes in the same order */
    bool unadapted;  /* a matrix that takes no adapter, because its module is not a linear one elsewhere */
    bool unquantized; /* adapter.base leaves it as it is: a router, whose errors choose other experts */
} nrl_param_spec;

/* The output layer: logits = scale * (hidden weight^T + bias), then cap * tanh(logits / cap). */
typedef struct {
    uint32_t size;
    nrl_param *weight; /* [V,D] */
    nrl_param *bias;   /* [V] or NULL */
    double scale;      /* 1 */
    double soft_cap;   /* 0 = none */
} nrl_head_spec;

typedef struct nrl_builder nrl_builder;

NRL_API nrl_status nrl_build_unit(nrl_builder *b, const char *name, int32_t *unit);
/* Declares a parameter that `unit` uses. */
NRL_API nrl_status nrl_build_param(nrl_builder *b, int32_t unit, const nrl_param_spec *spec, nrl_param **param);
/* Declares that `unit` uses a parameter that was declared before (tied weights). */
NRL_API nrl_status nrl_build_use(nrl_builder *b, int32_t unit, nrl_param *param);
NRL_API nrl_status nrl_build_carry(nrl_builder *b, int32_t n, const int64_t *widths);
NRL_API nrl_status nrl_build_head(nrl_builder *b, const nrl_head_spec *head);
/* Sizes of the model, for memory plans, key/value caches and MFU. */
typedef struct {
    uint32_t size;
    int64_t vocab_size, width, n_layers, n_heads, n_kv_heads, head_dim, max_positions;
    bool token_shards; /* outside of tp_regions forward treats each token by itself, except between WHOLE_IN and
                          WHOLE_OUT; so ranks may have a part of the tokens (sequence parallel) */
} nrl_model_info;
NRL_API nrl_status nrl_build_info(nrl_builder *b, const nrl_model_info *info);
/* Files of this architecture may hold tensors that are not parameters, such as "rotary_emb.inv_freq" or
 * GPT-2's "attn.bias". Tensors whose name ends with `suffix` are ignored. */
NRL_API nrl_status nrl_build_ignore(nrl_builder *b, const char *suffix);
/* Files whose tensor names lack `prefix` are read too ("transformer." of GPT-2). */
NRL_API nrl_status nrl_build_optional_prefix(nrl_builder *b, const char *prefix);

/* A term that the model adds to the loss, such as the balance loss of a router. In `layout`: */
typedef struct nrl_loss_term nrl_loss_term;
typedef struct {
    uint32_t size;
    int32_t n_values;   /* values that forward gives for one micro-batch: the number of units that give one */
    const char *name;   /* of the value in records, "router_loss"; evaluations have eval_NAME */
    double coefficient; /* the loss contains coefficient times the term; 0 = it is only reported */
    bool sums_tokens; /* `forward` sums over tokens with nrl_op_token_sum; otherwise ranks cannot shard the tokens of a
                         micro-batch */
} nrl_loss_term_spec;
/* At most NRL_MAX_MODEL_TERMS. The term lives as long as the builder's model. */
enum { NRL_MAX_MODEL_TERMS = 4 };
NRL_API nrl_status nrl_build_loss_term(nrl_builder *b, const nrl_loss_term_spec *spec, nrl_loss_term **term);
/* In `forward`: gives a value of the term, a [1] f32 tensor that is a mean over the tokens of the micro-batch, and
 * returns x as *y, which must be used in place of x (part of the carry): its backward starts the gradient of the value.
 * The term is the mean of its values, over the units that give one and, weighted by tokens, over the micro-batches of
 * the step on all ranks. So a value that is itself a mean over tokens does not depend on how a step is divided; one
 * that is not (a product of means, such as a balance loss) is computed for each micro-batch on its own, as in other
 * trainers. Values of a recomputed unit and of a reference model do not count. [step] */
NRL_API nrl_status nrl_op_loss_term(nrl_ctx *ctx, nrl_loss_term *term, nrl_tensor *value, nrl_tensor *x,
                                    nrl_tensor **y);
/* For such values: x is a sum over this rank's tokens of the micro-batch, and y the sum over those of all ranks that
 * divide them; x itself where they are not divided. The gradient of y is that of x, because every rank computes the
 * same value of it. [step] */
NRL_API nrl_status nrl_op_token_sum(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y);
/* The share of the micro-batch's tokens on this rank; 1 if they are not sharded. [step] */
NRL_API double nrl_ctx_token_share(const nrl_ctx *ctx);
/* forward draws random numbers in training (nrl_op_dropout, nrl_ctx_random). They are off otherwise. */
NRL_API void nrl_build_random(nrl_builder *b);

typedef struct {
    nrl_plugin plugin;
    /* config.json "model_type" values served, NULL-ended; one plugin may serve several.
     * [any] a table, so that `auto` finds a model by opening plugins in name order. */
    const char *const *model_types;
    /* [main] config = the parsed config.json; unknown or unsupported values are NRL_ERR_DATA */
    nrl_status (*create)(const nrl_node *config, void **self);
    void (*destroy)(void *self);                            /* [main] */
    nrl_status (*layout)(void *self, nrl_builder *builder); /* [main] */
    /* [step] runs unit `unit`: reads the carry (empty for the first unit) and replaces it */
    nrl_status (*forward)(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry);
    /* For `nrl plugins test`: JSON text of a config of a few thousand parameters; NULL: one of common keys. */
    const char *example_config;
} nrl_model;

#ifdef __cplusplus
}
#endif
#endif
