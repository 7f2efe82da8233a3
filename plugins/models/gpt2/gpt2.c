/*
 * gpt2.c - GPT-2 (Radford et al. 2019): learned positions, layer norms before attention and MLP,
 * one fused projection for queries, keys and values, a tied head. Driven by config.json.
 *
 * Dropout is not applied. The checkpoint keeps linear weights as [in, out] (Conv1D).
 * Units: embed, layers.0 .. layers.L-1, norm. The carry is the residual stream [N, D].
 * Legend: N tokens, D width, H heads, K = D / H head width, I inner width, V vocab, T positions.
 */
#include "config.h"
#include <math.h>
#include <nrl/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    nrl_param *weight, *bias;
} affine;

typedef struct {
    affine norm1, attend, project; /* [D], [3D, D], [D, D] */
    affine norm2, widen, narrow;   /* [D], [I, D], [D, I] */
} gpt2_layer;

typedef struct {
    gpt2_config config;
    nrl_param *tokens, *positions, *head; /* [V, D], [T, D], [V, D] */
    affine norm;
    gpt2_layer *layers;
} gpt2;

/* ---- layout ---- */

typedef struct {
    nrl_builder *builder;
    int32_t unit, layer; /* layer -1: outside the layers */
} place;

static nrl_status declare(const place *at, const char *name, nrl_param_spec spec, nrl_param **out)
{
    char full[96];
    if (at->layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "transformer.h.%d.%s", at->layer, name);
    spec.size = sizeof spec;
    spec.name = full;
    return nrl_build_param(at->builder, at->unit, &spec, out);
}

static nrl_status declare_table(const place *at, const char *name, int64_t rows, nrl_tp tp, const gpt2 *self,
                                nrl_param **out)
{
    nrl_param_spec spec = {.n_dims = 2,
                           .dims = {rows, self->config.width},
                           .decay = true,
                           .tp = tp,
                           .init = NRL_INIT_NORMAL,
                           .init_scale = self->config.init_scale};
    return declare(at, name, spec, out);
}

static nrl_status declare_norm(const place *at, const char *name, int64_t width, affine *out)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    nrl_param_spec spec = {.n_dims = 1, .dims = {width}, .init = NRL_INIT_ONES};
    NRL_TRY(declare(at, full, spec, &out->weight));
    snprintf(full, sizeof full, "%s.bias", name);
    spec.init = NRL_INIT_ZEROS;
    return declare(at, full, spec, &out->bias);
}

static nrl_status declare_conv(const place *at, const char *name, int64_t out_features, int64_t in_features, nrl_tp tp,
                               int32_t groups, double init_scale, affine *out)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    nrl_param_spec spec = {.n_dims = 2,
                           .dims = {out_features, in_features},
                           .decay = true,
                           .transposed = true,
                           .tp = tp,
                           .groups = groups,
                           .init = NRL_INIT_NORMAL,
                           .init_scale = init_scale};
    NRL_TRY(declare(at, full, spec, &out->weight));
    snprintf(full, sizeof full, "%s.bias", name);
    spec = (nrl_param_spec){.n_dims = 1,
                            .dims = {out_features},
                            .init = NRL_INIT_ZEROS,
                            .groups = groups,
                            .tp = tp == NRL_TP_COLUMN ? NRL_TP_COLUMN : NRL_TP_WHOLE};
    return declare(at, full, spec, &out->bias);
}

/* Projections back into the residual stream start smaller by sqrt(2L), as in the paper. The fused
 * projection is three groups of rows, each sharded by heads. */
