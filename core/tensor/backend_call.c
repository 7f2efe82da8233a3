/*
 * backend_call.c - calls through the backend's table, and the time they took.
 */
#include "tensor/internal.h"
#include <stdlib.h>
#include <time.h>

enum {
#define BACKEND_NUMBER(name, args) OP_##name,
    BACKEND_OPS(BACKEND_NUMBER)
#undef BACKEND_NUMBER
        OP_HOST, /* no operation: ctx_profile_host */
    OP_COUNT
};

struct profile {
    int row[OP_COUNT]; /* 1 + place in rows, 0 = not called yet */
    int n_rows;
    ctx_op_time rows[OP_COUNT];
};

typedef struct {
    double flops, bytes;
} work;

static double mat_bytes(const nrl_mat *m)
{
    if (!m->data) return 0;
    return (double)m->rows * (double)m->cols * (double)nrl_dtype_size((nrl_dtype)m->dtype);
}

static work gemm_work(const nrl_gemm_args *a)
{
    double k = (double)(a->transpose_a ? a->a.rows : a->a.cols);
    return (work){2.0 * (double)a->c.rows * (double)a->c.cols * k,
                  mat_bytes(&a->a) + mat_bytes(&a->b) + mat_bytes(&a->c) * (a->fresh ? 1 : 2)};
}

/* Pairs of a query and a key that it sees, times the multiply-adds of scores and mixing. */
static work attention_work(const nrl_attention_args *a)
{
    double pairs = 0;
    for (uint32_t s = 0; s < a->n_segments; s++) {
        double q = a->host_cu_q[s + 1] - a->host_cu_q[s], k = a->host_cu_k[s + 1] - a->host_cu_k[s];
        int32_t p = a->host_prefix ? a->host_prefix[s] : -1;
        double before = p >= 0 ? a->host_cu_k[p + 1] - a->host_cu_k[p] : 0;
        double seen = before + k - (q - 1) / 2; /* mean over the queries */
        if (a->window > 0 && seen > (double)a->window) seen = (double)a->window;
        pairs += q * seen;
    }
    return (work){4.0 * pairs * (double)(a->n_heads * a->head_dim),
                  mat_bytes(&a->q) + mat_bytes(&a->k) + mat_bytes(&a->v) + mat_bytes(&a->y)};
}

/* Scores again, dv, dp, dq, dk: five products where forward had two. */
static work attention_grad_work(const nrl_attention_grad_args *a)
{
    work w = attention_work(&a->forward);
    return (work){w.flops * 2.5, w.bytes * 2};
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ctx_op_time *profile_row(profile *p, int op, const char *name)
{
    if (!p->row[op]) p->row[op] = ++p->n_rows;
    ctx_op_time *row = &p->rows[p->row[op] - 1];
    row->name = name;
    return row;
}

static nrl_status profile_add(nrl_ctx *ctx, int op, const char *name, double begin, work w)
{
    const device *d = ctx->device;
    if (d->table.stream_wait && ctx->stream) NRL_TRY(d->table.stream_wait(d->self, ctx->stream));
    ctx_op_time *row = profile_row(ctx->profile, op, name);
    row->seconds += seconds_now() - begin;
    row->flops += w.flops;
    row->bytes += w.bytes;
    row->calls++;
    return NRL_OK;
}

static nrl_status backend_lacks(const nrl_ctx *ctx, const char *name)
{
    const char *backend = ctx->device->table.plugin.name;
    return nrl_fail(NRL_ERR_PLUGIN, "backend '%s' has no op '%s'", backend ? backend : "?", name);
}

/* Which estimate of work an operation has; the rest count calls and seconds only. */
#define WORK_OF(a)                                                                                 \
    _Generic((a), const nrl_gemm_args * : gemm_work, const nrl_attention_args * : attention_work,  \
             const nrl_attention_grad_args * : attention_grad_work, default : no_work)(a)

static work no_work(const void *a)
{
    (void)a;
    return (work){0, 0};
}

#define BACKEND_DEFINE(name, args)                                                                 \
    nrl_status backend_##name(nrl_ctx *ctx, const args *a)                                         \
    {                                                                                              \
        const device *d = ctx->device;                                                             \
        if (!d->ops.name) return backend_lacks(ctx, #name);                                        \
        if (!ctx->profile) return d->ops.name(d->self, ctx->stream, a);                            \
        double begin = seconds_now();                                                              \
        NRL_TRY(d->ops.name(d->self, ctx->stream, a));                                             \
        return profile_add(ctx, OP_##name, #name, begin, WORK_OF(a));                              \
    }
BACKEND_OPS(BACKEND_DEFINE)

void ctx_profile(nrl_ctx *ctx, bool on)
{
    free(ctx->profile);
    ctx->profile = on ? mem_alloc(sizeof *ctx->profile) : NULL;
}

double ctx_profile_mark(const nrl_ctx *ctx)
{
    const profile *p = ctx->profile;
    double operations = 0;
    if (!p) return 0;
    for (int i = 0; i < p->n_rows; i++)
        if (p->row[OP_HOST] != i + 1) operations += p->rows[i].seconds;
    return seconds_now() - operations;
}

void ctx_profile_host(nrl_ctx *ctx, const char *name, double mark)
{
    if (!ctx->profile) return;
    ctx_op_time *row = profile_row(ctx->profile, OP_HOST, name);
    row->seconds += ctx_profile_mark(ctx) - mark;
    row->calls++;
}

const ctx_op_time *ctx_profile_rows(const nrl_ctx *ctx, int *n)
{
    *n = ctx->profile ? ctx->profile->n_rows : 0;
    return ctx->profile ? ctx->profile->rows : NULL;
}
