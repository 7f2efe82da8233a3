/*
 * llama.c - Llama 2 and 3, Mistral, Qwen2 and 2.5, Qwen3, SmolLM2: one forward driven by
 * config.json. Touvron et al. 2023 (arXiv 2302.13971): RMS norms before attention and MLP, rotary
 * positions, grouped queries, SwiGLU, no biases unless the config or the family has them.
 *
 * Units: embed, layers.0 .. layers.L-1, norm. The carry is the residual stream [N, D].
 * Legend: N tokens, D width, H query heads, G key/value heads, K head width, I inner width,
 * V vocabulary.
 */
#include "config.h"
#include <math.h>
#include <nrl/model.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    nrl_param *weight, *bias; /* bias NULL = none */
} affine;

typedef struct {
    nrl_param *input_norm, *post_norm; /* [D] */
    affine q, k, v, o;                 /* [H*K, D], [G*K, D] twice, [D, H*K] */
    nrl_param *q_norm, *k_norm;        /* [K], NULL = none */
    affine gate, up, down;             /* [I, D] twice, [D, I] */
} llama_layer;

typedef struct {
    llama_config config;
    nrl_param *embed, *norm, *head; /* [V, D], [D], [V, D] */
    llama_layer *layers;
} llama;

/* ---- layout ---- */

typedef struct {
    nrl_builder *builder;
    const llama_config *c;
    int32_t unit;
    int32_t layer; /* -1 outside the layers */
} place;

static nrl_status declare(const place *at, const char *name, nrl_param_spec spec, nrl_param **out)
{
    char full[96];
    if (at->layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "model.layers.%d.%s", at->layer, name);
    spec.size = sizeof spec;
    spec.name = full;
    return nrl_build_param(at->builder, at->unit, &spec, out);
}

static nrl_status declare_norm(const place *at, const char *name, int64_t width, nrl_param **out)
{
    return declare(at, name, (nrl_param_spec){.n_dims = 1, .dims = {width}, .init = NRL_INIT_ONES},
                   out);
}

static nrl_status declare_matrix(const place *at, const char *name, int64_t out_features,
                                 int64_t in_features, nrl_tp tp, nrl_param **out)
{
    nrl_param_spec spec = {.n_dims = 2,
                           .dims = {out_features, in_features},
                           .decay = true,
                           .tp = tp,
                           .init = NRL_INIT_NORMAL,
                           .init_scale = at->c->init_scale};
    return declare(at, name, spec, out);
}

static nrl_status declare_affine(const place *at, const char *name, int64_t out_features,
                                 int64_t in_features, nrl_tp tp, bool bias, affine *out)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    NRL_TRY(declare_matrix(at, full, out_features, in_features, tp, &out->weight));
    if (!bias) return NRL_OK;
    snprintf(full, sizeof full, "%s.bias", name);
    nrl_param_spec spec = {.n_dims = 1,
                           .dims = {out_features},
                           .init = NRL_INIT_ZEROS,
                           .tp = tp == NRL_TP_COLUMN ? NRL_TP_COLUMN : NRL_TP_NONE};
    return declare(at, full, spec, &out->bias);
}

static nrl_status layout_layer(const place *at, llama_layer *l)
{
    const llama_config *c = at->c;
    int64_t q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    nrl_tp column = NRL_TP_COLUMN, row = NRL_TP_ROW;
    NRL_TRY(declare_norm(at, "input_layernorm.weight", c->width, &l->input_norm));
    NRL_TRY(declare_affine(at, "self_attn.q_proj", q, c->width, column, c->qkv_bias, &l->q));
    NRL_TRY(declare_affine(at, "self_attn.k_proj", kv, c->width, column, c->qkv_bias, &l->k));
    NRL_TRY(declare_affine(at, "self_attn.v_proj", kv, c->width, column, c->qkv_bias, &l->v));
    if (c->head_norm) {
        NRL_TRY(declare_norm(at, "self_attn.q_norm.weight", c->head_dim, &l->q_norm));
        NRL_TRY(declare_norm(at, "self_attn.k_norm.weight", c->head_dim, &l->k_norm));
    }
    NRL_TRY(declare_affine(at, "self_attn.o_proj", c->width, q, row, c->out_bias, &l->o));
    NRL_TRY(declare_norm(at, "post_attention_layernorm.weight", c->width, &l->post_norm));
    NRL_TRY(declare_affine(at, "mlp.gate_proj", c->inner, c->width, column, c->mlp_bias, &l->gate));
    NRL_TRY(declare_affine(at, "mlp.up_proj", c->inner, c->width, column, c->mlp_bias, &l->up));
    return declare_affine(at, "mlp.down_proj", c->width, c->inner, row, c->mlp_bias, &l->down);
}

