/*
 * op_attention.c - packed attention over the batch's segments, or what ctx_settings.attention is instead. Saves q, k,
 * v, y and the log-sum-exp of each row of scores; never stores scores. Saved queries and keys are rotated.
 */
#include "tensor/ops/rope.h"
#include "tensor/tape/tape.h"
#include <nrl/parallel.h>

typedef struct {
    nrl_attention_spec spec;
    double soft_cap;
    uint32_t n_segments;
    const int32_t *host_cu, *host_prefix; /* borrowed from the batch, which outlives its tapes */
    bool rotates;
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

/* Whether the columns of b follow those of a in the rows of one matrix. */
static bool is_beside(const nrl_mat *a, const nrl_mat *b)
{
    return a->stride == b->stride && (char *)a->data + (size_t)a->cols * nrl_dtype_size((nrl_dtype)a->dtype) == b->data;
}

/* x: queries and keys, rotated to y, which may be the same. */
static nrl_status rotate_both(nrl_ctx *ctx, const nrl_attention_spec *s, const nrl_mat *x, const nrl_tensor *rows,
                              bool inverse, const nrl_mat *y)
{
    nrl_mat from = x[0], to = y[0];
    if (is_beside(&x[0], &x[1]) && is_beside(&y[0], &y[1])) {
        from.cols = to.cols = x[0].cols + x[1].cols;
        return rope_rotate(ctx, from, s->n_heads + s->n_kv_heads, rows, inverse, to);
    }
    NRL_TRY(rope_rotate(ctx, from, s->n_heads, rows, inverse, to));
    return rope_rotate(ctx, x[1], s->n_kv_heads, rows, inverse, y[1]);
}

/* Saved: q, k, v, y, lse, cu_seqlens, prefix, and the sinks or the rows of angles. */
static nrl_status attention_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const attention_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *d[4], *saved[8], *rows, *sinks;
    for (int i = 0; i < 8; i++)
        saved[i] = nrl_tape_saved(node, i);
    rows = at->rotates ? saved[7] : NULL;
    sinks = at->rotates ? NULL : saved[7];
    nrl_attention_args forward = packed_args(at, saved[5], saved[6], sinks);
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
    if (sinks) {
        NRL_TRY(tensor_like(ctx, sinks, &d[3]));
        a.dsinks = tensor_mat(d[3]).data;
    }
    if (rows && ctx->device->table.rotates_gradients) {
        a.cos = rope_part(rows, 0).data;
        a.sin = rope_part(rows, 1).data;
        a.half = rows->cols;
    }
    NRL_TRY(backend_attention_grad(ctx, &a));
    const nrl_mat dqk[] = {a.dq, a.dk};
    if (rows && !a.cos) NRL_TRY(rotate_both(ctx, &at->spec, dqk, rows, true, dqk));
    for (int i = 0; i < (sinks ? 4 : 3); i++)
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
    const attention_attributes at = {*p->spec, p->soft_cap, (uint32_t)n, b->cu_seqlens, b->prefix, false};
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

/* q and k rotated, in place if they are columns of a joint result, which no backward reads. */
static nrl_status rotate(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, const nrl_attention_spec *spec,
                         const nrl_tensor *rows, nrl_tensor **rotated)
{
    nrl_tensor *const x[] = {q, k};
    for (int i = 0; i < 2; i++) {
        rotated[i] = x[i];
        if (!x[i]->joint) NRL_TRY(tensor_like(ctx, x[i], &rotated[i]));
    }
    return rotate_both(ctx, spec, (nrl_mat[]){tensor_mat(q), tensor_mat(k)}, rows, false,
                       (nrl_mat[]){tensor_mat(rotated[0]), tensor_mat(rotated[1])});
}

static nrl_status attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v, const nrl_attention_spec *spec,
                            double cap, nrl_tensor *sinks, const nrl_rope *rope, nrl_tensor **y)
{
    NRL_TRY(attention_check(ctx, q, k, v, spec, sinks));
    const nrl_batch *b = ctx->batch;
    const bool divided = b->whole && q->rows < b->whole->n_tokens;
    if (rope && (divided || ctx->settings.attention.call)) {
        NRL_TRY(nrl_op_rope(ctx, q, spec->n_heads, rope, &q));
        NRL_TRY(nrl_op_rope(ctx, k, spec->n_kv_heads, rope, &k));
    }
    if (divided && sinks)
        return nrl_fail(NRL_ERR_CONFIG, "this model has attention sinks, so ranks cannot shard its tokens\n"
                                        "hint: use an axis that does not divide the tokens of a micro-batch");
    if (divided)
        return ctx->settings.divided.attention(ctx->settings.divided.user, ctx, b->whole->n_tokens, q, k, v, spec, cap,
                                               y);
    NRL_TRY(tensor_like(ctx, q, y));
    if (ctx->settings.attention.call)
        return ctx->settings.attention.call(ctx->settings.attention.user, ctx, q, k, v, spec, cap, sinks, *y);
    attention_attributes at = {*spec,         cap,       (uint32_t)(b->n_segments + b->n_prompts),
                               b->cu_seqlens, b->prefix, rope != NULL};
    nrl_attention_args a = packed_args(&at, ctx->index.cu_seqlens, ctx->index.prefix, sinks);
    nrl_tensor *lse = NULL, *rows = NULL, *qk[] = {q, k};
    if (rope) NRL_TRY(rope_rows(ctx, rope, &rows));
    if (rope) NRL_TRY(rotate(ctx, q, k, spec, rows, qk));
    a.q = tensor_mat(qk[0]);
    a.k = tensor_mat(qk[1]);
    a.v = tensor_mat(v);
    a.y = tensor_mat(*y);
    if (tape_records(ctx)) {
        NRL_TRY(tensor_matrix(ctx, NRL_DTYPE_F32, spec->n_heads, q->rows, &lse));
        a.lse = tensor_mat(lse);
    }
    NRL_TRY(backend_attention(ctx, &a));
    nrl_tape_record r = {
        .name = "attention",
        .inputs = {q, k, v, sinks},
        .outputs = {*y},
        .saved = {qk[0], qk[1], v, *y, lse, ctx->index.cu_seqlens, ctx->index.prefix, rope ? rows : sinks},
        .attributes = &at,
        .attributes_size = sizeof at,
        .backward = attention_backward};
    return tape_push(ctx, &r, false);
}

nrl_status nrl_op_capped_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                   const nrl_attention_spec *spec, double cap, nrl_tensor **y)
{
    return attention(ctx, q, k, v, spec, cap, NULL, NULL, y);
}

nrl_status nrl_op_rotary_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                   const nrl_attention_spec *spec, double cap, const nrl_rope *rope, nrl_tensor **y)
{
    if (!ctx->batch || q->rows != ctx->batch->n_tokens || rope->half < 1 || 2 * rope->half > spec->head_dim)
        return nrl_fail(NRL_ERR_BUG, "rotary attention of %lld rows, with %lld pairs in heads of %lld",
                        (long long)q->rows, (long long)rope->half, (long long)spec->head_dim);
    return attention(ctx, q, k, v, spec, cap, NULL, rope, y);
}

nrl_status nrl_op_sink_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                 const nrl_attention_spec *spec, nrl_tensor *sinks, nrl_tensor **y)
{
    return attention(ctx, q, k, v, spec, 0, sinks, NULL, y);
}

nrl_status nrl_op_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v, const nrl_attention_spec *spec,
                            nrl_tensor **y)
{
    return attention(ctx, q, k, v, spec, 0, NULL, NULL, y);
}
