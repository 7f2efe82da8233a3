/*
 * model.h - an architecture: a list of units, the parameters they use, and their forward.
 *
 * `layout` declares everything and computes nothing: units in order of execution, parameters (a
 * unit uses parameters, it does not own them; tied weights are used twice), the carry that passes
 * between units, and the head. `forward` runs one unit for one device; the tape gives backward.
 * The last unit returns hidden states; the head (logits, log-probs) is the core's, from its
 * declaration, so that logits are never whole.
 */
#ifndef NRL_MODEL_H
#define NRL_MODEL_H
#include <nrl/op.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { NRL_MAX_CARRY = 4 };

/* Tensors that pass from one unit to the next; [N, width] each. */
typedef struct {
    nrl_tensor *tensors[NRL_MAX_CARRY];
    int32_t n;
    int32_t reserved;
} nrl_carry;

typedef enum {
    NRL_INIT_NONE = 0,
    NRL_INIT_NORMAL, /* mean 0, deviation `init_scale`; keyed by seed and parameter name alone */
    NRL_INIT_ZEROS,
    NRL_INIT_ONES,
    NRL_INIT_UNIFORM /* between -init_scale and init_scale; keyed alike */
} nrl_init;

/* How tensor parallelism may cut a parameter. A model that lets it has nrl_op_seam (COLUMN_IN) in front of what
 * reads columns, and nrl_op_linear_row where rows are multiplied; nothing else of it knows. */
typedef enum {
    NRL_TP_NONE = 0, /* replicated: all ranks compute the same with it */
    NRL_TP_COLUMN,   /* output features, dimension 0 */
    NRL_TP_ROW,      /* input features, dimension 1 */
    NRL_TP_VOCAB,    /* vocabulary, dimension 0 */
    NRL_TP_PARTIAL   /* replicated, but each rank works on its own columns with it (norms of heads): the
                        gradient is the sum over ranks */
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
/* Declares a parameter and that `unit` uses it. */
NRL_API nrl_status nrl_build_param(nrl_builder *b, int32_t unit, const nrl_param_spec *spec,
                                   nrl_param **param);
/* A parameter declared before is used by this unit too (tied weights). */
NRL_API nrl_status nrl_build_use(nrl_builder *b, int32_t unit, nrl_param *param);
NRL_API nrl_status nrl_build_carry(nrl_builder *b, int32_t n, const int64_t *widths);
NRL_API nrl_status nrl_build_head(nrl_builder *b, const nrl_head_spec *head);
/* Sizes that plans, caches and MFU figures are made of. */
typedef struct {
    uint32_t size;
    int64_t vocab_size, width, n_layers, n_heads, n_kv_heads, head_dim, max_positions;
} nrl_model_facts;
NRL_API nrl_status nrl_build_facts(nrl_builder *b, const nrl_model_facts *facts);
/* A tensor that checkpoints of this architecture may hold and that is not a parameter (buffers such
 * as "rotary_emb.inv_freq", GPT-2's "attn.bias"); `suffix` matches the end of the name. */
NRL_API nrl_status nrl_build_ignore(nrl_builder *b, const char *suffix);
/* Another spelling of names on disk: a checkpoint whose names lack `prefix` is read too
 * ("transformer." of GPT-2). */
NRL_API nrl_status nrl_build_optional_prefix(nrl_builder *b, const char *prefix);

typedef struct {
    nrl_plugin plugin;
    /* config.json "model_type" values served, NULL-ended; one plugin may serve several.
     * [any] a table, so that `auto` finds a model by opening plugins in name order. */
    const char *const *model_types;
    /* [main] config = the parsed config.json; unknown or unsupported values are NRL_ERR_DATA */
    nrl_status (*create)(const nrl_node *config, void **self);
    void (*destroy)(void *self);                            /* [main] */
    nrl_status (*layout)(void *self, nrl_builder *builder); /* [main] */
    /* [step] runs unit `unit`: reads the carry (empty for the first) and replaces it */
    nrl_status (*forward)(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry);
} nrl_model;

#ifdef __cplusplus
}
#endif
#endif
