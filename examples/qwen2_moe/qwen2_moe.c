/*
 * qwen2_moe.c - Qwen1.5-MoE and Qwen2-MoE (Qwen team 2024): Qwen2's attention, and in place of its MLP a mixture of
 * experts beside an expert that all tokens share. The balance loss of the router is that of transformers, over the
 * tokens of all layers, with the coefficient router_aux_loss_coef.
 *
 * Units: embed, layers.0 .. layers.L-1, norm. The carry is the residual stream [N,D] and the router's choices, summed
 * over the layers so far [N,2E].
 */
#include "qwen2_moe.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    moe_config config;
    nrl_param *embed, *norm, *head;
    nrl_loss_term *balance;
    moe_layer *layers;
    moe_mlp *experts; /* [L,E], those of the layers */
} qwen2_moe;

/* ---- layout ---- */

typedef struct {
    nrl_builder *builder;
    const moe_config *config;
    int32_t unit;
    char prefix[64];
} place;

/* A matrix [rows, cols], or a vector [rows] if cols is 0: a norm, or a bias. */
static nrl_status declare(const place *at, const char *name, int64_t rows, int64_t cols, bool is_bias, nrl_param **out)
{
    char full[128];
    snprintf(full, sizeof full, "%s%s", at->prefix, name);
    nrl_param_spec spec = {.size = sizeof spec,
                           .name = full,
                           .n_dims = cols ? 2 : 1,
                           .dims = {rows, cols},
                           .decay = cols > 0,
                           .init = cols      ? NRL_INIT_NORMAL
                                   : is_bias ? NRL_INIT_ZEROS
                                             : NRL_INIT_ONES,
                           .init_scale = at->config->init_scale};
    return nrl_build_param(at->builder, at->unit, &spec, out);
}

static nrl_status declare_mlp(const place *at, const char *name, int64_t inner, moe_mlp *m)
{
    const int64_t d = at->config->width;
    char full[64];
    snprintf(full, sizeof full, "mlp.%s.gate_proj.weight", name);
    NRL_TRY(declare(at, full, inner, d, false, &m->gate));
    snprintf(full, sizeof full, "mlp.%s.up_proj.weight", name);
    NRL_TRY(declare(at, full, inner, d, false, &m->up));
    snprintf(full, sizeof full, "mlp.%s.down_proj.weight", name);
    return declare(at, full, d, inner, false, &m->down);
}

static nrl_status layout_layer(const place *at, moe_layer *l)
{
    const moe_config *c = at->config;
    const int64_t d = c->width, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    NRL_TRY(declare(at, "input_layernorm.weight", d, 0, false, &l->norm1));
    NRL_TRY(declare(at, "self_attn.q_proj.weight", q, d, false, &l->q));
    NRL_TRY(declare(at, "self_attn.q_proj.bias", q, 0, true, &l->q_b));
    NRL_TRY(declare(at, "self_attn.k_proj.weight", kv, d, false, &l->k));
    NRL_TRY(declare(at, "self_attn.k_proj.bias", kv, 0, true, &l->k_b));
    NRL_TRY(declare(at, "self_attn.v_proj.weight", kv, d, false, &l->v));
    NRL_TRY(declare(at, "self_attn.v_proj.bias", kv, 0, true, &l->v_b));
    NRL_TRY(declare(at, "self_attn.o_proj.weight", d, q, false, &l->o));
    NRL_TRY(declare(at, "post_attention_layernorm.weight", d, 0, false, &l->norm2));
    NRL_TRY(declare(at, "mlp.gate.weight", c->n_experts, d, false, &l->router));
    NRL_TRY(declare(at, "mlp.shared_expert_gate.weight", 1, d, false, &l->shared_gate));
    NRL_TRY(declare_mlp(at, "shared_expert", c->shared_inner, &l->shared));
    for (int64_t e = 0; e < c->n_experts; e++) {
        char name[32];
        snprintf(name, sizeof name, "experts.%lld", (long long)e);
        NRL_TRY(declare_mlp(at, name, c->inner, &l->experts[e]));
    }
    return NRL_OK;
}

