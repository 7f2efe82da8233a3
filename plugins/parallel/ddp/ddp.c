/*
 * ddp.c - data parallel: every rank holds the whole model, computes on its share of the global batch,
 * and sums gradients with the other ranks while the backward still runs (Li et al. 2020).
 */
#include "ddp.h"
#include "../common/needs.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const nrl_option ddp_rows[] = {
    NRL_OPT_F64(ddp_options, bucket_cap_mb, "0", 0, 65536,
                "MiB of gradients that are sent together; a larger parameter has its own bucket; 0: the size that "
                "the collective prefers, or 4"),
    NRL_OPT_F64(ddp_options, first_bucket_mb, "1", 0.001, 65536,
                "MiB of the first bucket, at most bucket_cap_mb; a small first bucket starts communication early"),
    NRL_OPT_ENUM(ddp_options, compress, "none", "none|bf16|fp16|powersgd|topk|threshold",
                 "how gradients are sent; bf16 and fp16 are summed in f32"),
    NRL_OPT_BOOL(ddp_options, error_feedback, "true",
                 "powersgd, topk, threshold: add the part that was not sent to the gradient of the next step"),
    NRL_OPT_INT(ddp_options, start_step, "100", 0, 1e15,
                "powersgd, topk, threshold: number of first steps that send f32"),
    NRL_OPT_INT(ddp_options, powersgd_rank, "4", 1, 1024, "rank of the approximation that is sent"),
    NRL_OPT_F64(ddp_options, powersgd_min_rate, "2", 1, 1e9,
                "matrices that would shrink by a smaller factor are sent unchanged"),
    NRL_OPT_BOOL(ddp_options, powersgd_warm_start, "true",
                 "start from the factor of the last step instead of a random one"),
    NRL_OPT_F64(ddp_options, topk_ratio, "0.01", 1e-9, 1, "share of a bucket's elements that are sent"),
    NRL_OPT_F64(ddp_options, threshold_value, "1e-4", 1e-30, 1e30,
                "threshold: send elements of at least this magnitude"),
    NRL_OPT_INT(ddp_options, sync_every, "1", 1, 1e9,
                "local SGD: each rank updates independently, and weights are averaged every N updates; 1: gradients "
                "are summed. Evaluations, saves and exports in between use the average"),
    NRL_OPT_BOOL(ddp_options, sync_states, "false",
                 "with sync_every: also average the moments of the optimizer; otherwise each rank keeps its own"),
    NRL_OPT_F64(ddp_options, outer_lr, "1", 0, 10,
                "with sync_every: learning rate of the outer step, from the last common weights to the average; 1: use "
                "the average"),
    NRL_OPT_F64(ddp_options, outer_momentum, "0", 0, 0.9999,
                "with sync_every: Nesterov momentum of the outer steps; 0.9 with outer_lr: 0.7 is DiLoCo"),
    NRL_OPT_ENUM(ddp_options, unused, "zero", "zero|warn|error",
                 "trained parameters without a gradient on any rank; zero: use zero; warn: use zero and warn once; "
                 "error: fail"),
    NRL_OPT_INT(ddp_options, reproducible, "0", 0, 1024,
                "N, a power of two: bit-identical results on any number of ranks that divides N, and with fsdp. Each "
                "global batch is divided into N shards, which are added in one tree"),
};

/* ---- rules between options ---- */

