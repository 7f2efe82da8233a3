/*
 * op_attention.c - packed attention over the batch's segments, or what ctx_set_attention set instead. Saves q, k,
 * v, y and the log-sum-exp of each row of scores; never stores scores.
 */
#include "tensor/internal.h"
#include "tensor/tape/tape.h"
#include <nrl/parallel.h>

typedef struct {
    nrl_attention_spec spec;
    double soft_cap;
    uint32_t n_segments;
    const int32_t *host_cu, *host_prefix; /* borrowed from the batch, which outlives its tapes */
} attention_attributes;

static nrl_attention_args packed_args(const attention_attributes *at, const nrl_tensor *cu, const nrl_tensor *prefix,
                                      const nrl_tensor *sinks)
{
    const nrl_attention_spec *s = &at->spec;
    return (nrl_attention_args){.size = sizeof(nrl_attention_args),
                                .n_segments = at->n_segments,
                                .cu_q = tensor_index(cu),
                                .cu_k = tensor_index(cu),
                                .prefix = tensor_index(prefix),
                                .host_cu_q = at->host_cu,
                                .host_cu_k = at->host_cu,
                                .host_prefix = at->host_prefix,
                                .n_heads = s->n_heads,
                                .n_kv_heads = s->n_kv_heads,
                                .head_dim = s->head_dim,
                                .window = s->window,
                                .scale = s->scale,
                                .soft_cap = at->soft_cap,
                                .sinks = sinks ? tensor_mat(sinks).data : NULL};
}

/* Saved: q, k, v, y, lse, cu_seqlens, prefix, sinks. */
static nrl_status attention_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *d[4], *saved[8];
    for (int i = 0; i < 8; i++)
        saved[i] = nrl_tape_saved(node, i);
    nrl_attention_args forward = packed_args(nrl_tape_attributes(node), saved[5], saved[6], saved[7]);
    nrl_attention_grad_args a = {.size = sizeof a, .forward = &forward};
    forward.q = tensor_mat(saved[0]);
    forward.k = tensor_mat(saved[1]);
    forward.v = tensor_mat(saved[2]);
    forward.y = tensor_mat(saved[3]);
    forward.lse = tensor_mat(saved[4]);
    a.dy = tensor_mat(nrl_tape_grad(node, 0));
    for (int i = 0; i < 3; i++)
        NRL_TRY(tape_grad_room(ctx, node, i, &d[i]));
    a.dq = tensor_mat(d[0]);
    a.dk = tensor_mat(d[1]);
    a.dv = tensor_mat(d[2]);
    if (saved[7]) {
        NRL_TRY(tensor_like(ctx, saved[7], &d[3]));
        a.dsinks = tensor_mat(d[3]).data;
    }
    NRL_TRY(backend_attention_grad(ctx, &a));
    for (int i = 0; i < (saved[7] ? 4 : 3); i++)
        NRL_TRY(nrl_tape_give(ctx, node, i, d[i]));
    return NRL_OK;
}

static nrl_status attention_check(const nrl_ctx *ctx, const nrl_tensor *q, const nrl_tensor *k, const nrl_tensor *v,
                                  const nrl_attention_spec *s, const nrl_tensor *sinks)
{
    if (sinks && (sinks->dtype != NRL_DTYPE_F32 || nrl_tensor_numel(sinks) != s->n_heads))
        return nrl_fail(NRL_ERR_BUG, "attention: sinks are %s of %s for %lld heads", tensor_shape(sinks).text,
                        nrl_dtype_name(sinks->dtype), (long long)s->n_heads);
    const nrl_batch *b = ctx->batch;
    int64_t n = b ? b->whole && q->rows == b->whole->n_tokens ? q->rows : b->n_tokens : -1;
    bool heads = s->n_heads > 0 && s->n_kv_heads > 0 && s->n_heads % s->n_kv_heads == 0;
    if (heads && q->rows == n && k->rows == n && v->rows == n && q->cols == s->n_heads * s->head_dim &&
        k->cols == s->n_kv_heads * s->head_dim && v->cols == k->cols && q->dtype == k->dtype && q->dtype == v->dtype)
        return NRL_OK;
    return nrl_fail(NRL_ERR_BUG,
                    "attention: q is %s, k is %s, v is %s for %lld tokens, %lld heads, %lld key heads of %lld",
                    tensor_shape(q).text, tensor_shape(k).text, tensor_shape(v).text, (long long)n,
                    (long long)s->n_heads, (long long)s->n_kv_heads, (long long)s->head_dim);
}

/* ---- a part of the tokens ---- */

