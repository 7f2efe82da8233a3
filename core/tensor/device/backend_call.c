/*
 * backend_call.c - calls through the backend's table, marked on the timeline while a profile is taken.
 */
#include "tensor/internal.h"
#include "tensor/device/profile.h"
#include <string.h>

static nrl_status backend_lacks(nrl_ctx *ctx, const char *name, const char *what)
{
    const char *backend = ctx->device->table.plugin.name;
    ctx->device->lacked = true;
    return nrl_fail(NRL_ERR_PLUGIN, "backend '%s' has no op '%s'%s", backend ? backend : "?", name, what);
}

/* ---- counting of FLOPs, see ctx_settings ---- */

static double gemm_flops(const nrl_gemm_args *a)
{
    return 2.0 * (double)a->c.rows * (double)a->c.cols * (double)(a->transpose_a ? a->a.rows : a->a.cols);
}

/* ---- pairs of a query and a key that it sees ---- */

typedef struct {
    double begin, end; /* positions */
} span;

/* Rows of segment s that are there, counted from the segment's first. */
static span rows_there(const nrl_attention_args *a, const int32_t *cu, int64_t s, int64_t begin, int64_t n)
{
    span rows = {0, cu[s + 1] - cu[s]};
    if (!a->merge) return rows;
    if (begin > cu[s]) rows.begin = (double)(begin - cu[s]);
    if (begin + n < cu[s + 1]) rows.end = (double)(begin + n - cu[s]);
    return rows;
}

/* Of queries q and keys k those with k <= q - behind. */
static double pairs_behind(span q, span k, double behind)
{
    const double above[] = {q.end - k.begin, q.begin - k.begin, q.end - k.end, q.begin - k.end};
    double n[4];
    for (int i = 0; i < 4; i++)
        n[i] = above[i] > behind ? (above[i] - behind) * (above[i] - behind + 1) / 2 : 0;
    return q.begin < q.end && k.begin < k.end ? n[0] - n[1] - (n[2] - n[3]) : 0;
}

/* Multiply-adds of scores and weighted sums, times two; 0 if the lengths are not known on the host. */
double backend_attention_flops(const nrl_attention_args *a)
{
    double pairs = 0;
    bool known = a->host_cu_q && a->host_cu_k;
    for (int64_t s = 0; known && s < a->n_segments; s++) {
        const int32_t p = a->host_prefix ? a->host_prefix[s] : -1;
        const double before = p >= 0 ? a->host_cu_k[p + 1] - a->host_cu_k[p] : 0;
        const double keys = before + a->host_cu_k[s + 1] - a->host_cu_k[s];
        const double first = keys - (a->host_cu_q[s + 1] - a->host_cu_q[s]);
        span q = rows_there(a, a->host_cu_q, s, a->q_begin, a->q.rows);
        span k[] = {rows_there(a, a->host_cu_k, s, a->k_begin, a->k.rows), {0, 0}};
        q = (span){q.begin + first, q.end + first};
        k[0] = (span){k[0].begin + before, k[0].end + before};
        if (p >= 0) k[1] = rows_there(a, a->host_cu_k, p, a->k_begin, a->k.rows);
        for (int i = 0; i < 2; i++)
            pairs += pairs_behind(q, k[i], 0) - (a->window > 0 ? pairs_behind(q, k[i], (double)a->window) : 0);
    }
    return 4.0 * pairs * (double)(a->n_heads * a->head_dim);
}

static double attention_grad_flops(const nrl_attention_grad_args *a)
{
    return 2 * backend_attention_flops(a->forward); /* recomputing the scores does not count */
}

static double no_flops(const void *a)
{
    (void)a;
    return 0;
}

#define FLOPS_OF(a)                                                                                                    \
    _Generic((a),                                                                                  \
        const nrl_gemm_args *: gemm_flops,                                                         \
        const nrl_attention_args *: backend_attention_flops,                                               \
        const nrl_attention_grad_args *: attention_grad_flops,                                     \
        default: no_flops)(a)

/* ---- what a device lacks of an operation that it has ---- */

