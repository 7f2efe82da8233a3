/*
 * layout.c - the parameters of a Llama-like model: units embed, layers.0 .. layers.L-1, norm, with the
 * parameter names of Hugging Face files. The carry is the residual stream [N, D].
 */
#include "llama.h"
#include <stdio.h>

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

/* Norms start as the identity, whatever offset is added to their weights. */
static nrl_status declare_norm(const place *at, const char *name, int64_t width, nrl_tp tp, nrl_param **out)
{
    char full[64];
    nrl_init init = at->c->norm_offset == 0 ? NRL_INIT_ONES : NRL_INIT_ZEROS;
    if (!name) return NRL_OK; /* the family does not have this norm */
    snprintf(full, sizeof full, "%s.weight", name);
    return declare(at, full, (nrl_param_spec){.n_dims = 1, .dims = {width}, .init = init, .tp = tp}, out);
}

static nrl_param_spec matrix_spec(const place *at, int64_t out_features, int64_t in_features, nrl_tp tp)
{
    return (nrl_param_spec){.n_dims = 2,
                            .dims = {out_features, in_features},
                            .decay = true,
                            .tp = tp,
                            .groups = 1,
                            .init = NRL_INIT_NORMAL,
                            .init_scale = at->c->init_scale};
}

static nrl_status declare_matrix(const place *at, const char *name, int64_t out_features, int64_t in_features,
                                 nrl_tp tp, int32_t groups, nrl_param **out)
{
    nrl_param_spec spec = matrix_spec(at, out_features, in_features, tp);
    spec.groups = groups;
    return declare(at, name, spec, out);
}

/* `groups`: groups of rows, one after the other in a fused matrix. */
static nrl_status declare_fused(const place *at, const char *name, int64_t out_features, int64_t in_features, nrl_tp tp,
                                int32_t groups, bool bias, llama_affine *out)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    NRL_TRY(declare_matrix(at, full, out_features, in_features, tp, groups, &out->weight));
    if (!bias) return NRL_OK;
    snprintf(full, sizeof full, "%s.bias", name);
    nrl_param_spec spec = {.n_dims = 1,
                           .dims = {out_features},
                           .init = NRL_INIT_ZEROS,
                           .groups = groups,
                           .tp = tp == NRL_TP_ROW ? NRL_TP_WHOLE : tp};
    return declare(at, full, spec, &out->bias);
}

static nrl_status declare_affine(const place *at, const char *name, int64_t out_features, int64_t in_features,
                                 nrl_tp tp, bool bias, llama_affine *out)
{
    return declare_fused(at, name, out_features, in_features, tp, 1, bias, out);
}

static nrl_status layout_attention(const place *at, llama_layer *l)
{
    const llama_config *c = at->c;
    int64_t q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, d = c->width;
    bool whole = llama_attention_is_whole(c), each = c->head_norm == LLAMA_HEADS_EACH;
    nrl_tp column = whole ? NRL_TP_WHOLE : NRL_TP_COLUMN, row = whole ? NRL_TP_WHOLE : NRL_TP_ROW;
    nrl_tp norm = whole ? NRL_TP_WHOLE : NRL_TP_PARTIAL, key_value = whole ? NRL_TP_WHOLE : NRL_TP_KEY_VALUE;
    if (c->fused_qkv) {
        NRL_TRY(declare_fused(at, "self_attn.qkv_proj", q + 2 * kv, d, column, whole ? 1 : 3, c->qkv_bias, &l->q));
    } else {
        NRL_TRY(declare_affine(at, "self_attn.q_proj", q, d, column, c->qkv_bias, &l->q));
        NRL_TRY(declare_affine(at, "self_attn.k_proj", kv, d, key_value, c->qkv_bias, &l->k));
        NRL_TRY(declare_affine(at, "self_attn.v_proj", kv, d, key_value, c->qkv_bias, &l->v));
    }
    if (c->head_norm != LLAMA_HEADS_PLAIN) {
        NRL_TRY(declare_norm(at, c->norms->q, each ? c->head_dim : q, norm, &l->q_norm));
        NRL_TRY(declare_norm(at, c->norms->k, each ? c->head_dim : kv, norm, &l->k_norm));
    }
    if (c->sinks) {
        nrl_param_spec sinks = {.n_dims = 1, .dims = {c->n_heads}, .init = NRL_INIT_ZEROS, .tp = column};
        NRL_TRY(declare(at, "self_attn.sinks", sinks, &l->sinks));
    }
    return declare_affine(at, "self_attn.o_proj", d, q, row, c->out_bias, &l->o);
}