/* The head belongs to the core, its weight to the last unit. */
static nrl_status layout_head(llama *self, const place *at)
{
    const llama_config *c = at->c;
    NRL_TRY(declare_norm(at, "model.norm.weight", c->width, &self->norm));
    self->head = self->embed;
    if (c->tied)
        NRL_TRY(nrl_build_use(at->builder, at->unit, self->embed));
    else
        NRL_TRY(
            declare_matrix(at, "lm_head.weight", c->vocab, c->width, NRL_TP_VOCAB, &self->head));
    nrl_head_spec head = {.size = sizeof head, .weight = self->head, .scale = 1};
    return nrl_build_head(at->builder, &head);
}

static nrl_status layout_facts(const llama_config *c, nrl_builder *builder)
{
    nrl_model_facts facts = {.size = sizeof facts,
                             .vocab_size = c->vocab,
                             .width = c->width,
                             .n_layers = c->n_layers,
                             .n_heads = c->n_heads,
                             .n_kv_heads = c->n_kv_heads,
                             .head_dim = c->head_dim,
                             .max_positions = c->max_positions};
    NRL_TRY(nrl_build_facts(builder, &facts));
    NRL_TRY(nrl_build_carry(builder, 1, &c->width));
    NRL_TRY(nrl_build_optional_prefix(builder, "model."));
    return nrl_build_ignore(builder, "rotary_emb.inv_freq");
}

static nrl_status llama_layout(void *instance, nrl_builder *builder)
{
    llama *self = instance;
    const llama_config *c = &self->config;
    place at = {builder, c, 0, -1};
    NRL_TRY(layout_facts(c, builder));
    NRL_TRY(nrl_build_unit(builder, "embed", &at.unit));
    NRL_TRY(declare_matrix(&at, "model.embed_tokens.weight", c->vocab, c->width, NRL_TP_VOCAB,
                           &self->embed));
    for (at.layer = 0; at.layer < c->n_layers; at.layer++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d", at.layer);
        NRL_TRY(nrl_build_unit(builder, name, &at.unit));
        NRL_TRY(layout_layer(&at, &self->layers[at.layer]));
    }
    at.layer = -1;
    NRL_TRY(nrl_build_unit(builder, "norm", &at.unit));
    return layout_head(self, &at);
}

/* ---- forward ---- */

static nrl_status apply_affine(nrl_ctx *ctx, const affine *a, nrl_tensor *x, nrl_tensor **y)
{
    return nrl_op_linear(ctx, x, a->weight, a->bias, y);
}

