/*
 * llama.c - Llama 2 and 3, Mistral, Qwen2 and 2.5, Qwen3, SmolLM2 and 3, Phi-3, Granite, OLMo 2 and 3, GLM-4,
 * ERNIE 4.5, EXAONE 4, Hunyuan, Arcee, Gemma 1 to 3, and with experts Mixtral, Qwen3-MoE, OLMoE and gpt-oss: one
 * forward driven by config.json. Touvron et al. 2023 (arXiv 2302.13971): RMS norms around attention and MLP, rotary
 * positions, grouped queries, a gated MLP. A family's differences are a row in families.c, and NULL, 0 or 1 here.
 */
#include "llama.h"
#include <nrl/custom_op.h>
#include <nrl/operations.h>
#include <stdlib.h>

static nrl_status apply_affine(nrl_ctx *ctx, const llama_affine *a, nrl_tensor *x, nrl_tensor **y)
{
    return nrl_op_linear(ctx, x, a->weight, a->bias, y);
}

/* *x normalised, or unchanged if the family does not have this norm. */
static nrl_status normalise(const llama *self, nrl_ctx *ctx, nrl_param *w, nrl_tensor **x)
{
    const llama_config *c = &self->config;
    return w ? nrl_op_rms_norm_offset(ctx, *x, w, c->norm_offset, c->norm_eps, x) : NRL_OK;
}

static nrl_status multiply(nrl_ctx *ctx, double factor, nrl_tensor **x)
{
    return factor == 1 ? NRL_OK : nrl_op_unary(ctx, NRL_UNARY_AFFINE, *x, factor, 0, x);
}

/* ---- attention ---- */

typedef struct {
    nrl_tensor *q, *k, *v; /* [N,H*K], [N,G*K] twice */
} heads;

/* h [N,D] to queries, keys and values; with a fused matrix these are views of one [N,(H+2G)*K]. copies: later
 * operations keep copies of queries and keys, unless a norm keeps what they were before: then values should not keep it
 * too. */
static nrl_status project(const llama *self, nrl_ctx *ctx, const llama_layer *l, bool copies, nrl_tensor *h, heads *out)
{
    const llama_config *c = &self->config;
    nrl_tensor *qkv;
    if (!c->fused_qkv) {
        const uint32_t apart = copies && (!l->q_norm || c->norm_after_rope) ? 1 << 2 : 0;
        return nrl_op_linears(ctx, h, 3, (nrl_param *[]){l->q.weight, l->k.weight, l->v.weight},
                              (nrl_param *[]){l->q.bias, l->k.bias, l->v.bias}, apart,
                              (nrl_tensor * *[]){&out->q, &out->k, &out->v});
    }
    NRL_TRY(apply_affine(ctx, &l->q, h, &qkv));
    int64_t here = nrl_tensor_dim(qkv, -1), n = c->n_heads + 2 * c->n_kv_heads;
    int64_t q = here * c->n_heads / n, kv = here * c->n_kv_heads / n;
    NRL_TRY(nrl_op_slice_columns(ctx, qkv, 0, q, &out->q));
    NRL_TRY(nrl_op_slice_columns(ctx, qkv, q, q + kv, &out->k));
    return nrl_op_slice_columns(ctx, qkv, q + kv, q + 2 * kv, &out->v);
}

static nrl_status normalise_heads(const llama *self, nrl_ctx *ctx, const llama_layer *l, heads *x)
{
    NRL_TRY(normalise(self, ctx, l->q_norm, &x->q));
    return normalise(self, ctx, l->k_norm, &x->k);
}