static nrl_status layout_mlp(const place *at, llama_layer *l)
{
    const llama_config *c = at->c;
    nrl_tp column = NRL_TP_COLUMN, row = NRL_TP_ROW;
    int64_t d = c->width, inner = c->inner;
    if (c->fused_mlp) {
        NRL_TRY(declare_fused(at, "mlp.gate_up_proj", 2 * inner, d, column, 2, c->mlp_bias, &l->gate));
    } else {
        if (!c->relu2) NRL_TRY(declare_affine(at, "mlp.gate_proj", inner, d, column, c->mlp_bias, &l->gate));
        NRL_TRY(declare_affine(at, "mlp.up_proj", inner, d, column, c->mlp_bias, &l->up));
    }
    return declare_affine(at, "mlp.down_proj", d, inner, row, c->mlp_bias, &l->down);
}

/* Experts that files store together, [E, in, out] each kind: a parameter is called as formats call an element of such a
 * tensor, "experts.3.down_proj". Ranks that divide the inner width keep gate and up of a column together. */
static nrl_status layout_stacked_experts(const place *at, llama_layer *l)
{
    const llama_experts *e = &at->c->experts;
    int64_t d = at->c->width, inner = e->inner;
    char full[64];
    for (int64_t i = 0; i < 2 * e->n; i++) {
        bool down = i >= e->n;
        llama_expert *expert = &l->experts[i % e->n];
        nrl_param_spec spec =
            matrix_spec(at, down ? d : 2 * inner, down ? inner : d, down ? NRL_TP_ROW : NRL_TP_COLUMN);
        spec.transposed = true;
        spec.expert = (int32_t)(i % e->n) + 1;
        snprintf(full, sizeof full, "%s.experts.%lld.%s", e->names->module, (long long)(i % e->n),
                 down ? e->names->down : e->names->gate);
        NRL_TRY(declare(at, full, spec, down ? &expert->down : &expert->gate));
    }
    nrl_param_spec bias = {.n_dims = 2, .dims = {e->n, 2 * inner}, .tp = NRL_TP_ROW, .init = NRL_INIT_ZEROS};
    snprintf(full, sizeof full, "%s.experts.%s_bias", e->names->module, e->names->gate);
    NRL_TRY(declare(at, full, bias, &l->gate_up_biases));
    bias =
        (nrl_param_spec){.n_dims = 2, .dims = {d, e->n}, .transposed = true, .tp = NRL_TP_NONE, .init = NRL_INIT_ZEROS};
    snprintf(full, sizeof full, "%s.experts.%s_bias", e->names->module, e->names->down);
    return declare(at, full, bias, &l->down_biases);
}

static nrl_status declare_expert(const place *at, int64_t number, const char *name, int64_t out_features,
                                 int64_t in_features, nrl_tp tp, nrl_param **out)
{
    char full[64];
    snprintf(full, sizeof full, "%s.experts.%lld.%s.weight", at->c->experts.names->module, (long long)number, name);
    nrl_param_spec spec = matrix_spec(at, out_features, in_features, tp);
    spec.expert = (int32_t)number + 1;
    return declare(at, full, spec, out);
}

/* It is not quantized: transformers keeps routers outside of linear modules. peft adapts those that were linear modules
 * before transformers 5, which the router of gpt-oss never was. */
static nrl_status declare_router(const place *at, llama_affine *out)
{
    const llama_experts *e = &at->c->experts;
    nrl_param_spec weight = matrix_spec(at, e->n, at->c->width, NRL_TP_NONE);
    nrl_param_spec bias = {.n_dims = 1, .dims = {e->n}, .init = NRL_INIT_ZEROS};
    char full[64];
    weight.unadapted = e->biased;
    weight.unquantized = true;
    snprintf(full, sizeof full, "%s.%s.weight", e->names->module, e->names->router);
    NRL_TRY(declare(at, full, weight, &out->weight));
    snprintf(full, sizeof full, "%s.%s.bias", e->names->module, e->names->router);
    return e->biased ? declare(at, full, bias, &out->bias) : NRL_OK;
}