/* h [N,D] -> y [N,D]. Head counts come from the tensors: a strategy may have cut the weights. */
static nrl_status attention(const llama *self, nrl_ctx *ctx, int64_t i, nrl_tensor *h,
                            nrl_tensor **y)
{
    const llama_config *c = &self->config;
    const llama_layer *l = &self->layers[i];
    nrl_tensor *q, *k, *v, *a; /* [N,H*K], [N,G*K] twice, [N,H*K] */
    NRL_TRY(apply_affine(ctx, &l->q, h, &q));
    NRL_TRY(apply_affine(ctx, &l->k, h, &k));
    NRL_TRY(apply_affine(ctx, &l->v, h, &v));
    if (l->q_norm) NRL_TRY(nrl_op_rms_norm(ctx, q, l->q_norm, c->norm_eps, &q));
    if (l->k_norm) NRL_TRY(nrl_op_rms_norm(ctx, k, l->k_norm, c->norm_eps, &k));
    nrl_attention_spec spec = {.n_heads = nrl_tensor_dim(q, -1) / c->head_dim,
                               .n_kv_heads = nrl_tensor_dim(k, -1) / c->head_dim,
                               .head_dim = c->head_dim,
                               .window = c->window[i],
                               .layer = i,
                               .scale = 1 / sqrt((double)c->head_dim)};
    NRL_TRY(nrl_op_rope(ctx, q, spec.n_heads, &c->rope, &q));
    NRL_TRY(nrl_op_rope(ctx, k, spec.n_kv_heads, &c->rope, &k));
    NRL_TRY(nrl_op_attention(ctx, q, k, v, &spec, &a));
    return apply_affine(ctx, &l->o, a, y);
}

/* h [N,D] -> y [N,D] through I. */
static nrl_status mlp(nrl_ctx *ctx, const llama_layer *l, nrl_tensor *h, nrl_tensor **y)
{
    nrl_tensor *gate, *up, *inner; /* [N,I] */
    NRL_TRY(apply_affine(ctx, &l->gate, h, &gate));
    NRL_TRY(apply_affine(ctx, &l->up, h, &up));
    NRL_TRY(nrl_op_swiglu(ctx, gate, up, &inner));
    return apply_affine(ctx, &l->down, inner, y);
}

/* x += attention(norm(x)); x += mlp(norm(x)) */
static nrl_status layer(const llama *self, nrl_ctx *ctx, int64_t i, nrl_tensor **x)
{
    const llama_layer *l = &self->layers[i];
    double eps = self->config.norm_eps;
    nrl_tensor *h, *a, *m;
    NRL_TRY(nrl_op_rms_norm(ctx, *x, l->input_norm, eps, &h));
    NRL_TRY(attention(self, ctx, i, h, &a));
    NRL_TRY(nrl_op_add_rms_norm(ctx, *x, a, l->post_norm, eps, x, &h));
    NRL_TRY(mlp(ctx, l, h, &m));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *x, m, x);
}

static nrl_status llama_forward(void *instance, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    const llama *self = instance;
    nrl_tensor **x = &carry->tensors[0]; /* [N,D] */
    carry->n = 1;
    if (unit == 0) return nrl_op_embedding(ctx, self->embed, x);
    if (unit <= self->config.n_layers) return layer(self, ctx, unit - 1, x);
    return nrl_op_rms_norm(ctx, *x, self->norm, self->config.norm_eps, x);
}

/* ---- table ---- */

static void llama_destroy(void *instance)
{
    llama *self = instance;
    llama_config_free(&self->config);
    free(self->layers);
    free(self);
}

static nrl_status llama_create(const nrl_node *config, void **out)
{
    llama *self = calloc(1, sizeof *self);
    if (!self) return nrl_fail(NRL_ERR_MEMORY, "out of memory");
    nrl_status st = llama_config_read(config, &self->config);
    if (st == NRL_OK) self->layers = calloc((size_t)self->config.n_layers, sizeof *self->layers);
    if (st == NRL_OK && !self->layers) st = nrl_fail(NRL_ERR_MEMORY, "out of memory");
    if (st != NRL_OK) {
        llama_destroy(self);
        return st;
    }
    *out = self;
    return NRL_OK;
}

static const nrl_model table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_MODEL, nrl_model, "llama", "0.1",
                     "Llama 2 and 3, Mistral, Qwen2, Qwen3, SmolLM2"),
    .model_types = llama_model_types,
    .create = llama_create,
    .destroy = llama_destroy,
    .layout = llama_layout,
    .forward = llama_forward,
};

NRL_EXPORT(table)
