/*
 * experts.c - expert parallel: ranks divide the experts of a mixture. Each has the parameters of some experts in every
 * layer that has experts, and all other parameters; it computes its own micro-batches, whose tokens travel to the ranks
 * that have their experts and back (Lepikhin et al. 2020, GShard). The gradient of an expert is complete where the
 * expert is; those of all other parameters are summed over the axis once per step.
 */
#include "gradient_sums.h"
#include <stdio.h>
#include <stdlib.h>

static const nrl_mesh_axis experts_axis = {
    .size = sizeof(nrl_mesh_axis),
    .divides = NRL_DIVIDES_EXPERTS,
    .name = "experts",
    .order = 320,
};

typedef struct {
    nrl_comm *comm;
    int32_t size, rank; /* of the axis */
    nrl_param *const *params;
    int32_t n_params;
    int64_t *ranges; /* of the placements: for each parameter of an expert begin [size] and end [size] */
    int64_t *counts; /* [2 size] elements that go to each rank, and come from it */
    gradient_sums sums;
    char text[200];
} experts;

static nrl_status experts_create(const void *options, nrl_mesh *mesh, void **self)
{
    experts *e = calloc(1, sizeof *e);
    (void)options;
    if (!e) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'experts'");
    e->comm = nrl_mesh_comm(mesh, experts_axis.name);
    e->size = nrl_mesh_size(mesh, experts_axis.name);
    e->rank = nrl_mesh_coord(mesh, experts_axis.name);
    *self = e;
    return NRL_OK;
}

static void experts_destroy(void *self)
{
    experts *e = self;
    gradient_sums_free(&e->sums);
    free(e->ranges);
    free(e->counts);
    free(e);
}

/* ---- the plan ---- */

static nrl_status check_plan(const experts *e, const nrl_parallel_plan *plan, int32_t n)
{
    if (n % e->size)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot divide %d experts over %d ranks; expected a number of ranks that divides %d", (int)n,
                        (int)e->size, (int)n);
    if (plan->repeats)
        return nrl_fail(NRL_ERR_CONFIG,
                        "train.on_oom: retry is not supported, because ranks wait for each other in every layer; "
                        "expected train.on_oom: stop");
    return NRL_OK;
}

/* All of the parameter is at coordinate `holder`. Its ranges count rows of what other axes left. */
static nrl_status place_part(const experts *e, nrl_param *p, int32_t holder, int64_t *ranges)
{
    nrl_part *part = nrl_param_part(p, 0);
    nrl_layout *l = &part->layout;
    if (l->n_placements == NRL_MAX_PLACEMENTS || nrl_param_n_parts(p) != 1)
        return nrl_fail(NRL_ERR_BUG, "'%s' has %d placements and %d parts; expected fewer than %d, and 1", part->name,
                        l->n_placements, nrl_param_n_parts(p), NRL_MAX_PLACEMENTS);
    ranges[e->size + holder] = nrl_param_dim(p, 0) / (part->groups > 1 ? part->groups : 1);
    l->placements[l->n_placements++] = (nrl_placement){experts_axis.name, 0, e->size, ranges, ranges + e->size};
    return NRL_OK;
}

/* Bytes that a rank sends for one token and each expert chosen for it: its row goes to the expert's rank, in (R-1) / R
 * of the cases another one, and the result comes back; in the backward the gradients go both ways. */
static double bytes_a_choice(const experts *e, const nrl_parallel_plan *plan)
{
    double width = 0;
    for (int32_t u = 0; u < plan->n_units; u++) {
        int32_t i = 0;
        const nrl_unit_uses *unit = &plan->units[u];
        while (i < unit->n_uses &&
               !(nrl_param_expert(unit->uses[i]) == 1 && nrl_param_tp(unit->uses[i]) == NRL_TP_COLUMN))
            i++;
        if (i < unit->n_uses) width += (double)nrl_param_dim(unit->uses[i], 1);
    }
    return (plan->train ? 4 : 2) * width * (double)nrl_dtype_size((nrl_dtype)plan->compute) * (e->size - 1) / e->size;
}

