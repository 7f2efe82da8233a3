/*
 * @NAME@.c - a small transformer: replace its layer by your own. nrl/model.h describes
 * the contract of each member, nrl/op.h the operations; the core computes their gradients.
 *
 * Units: embed, layers.0 .. layers.L-1, norm. The carry is [N,D].
 * N tokens, D width, H heads, K = D / H head width, I inner width, V vocabulary.
 */
#include <math.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_HALF = 512 };

typedef struct {
    nrl_param *attention_norm, *q, *k, *v, *o; /* [D], [D,D] */
    nrl_param *mlp_norm, *gate, *up, *down;    /* [D], [I,D], [I,D], [D,I] */
} @NAME@_layer;

typedef struct {
    int64_t vocab, width, inner, n_layers, n_heads;
    double inv_freq[MAX_HALF];
    nrl_rope rope;
    nrl_param *embed, *norm; /* [V,D], also the head; [D] */
    @NAME@_layer *layers;
} @NAME@_model;

/* ---- layout ---- */

/* A matrix [rows, cols], or the weight of a norm [rows] if cols is 0. */
static nrl_status @NAME@_param(nrl_builder *b, int32_t unit, const char *name, int64_t rows, int64_t cols, nrl_tp tp,
                               nrl_param **out)
{
    const nrl_param_spec spec = {.size = sizeof spec,
                                 .name = name,
                                 .n_dims = cols ? 2 : 1,
                                 .dims = {rows, cols},
                                 .init = cols ? NRL_INIT_NORMAL : NRL_INIT_ONES,
                                 .init_scale = 0.02,
                                 .decay = cols != 0,
                                 .tp = (uint32_t)tp};
    return nrl_build_param(b, unit, &spec, out);
}

static nrl_status @NAME@_layout_layer(const @NAME@_model *self, nrl_builder *b, int64_t i, @NAME@_layer *l)
{
    const int64_t d = self->width, inner = self->inner;
    const struct {
        const char *name;
        int64_t rows, cols;
        nrl_tp tp; /* how ranks of tensor parallelism divide it */
        nrl_param **param;
    } params[] = {
        {"input_layernorm", d, 0, NRL_TP_NONE, &l->attention_norm},
        {"self_attn.q_proj", d, d, NRL_TP_COLUMN, &l->q},
        {"self_attn.k_proj", d, d, NRL_TP_COLUMN, &l->k},
        {"self_attn.v_proj", d, d, NRL_TP_COLUMN, &l->v},
        {"self_attn.o_proj", d, d, NRL_TP_ROW, &l->o},
        {"post_attention_layernorm", d, 0, NRL_TP_NONE, &l->mlp_norm},
        {"mlp.gate_proj", inner, d, NRL_TP_COLUMN, &l->gate},
        {"mlp.up_proj", inner, d, NRL_TP_COLUMN, &l->up},
        {"mlp.down_proj", d, inner, NRL_TP_ROW, &l->down},
    };
    char name[96];
    int32_t unit;
    snprintf(name, sizeof name, "layers.%lld", (long long)i);
    NRL_TRY(nrl_build_unit(b, name, &unit));
    for (size_t k = 0; k < sizeof params / sizeof *params; k++) {
        snprintf(name, sizeof name, "model.layers.%lld.%s.weight", (long long)i, params[k].name);
        NRL_TRY(@NAME@_param(b, unit, name, params[k].rows, params[k].cols, params[k].tp, params[k].param));
    }
    return NRL_OK;
}

static nrl_status @NAME@_layout(void *instance, nrl_builder *b)
{
    @NAME@_model *self = instance;
    const nrl_model_info info = {.size = sizeof info,
                                 .vocab_size = self->vocab,
                                 .width = self->width,
                                 .n_layers = self->n_layers,
                                 .n_heads = self->n_heads,
                                 .n_kv_heads = self->n_heads,
                                 .head_dim = self->width / self->n_heads,
                                 .max_positions = 1 << 20};
    int32_t unit;
    NRL_TRY(nrl_build_info(b, &info));
    NRL_TRY(nrl_build_carry(b, 1, &self->width));
    NRL_TRY(nrl_build_unit(b, "embed", &unit));
    NRL_TRY(@NAME@_param(b, unit, "model.embed_tokens.weight", self->vocab, self->width, NRL_TP_VOCAB, &self->embed));
    for (int64_t i = 0; i < self->n_layers; i++)
        NRL_TRY(@NAME@_layout_layer(self, b, i, &self->layers[i]));
    NRL_TRY(nrl_build_unit(b, "norm", &unit));
    NRL_TRY(@NAME@_param(b, unit, "model.norm.weight", self->width, 0, NRL_TP_NONE, &self->norm));
    NRL_TRY(nrl_build_use(b, unit, self->embed));
    const nrl_head_spec head = {.size = sizeof head, .weight = self->embed, .scale = 1};
    return nrl_build_head(b, &head);
}

/* ---- forward ---- */