/* h [N,D] -> y [N,D]. Head counts come from the tensors, because a strategy may have sharded the weights. */
static nrl_status attention(const llama *self, nrl_ctx *ctx, int64_t i, nrl_tensor *h, nrl_tensor **y)
{
    const llama_config *c = &self->config;
    const llama_layer *l = &self->layers[i];
    const nrl_rope *rope = c->layers[i].rope;
    nrl_status (*rotate)(nrl_ctx *, nrl_tensor *, int64_t, const nrl_rope *, nrl_tensor **) =
        c->interleaved ? nrl_op_rope_interleaved : nrl_op_rope;
    heads x;
    nrl_tensor *a; /* [N,H*K] */
    bool whole = llama_attention_is_whole(c);
    NRL_TRY(nrl_op_tp_region(ctx, whole ? NRL_TP_REGION_WHOLE_IN : NRL_TP_REGION_COLUMN_IN, h, &h));
    const bool joined = rope && !c->interleaved && !c->norm_after_rope && !l->sinks; /* rotation and attention */
    NRL_TRY(project(self, ctx, l, rope && !joined, h, &x));
    if (!c->norm_after_rope) NRL_TRY(normalise_heads(self, ctx, l, &x));
    nrl_tensor **const qkv[] = {&x.q, &x.k, &x.v};
    for (int p = 0; p < 3 && c->qkv_clip > 0; p++)
        NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_CLAMP, *qkv[p], -c->qkv_clip, c->qkv_clip, qkv[p]));
    nrl_attention_spec spec = {.n_heads = nrl_tensor_dim(x.q, -1) / c->head_dim,
                               .n_kv_heads = nrl_tensor_dim(x.k, -1) / c->head_dim,
                               .head_dim = c->head_dim,
                               .window = c->layers[i].window,
                               .layer = i,
                               .scale = c->attention_scale};
    if (rope && !joined) {
        NRL_TRY(rotate(ctx, x.q, spec.n_heads, rope, &x.q));
        NRL_TRY(rotate(ctx, x.k, spec.n_kv_heads, rope, &x.k));
    }
    if (c->norm_after_rope) NRL_TRY(normalise_heads(self, ctx, l, &x));
    if (joined) {
        NRL_TRY(nrl_op_rotary_attention(ctx, x.q, x.k, x.v, &spec, c->attention_cap, rope, &a));
    } else if (l->sinks) {
        nrl_tensor *sinks;
        NRL_TRY(nrl_op_param(ctx, l->sinks, NRL_DTYPE_F32, &sinks));
        NRL_TRY(nrl_op_sink_attention(ctx, x.q, x.k, x.v, &spec, sinks, &a));
    } else {
        NRL_TRY(nrl_op_capped_attention(ctx, x.q, x.k, x.v, &spec, c->attention_cap, &a));
    }
    NRL_TRY(nrl_op_row_parallel_linear(ctx, a, l->o.weight, l->o.bias, y));
    return whole ? nrl_op_tp_region(ctx, NRL_TP_REGION_WHOLE_OUT, *y, y) : NRL_OK;
}

/* ---- MLP ---- */

/* h [N,D] -> y [N,D] through the inner width I. */
static nrl_status mlp(const llama *self, nrl_ctx *ctx, const llama_layer *l, nrl_tensor *h, nrl_tensor **y)
{
    const llama_config *c = &self->config;
    nrl_tensor *gate, *up, *inner; /* [N,I], or views of a fused [N,2I] */
    NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_COLUMN_IN, h, &h));
    if (c->relu2) {
        NRL_TRY(apply_affine(ctx, &l->up, h, &up));
        NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_RELU, up, 0, 0, &inner));
        NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, inner, 0, 0, &inner));
        return nrl_op_row_parallel_linear(ctx, inner, l->down.weight, l->down.bias, y);
    }
    if (c->fused_mlp) {
        NRL_TRY(apply_affine(ctx, &l->gate, h, &gate));
        int64_t here = nrl_tensor_dim(gate, -1) / 2;
        NRL_TRY(nrl_op_slice_columns(ctx, gate, here, 2 * here, &up));
        NRL_TRY(nrl_op_slice_columns(ctx, gate, 0, here, &gate));
    } else {
        NRL_TRY(nrl_op_linears(ctx, h, 2, (nrl_param *[]){l->gate.weight, l->up.weight},
                               (nrl_param *[]){l->gate.bias, l->up.bias}, 0, (nrl_tensor * *[]){&gate, &up}));
    }
    NRL_TRY((c->gelu ? nrl_op_geglu : nrl_op_swiglu)(ctx, gate, up, &inner));
    return nrl_op_row_parallel_linear(ctx, inner, l->down.weight, l->down.bias, y);
}

/* ---- units ---- */

/* Adds the output of attention or MLP to the residual stream. */
static nrl_status contribute(const llama *self, nrl_ctx *ctx, nrl_param *norm, nrl_tensor **y)
{
    NRL_TRY(normalise(self, ctx, norm, y));
    return multiply(ctx, self->config.residual_scale, y);
}

