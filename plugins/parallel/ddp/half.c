/*
 * half.c - compress: bf16 and fp16. Two bytes per element are sent, and sums are made in f32 whatever
 * the collective can add: an all_to_all gives rank r the r-th share of every rank's bucket, the rank
 * adds the R shares in f32 and rounds the sum once, and an all_gather distributes it. This moves as
 * many bytes as an all_reduce in 16 bits, with two roundings per element instead of R.
 */
#include "ddp.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    nrl_tensor *send, *receive; /* [R share] 16 bits; elements from n on are zero */
    int64_t share;
} half;

static nrl_dtype wire(const ddp *d)
{
    return d->o.compress == DDP_BF16 ? NRL_DTYPE_BF16 : NRL_DTYPE_F16;
}

/* ---- fp16 in host memory: a backend for training need not support it ---- */

/* Rounds to nearest, ties to even. Values above 65504 become infinite, which the step's gradient norm detects. */
static uint16_t to_half(float value)
{
    uint32_t x;
    memcpy(&x, &value, sizeof x);
    uint32_t sign = x >> 16 & 0x8000u;
    x &= 0x7fffffffu;
    if (x >= 0x47800000u) return (uint16_t)(sign | (x > 0x7f800000u ? 0x7e00u : 0x7c00u));
    if (x < 0x38800000u) { /* below 2^-14: adding 1/2 shifts the bits into place and rounds */
        float f;
        memcpy(&f, &x, sizeof f);
        f += 0.5f;
        memcpy(&x, &f, sizeof x);
        return (uint16_t)(sign | (x - 0x3f000000u));
    }
    x += 0xc8000fffu + (x >> 13 & 1); /* exponent - 112, plus half of the last place */
    return (uint16_t)(sign | x >> 13);
}

static float from_half(uint16_t h)
{
    uint32_t x = (uint32_t)(h & 0x7fff) << 13, exponent = x & 0x0f800000u;
    float f;
    x += 112u << 23;
    if (exponent == 0x0f800000u) x += 112u << 23;
    if (exponent == 0) x += 1u << 23;
    memcpy(&f, &x, sizeof f);
    if (exponent == 0) f -= 0x1p-14f;
    return h & 0x8000 ? -f : f;
}

static bool on_host(const ddp *d, nrl_ctx *ctx)
{
    return d->o.compress == DDP_FP16 && nrl_ctx_host_memory(ctx);
}

static void *host(const nrl_tensor *t)
{
    return nrl_tensor_mat(t).data;
}

static nrl_status narrow(ddp *d, nrl_ctx *ctx, nrl_tensor *x, nrl_tensor *to)
{
    if (!on_host(d, ctx)) return nrl_tensor_copy(ctx, x, to);
    const float *from = host(x);
    uint16_t *out = host(to);
    for (int64_t i = 0, n = nrl_tensor_numel(x); i < n; i++)
        out[i] = to_half(from[i]);
    return NRL_OK;
}

static nrl_status widen(ddp *d, nrl_ctx *ctx, nrl_tensor *x, nrl_tensor *to)
{
    if (!on_host(d, ctx)) return nrl_tensor_copy(ctx, x, to);
    const uint16_t *from = host(x);
    float *out = host(to);
    for (int64_t i = 0, n = nrl_tensor_numel(x); i < n; i++)
        out[i] = from_half(from[i]);
    return NRL_OK;
}

/* ---- the stages ---- */

static nrl_status half_bind(ddp *d, nrl_ctx *ctx, ddp_bucket *b)
{
    half *h = b->codec = calloc(1, sizeof *h);
    if (!h) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a bucket");
    h->share = (b->n + d->size - 1) / d->size;
    NRL_TRY(ddp_tensor(ctx, wire(d), h->share * d->size, &h->send));
    return ddp_tensor(ctx, wire(d), h->share * d->size, &h->receive);
}

static void half_unbind(ddp *d, nrl_ctx *ctx, ddp_bucket *b)
{
    half *h = b->codec;
    (void)d;
    if (!h) return;
    nrl_tensor_free(ctx, h->send);
    nrl_tensor_free(ctx, h->receive);
    free(h);
    b->codec = NULL;
}

/* Runs a function that takes n elements on the elements [0, n) of t. */
static nrl_status with_front(ddp *d, nrl_ctx *ctx, nrl_tensor *t, int64_t n,
                             nrl_status (*fn)(ddp *, nrl_ctx *, nrl_tensor *, nrl_tensor *), nrl_tensor *other,
                             bool front_is_target)
{
    nrl_tensor *front;
    NRL_TRY(nrl_tensor_slice(ctx, t, 0, n, &front));
    nrl_status st = front_is_target ? fn(d, ctx, other, front) : fn(d, ctx, front, other);
    nrl_tensor_free(ctx, front);
    return st;
}

static nrl_status hand_out(ddp *d, nrl_ctx *ctx, ddp_bucket *b, half *h)
{
    nrl_comm_call call = {.size = sizeof call, .send = h->send, .receive = h->receive, .what = b->what};
    NRL_TRY(with_front(d, ctx, h->send, b->n, narrow, b->grads, true));
    return nrl_comm_all_to_all(d->comm, ctx, &call, &b->work[0]);
}

/* sum[share] f32 = sum of the R received shares, in rank order. */
static nrl_status add_shares(ddp *d, nrl_ctx *ctx, half *h, nrl_tensor **sum)
{
    const int64_t dims[] = {d->size, h->share};
    nrl_tensor *shares;
    if (!on_host(d, ctx)) {
        NRL_TRY(nrl_op_reshape(ctx, h->receive, 2, dims, &shares));
        return nrl_op_sum_rows(ctx, shares, sum);
    }
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &h->share, sum));
    float *to = host(*sum);
    const uint16_t *from = host(h->receive);
    for (int64_t i = 0; i < h->share; i++)
        to[i] = from_half(from[i]);
    for (int32_t r = 1; r < d->size; r++)
        for (int64_t i = 0; i < h->share; i++)
            to[i] += from_half(from[r * h->share + i]);
    return NRL_OK;
}

static nrl_status give_sums(ddp *d, nrl_ctx *ctx, ddp_bucket *b, half *h)
{
    nrl_tensor *sum, *mine;
    NRL_TRY(add_shares(d, ctx, h, &sum));
    NRL_TRY(nrl_tensor_slice(ctx, h->send, 0, h->share, &mine));
    nrl_status st = narrow(d, ctx, sum, mine);
    nrl_comm_call call = {.size = sizeof call, .send = mine, .receive = h->receive, .what = b->what};
    if (st == NRL_OK) st = nrl_comm_all_gather(d->comm, ctx, &call, &b->work[0]);
    nrl_tensor_free(ctx, mine); /* a view of send's memory */
    return st;
}

static nrl_status half_stage(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool *more)
{
    half *h = b->codec;
    *more = b->stage < 2;
    if (b->stage == 0) return hand_out(d, ctx, b, h);
    if (b->stage == 1) return give_sums(d, ctx, b, h);
    return with_front(d, ctx, h->receive, b->n, widen, b->grads, false);
}

const ddp_codec ddp_half = {.bind = half_bind, .unbind = half_unbind, .stage = half_stage};