/* On a rank of tensor parallelism q, k and v have the columns of its heads. */
static nrl_status @NAME@_attention(const @NAME@_model *self, nrl_ctx *ctx, int64_t i, nrl_tensor *h, nrl_tensor **y)
{
    const @NAME@_layer *l = &self->layers[i];
    const int64_t head_dim = self->width / self->n_heads;
    nrl_tensor *q, *k, *v;
    NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_COLUMN_IN, h, &h));
    NRL_TRY(nrl_op_linear(ctx, h, l->q, NULL, &q));
    NRL_TRY(nrl_op_linear(ctx, h, l->k, NULL, &k));
    NRL_TRY(nrl_op_linear(ctx, h, l->v, NULL, &v));
    const int64_t n_heads = nrl_tensor_dim(q, -1) / head_dim;
    const nrl_attention_spec spec = {.n_heads = n_heads,
                                     .n_kv_heads = n_heads,
                                     .head_dim = head_dim,
                                     .layer = i,
                                     .scale = 1 / sqrt((double)head_dim)};
    NRL_TRY(nrl_op_rope(ctx, q, n_heads, &self->rope, &q));
    NRL_TRY(nrl_op_rope(ctx, k, n_heads, &self->rope, &k));
    NRL_TRY(nrl_op_attention(ctx, q, k, v, &spec, &h));
    return nrl_op_row_parallel_linear(ctx, h, l->o, NULL, y);
}

static nrl_status @NAME@_mlp(nrl_ctx *ctx, const @NAME@_layer *l, nrl_tensor *h, nrl_tensor **y)
{
    nrl_tensor *gate, *up;
    NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_COLUMN_IN, h, &h));
    NRL_TRY(nrl_op_linear(ctx, h, l->gate, NULL, &gate));
    NRL_TRY(nrl_op_linear(ctx, h, l->up, NULL, &up));
    NRL_TRY(nrl_op_swiglu(ctx, gate, up, &h));
    return nrl_op_row_parallel_linear(ctx, h, l->down, NULL, y);
}

/* x += attention(norm(x)); x += mlp(norm(x)) */
static nrl_status @NAME@_forward(void *instance, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    const @NAME@_model *self = instance;
    nrl_tensor **x = &carry->tensors[0], *h;
    carry->n = 1;
    if (unit == 0) return nrl_op_embedding(ctx, self->embed, x);
    if (unit > self->n_layers) return nrl_op_rms_norm(ctx, *x, self->norm, 1e-6, x);
    const @NAME@_layer *l = &self->layers[unit - 1];
    NRL_TRY(nrl_op_rms_norm(ctx, *x, l->attention_norm, 1e-6, &h));
    NRL_TRY(@NAME@_attention(self, ctx, unit - 1, h, &h));
    NRL_TRY(nrl_op_add_rms_norm(ctx, *x, h, l->mlp_norm, 1e-6, x, &h));
    NRL_TRY(@NAME@_mlp(ctx, l, h, &h));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *x, h, x);
}

/* ---- an instance, from config.json ---- */

static nrl_status @NAME@_size(const nrl_node *config, const char *key, int64_t most, int64_t *out)
{
    *out = nrl_node_int(nrl_node_find(config, key), 0);
    if (*out >= 1 && *out <= most) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "%s: '%s' is %lld, expected 1 to %lld", nrl_node_place(config), key, (long long)*out,
                    (long long)most);
}

static void @NAME@_destroy(void *instance)
{
    @NAME@_model *self = instance;
    free(self->layers);
    free(self);
}

static nrl_status @NAME@_create(const nrl_node *config, void **out)
{
    @NAME@_model of = {0}, *self;
    NRL_TRY(@NAME@_size(config, "vocab_size", INT32_MAX, &of.vocab));
    NRL_TRY(@NAME@_size(config, "hidden_size", 1 << 20, &of.width));
    NRL_TRY(@NAME@_size(config, "intermediate_size", 1 << 22, &of.inner));
    NRL_TRY(@NAME@_size(config, "num_hidden_layers", 1 << 12, &of.n_layers));
    NRL_TRY(@NAME@_size(config, "num_attention_heads", of.width, &of.n_heads));
    if (of.width % of.n_heads || of.width / of.n_heads % 2 || of.width / of.n_heads / 2 > MAX_HALF)
        return nrl_fail(NRL_ERR_DATA,
                        "%s: a hidden_size of %lld with %lld heads: expected heads of an even width up to %d",
                        nrl_node_place(config), (long long)of.width, (long long)of.n_heads, 2 * MAX_HALF);
    of.layers = calloc((size_t)of.n_layers, sizeof *of.layers);
    self = malloc(sizeof *self);
    if (!self || !of.layers) {
        free(of.layers);
        free(self);
        return nrl_fail(NRL_ERR_MEMORY, "out of memory");
    }
    *self = of;
    self->rope = (nrl_rope){.inv_freq = self->inv_freq, .half = of.width / of.n_heads / 2, .scale = 1};
    for (int64_t i = 0; i < self->rope.half; i++)
        self->inv_freq[i] = pow(10000, -(double)i / (double)self->rope.half);
    *out = self;
    return NRL_OK;
}

/* The values of "model_type" in config.json that this plugin serves. */
static const char *const @NAME@_types[] = {"@NAME@", NULL};

static const nrl_model @NAME@_table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_MODEL, nrl_model, "@NAME@", "0.1", "a transformer from the skeleton"),
    .model_types = @NAME@_types,
    .create = @NAME@_create,
    .destroy = @NAME@_destroy,
    .layout = @NAME@_layout,
    .forward = @NAME@_forward,
};

NRL_EXPORT(@NAME@_table)