static bool is_shared(const nrl_param *p)
{
    return !nrl_param_expert(p);
}

static nrl_status experts_plan(void *self, nrl_parallel_plan *plan)
{
    experts *e = self;
    int32_t n = 0;
    plan->takes_split16 = plan->takes_bf16_gradients = true;
    plan->text = "one rank has all experts";
    e->params = plan->params;
    e->n_params = plan->n_params;
    if (e->size == 1) return NRL_OK;
    for (int32_t i = 0; i < plan->n_params; i++)
        if (nrl_param_expert(plan->params[i]) > n) n = nrl_param_expert(plan->params[i]);
    NRL_TRY(check_plan(e, plan, n));
    const int32_t own = n > e->size ? n / e->size : 1;
    const double bytes = bytes_a_choice(e, plan);
    e->ranges = calloc((size_t)plan->n_params * 2 * (size_t)e->size, sizeof *e->ranges);
    e->counts = calloc(2 * (size_t)e->size, sizeof *e->counts);
    if (!e->ranges || !e->counts) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'experts'");
    for (int32_t i = 0; i < plan->n_params; i++) {
        const int32_t number = nrl_param_expert(plan->params[i]);
        if (number) NRL_TRY(place_part(e, plan->params[i], (number - 1) / own, e->ranges + i * 2 * e->size));
    }
    NRL_TRY(gradient_sums_plan(&e->sums, e->comm, plan, is_shared));
    if (n)
        snprintf(e->text, sizeof e->text,
                 "%d ranks with %d of %d experts each; %.1f KiB sent per token and chosen expert", (int)e->size,
                 (int)own, (int)n, bytes / 1024);
    else /* a stage of another axis */
        snprintf(e->text, sizeof e->text, "%d ranks, no experts in these layers", (int)e->size);
    plan->text = e->text;
    return NRL_OK;
}

/* ---- a step ---- */

static nrl_status experts_exchange(void *self, nrl_ctx *ctx, nrl_tensor *x, const int64_t *sent, nrl_tensor *y,
                                   const int64_t *received)
{
    const experts *e = self;
    const int64_t width = nrl_tensor_n_dims(x) > 1 ? nrl_tensor_dim(x, 1) : 1;
    nrl_work *work = NULL;
    for (int32_t r = 0; r < e->size; r++) {
        e->counts[r] = sent[r] * width;
        e->counts[e->size + r] = received[r] * width;
    }
    const nrl_comm_call call = {.size = sizeof call,
                                .send = x,
                                .receive = y,
                                .counts = e->counts,
                                .receive_counts = e->counts + e->size,
                                .what = "rows of experts"};
    NRL_TRY(nrl_comm_all_to_all(e->comm, ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

static nrl_status experts_finish(void *self, nrl_ctx *ctx)
{
    experts *e = self;
    return gradient_sums_finish(&e->sums, ctx);
}

static nrl_status experts_updated(void *self, nrl_ctx *ctx, int64_t step)
{
    const experts *e = self;
    return step ? NRL_OK : weights_from_masters(e->params, e->n_params, ctx);
}

static void experts_unbind(void *self, nrl_ctx *ctx)
{
    experts *e = self;
    gradient_sums_unbind(&e->sums, ctx);
}

static const nrl_parallel experts_table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_PARALLEL, nrl_parallel, "experts", "0.1",
                     "expert parallelism: ranks share the experts; tokens are sent to their experts"),
    .plugin.priority = 100,
    .axis = &experts_axis,
    .create = experts_create,
    .destroy = experts_destroy,
    .plan = experts_plan,
    .unbind = experts_unbind,
    .finish = experts_finish,
    .updated = experts_updated,
    .exchange = experts_exchange,
};
NRL_EXPORT(experts_table)
