/*
 * reduce.c - when buckets are sent. A bucket is complete when its last gradient is final. Buckets
 * start in the order of their numbers, which is the same on all ranks, and a later stage of an earlier
 * bucket starts a fixed number of buckets behind, so that the order never depends on the speed of a
 * network.
 */
#include "ddp.h"
#include <stdio.h>
#include <stdlib.h>

/* Buckets between the start of a stage and the wait for it: enough to hide the stage, few enough to keep
 * the network busy. */
enum { LAG = 2, MAX_NAMED = 3 };

nrl_status ddp_sum_is_finite(nrl_ctx *ctx, nrl_tensor *t, bool *finite)
{
    nrl_tensor *sum;
    double value;
    NRL_TRY(nrl_op_sum(ctx, t, &sum));
    NRL_TRY(nrl_tensor_fetch(ctx, sum, &value, 1));
    *finite = value - value == 0;
    return NRL_OK;
}

static nrl_status advance(ddp *d, nrl_ctx *ctx, ddp_bucket *b)
{
    for (int w = 0; w < 2; w++)
        NRL_TRY(nrl_work_wait(&b->work[w], ctx));
    if (!b->running) return NRL_OK;
    nrl_scope_begin(ctx);
    nrl_status st = d->codec->stage(d, ctx, b, &b->running);
    nrl_scope_end(ctx);
    b->stage++;
    return st;
}

/* Starts every complete bucket whose turn has come. */
static nrl_status start_ready(ddp *d, nrl_ctx *ctx)
{
    while (d->next < d->n_buckets && d->buckets[d->next].n_pending == 0) {
        ddp_bucket *b = &d->buckets[d->next++];
        if (d->o.reproducible) NRL_TRY(ddp_tree_end_shard(d, ctx, b));
        b->stage = 0;
        b->running = true;
        NRL_TRY(advance(d, ctx, b));
        for (int32_t k = 0; k < d->next - LAG; k++)
            if (d->buckets[k].running) NRL_TRY(advance(d, ctx, &d->buckets[k]));
    }
    return NRL_OK;
}

/* No gradient reached this parameter on this rank; other ranks may have one. */
static nrl_status fill_unused(nrl_ctx *ctx, ddp_slot *s)
{
    s->unused = nrl_param_grad_is_empty(s->param);
    if (!s->unused) return NRL_OK;
    nrl_param_set_grad_is_empty(s->param, false);
    return nrl_tensor_fill(ctx, s->view, 0);
}

nrl_status ddp_final(ddp *d, nrl_ctx *ctx, nrl_param *const *final, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        ddp_slot *s = ddp_slot_of(d, final[i]);
        if (!s) continue;
        if (!d->o.reproducible) NRL_TRY(fill_unused(ctx, s));
        d->buckets[s->bucket].n_pending--;
    }
    return start_ready(d, ctx);
}

/* ---- parameters without a gradient ---- */

static nrl_status flags_of_all(ddp *d, nrl_ctx *ctx, double *used)
{
    const int64_t n = d->n_slots;
    float *mine = calloc((size_t)n, sizeof *mine);
    nrl_tensor *flags = NULL;
    nrl_work *work = NULL;
    if (!mine) return nrl_fail(NRL_ERR_MEMORY, "out of memory for %lld flags", (long long)n);
    for (int64_t i = 0; i < n; i++)
        mine[i] = d->slots[i].reached && !d->slots[i].unused;
    nrl_status st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &n, mine, &flags);
    free(mine);
    NRL_TRY(st);
    nrl_comm_call call = {
        .size = sizeof call, .reduce = NRL_REDUCE_OP_MAX, .receive = flags, .what = "unused parameters"};
    NRL_TRY(nrl_comm_all_reduce(d->comm, ctx, &call, &work));
    NRL_TRY(nrl_work_wait(&work, ctx));
    NRL_TRY(nrl_tensor_fetch(ctx, flags, used, n));
    /* Ranks of the axis `experts` have batches of their own, and experts of their own in the same slots. */
    double *other = calloc((size_t)n, sizeof *other);
    if (!other) return nrl_fail(NRL_ERR_MEMORY, "out of memory for %lld flags", (long long)n);
    st = nrl_comm_all_reduce(nrl_mesh_comm(d->mesh, "experts"), ctx, &call, &work);
    if (!st) st = nrl_work_wait(&work, ctx);
    if (!st) st = nrl_tensor_fetch(ctx, flags, other, n);
    for (int64_t i = 0; i < n && !st; i++)
        if (!nrl_param_expert(d->slots[i].param)) used[i] = other[i];
    free(other);
    return st;
}