static nrl_status ddp_check(const void *options)
{
    const ddp_options *o = options;
    bool low_rank = o->compress == DDP_POWERSGD, sums = o->sync_every == 1;
    bool leaves_out = low_rank || o->compress == DDP_TOPK || o->compress == DDP_THRESHOLD;
    if (o->reproducible & (o->reproducible - 1))
        return nrl_fail(NRL_ERR_CONFIG, "reproducible: got %lld, expected a power of two", (long long)o->reproducible);
    NRL_TRY(needs(o->reproducible, sums && o->compress == DDP_NONE, "reproducible",
                  "sync_every: 1 and compress: none, because local updates and residuals depend on the number of "
                  "ranks"));
    NRL_TRY(needs(o->powersgd_rank != 4, low_rank, "powersgd_rank", "compress: powersgd"));
    NRL_TRY(needs(fabs(o->powersgd_min_rate - 2) > 0, low_rank, "powersgd_min_rate", "compress: powersgd"));
    NRL_TRY(needs(!o->powersgd_warm_start, low_rank, "powersgd_warm_start", "compress: powersgd"));
    NRL_TRY(needs(o->start_step != 100, leaves_out, "start_step", "compress: powersgd, topk or threshold"));
    NRL_TRY(needs(!o->error_feedback, leaves_out, "error_feedback", "compress: powersgd, topk or threshold"));
    NRL_TRY(needs(fabs(o->topk_ratio - 0.01) > 0, o->compress == DDP_TOPK, "topk_ratio", "compress: topk"));
    NRL_TRY(needs(fabs(o->threshold_value - 1e-4) > 0, o->compress == DDP_THRESHOLD, "threshold_value",
                  "compress: threshold"));
    NRL_TRY(needs(o->sync_states, !sums, "sync_states", "sync_every above 1"));
    NRL_TRY(needs(fabs(o->outer_lr - 1) > 0, !sums, "outer_lr", "sync_every above 1"));
    NRL_TRY(needs(o->outer_momentum > 0, !sums, "outer_momentum", "sync_every above 1"));
    NRL_TRY(needs(o->compress != DDP_NONE, sums, "compress", "sync_every: 1, which sums gradients"));
    NRL_TRY(needs(o->unused != DDP_UNUSED_ZERO, sums, "unused", "sync_every: 1"));
    NRL_TRY(needs(o->bucket_cap_mb > 0, sums, "bucket_cap_mb", "sync_every: 1"));
    return needs(fabs(o->first_bucket_mb - 1) > 0, sums, "first_bucket_mb", "sync_every: 1");
}

/* ---- the strategy ---- */

static const ddp_codec *codec_of(const ddp_options *o)
{
    if (o->reproducible) return &ddp_tree;
    switch (o->compress) {
    case DDP_BF16:
    case DDP_FP16:
        return &ddp_half;
    case DDP_POWERSGD:
        return &ddp_powersgd;
    case DDP_TOPK:
    case DDP_THRESHOLD:
        return &ddp_sparse;
    default:
        return &ddp_plain;
    }
}

static const nrl_mesh_axis ddp_axis = {
    .size = sizeof(nrl_mesh_axis),
    .divides = NRL_DIVIDES_BATCH,
    .name = "data",
    .order = 300,
    .takes_rest = true,
};

static nrl_status ddp_create(const void *options, nrl_mesh *mesh, void **self)
{
    ddp *d = calloc(1, sizeof *d);
    if (!d) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'ddp'");
    d->o = *(const ddp_options *)options;
    d->mesh = mesh;
    d->comm = nrl_mesh_comm(mesh, ddp_axis.name);
    d->rank = nrl_mesh_coord(mesh, ddp_axis.name);
    d->size = nrl_mesh_size(mesh, ddp_axis.name);
    d->codec = codec_of(&d->o);
    d->bucket_bytes = d->o.bucket_cap_mb > 0               ? d->o.bucket_cap_mb * MIB
                      : nrl_comm_bucket_bytes(d->comm) > 0 ? (double)nrl_comm_bucket_bytes(d->comm)
                                                           : 4.0 * MIB;
    d->n_shards = d->o.reproducible ? (int32_t)d->o.reproducible / d->size : 1;
    *self = d;
    return NRL_OK;
}

static void ddp_destroy(void *self)
{
    ddp *d = self;
    free(d->slots);
    free(d->buckets);
    free(d);
}

static nrl_status check_encodings(const ddp *d, nrl_parallel_plan *plan)
{
    plan->takes_split16 = plan->takes_bf16_gradients = true;
    if (plan->split16 && d->o.sync_every > 1)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot average weights (sync_every) with train.master: split16; expected sync_every: 1, or "
                        "train.master: fp32");
    if (plan->bf16_gradients && d->o.compress != DDP_NONE)
        return nrl_fail(NRL_ERR_CONFIG, "cannot compress gradients: train.gradients is bf16; "
                                        "expected compress: none, or train.gradients: fp32");
    if (plan->bf16_gradients && d->o.reproducible)
        return nrl_fail(NRL_ERR_CONFIG, "reproducible is not supported with train.gradients: bf16, which rounds each "
                                        "micro-batch; expected train.gradients: fp32");
    return NRL_OK;
}