static nrl_status layout_layer(const gpt2 *self, const place *at, gpt2_layer *l)
{
    double scale = self->config.init_scale, residual = scale / sqrt(2.0 * (double)self->config.n_layers);
    int64_t d = self->config.width, inner = self->config.inner;
    NRL_TRY(declare_norm(at, "ln_1", d, &l->norm1));
    NRL_TRY(declare_conv(at, "attn.c_attn", 3 * d, d, NRL_TP_COLUMN, 3, scale, &l->attend));
    NRL_TRY(declare_conv(at, "attn.c_proj", d, d, NRL_TP_ROW, 1, residual, &l->project));
    NRL_TRY(declare_norm(at, "ln_2", d, &l->norm2));
    NRL_TRY(declare_conv(at, "mlp.c_fc", inner, d, NRL_TP_COLUMN, 1, scale, &l->widen));
    return declare_conv(at, "mlp.c_proj", d, inner, NRL_TP_ROW, 1, residual, &l->narrow);
}

static nrl_status layout_info(const gpt2 *self, nrl_builder *builder)
{
    nrl_model_info info = {.size = sizeof info,
                           .vocab_size = self->config.vocab,
                           .width = self->config.width,
                           .n_layers = self->config.n_layers,
                           .n_heads = self->config.n_heads,
                           .n_kv_heads = self->config.n_heads,
                           .head_dim = self->config.width / self->config.n_heads,
                           .max_positions = self->config.n_positions,
                           .token_shards = true};
    NRL_TRY(nrl_build_info(builder, &info));
    NRL_TRY(nrl_build_carry(builder, 1, &self->config.width));
    NRL_TRY(nrl_build_optional_prefix(builder, "transformer."));
    NRL_TRY(nrl_build_ignore(builder, ".attn.bias"));
    return nrl_build_ignore(builder, ".attn.masked_bias");
}

static nrl_status layout_head(gpt2 *self, const place *at)
{
    self->head = self->tokens;
    NRL_TRY(declare_norm(at, "transformer.ln_f", self->config.width, &self->norm));
    if (self->config.tied)
        NRL_TRY(nrl_build_use(at->builder, at->unit, self->tokens));
    else
        NRL_TRY(declare_table(at, "lm_head.weight", self->config.vocab, NRL_TP_VOCAB, self, &self->head));
    nrl_head_spec head = {.size = sizeof head, .weight = self->head, .scale = 1};
    return nrl_build_head(at->builder, &head);
}

static nrl_status gpt2_layout(void *instance, nrl_builder *builder)
{
    gpt2 *self = instance;
    place at = {builder, 0, -1};
    NRL_TRY(layout_info(self, builder));
    NRL_TRY(nrl_build_unit(builder, "embed", &at.unit));
    NRL_TRY(declare_table(&at, "transformer.wte.weight", self->config.vocab, NRL_TP_VOCAB, self, &self->tokens));
    NRL_TRY(
        declare_table(&at, "transformer.wpe.weight", self->config.n_positions, NRL_TP_WHOLE, self, &self->positions));
    for (at.layer = 0; at.layer < self->config.n_layers; at.layer++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d", at.layer);
        NRL_TRY(nrl_build_unit(builder, name, &at.unit));
        NRL_TRY(layout_layer(self, &at, &self->layers[at.layer]));
    }
    at.layer = -1;
    NRL_TRY(nrl_build_unit(builder, "norm", &at.unit));
    return layout_head(self, &at);
}

/* ---- forward ---- */

static nrl_status conv(nrl_ctx *ctx, const affine *a, nrl_tensor *x, nrl_tensor **y)
{
    return nrl_op_linear(ctx, x, a->weight, a->bias, y);
}

static double attention_scale(const gpt2 *self, int64_t i)
{
    int64_t head_dim = self->config.width / self->config.n_heads;
    double scale = self->config.scale_by_width ? 1 / sqrt((double)head_dim) : 1;
    return self->config.scale_by_layer ? scale / (double)(i + 1) : scale;
}