/* *x += a, and *h = the norm of *x. */
static nrl_status add_and_normalise(const llama *self, nrl_ctx *ctx, nrl_tensor *a, nrl_param *w, nrl_tensor **x,
                                    nrl_tensor **h)
{
    const llama_config *c = &self->config;
    if (w) return nrl_op_add_rms_norm_offset(ctx, *x, a, w, c->norm_offset, c->norm_eps, x, h);
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, *x, a, x));
    *h = *x;
    return NRL_OK;
}

/* x += norm(attention(norm(x))); x += norm(mlp(norm(x))), with the norms that the family has. */
static nrl_status layer(const llama *self, nrl_ctx *ctx, int64_t i, nrl_tensor **x, nrl_tensor **stats)
{
    const llama_layer *l = &self->layers[i];
    nrl_tensor *h = *x, *a, *m;
    NRL_TRY(normalise(self, ctx, l->attention_in, &h));
    NRL_TRY(attention(self, ctx, i, h, &a));
    NRL_TRY(contribute(self, ctx, l->attention_out, &a));
    NRL_TRY(add_and_normalise(self, ctx, a, l->mlp_in, x, &h));
    NRL_TRY(l->experts ? llama_experts_forward(self, ctx, l, h, stats, &m) : mlp(self, ctx, l, h, &m));
    NRL_TRY(contribute(self, ctx, l->mlp_out, &m));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *x, m, x);
}

static nrl_status llama_forward(void *instance, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    const llama *self = instance;
    nrl_tensor **x = &carry->tensors[0], **stats = &carry->tensors[1], *loss; /* [N,D], [N,2E] */
    if (unit == 0) {
        NRL_TRY(nrl_op_embedding(ctx, self->embed, x));
        const int64_t dims[] = {nrl_tensor_dim(*x, 0), 2 * self->config.experts.n};
        carry->n = self->balance ? 2 : 1;
        if (self->balance) {
            NRL_TRY(nrl_tensor_new(ctx, nrl_tensor_dtype(*x), 2, dims, stats));
            NRL_TRY(nrl_tensor_fill(ctx, *stats, 0));
        }
        return multiply(ctx, self->config.embed_scale, x);
    }
    if (unit <= self->config.n_layers) return layer(self, ctx, unit - 1, x, stats);
    carry->n = 1;
    NRL_TRY(normalise(self, ctx, self->norm, x));
    if (!self->balance) return NRL_OK;
    NRL_TRY(llama_balance_loss(self, ctx, *stats, &loss));
    return nrl_op_loss_term(ctx, self->balance, loss, *x, x);
}

/* ---- table ---- */

static void llama_destroy(void *instance)
{
    llama *self = instance;
    llama_config_free(&self->config);
    free(self->experts);
    free(self->layers);
    free(self);
}

static nrl_status llama_create(const nrl_node *config, void **out)
{
    llama *self = calloc(1, sizeof *self);
    if (!self) return nrl_fail(NRL_ERR_MEMORY, "out of memory");
    nrl_status st = llama_config_read(config, &self->config);
    const llama_config *c = &self->config;
    if (st == NRL_OK) {
        self->layers = calloc((size_t)c->n_layers, sizeof *self->layers);
        self->experts = calloc((size_t)(c->n_layers * c->experts.n + 1), sizeof *self->experts);
        if (!self->layers || !self->experts) st = nrl_fail(NRL_ERR_MEMORY, "out of memory");
    }
    for (int64_t i = 0; i < c->n_layers && st == NRL_OK && c->experts.n; i++)
        if (!c->experts.dense[i]) self->layers[i].experts = self->experts + i * c->experts.n;
    if (st != NRL_OK) {
        llama_destroy(self);
        return st;
    }
    *out = self;
    return NRL_OK;
}

static const nrl_model table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_MODEL, nrl_model, "llama", "0.2",
                     "Llama, Mistral, Qwen2, Qwen3, SmolLM, Phi-3, Granite, OLMo 2 and 3, GLM-4, ERNIE 4.5, "
                     "EXAONE 4, Hunyuan, Arcee, Gemma 1 to 3, Mixtral, Qwen3-MoE, OLMoE, gpt-oss"),
    .model_types = llama_model_types,
    .create = llama_create,
    .destroy = llama_destroy,
    .layout = llama_layout,
    .forward = llama_forward,
};

NRL_EXPORT(table)
