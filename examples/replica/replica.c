/*
 * replica.c - copies of a whole group of ranks: each copy works on its own part of the global
 * batch, and gradients are summed over the copies after every step. Each copy is divided in the
 * same way by the other axes, so
 *   parallel: {replica: 2, data: fsdp, tensor: 2}
 * has two copies of a model that is sharded over the axes data and tensor (hybrid sharding). The
 * plugin does not name these axes: it declares its own axis and sums the shard that the others
 * leave on each rank.
 */
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>

/* Outer to axes with more communication. */
static const nrl_mesh_axis replica_axis = {
    .size = sizeof(nrl_mesh_axis),
    .divides = NRL_DIVIDES_BATCH,
    .name = "replica",
    .order = 200,
};

typedef struct {
    nrl_comm *comm;
    nrl_param *const *params; /* of the plan */
    int32_t n_params, n;      /* n: copies */
    bool train;
    char text[64];
} replica;

static nrl_status replica_create(const void *options, nrl_mesh *mesh, void **self)
{
    replica *r = calloc(1, sizeof *r);
    (void)options;
    if (!r) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'replica'");
    r->comm = nrl_mesh_comm(mesh, replica_axis.name);
    r->n = nrl_mesh_size(mesh, replica_axis.name);
    *self = r;
    return NRL_OK;
}

/* Divides nothing, so layouts do not change. */
static nrl_status replica_plan(void *self, nrl_parallel_plan *plan)
{
    replica *r = self;
    r->params = plan->params;
    r->n_params = plan->n_params;
    r->train = plan->train;
    snprintf(r->text, sizeof r->text, "%d copies, gradients summed once per step", (int)r->n);
    plan->takes_split16 = plan->takes_bf16_gradients = true;
    plan->text = r->text;
    return NRL_OK;
}

/* Planned before the other axes of the batch (order), and therefore called after their sums are
 * complete. GRAD_SHARD is the shard of the gradient on this rank; all copies have the same shard. */
static nrl_status replica_finish(void *self, nrl_ctx *ctx)
{
    const replica *r = self;
    for (int32_t i = 0; r->train && r->n > 1 && i < r->n_params; i++) {
        nrl_tensor *grad = nrl_param_tensor(r->params[i], NRL_SLOT_GRAD_SHARD);
        nrl_work *work = NULL;
        nrl_comm_call call = {
            .size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .receive = grad, .what = nrl_param_name(r->params[i])};
        if (!grad || !nrl_param_trained(r->params[i]) || !nrl_tensor_numel(grad)) continue;
        NRL_TRY(nrl_comm_all_reduce(r->comm, ctx, &call, &work));
        NRL_TRY(nrl_work_wait(&work, ctx));
    }
    return NRL_OK;
}

/* An update writes WEIGHT itself. Loaded values (step 0) are copied here unless another strategy
 * gathers WEIGHT from shards of MASTER. */
static nrl_status replica_updated(void *self, nrl_ctx *ctx, int64_t step)
{
    const replica *r = self;
    for (int32_t i = 0; step == 0 && i < r->n_params; i++) {
        nrl_tensor *master = nrl_param_tensor(r->params[i], NRL_SLOT_MASTER);
        nrl_tensor *work = nrl_param_tensor(r->params[i], NRL_SLOT_WEIGHT);
        if (!master || !work || master == work || nrl_tensor_numel(master) != nrl_tensor_numel(work)) continue;
        NRL_TRY(nrl_master_round(ctx, master, work));
        nrl_param_touch(r->params[i]);
    }
    return NRL_OK;
}

static const nrl_parallel replica_table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_PARALLEL, nrl_parallel, "replica", "1.0",
                     "copies of all other axes, with summed gradients"),
    .plugin.priority = 100, /* serves its axis if the config only gives a size */
    .axis = &replica_axis,
    .create = replica_create,
    .destroy = free,
    .plan = replica_plan,
    .finish = replica_finish,
    .updated = replica_updated,
};
NRL_EXPORT(replica_table)