static nrl_status ddp_plan(void *self, nrl_parallel_plan *plan)
{
    ddp *d = self;
    bool local = d->o.sync_every > 1;
    d->train = plan->train;
    d->quiet = plan->quiet;
    d->n_states = plan->n_states;
    d->gradients = plan->bf16_gradients ? NRL_DTYPE_BF16 : NRL_DTYPE_F32;
    NRL_TRY(check_encodings(d, plan));
    if (plan->repeats && d->codec->state)
        return nrl_fail(NRL_ERR_CONFIG,
                        "train.on_oom: retry is not supported with residuals of `compress`; expected train.on_oom: "
                        "stop, or compress: none, bf16 or fp16");
    if (plan->two_passes && d->codec->state)
        return nrl_fail(NRL_ERR_CONFIG,
                        "the optimizer computes two gradients in each step, at different weights, and residuals of "
                        "`compress` would carry one into the other; expected compress: none, bf16 or fp16");
    if (d->train) {
        NRL_TRY(needs(d->o.sync_states, plan->n_states, "sync_states", "an optimizer that has states"));
        NRL_TRY(ddp_bucket_plan(d, plan));
        d->reduces = (d->size > 1 || d->o.reproducible) && !local;
        d->buckets_used = d->reduces && d->n_slots > 0;
        plan->local_steps = local && d->size > 1;
    }
    ddp_describe(d, plan);
    return NRL_OK;
}

static nrl_status ddp_bind(void *self, nrl_ctx *ctx)
{
    ddp *d = self;
    return d->buckets_used ? ddp_bucket_bind(d, ctx) : ddp_outer_bind(d, ctx);
}

static void ddp_unbind(void *self, nrl_ctx *ctx)
{
    ddp *d = self;
    if (d->buckets_used) ddp_bucket_unbind(d, ctx);
    ddp_outer_unbind(d, ctx);
}

static nrl_status next_shard(ddp *d, nrl_ctx *ctx)
{
    for (int32_t k = 0; k < d->n_buckets; k++) {
        NRL_TRY(ddp_tree_end_shard(d, ctx, &d->buckets[k]));
        ddp_tree_begin_shard(d, &d->buckets[k], d->shard + 1);
    }
    return NRL_OK;
}

static nrl_status ddp_leave(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    ddp *d = self;
    const nrl_action *v = nrl_action_at(actions, i);
    if (!d->buckets_used || v->pass < NRL_PASS_BACKWARD) return NRL_OK;
    d->shard = v->shard;
    if (v->shard < d->n_shards - 1) return i + 1 == v->n_actions ? next_shard(d, ctx) : NRL_OK;
    return ddp_final(d, ctx, v->final, v->n_final);
}

static nrl_status ddp_finish_step(void *self, nrl_ctx *ctx)
{
    ddp *d = self;
    if (!d->buckets_used) return d->reduces ? ddp_settle(d, ctx) : NRL_OK;
    return ddp_finish(d, ctx);
}

/* The update already wrote WEIGHT where WEIGHT is not MASTER. Only values from elsewhere, and averages,
 * must be copied. */
static nrl_status ddp_updated(void *self, nrl_ctx *ctx, int64_t step)
{
    ddp *d = self;
    return step == 0 || d->o.sync_every > 1 ? ddp_local_updated(d, ctx, step) : NRL_OK;
}

static nrl_status ddp_average(void *self, nrl_ctx *ctx, bool begin)
{
    return ddp_local_average(self, ctx, begin);
}

static nrl_status ddp_state(void *self, nrl_ctx *ctx, nrl_state_io *v)
{
    ddp *d = self;
    if (!d->train || d->size == 1) return NRL_OK;
    if (d->o.sync_every > 1) return ddp_local_state(d, ctx, v);
    if (d->codec->state) NRL_TRY(nrl_state_io_i64(v, "steps", &d->steps, 1));
    for (int32_t k = 0; d->buckets_used && d->codec->state && k < d->n_buckets; k++)
        NRL_TRY(d->codec->state(d, ctx, &d->buckets[k], v));
    return NRL_OK;
}

static int32_t ddp_shards(const void *options, bool *strided)
{
    *strided = false; /* a rank's shards are a subtree: one exchange a step */
    return (int32_t)((const ddp_options *)options)->reproducible;
}

static const nrl_parallel ddp_table = {
    NRL_PLUGIN(NRL_KIND_PARALLEL, nrl_parallel, ddp_options, ddp_rows, "ddp", "0.1",
               "data parallelism: the whole model on every rank; gradients are summed during the backward pass"),
    .plugin.priority = 100,
    .plugin.check = ddp_check,
    .axis = &ddp_axis,
    .create = ddp_create,
    .destroy = ddp_destroy,
    .plan = ddp_plan,
    .bind = ddp_bind,
    .unbind = ddp_unbind,
    .leave = ddp_leave,
    .finish = ddp_finish_step,
    .updated = ddp_updated,
    .state = ddp_state,
    .average = ddp_average,
    .shards = ddp_shards,
};
NRL_EXPORT(ddp_table)