static const char *attention_lacks(const device *d, const nrl_attention_args *a)
{
    const uint32_t lacks = d->table.attention_lacks;
    if (a->soft_cap > 0 && lacks & NRL_ATTENTION_SOFT_CAP) return " with capped scores";
    if (a->sinks && lacks & NRL_ATTENTION_SINKS) return " with sinks";
    return a->merge && lacks & NRL_ATTENTION_MERGE ? " of a part of the tokens" : "";
}

static const char *attention_grad_lacks(const device *d, const nrl_attention_grad_args *a)
{
    return attention_lacks(d, a->forward);
}

static const char *lacks_nothing(const device *d, const void *a)
{
    (void)d, (void)a;
    return "";
}

#define LACKS_OF(a)                                                                                                    \
    _Generic((a),                                                                                  \
        const nrl_attention_args *: attention_lacks,                                               \
        const nrl_attention_grad_args *: attention_grad_lacks,                                     \
        default: lacks_nothing)

/* ---- the calls ---- */

#define BACKEND_DEFINE(name, args)                                                                                     \
    nrl_status backend_##name(nrl_ctx *ctx, const args *a)                                                             \
    {                                                                                                                  \
        const device *d = ctx->device;                                                                                 \
        const char *lacks = "";                                                                                        \
        for (; d; d = d->delegate)                                                                                     \
            if (d->ops.name && !*(lacks = LACKS_OF(a)(d, a))) break;                                                   \
        if (!d) return backend_lacks(ctx, #name, lacks);                                                               \
        const double flops = FLOPS_OF(a);                                                                              \
        ctx->settings.flops += flops;                                                                                  \
        if (!ctx->profiler) return d->ops.name(d->self, ctx->stream, a);                                               \
        NRL_TRY(ctx->profiler->op_begin(ctx, BACKEND_OP_##name, a, 1, flops));                                         \
        nrl_status st = d->ops.name(d->self, ctx->stream, a);                                                          \
        nrl_status ended = ctx->profiler->op_end(ctx);                                                                 \
        return st ? st : ended;                                                                                        \
    }
NRL_OPS(BACKEND_DEFINE)

#define BACKEND_DEFINE_ALL(name, args)                                                                                 \
    nrl_status backend_##name##_all(nrl_ctx *ctx, const args *calls, int64_t n)                                        \
    {                                                                                                                  \
        const device *d = ctx->device;                                                                                 \
        for (int64_t i = 0; i < n && !d->table.name##_all; i++)                                                        \
            NRL_TRY(backend_##name(ctx, &calls[i]));                                                                   \
        if (!n || !d->table.name##_all) return NRL_OK;                                                                 \
        double flops = 0;                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                                                \
            flops += FLOPS_OF(&calls[i]);                                                                              \
        ctx->settings.flops += flops;                                                                                  \
        if (!ctx->profiler) return d->table.name##_all(d->self, ctx->stream, calls, n);                                \
        NRL_TRY(ctx->profiler->op_begin(ctx, BACKEND_OP_##name, calls, n, flops));                                     \
        nrl_status st = d->table.name##_all(d->self, ctx->stream, calls, n);                                           \
        nrl_status ended = ctx->profiler->op_end(ctx);                                                                 \
        return st ? st : ended;                                                                                        \
    }
BACKEND_DEFINE_ALL(adamw, nrl_adamw_args)
BACKEND_DEFINE_ALL(square_sum, nrl_square_sum_args)
BACKEND_DEFINE_ALL(gemm, nrl_gemm_args)

bool backend_has(const device *d, const char *name)
{
#define BACKEND_ASK(op, args)                                                                                          \
    if (!strcmp(name, #op)) return d->ops.op || (d->delegate && d->delegate->ops.op);
    NRL_OPS(BACKEND_ASK)
#undef BACKEND_ASK
    return false;
}

nrl_status backend_transfer(nrl_ctx *ctx, void *to, const void *from, size_t bytes, nrl_copy_direction way)
{
    const device *d = ctx->device;
    if (!ctx->profiler) return d->table.copy(d->self, ctx->stream, to, from, bytes, (uint32_t)way);
    NRL_TRY(ctx->profiler->copy_begin(ctx, way, bytes));
    nrl_status st = d->table.copy(d->self, ctx->stream, to, from, bytes, (uint32_t)way);
    nrl_status ended = ctx->profiler->op_end(ctx);
    return st ? st : ended;
}
