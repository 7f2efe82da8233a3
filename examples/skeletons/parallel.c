/*
 * @NAME@.c - copies of a whole group of ranks on an axis of their own, `parallel: {@NAME@: 2}`: each copy works on its own
 * part of the global batch, and gradients are summed over the copies after every step. A starting point for your own
 * strategy; nrl/parallel.h documents each member.
 */
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>

/* Outer to axes with more communication. */
static const nrl_mesh_axis @NAME@_axis = {
    .size = sizeof(nrl_mesh_axis),
    .divides = NRL_DIVIDES_BATCH,
    .name = "@NAME@",
    .order = 200,
};

typedef struct {
    nrl_comm *comm;
    nrl_param *const *params; /* of the plan */
    int32_t n_params, n;      /* n: copies */
    bool train;
    char text[64];
} @NAME@;

static nrl_status @NAME@_create(const void *options, nrl_mesh *mesh, void **self)
{
    @NAME@ *r = calloc(1, sizeof *r);
    (void)options;
    if (!r) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy '@NAME@'");
    r->comm = nrl_mesh_comm(mesh, @NAME@_axis.name);
    r->n = nrl_mesh_size(mesh, @NAME@_axis.name);
    *self = r;
    return NRL_OK;
}

/* Divides nothing, so layouts do not change. */
static nrl_status @NAME@_plan(void *self, nrl_parallel_plan *plan)
{
    @NAME@ *r = self;
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
static nrl_status @NAME@_finish(void *self, nrl_ctx *ctx)
{
    const @NAME@ *r = self;
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
static nrl_status @NAME@_updated(void *self, nrl_ctx *ctx, int64_t step)
{
    const @NAME@ *r = self;
    for (int32_t i = 0; step == 0 && i < r->n_params; i++) {
        nrl_tensor *master = nrl_param_tensor(r->params[i], NRL_SLOT_MASTER);
        nrl_tensor *work = nrl_param_tensor(r->params[i], NRL_SLOT_WEIGHT);
        if (!master || !work || master == work || nrl_tensor_numel(master) != nrl_tensor_numel(work)) continue;
        NRL_TRY(nrl_master_round(ctx, master, work));
        nrl_param_touch(r->params[i]);
    }
    return NRL_OK;
}

static const nrl_parallel @NAME@_table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_PARALLEL, nrl_parallel, "@NAME@", "0.1",
                     "one line for `nrl plugins`"),
    .plugin.priority = 100, /* serves its axis if the config only gives a size */
    .axis = &@NAME@_axis,
    .create = @NAME@_create,
    .destroy = free,
    .plan = @NAME@_plan,
    .finish = @NAME@_finish,
    .updated = @NAME@_updated,
};
NRL_EXPORT(@NAME@_table)
