/*
 * old_parallel.c - copies of a whole group of ranks on an axis of their own, `parallel: {old_parallel: 2}`: each copy
 * works on its own part of the global batch, and gradients are summed over the copies after every step. A starting
 * point for your own strategy; nrl/parallel.h documents each member.
 */
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>

/* Outer to axes with more communication. */
static const nrl_mesh_axis old_parallel_axis = {
    .size = sizeof(nrl_mesh_axis),
    .divides = NRL_DIVIDES_BATCH,
    .name = "old_parallel",
    .order = 200,
};

typedef struct {
    nrl_comm *comm;
    nrl_param *const *params; /* of the plan */
    int32_t n_params, n;      /* n: copies */
    bool train;
    char text[64];
} old_parallel;

static nrl_status old_parallel_create(const void *options, nrl_mesh *mesh, void **self)
{
    old_parallel *r = calloc(1, sizeof *r);
    (void)options;
    if (!r) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'old_parallel'");
    r->comm = nrl_mesh_comm(mesh, old_parallel_axis.name);
    r->n = nrl_mesh_size(mesh, old_parallel_axis.name);
    *self = r;
    return NRL_OK;
}

/* Divides nothing, so layouts do not change. */
static nrl_status old_parallel_plan(void *self, nrl_parallel_plan *plan)
{
    old_parallel *r = self;
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
static nrl_status old_parallel_finish(void *self, nrl_ctx *ctx)
{
    const old_parallel *r = self;
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
static nrl_status old_parallel_updated(void *self, nrl_ctx *ctx, int64_t step)
{
    const old_parallel *r = self;
    for (int32_t i = 0; step == 0 && i < r->n_params; i++) {
        nrl_tensor *master = nrl_param_tensor(r->params[i], NRL_SLOT_MASTER);
        nrl_tensor *work = nrl_param_tensor(r->params[i], NRL_SLOT_WEIGHT);
        if (!master || !work || master == work || nrl_tensor_numel(master) != nrl_tensor_numel(work)) continue;
        NRL_TRY(nrl_master_round(ctx, master, work));
        nrl_param_touch(r->params[i]);
    }
    return NRL_OK;
}

static const nrl_parallel old_parallel_table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_PARALLEL, nrl_parallel, "old_parallel", "0.1", "one line for `nrl plugins`"),
    .plugin.priority = 100, /* serves its axis if the config only gives a size */
    .axis = &old_parallel_axis,
    .create = old_parallel_create,
    .destroy = free,
    .plan = old_parallel_plan,
    .finish = old_parallel_finish,
    .updated = old_parallel_updated,
};
NRL_EXPORT(old_parallel_table)