static nrl_status qwen2_moe_layout(void *instance, nrl_builder *b)
{
    qwen2_moe *self = instance;
    const moe_config *c = &self->config;
    const nrl_model_info info = {.size = sizeof info,
                                 .vocab_size = c->vocab,
                                 .width = c->width,
                                 .n_layers = c->n_layers,
                                 .n_heads = c->n_heads,
                                 .n_kv_heads = c->n_kv_heads,
                                 .head_dim = c->head_dim,
                                 .max_positions = c->max_positions};
    const nrl_loss_term_spec balance = {
        .size = sizeof balance, .n_values = 1, .name = "router_loss", .coefficient = c->router_coefficient};
    const int64_t widths[] = {c->width, 2 * c->n_experts};
    place at = {.builder = b, .config = c};
    NRL_TRY(nrl_build_info(b, &info));
    NRL_TRY(nrl_build_carry(b, 2, widths));
    NRL_TRY(nrl_build_loss_term(b, &balance, &self->balance));
    NRL_TRY(nrl_build_unit(b, "embed", &at.unit));
    NRL_TRY(declare(&at, "model.embed_tokens.weight", c->vocab, c->width, false, &self->embed));
    for (int64_t i = 0; i < c->n_layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%lld", (long long)i);
        snprintf(at.prefix, sizeof at.prefix, "model.layers.%lld.", (long long)i);
        NRL_TRY(nrl_build_unit(b, name, &at.unit));
        NRL_TRY(layout_layer(&at, &self->layers[i]));
    }
    at.prefix[0] = 0;
    NRL_TRY(nrl_build_unit(b, "norm", &at.unit));
    NRL_TRY(declare(&at, "model.norm.weight", c->width, 0, false, &self->norm));
    self->head = self->embed;
    if (c->ties)
        NRL_TRY(nrl_build_use(b, at.unit, self->embed));
    else
        NRL_TRY(declare(&at, "lm_head.weight", c->vocab, c->width, false, &self->head));
    const nrl_head_spec head = {.size = sizeof head, .weight = self->head, .scale = 1};
    return nrl_build_head(b, &head);
}

/* ---- forward ---- */

static nrl_status attention(const qwen2_moe *self, nrl_ctx *ctx, int64_t i, nrl_tensor *h, nrl_tensor **y)
{
    const moe_config *c = &self->config;
    const moe_layer *l = &self->layers[i];
    const nrl_attention_spec spec = {.n_heads = c->n_heads,
                                     .n_kv_heads = c->n_kv_heads,
                                     .head_dim = c->head_dim,
                                     .layer = i,
                                     .scale = 1 / sqrt((double)c->head_dim)};
    nrl_tensor *q, *k, *v;
    NRL_TRY(nrl_op_linear(ctx, h, l->q, l->q_b, &q));
    NRL_TRY(nrl_op_linear(ctx, h, l->k, l->k_b, &k));
    NRL_TRY(nrl_op_linear(ctx, h, l->v, l->v_b, &v));
    NRL_TRY(nrl_op_rope(ctx, q, c->n_heads, &c->rope, &q));
    NRL_TRY(nrl_op_rope(ctx, k, c->n_kv_heads, &c->rope, &k));
    NRL_TRY(nrl_op_attention(ctx, q, k, v, &spec, &h));
    return nrl_op_linear(ctx, h, l->o, NULL, y);
}

static nrl_status layer(const qwen2_moe *self, nrl_ctx *ctx, int64_t i, nrl_tensor **x, nrl_tensor **stats)
{
    const moe_layer *l = &self->layers[i];
    nrl_tensor *h;
    NRL_TRY(nrl_op_rms_norm(ctx, *x, l->norm1, self->config.eps, &h));
    NRL_TRY(attention(self, ctx, i, h, &h));
    NRL_TRY(nrl_op_add_rms_norm(ctx, *x, h, l->norm2, self->config.eps, x, &h));
    NRL_TRY(moe_block(ctx, &self->config, l, &h, stats));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *x, h, x);
}

