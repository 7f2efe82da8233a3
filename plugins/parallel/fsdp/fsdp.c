/*
 * fsdp.c - fully sharded data parallel: each rank holds 1/R of the optimizer's states and, by `shard`,
 * of gradients and parameters too; parameters are gathered unit by unit, and gradients are reduced to
 * slices. Rajbhandari et al. 2020 (ZeRO, stages 1 to 3); Zhao et al. 2023 (FSDP). This file has the
 * options, the groups of ranks, and the table.
 */
#include "fsdp.h"
#include "../common/needs.h"
#include <stdlib.h>

static const nrl_option fsdp_rows[] = {
    NRL_OPT_ENUM(fsdp_options, shard, "full", "full|grads|optimizer",
                 "full: shard everything (ZeRO-3); grads: gradients and optimizer states (ZeRO-2); optimizer: "
                 "optimizer states (ZeRO-1)"),
    NRL_OPT_BOOL(fsdp_options, hybrid, "false", "shard inside a node, replicate across nodes"),
    NRL_OPT_INT(fsdp_options, shard_size, "0", 0, 1 << 20,
                "number of ranks that share one copy of the model; 0: all ranks, or with hybrid those of a node"),
    NRL_OPT_INT(fsdp_options, replicas, "0", 0, 1 << 20, "number of copies, instead of shard_size"),
    NRL_OPT_NODE(
        fsdp_options, units, "",
        "parameters that are gathered at once; unset: one unit of the model; {every: n} units; {min_params: n} "
        "parameters; {begin: [UNIT, ...]}: the units from each of these to the next"),
    NRL_OPT_INT(fsdp_options, prefetch, "1", 0, 16, "number of units that are gathered ahead of their use"),
    NRL_OPT_ENUM(fsdp_options, reduce_dtype, "f32", "f32|bf16|fp16",
                 "dtype of gradients in communication inside a copy; sums over micro-batches are f32"),
    NRL_OPT_INT(fsdp_options, reproducible, "0", 0, 1024,
                "N, a power of two: bit-identical results on any number of ranks that divides N, and with ddp. Each "
                "global batch is divided into N shards, which are added in one tree"),
    NRL_OPT_ENUM(fsdp_options, offload, "none", "none|host|disk",
                 "where shards of weights and gradients are stored between uses: on the device, in host memory, or "
                 "in a file (in `out`, or train.offload.folder); also for one rank"),
};

static nrl_status fsdp_check(const void *options)
{
    const fsdp_options *o = options;
    fsdp_units unused;
    if (o->reproducible & (o->reproducible - 1))
        return nrl_fail(NRL_ERR_CONFIG, "reproducible: got %lld, expected a power of two", (long long)o->reproducible);
    if (o->reproducible && o->reduce_dtype)
        return nrl_fail(NRL_ERR_CONFIG, "reproducible requires reduce_dtype: f32, because sums in 16 bits depend on "
                                        "the number of ranks");
    NRL_TRY(needs(o->prefetch != 1, o->shard == FSDP_FULL, "prefetch", "shard: full, which gathers units"));
    return fsdp_read_units(o->units, &unused);
}

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* Rejects options that contradict each other or the number of ranks; errors name the option that the user set. */
static nrl_status check_ranks(const fsdp_options *o, int32_t all)
{
    long long size = o->shard_size, copies = o->replicas;
    if (size && copies && size * copies != all)
        return nrl_fail(NRL_ERR_CONFIG, "shard_size %lld times replicas %lld makes %lld rank%s, but there %s %d", size,
                        copies, size * copies, plural(size * copies), all == 1 ? "is" : "are", all);
    if (size && all % size)
        return nrl_fail(NRL_ERR_CONFIG, "shard_size: %lld ranks to a copy do not divide %d rank%s", size, all,
                        plural(all));
    if (copies && all % copies)
        return nrl_fail(NRL_ERR_CONFIG, "replicas: %lld copies do not divide %d rank%s", copies, all, plural(all));
    return NRL_OK;
}

/* One rank per copy: the user's option leaves nothing to shard. */
static nrl_status nothing_divided(const fsdp_options *o, int32_t all)
{
    static const char *const hint = "hint: use parallel: ddp for a complete copy on each rank";
    if (o->shard_size)
        return nrl_fail(NRL_ERR_CONFIG, "shard_size: one rank per copy of the model leaves nothing to shard\n%s", hint);
    if (o->replicas)
        return nrl_fail(NRL_ERR_CONFIG,
                        "replicas: %d copies on %d ranks: one rank per copy of the model leaves nothing to shard\n%s",
                        (int)o->replicas, all, hint);
    return nrl_fail(NRL_ERR_CONFIG, "hybrid: a node has 1 rank, which leaves nothing to shard inside a node\n%s", hint);
}

static const nrl_mesh_axis fsdp_axis = {
    .size = sizeof(nrl_mesh_axis),
    .divides = NRL_DIVIDES_BATCH,
    .name = "data",
    .order = 300,
    .takes_rest = true,
};