/* h [N,D] -> y [N,D]; q, k and v are views of one [N,3D]. */
static nrl_status attention(const gpt2 *self, nrl_ctx *ctx, int64_t i, nrl_tensor *h, nrl_tensor **y)
{
    const gpt2_layer *l = &self->layers[i];
    nrl_tensor *qkv, *q, *k, *v, *a;
    NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_COLUMN_IN, h, &h));
    NRL_TRY(conv(ctx, &l->attend, h, &qkv));
    int64_t d = nrl_tensor_dim(qkv, -1) / 3, head_dim = self->config.width / self->config.n_heads;
    NRL_TRY(nrl_op_slice_columns(ctx, qkv, 0, d, &q));
    NRL_TRY(nrl_op_slice_columns(ctx, qkv, d, 2 * d, &k));
    NRL_TRY(nrl_op_slice_columns(ctx, qkv, 2 * d, 3 * d, &v));
    nrl_attention_spec spec = {.n_heads = d / head_dim,
                               .n_kv_heads = d / head_dim,
                               .head_dim = head_dim,
                               .layer = i,
                               .scale = attention_scale(self, i)};
    NRL_TRY(nrl_op_attention(ctx, q, k, v, &spec, &a));
    return nrl_op_row_parallel_linear(ctx, a, l->project.weight, l->project.bias, y);
}

/* x += attention(norm(x)); x += mlp(norm(x)) */
static nrl_status layer(const gpt2 *self, nrl_ctx *ctx, int64_t i, nrl_tensor **x)
{
    const gpt2_layer *l = &self->layers[i];
    double eps = self->config.norm_eps;
    nrl_tensor *h, *a, *m;
    NRL_TRY(nrl_op_layer_norm(ctx, *x, l->norm1.weight, l->norm1.bias, eps, &h));
    NRL_TRY(attention(self, ctx, i, h, &a));
    NRL_TRY(nrl_op_add_layer_norm(ctx, *x, a, l->norm2.weight, l->norm2.bias, eps, x, &h));
    NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_COLUMN_IN, h, &h));
    NRL_TRY(conv(ctx, &l->widen, h, &m));
    NRL_TRY(nrl_op_unary(ctx, self->config.activation, m, 0, 0, &m));
    NRL_TRY(nrl_op_row_parallel_linear(ctx, m, l->narrow.weight, l->narrow.bias, &m));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *x, m, x);
}

static nrl_status embed(const gpt2 *self, nrl_ctx *ctx, nrl_tensor **x)
{
    nrl_tensor *tokens, *positions;
    NRL_TRY(nrl_op_embedding(ctx, self->tokens, &tokens));
    NRL_TRY(nrl_op_position_embedding(ctx, self->positions, &positions));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, tokens, positions, x);
}

static nrl_status gpt2_forward(void *instance, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    const gpt2 *self = instance;
    nrl_tensor **x = &carry->tensors[0]; /* [N,D] */
    carry->n = 1;
    if (unit == 0) return embed(self, ctx, x);
    if (unit <= self->config.n_layers) return layer(self, ctx, unit - 1, x);
    return nrl_op_layer_norm(ctx, *x, self->norm.weight, self->norm.bias, self->config.norm_eps, x);
}

/* ---- table ---- */

static void gpt2_destroy(void *instance)
{
    gpt2 *self = instance;
    free(self->layers);
    free(self);
}

static nrl_status gpt2_create(const nrl_node *config, void **out)
{
    gpt2 *self = calloc(1, sizeof *self);
    if (!self) return nrl_fail(NRL_ERR_MEMORY, "out of memory");
    nrl_status st = gpt2_config_read(config, &self->config);
    if (st == NRL_OK) self->layers = calloc((size_t)self->config.n_layers, sizeof *self->layers);
    if (st == NRL_OK && !self->layers) st = nrl_fail(NRL_ERR_MEMORY, "out of memory");
    if (st != NRL_OK) {
        gpt2_destroy(self);
        return st;
    }
    *out = self;
    return NRL_OK;
}

static const char *const model_types[] = {"gpt2", NULL};

static const nrl_model table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_MODEL, nrl_model, "gpt2", "0.1", "GPT-2"),
    .model_types = model_types,
    .create = gpt2_create,
    .destroy = gpt2_destroy,
    .layout = gpt2_layout,
    .forward = gpt2_forward,
};

NRL_EXPORT(table)