static nrl_status part_args(nrl_ctx *ctx, const nrl_attention_part *p, nrl_attention_args *a)
{
    const nrl_batch *b = p->batch;
    const int64_t n = b->n_segments + b->n_prompts;
    const attention_attributes at = {*p->spec, p->soft_cap, (uint32_t)n, b->cu_seqlens, b->prefix};
    nrl_tensor *cu = ctx->index.cu_seqlens, *prefix = ctx->index.prefix;
    if (ctx->batch != b) { /* the backward of an earlier one */
        NRL_TRY(tensor_of_host(ctx, NRL_DTYPE_I32, n + 1, b->cu_seqlens, true, &cu));
        if (b->prefix) NRL_TRY(tensor_of_host(ctx, NRL_DTYPE_I32, n, b->prefix, true, &prefix));
    }
    *a = packed_args(&at, cu, b->prefix ? prefix : NULL, NULL);
    a->q = tensor_mat(p->q);
    a->k = tensor_mat(p->k);
    a->v = tensor_mat(p->v);
    a->y = tensor_mat(p->y);
    a->lse = tensor_mat(p->lse);
    a->q_begin = p->q_begin;
    a->k_begin = p->k_begin;
    a->merge = true;
    return NRL_OK;
}

nrl_status nrl_attention_merge(nrl_ctx *ctx, const nrl_attention_part *p)
{
    nrl_attention_args a;
    NRL_TRY(part_args(ctx, p, &a));
    return backend_attention_flops(&a) > 0 ? backend_attention(ctx, &a) : NRL_OK;
}

nrl_status nrl_attention_merge_grad(nrl_ctx *ctx, const nrl_attention_part *p)
{
    nrl_attention_args f;
    NRL_TRY(part_args(ctx, p, &f));
    const nrl_attention_grad_args a = {.size = sizeof a,
                                       .forward = &f,
                                       .dy = tensor_mat(p->dy),
                                       .dq = tensor_mat(p->dq),
                                       .dk = tensor_mat(p->dk),
                                       .dv = tensor_mat(p->dv)};
    return backend_attention_flops(&f) > 0 ? backend_attention_grad(ctx, &a) : NRL_OK;
}

void ctx_set_divided(nrl_ctx *ctx, ctx_divided_attention attention, ctx_divided_sum sum, void *user)
{
    ctx->divided_attention = attention;
    ctx->divided_sum = sum;
    ctx->divided_user = user;
}

void ctx_set_attention(nrl_ctx *ctx, ctx_attention attention, void *user)
{
    ctx->attention = attention;
    ctx->attention_user = user;
}

static nrl_status attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v, const nrl_attention_spec *spec,
                            double cap, nrl_tensor *sinks, nrl_tensor **y)
{
    NRL_TRY(attention_check(ctx, q, k, v, spec, sinks));
    const nrl_batch *b = ctx->batch;
    const bool divided = b->whole && q->rows < b->whole->n_tokens;
    if (divided && sinks)
        return nrl_fail(NRL_ERR_CONFIG, "this model has attention sinks, and ranks cannot divide its tokens\n"
                                        "hint: use another axis than one that divides the tokens of a micro-batch");
    if (divided) return ctx->divided_attention(ctx->divided_user, ctx, b->whole->n_tokens, q, k, v, spec, cap, y);
    NRL_TRY(tensor_like(ctx, q, y));
    if (ctx->attention) return ctx->attention(ctx->attention_user, ctx, q, k, v, spec, cap, sinks, *y);
    attention_attributes at = {*spec, cap, (uint32_t)(b->n_segments + b->n_prompts), b->cu_seqlens, b->prefix};
    nrl_attention_args a = packed_args(&at, ctx->index.cu_seqlens, ctx->index.prefix, sinks);
    nrl_tensor *lse = NULL;
    a.q = tensor_mat(q);
    a.k = tensor_mat(k);
    a.v = tensor_mat(v);
    a.y = tensor_mat(*y);
    if (tape_records(ctx)) {
        NRL_TRY(tensor_matrix(ctx, NRL_DTYPE_F32, spec->n_heads, q->rows, &lse));
        a.lse = tensor_mat(lse);
    }
    NRL_TRY(backend_attention(ctx, &a));
    nrl_tape_record r = {.name = "attention",
                         .inputs = {q, k, v, sinks},
                         .outputs = {*y},
                         .saved = {q, k, v, *y, lse, ctx->index.cu_seqlens, ctx->index.prefix, sinks},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = attention_backward};
    return tape_push(ctx, &r, false);
}

nrl_status nrl_op_capped_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                   const nrl_attention_spec *spec, double cap, nrl_tensor **y)
{
    return attention(ctx, q, k, v, spec, cap, NULL, y);
}

nrl_status nrl_op_sink_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                 const nrl_attention_spec *spec, nrl_tensor *sinks, nrl_tensor **y)
{
    return attention(ctx, q, k, v, spec, 0, sinks, y);
}

nrl_status nrl_op_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v, const nrl_attention_spec *spec,
                            nrl_tensor **y)
{
    return attention(ctx, q, k, v, spec, 0, NULL, y);
}