/* Number of ranks that share one copy: as configured, or derived. */
static nrl_status shard_size_of(const fsdp *s, int32_t all, int32_t *size)
{
    const fsdp_options *o = &s->options;
    NRL_TRY(check_ranks(o, all));
    int32_t local = nrl_mesh_local_size(s->mesh, fsdp_axis.name);
    if (o->shard_size)
        *size = (int32_t)o->shard_size;
    else if (o->replicas)
        *size = all / (int32_t)o->replicas;
    else
        *size = o->hybrid ? local : all;
    if (all % *size)
        return nrl_fail(NRL_ERR_CONFIG, "hybrid: %d ranks of this node do not divide %d ranks", local, all);
    return *size == 1 && all > 1 ? nothing_divided(o, all) : NRL_OK;
}

static nrl_status fsdp_join(fsdp *s)
{
    int32_t all = nrl_mesh_size(s->mesh, fsdp_axis.name), size;
    NRL_TRY(shard_size_of(s, all, &size));
    s->n_ranks = size;
    s->n_replicas = all / size;
    s->n_shards = s->options.reproducible ? (int32_t)s->options.reproducible / all : 1;
    s->axis = fsdp_axis.name;
    if (s->n_replicas > 1) {
        NRL_TRY(nrl_mesh_split(s->mesh, fsdp_axis.name, size, "shard", "replica"));
        s->axis = "shard";
        s->replica_comm = nrl_mesh_comm(s->mesh, "replica");
    }
    s->rank = nrl_mesh_coord(s->mesh, s->axis);
    s->comm = nrl_mesh_comm(s->mesh, s->axis);
    return NRL_OK;
}

static void fsdp_destroy(void *self)
{
    fsdp *s = self;
    fsdp_free_groups(s);
    fsdp_free_slots(&s->work_slots);
    fsdp_free_slots(&s->acc_slots);
    fsdp_free_slots(&s->wire_slots);
    free(s->tensors);
    free(s);
}

static nrl_status fsdp_create(const void *options, nrl_mesh *mesh, void **self)
{
    fsdp *s = calloc(1, sizeof *s);
    if (!s) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'fsdp'");
    s->options = *(const fsdp_options *)options;
    s->mesh = mesh;
    nrl_status st = fsdp_read_units(s->options.units, &s->merge);
    if (st == NRL_OK) st = fsdp_join(s);
    if (st == NRL_OK)
        *self = s;
    else
        fsdp_destroy(s);
    return st;
}

/* The loss is part of the last unit's forward action and may compute the head's gradient there. */
static bool adds_gradients(const nrl_action *actions, int64_t i)
{
    const nrl_action *v = nrl_action_at(actions, i), *next = i + 1 < v->n_actions ? nrl_action_at(actions, i + 1) : v;
    return v->pass >= NRL_PASS_BACKWARD || (next->pass == NRL_PASS_BACKWARD && next->unit == v->unit);
}

static nrl_status fsdp_enter(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    fsdp *s = self;
    if (s->idle) return NRL_OK;
    if (nrl_action_at(actions, i)->pass != NRL_PASS_BACKWARD_WEIGHT) NRL_TRY(fsdp_gather_for(s, ctx, actions, i));
    return adds_gradients(actions, i) ? fsdp_reduce_enter(s, ctx, actions, i) : NRL_OK;
}

/* A gathered group stays until its buffer is needed: the next action may use the group again. */
static nrl_status fsdp_leave(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    fsdp *s = self;
    if (s->idle || nrl_action_at(actions, i)->pass < NRL_PASS_BACKWARD) return NRL_OK;
    return fsdp_reduce_leave(s, ctx, actions, i);
}

static nrl_status fsdp_finish(void *self, nrl_ctx *ctx)
{
    fsdp *s = self;
    return s->idle ? NRL_OK : fsdp_reduce_finish(s, ctx);
}

/* Where nothing is sharded, WEIGHT is at most a copy. */
static nrl_status copy_masters(const fsdp *s, nrl_ctx *ctx)
{
    for (int32_t i = 0; i < s->plan.n_params; i++) {
        nrl_param *p = s->plan.params[i];
        nrl_tensor *master = nrl_param_tensor(p, NRL_SLOT_MASTER), *work = nrl_param_tensor(p, NRL_SLOT_WEIGHT);
        if (!master || !work || master == work) continue;
        NRL_TRY(nrl_master_round(ctx, master, work));
        nrl_param_touch(p);
    }
    return NRL_OK;
}

static nrl_status fsdp_updated(void *self, nrl_ctx *ctx, int64_t step)
{
    fsdp *s = self;
    return s->idle ? copy_masters(s, ctx) : fsdp_gather_again(s, ctx, step == 0);
}

static int32_t fsdp_shards(const void *options, bool *strided)
{
    *strided = true; /* the ranks' shards are a subtree, so that sums wait as slices */
    return (int32_t)((const fsdp_options *)options)->reproducible;
}

static const nrl_parallel table = {
    NRL_PLUGIN(NRL_KIND_PARALLEL, nrl_parallel, fsdp_options, fsdp_rows, "fsdp", "0.1",
               "fully sharded data parallelism: parameters, gradients and optimizer states sharded over ranks"),
    .plugin.priority = 50,
    .plugin.check = fsdp_check,
    .axis = &fsdp_axis,
    .create = fsdp_create,
    .destroy = fsdp_destroy,
    .plan = fsdp_plan,
    .bind = fsdp_bind,
    .unbind = fsdp_unbind,
    .enter = fsdp_enter,
    .leave = fsdp_leave,
    .finish = fsdp_finish,
    .updated = fsdp_updated,
    .shards = fsdp_shards,
    .hold = fsdp_hold,
};
NRL_EXPORT(table)