static nrl_status layout_experts(const place *at, llama_layer *l)
{
    const llama_experts *e = &at->c->experts;
    int64_t d = at->c->width;
    NRL_TRY(declare_router(at, &l->router));
    if (e->biased) return layout_stacked_experts(at, l);
    for (int64_t i = 0; i < e->n; i++) {
        NRL_TRY(declare_expert(at, i, e->names->gate, e->inner, d, NRL_TP_COLUMN, &l->experts[i].gate));
        NRL_TRY(declare_expert(at, i, e->names->up, e->inner, d, NRL_TP_COLUMN, &l->experts[i].up));
        NRL_TRY(declare_expert(at, i, e->names->down, d, e->inner, NRL_TP_ROW, &l->experts[i].down));
    }
    return NRL_OK;
}

static nrl_status layout_layer(const place *at, llama_layer *l)
{
    const llama_norms *norms = at->c->norms;
    const int64_t d = at->c->width;
    NRL_TRY(declare_norm(at, norms->attention_in, d, NRL_TP_NONE, &l->attention_in));
    NRL_TRY(layout_attention(at, l));
    NRL_TRY(declare_norm(at, norms->attention_out, d, NRL_TP_NONE, &l->attention_out));
    NRL_TRY(declare_norm(at, norms->mlp_in, d, NRL_TP_NONE, &l->mlp_in));
    NRL_TRY((l->experts ? layout_experts : layout_mlp)(at, l));
    return declare_norm(at, norms->mlp_out, d, NRL_TP_NONE, &l->mlp_out);
}

/* The core runs the head; the head's weight belongs to the last unit. */
static nrl_status layout_head(llama *self, const place *at)
{
    const llama_config *c = at->c;
    NRL_TRY(declare_norm(at, "model.norm", c->width, NRL_TP_NONE, &self->norm));
    self->head = self->embed;
    if (c->tied)
        NRL_TRY(nrl_build_use(at->builder, at->unit, self->embed));
    else
        NRL_TRY(declare_matrix(at, "lm_head.weight", c->vocab, c->width, NRL_TP_VOCAB, 1, &self->head));
    nrl_head_spec head = {.size = sizeof head, .weight = self->head, .scale = c->logit_scale, .soft_cap = c->soft_cap};
    return nrl_build_head(at->builder, &head);
}

static nrl_status layout_info(const llama_config *c, nrl_builder *builder)
{
    nrl_model_info info = {.size = sizeof info,
                           .vocab_size = c->vocab,
                           .width = c->width,
                           .n_layers = c->n_layers,
                           .n_heads = c->n_heads,
                           .n_kv_heads = c->n_kv_heads,
                           .head_dim = c->head_dim,
                           .max_positions = c->max_positions,
                           .token_shards = true};
    NRL_TRY(nrl_build_info(builder, &info));
    const int64_t widths[] = {c->width, 2 * c->experts.n};
    NRL_TRY(nrl_build_carry(builder, c->experts.balance != 0 ? 2 : 1, widths));
    NRL_TRY(nrl_build_optional_prefix(builder, "model."));
    if (c->experts.biased) NRL_TRY(nrl_build_ignore(builder, "_scales")); /* of MXFP4: read with their blocks */
    return nrl_build_ignore(builder, "rotary_emb.inv_freq");
}

nrl_status llama_layout(void *instance, nrl_builder *builder)
{
    llama *self = instance;
    const llama_config *c = &self->config;
    place at = {builder, c, 0, -1};
    const nrl_loss_term_spec balance = {.size = sizeof balance,
                                        .n_values = 1,
                                        .name = "router_loss",
                                        .coefficient = c->experts.balance,
                                        .sums_tokens = true};
    nrl_loss_term_spec z = {
        .size = sizeof z, .name = "router_z_loss", .coefficient = c->experts.z, .sums_tokens = true};
    NRL_TRY(layout_info(c, builder));
    if (c->experts.balance != 0) NRL_TRY(nrl_build_loss_term(builder, &balance, &self->balance));
    for (int64_t i = 0; i < c->n_layers && c->experts.z != 0; i++)
        if (!c->experts.dense[i]) z.n_values++;
    if (z.n_values) NRL_TRY(nrl_build_loss_term(builder, &z, &self->z));
    NRL_TRY(nrl_build_unit(builder, "embed", &at.unit));
    NRL_TRY(declare_matrix(&at, "model.embed_tokens.weight", c->vocab, c->width, NRL_TP_VOCAB, 1, &self->embed));
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
