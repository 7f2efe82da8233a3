/*
 * gpt_neox.c - a model: GPT-NeoX (Black et al. 2022), the architecture of Pythia. Rotary positions on a part of each
 * head, attention and MLP in parallel or one after the other, an output layer of its own. The fused projection has the
 * rows of q, k and v of one head next to each other.
 *
 * Legend: N tokens, D width, H heads, K = D / H head width, I inner width, V vocabulary.
 */
#include <math.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    nrl_param *weight, *bias;
} neox_affine;

typedef struct {
    neox_affine norm1, norm2;    /* [D] */
    neox_affine attend, project; /* [H * 3K, D], [D, D] */
    neox_affine widen, narrow;   /* [I, D], [D, I] */
} neox_layer;

typedef struct {
    int64_t vocab, width, inner, n_layers, n_heads, n_positions;
    double eps, init_scale;
    bool parallel, tied;
    uint32_t activation; /* nrl_unary */
    nrl_rope rope;
    double *inv_freq; /* [rope.half] */
    nrl_param *embed, *head;
    neox_affine norm;
    neox_layer *layers;
} neox;

/* ---- config.json ---- */

static nrl_status neox_size(const nrl_node *config, const char *key, int64_t *value)
{
    *value = nrl_node_int(nrl_node_find(config, key), 0);
    return *value > 0 ? NRL_OK : nrl_fail(NRL_ERR_DATA, "%s: expected a number above 0", key);
}

static nrl_status neox_read(neox *m, const nrl_node *config)
{
    NRL_TRY(neox_size(config, "vocab_size", &m->vocab));
    NRL_TRY(neox_size(config, "hidden_size", &m->width));
    NRL_TRY(neox_size(config, "intermediate_size", &m->inner));
    NRL_TRY(neox_size(config, "num_hidden_layers", &m->n_layers));
    NRL_TRY(neox_size(config, "num_attention_heads", &m->n_heads));
    NRL_TRY(neox_size(config, "max_position_embeddings", &m->n_positions));
    if (m->width % m->n_heads)
        return nrl_fail(NRL_ERR_DATA, "num_attention_heads: %lld does not divide hidden_size, %lld",
                        (long long)m->n_heads, (long long)m->width);
    m->eps = nrl_node_f64(nrl_node_find(config, "layer_norm_eps"), 1e-5);
    m->init_scale = nrl_node_f64(nrl_node_find(config, "initializer_range"), 0.02);
    m->parallel = nrl_node_bool(nrl_node_find(config, "use_parallel_residual"), true);
    m->tied = nrl_node_bool(nrl_node_find(config, "tie_word_embeddings"), false);
    const char *act = nrl_node_string(nrl_node_find(config, "hidden_act"), "gelu");
    m->activation = !strcmp(act, "gelu")                                    ? NRL_UNARY_GELU
                    : !strcmp(act, "gelu_new") || !strcmp(act, "gelu_fast") ? NRL_UNARY_GELU_TANH
                                                                            : NRL_UNARY_NONE;
    if (!m->activation)
        return nrl_fail(NRL_ERR_DATA, "hidden_act: '%s' is not supported, expected gelu or gelu_new", act);
    const nrl_node_type scaling = nrl_node_kind(nrl_node_find(config, "rope_scaling"));
    if (scaling != NRL_NODE_NONE && scaling != NRL_NODE_NULL)
        return nrl_fail(NRL_ERR_DATA, "rope_scaling: expected null");
    /* Newer files keep the rotary settings in a map. */
    const nrl_node *map = nrl_node_find(config, "rope_parameters");
    const double base =
        nrl_node_f64(nrl_node_find(map, "rope_theta"), nrl_node_f64(nrl_node_find(config, "rotary_emb_base"), 10000));
    const double part = nrl_node_f64(nrl_node_find(map, "partial_rotary_factor"),
                                     nrl_node_f64(nrl_node_find(config, "rotary_pct"), 0.25));
    const int64_t rotated = (int64_t)((double)(m->width / m->n_heads) * part);
    if (rotated < 2 || rotated % 2 || part > 1)
        return nrl_fail(NRL_ERR_DATA, "rotary_pct: %g rotates %lld columns of a head, expected an even number", part,
                        (long long)rotated);
    m->inv_freq = calloc((size_t)rotated / 2, sizeof *m->inv_freq);
    m->layers = calloc((size_t)m->n_layers, sizeof *m->layers);
    if (!m->inv_freq || !m->layers)
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for a model of %lld layers", (long long)m->n_layers);
    for (int64_t i = 0; i < rotated / 2; i++)
        m->inv_freq[i] = pow(base, -2.0 * (double)i / (double)rotated);
    m->rope = (nrl_rope){.inv_freq = m->inv_freq, .half = rotated / 2, .scale = 1};
    return NRL_OK;
}

static void neox_destroy(void *self)
{
    neox *m = self;
    free(m->inv_freq);
    free(m->layers);
    free(m);
}