/* E sum over e of the mean choices of expert e times its mean probability, means over the tokens of all layers (Fedus
 * et al. 2021). The choices have no gradient. stats [N,2E] */
static nrl_status balance_loss(const moe_config *c, nrl_ctx *ctx, nrl_tensor *stats, nrl_tensor **loss)
{
    const double rows = (double)nrl_tensor_dim(stats, 0) * (double)c->n_layers;
    nrl_tensor *chosen, *probs;
    NRL_TRY(nrl_op_cast(ctx, stats, NRL_DTYPE_F32, &stats));
    NRL_TRY(nrl_op_sum_rows(ctx, stats, &stats));
    NRL_TRY(nrl_op_slice_rows(ctx, stats, 0, c->n_experts, &chosen));
    NRL_TRY(nrl_op_slice_rows(ctx, stats, c->n_experts, 2 * c->n_experts, &probs));
    NRL_TRY(nrl_op_detach(ctx, chosen, &chosen));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, chosen, probs, &probs));
    NRL_TRY(nrl_op_sum(ctx, probs, &probs));
    return nrl_op_unary(ctx, NRL_UNARY_AFFINE, probs, (double)c->n_experts / (rows * rows), 0, loss);
}

static nrl_status qwen2_moe_forward(void *instance, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    const qwen2_moe *self = instance;
    const moe_config *c = &self->config;
    nrl_tensor **x = &carry->tensors[0], **stats = &carry->tensors[1], *loss;
    if (unit == 0) {
        NRL_TRY(nrl_op_embedding(ctx, self->embed, x));
        const int64_t dims[] = {nrl_tensor_dim(*x, 0), 2 * c->n_experts};
        carry->n = 2;
        NRL_TRY(nrl_tensor_new(ctx, nrl_tensor_dtype(*x), 2, dims, stats));
        return nrl_tensor_fill(ctx, *stats, 0);
    }
    if (unit <= c->n_layers) return layer(self, ctx, unit - 1, x, stats);
    NRL_TRY(nrl_op_rms_norm(ctx, *x, self->norm, c->eps, x));
    NRL_TRY(balance_loss(c, ctx, *stats, &loss));
    carry->n = 1;
    return nrl_op_loss_term(ctx, self->balance, loss, *x, x);
}

/* ---- table ---- */

static void qwen2_moe_destroy(void *instance)
{
    qwen2_moe *self = instance;
    free((void *)self->config.rope.inv_freq);
    free(self->experts);
    free(self->layers);
    free(self);
}

static nrl_status qwen2_moe_create(const nrl_node *config, void **out)
{
    qwen2_moe *self = calloc(1, sizeof *self);
    if (!self) return nrl_fail(NRL_ERR_MEMORY, "out of memory");
    moe_config *c = &self->config;
    nrl_status st = moe_config_read(config, c);
    if (st == NRL_OK) {
        self->layers = calloc((size_t)c->n_layers, sizeof *self->layers);
        self->experts = calloc((size_t)(c->n_layers * c->n_experts), sizeof *self->experts);
        if (!self->layers || !self->experts) st = nrl_fail(NRL_ERR_MEMORY, "out of memory");
    }
    for (int64_t i = 0; i < c->n_layers && st == NRL_OK; i++)
        self->layers[i].experts = self->experts + i * c->n_experts;
    if (st != NRL_OK) {
        qwen2_moe_destroy(self);
        return st;
    }
    *out = self;
    return NRL_OK;
}

static const char *const model_types[] = {"qwen2_moe", NULL};

static const nrl_model table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_MODEL, nrl_model, "qwen2_moe", "0.1", "Qwen2-MoE: a mixture of experts"),
    .model_types = model_types,
    .create = qwen2_moe_create,
    .destroy = qwen2_moe_destroy,
    .layout = qwen2_moe_layout,
    .forward = qwen2_moe_forward,
};

NRL_EXPORT(table)