static nrl_status report_unused(const ddp *d, const double *used)
{
    char names[400];
    int n_unused = 0;
    size_t at = 0;
    *names = 0;
    for (int32_t i = 0; i < d->n_slots; i++) {
        if (used[i] > 0 || n_unused++ >= MAX_NAMED) continue;
        int n =
            snprintf(names + at, sizeof names - at, "%s'%.100s'", at ? ", " : "", nrl_param_name(d->slots[i].param));
        at += (size_t)n;
    }
    if (!n_unused) return NRL_OK;
    const char *more = n_unused > MAX_NAMED ? ", ..." : "";
    if (d->o.unused == DDP_UNUSED_ERROR)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%d trained parameters have no gradient in this step: %s%s\n"
                        "hint: `unused: zero` uses zero instead",
                        n_unused, names, more);
    if (!d->quiet) nrl_warn("%d trained parameters have no gradient: %s%s", n_unused, names, more);
    return NRL_OK;
}

static nrl_status look_for_unused(ddp *d, nrl_ctx *ctx)
{
    if (d->o.unused == DDP_UNUSED_ZERO || d->unused_reported) return NRL_OK;
    double *used = calloc((size_t)d->n_slots + 1, sizeof *used);
    if (!used) return nrl_fail(NRL_ERR_MEMORY, "out of memory for %d flags", d->n_slots);
    nrl_scope_begin(ctx);
    nrl_status st = flags_of_all(d, ctx, used);
    nrl_scope_end(ctx);
    if (st == NRL_OK) st = report_unused(d, used);
    d->unused_reported = d->o.unused == DDP_UNUSED_WARN; /* warn once per run */
    free(used);
    return st;
}

/* ---- the end of a step ---- */

/* Completes gradients that no action made final: those of parameters that no unit uses, and all gradients
 * of a schedule without `final`. */
static nrl_status complete_rest(ddp *d, nrl_ctx *ctx)
{
    for (int32_t k = d->next; k < d->n_buckets; k++) {
        ddp_bucket *b = &d->buckets[k];
        for (int32_t i = b->first; b->n_pending && i < b->first + b->n_slots; i++)
            if (!d->o.reproducible && nrl_param_grad_is_empty(d->slots[i].param))
                NRL_TRY(fill_unused(ctx, &d->slots[i]));
        b->n_pending = 0;
    }
    return start_ready(d, ctx);
}

static nrl_status drain(ddp *d, nrl_ctx *ctx)
{
    for (bool running = true; running;) {
        running = false;
        for (int32_t k = 0; k < d->n_buckets; k++) {
            NRL_TRY(advance(d, ctx, &d->buckets[k]));
            running = running || d->buckets[k].running || d->buckets[k].work[0] || d->buckets[k].work[1];
        }
    }
    return NRL_OK;
}

/* A step that is not finite on a rank of another axis is omitted by all ranks too. */
static nrl_status agree_with_axes(ddp *d, nrl_ctx *ctx, bool *finite)
{
    static const char *const axes[] = {"pipeline", "tensor", "context", "experts"};
    const int64_t one = 1;
    const float mine = *finite;
    double all = mine;
    nrl_tensor *flag = NULL;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        nrl_work *work = NULL;
        if (nrl_mesh_size(d->mesh, axes[i]) < 2) continue;
        if (!flag) NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &one, &mine, &flag));
        nrl_comm_call call = {
            .size = sizeof call, .reduce = NRL_REDUCE_OP_MIN, .receive = flag, .what = "finite gradients"};
        NRL_TRY(nrl_comm_all_reduce(nrl_mesh_comm(d->mesh, axes[i]), ctx, &call, &work));
        NRL_TRY(nrl_work_wait(&work, ctx));
    }
    if (flag) NRL_TRY(nrl_tensor_fetch(ctx, flag, &all, 1));
    *finite = all > 0;
    return NRL_OK;
}

nrl_status ddp_settle(ddp *d, nrl_ctx *ctx)
{
    bool all_finite = true, finite = true;
    if (!d->codec->settle) return NRL_OK;
    for (int32_t k = 0; k < d->n_buckets; k++) {
        NRL_TRY(d->codec->is_finite(d, ctx, &d->buckets[k], &finite));
        all_finite = all_finite && finite;
    }
    nrl_scope_begin(ctx);
    nrl_status agreed = agree_with_axes(d, ctx, &all_finite);
    nrl_scope_end(ctx);
    NRL_TRY(agreed);
    for (int32_t k = 0; k < d->n_buckets; k++) {
        nrl_scope_begin(ctx); /* frees temporaries after each bucket */
        nrl_status st = d->codec->settle(d, ctx, &d->buckets[k], all_finite);
        nrl_scope_end(ctx);
        NRL_TRY(st);
    }
    return NRL_OK;
}

nrl_status ddp_finish(ddp *d, nrl_ctx *ctx)
{
    NRL_TRY(complete_rest(d, ctx));
    NRL_TRY(drain(d, ctx));
    nrl_scope_begin(ctx);
    nrl_status st = ddp_settle(d, ctx);
    nrl_scope_end(ctx);
    NRL_TRY(st);
    NRL_TRY(look_for_unused(d, ctx));
    for (int32_t k = 0; k < d->n_buckets; k++)
        d->buckets[k].n_pending = d->buckets[k].n_slots;
    for (int32_t k = 0; d->o.reproducible && k < d->n_buckets; k++)
        ddp_tree_begin_shard(d, &d->buckets[k], 0);
    d->next = 0;
    d->steps++;
    return NRL_OK;
}