static nrl_status neox_create(const nrl_node *config, void **self)
{
    neox *m = calloc(1, sizeof *m);
    if (!m) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a model");
    nrl_status st = neox_read(m, config);
    if (st == NRL_OK)
        *self = m;
    else
        neox_destroy(m);
    return st;
}

/* ---- layout ---- */

typedef struct {
    nrl_builder *builder;
    int32_t unit;
    int64_t layer; /* -1: outside of the layers */
    double init_scale;
} neox_place;

static nrl_status neox_declare(const neox_place *at, const char *name, const char *suffix, nrl_param_spec spec,
                               nrl_param **out)
{
    char full[96];
    if (at->layer < 0)
        snprintf(full, sizeof full, "%s%s", name, suffix);
    else
        snprintf(full, sizeof full, "gpt_neox.layers.%lld.%s%s", (long long)at->layer, name, suffix);
    spec.size = sizeof spec;
    spec.name = full;
    return nrl_build_param(at->builder, at->unit, &spec, out);
}

static nrl_status neox_norm(const neox_place *at, const char *name, int64_t width, neox_affine *out)
{
    nrl_param_spec spec = {.n_dims = 1, .dims = {width}, .init = NRL_INIT_ONES};
    NRL_TRY(neox_declare(at, name, ".weight", spec, &out->weight));
    spec.init = NRL_INIT_ZEROS;
    return neox_declare(at, name, ".bias", spec, &out->bias);
}

static nrl_status neox_matrix(const neox_place *at, const char *name, int64_t rows, int64_t cols, nrl_tp tp,
                              nrl_param **out)
{
    const nrl_param_spec spec = {.n_dims = 2,
                                 .dims = {rows, cols},
                                 .decay = true,
                                 .tp = (uint32_t)tp,
                                 .init = NRL_INIT_NORMAL,
                                 .init_scale = at->init_scale};
    return neox_declare(at, name, ".weight", spec, out);
}

static nrl_status neox_linear(const neox_place *at, const char *name, int64_t rows, int64_t cols, nrl_tp tp,
                              neox_affine *out)
{
    const nrl_param_spec bias = {
        .n_dims = 1, .dims = {rows}, .init = NRL_INIT_ZEROS, .tp = tp == NRL_TP_COLUMN ? NRL_TP_COLUMN : NRL_TP_NONE};
    NRL_TRY(neox_matrix(at, name, rows, cols, tp, &out->weight));
    return neox_declare(at, name, ".bias", bias, &out->bias);
}

static nrl_status neox_layout(void *self, nrl_builder *b)
{
    neox *m = self;
    neox_place at = {.builder = b, .layer = -1, .init_scale = m->init_scale};
    const nrl_model_info info = {.size = sizeof info,
                                 .vocab_size = m->vocab,
                                 .width = m->width,
                                 .n_layers = m->n_layers,
                                 .n_heads = m->n_heads,
                                 .n_kv_heads = m->n_heads,
                                 .head_dim = m->width / m->n_heads,
                                 .max_positions = m->n_positions};
    NRL_TRY(nrl_build_info(b, &info));
    NRL_TRY(nrl_build_carry(b, 1, &m->width));
    NRL_TRY(nrl_build_ignore(b, ".attention.bias"));
    NRL_TRY(nrl_build_ignore(b, ".attention.masked_bias"));
    NRL_TRY(nrl_build_ignore(b, ".rotary_emb.inv_freq"));
    NRL_TRY(nrl_build_unit(b, "embed", &at.unit));
    NRL_TRY(neox_matrix(&at, "gpt_neox.embed_in", m->vocab, m->width, NRL_TP_VOCAB, &m->embed));
    for (int64_t i = 0; i < m->n_layers; i++) {
        neox_layer *l = &m->layers[i];
        char name[32];
        snprintf(name, sizeof name, "layers.%lld", (long long)i);
        at.layer = i;
        NRL_TRY(nrl_build_unit(b, name, &at.unit));
        NRL_TRY(neox_norm(&at, "input_layernorm", m->width, &l->norm1));
        NRL_TRY(neox_norm(&at, "post_attention_layernorm", m->width, &l->norm2));
        NRL_TRY(neox_linear(&at, "attention.query_key_value", 3 * m->width, m->width, NRL_TP_COLUMN, &l->attend));
        NRL_TRY(neox_linear(&at, "attention.dense", m->width, m->width, NRL_TP_ROW, &l->project));
        NRL_TRY(neox_linear(&at, "mlp.dense_h_to_4h", m->inner, m->width, NRL_TP_COLUMN, &l->widen));
        NRL_TRY(neox_linear(&at, "mlp.dense_4h_to_h", m->width, m->inner, NRL_TP_ROW, &l->narrow));
    }
    at.layer = -1;
    NRL_TRY(nrl_build_unit(b, "norm", &at.unit));
    NRL_TRY(neox_norm(&at, "gpt_neox.final_layer_norm", m->width, &m->norm));
    m->head = m->embed;
    if (m->tied)
        NRL_TRY(nrl_build_use(b, at.unit, m->embed));
    else
        NRL_TRY(neox_matrix(&at, "embed_out", m->vocab, m->width, NRL_TP_VOCAB, &m->head));
    return nrl_build_head(b, &(nrl_head_spec){.size = sizeof(nrl_head_spec), .weight = m->head, .scale = 1});
}

/* ---- forward ---- */

/* Columns [begin, begin + K) of each head of x [N * H, 3K], as [N, H * K]. */
static nrl_status neox_part(nrl_ctx *ctx, nrl_tensor *x, int64_t n, int64_t part, int64_t head_dim, nrl_tensor **y)
{
    nrl_tensor *view;
    const int64_t dims[] = {n, nrl_tensor_dim(x, 0) / n * head_dim};
    NRL_TRY(nrl_op_slice_columns(ctx, x, part * head_dim, (part + 1) * head_dim, &view));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, view, 1, 0, &view)); /* a copy is contiguous */
    return nrl_op_reshape(ctx, view, 2, dims, y);
}

static nrl_status neox_attention(const neox *m, nrl_ctx *ctx, int64_t i, nrl_tensor *h, nrl_tensor **y)
{
    const neox_layer *l = &m->layers[i];
    const int64_t head_dim = m->width / m->n_heads, n = nrl_tensor_dim(h, 0);
    nrl_tensor *qkv, *q, *k, *v, *a;
    NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_COLUMN_IN, h, &h));
    NRL_TRY(nrl_op_linear(ctx, h, l->attend.weight, l->attend.bias, &qkv));
    const int64_t n_heads = nrl_tensor_dim(qkv, -1) / (3 * head_dim); /* on this rank */
    NRL_TRY(nrl_op_reshape(ctx, qkv, 2, (const int64_t[]){n * n_heads, 3 * head_dim}, &qkv));
    NRL_TRY(neox_part(ctx, qkv, n, 0, head_dim, &q));
    NRL_TRY(neox_part(ctx, qkv, n, 1, head_dim, &k));
    NRL_TRY(neox_part(ctx, qkv, n, 2, head_dim, &v));
    NRL_TRY(nrl_op_rope(ctx, q, n_heads, &m->rope, &q));
    NRL_TRY(nrl_op_rope(ctx, k, n_heads, &m->rope, &k));
    const nrl_attention_spec spec = {.n_heads = n_heads,
                                     .n_kv_heads = n_heads,
                                     .head_dim = head_dim,
                                     .layer = i,
                                     .scale = 1 / sqrt((double)head_dim)};
    NRL_TRY(nrl_op_attention(ctx, q, k, v, &spec, &a));
    return nrl_op_row_parallel_linear(ctx, a, l->project.weight, l->project.bias, y);
}

static nrl_status neox_mlp(const neox *m, nrl_ctx *ctx, const neox_layer *l, nrl_tensor *h, nrl_tensor **y)
{
    NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_COLUMN_IN, h, &h));
    NRL_TRY(nrl_op_linear(ctx, h, l->widen.weight, l->widen.bias, &h));
    NRL_TRY(nrl_op_unary(ctx, (nrl_unary)m->activation, h, 0, 0, &h));
    return nrl_op_row_parallel_linear(ctx, h, l->narrow.weight, l->narrow.bias, y);
}

/* x + attention(norm1 x) + mlp(norm2 x); without use_parallel_residual the MLP reads the sum. */
static nrl_status neox_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    const neox *m = self;
    nrl_tensor *x = carry->tensors[0], *h, *a, *y;
    carry->n = 1;
    if (unit == 0) return nrl_op_embedding(ctx, m->embed, &carry->tensors[0]);
    if (unit == m->n_layers + 1)
        return nrl_op_layer_norm(ctx, x, m->norm.weight, m->norm.bias, m->eps, &carry->tensors[0]);
    const neox_layer *l = &m->layers[unit - 1];
    NRL_TRY(nrl_op_layer_norm(ctx, x, l->norm1.weight, l->norm1.bias, m->eps, &h));
    NRL_TRY(neox_attention(m, ctx, unit - 1, h, &a));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, x, a, &a));
    NRL_TRY(nrl_op_layer_norm(ctx, m->parallel ? x : a, l->norm2.weight, l->norm2.bias, m->eps, &h));
    NRL_TRY(neox_mlp(m, ctx, l, h, &y));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, a, y, &carry->tensors[0]);
}

static const char *const neox_types[] = {"gpt_neox", NULL};

static const nrl_model neox_table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_MODEL, nrl_model, "gpt_neox", "0.1", "GPT-NeoX and Pythia"),
    .model_types = neox_types,
    .create = neox_create,
    .destroy = neox_destroy,
    .layout = neox_layout,
    .forward = neox_forward,
    .example_config =
        "{\"model_type\": \"gpt_neox\", \"vocab_size\": 40, \"hidden_size\": 16, \"intermediate_size\": 24,"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"max_position_embeddings\": 64,"
        " \"rotary_pct\": 0.25, \"hidden_act\": \"gelu\"}",
};
NRL_EXPORT(neox_table)
