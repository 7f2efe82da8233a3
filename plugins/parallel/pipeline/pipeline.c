/*
 * pipeline.c - pipeline parallel: each stage holds some consecutive units of the model, and
 * micro-batches pass through the stages one after the other. The core moves activations and gradients
 * between units; this plugin decides which stage runs which unit and in which order, and sums the
 * gradients of shared parameters.
 */
#include "pipeline.h"
#include <stdio.h>
#include <stdlib.h>

static const nrl_option pipeline_rows[] = {
    NRL_OPT_ENUM(
        pipeline_options, schedule, "1f1b", "1f1b|gpipe|interleaved|zero_bubble",
        "1f1b: a stage holds at most as many micro-batches as there are stages; gpipe: all micro-batches of a step; "
        "interleaved: 1f1b with several stages on each rank, with less waiting and more communication; zero_bubble: "
        "1f1b in which a rank computes weight gradients while it would otherwise wait (ZB-H1)"),
    NRL_OPT_INT(pipeline_options, stages_per_rank, "0", 0, PIPELINE_MOST_CHUNKS,
                "number of stages on each rank, for interleaved and zero_bubble; 0: 2 with interleaved, otherwise 1"),
    NRL_OPT_NODE(pipeline_options, split, "",
                 "number of units of each stage, such as [3, 3]; unset: stages of about equal cost"),
    NRL_OPT_ENUM(pipeline_options, balance, "flops", "flops|units",
                 "cost of a unit if split is unset; flops: its matrix products; units: all units cost the same"),
    NRL_OPT_NODE(
        pipeline_options, costs, "",
        "costs of the units, such as [0.2, 1, 1, 1.4], instead of balance: times in any unit; auto: measured on this "
        "machine before the run is opened"),
    NRL_OPT_INT(pipeline_options, measure, "0", 0, 1000,
                "number of first steps in which the costs of units are measured and then printed, for costs"),
};

static const char *const schedule_names[] = {"1f1b", "gpipe", "interleaved", "zero_bubble"};

static const nrl_mesh_axis pipeline_axis = {
    .size = sizeof(nrl_mesh_axis),
    .divides = NRL_DIVIDES_DEPTH,
    .name = "pipeline",
    .order = 100,
};

static void pipeline_destroy(void *self)
{
    pipeline *p = self;
    free(p->first);
    free(p->ranks);
    free(p->costs);
    free(p->owner_stages);
    free(p->shared);
    free(p->text);
    free(p);
}

static nrl_status pipeline_check(const void *options)
{
    const pipeline_options *o = options;
    if (o->stages_per_rank > 1 && (o->schedule == PIPELINE_1F1B || o->schedule == PIPELINE_GPIPE))
        return nrl_fail(NRL_ERR_CONFIG,
                        "stages_per_rank: schedule %s has one stage on each rank; expected interleaved or zero_bubble",
                        schedule_names[o->schedule]);
    if (o->stages_per_rank == 1 && o->schedule == PIPELINE_INTERLEAVED)
        return nrl_fail(NRL_ERR_CONFIG, "stages_per_rank: interleaved with one stage on each rank is 1f1b; expected 2 "
                                        "or more");
    return NRL_OK;
}

static nrl_status pipeline_create(const void *options, nrl_mesh *mesh, void **self)
{
    pipeline *p = calloc(1, sizeof *p);
    if (!p) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'pipeline'");
    p->options = *(const pipeline_options *)options;
    p->comm = nrl_mesh_comm(mesh, pipeline_axis.name);
    p->index = nrl_mesh_coord(mesh, pipeline_axis.name);
    p->n = nrl_mesh_size(mesh, pipeline_axis.name);
    *self = p;
    return NRL_OK;
}

/* ---- the plan ---- */

static bool uses(const nrl_unit_uses *unit, const nrl_param *q)
{
    for (int32_t i = 0; i < unit->n_uses; i++)
        if (unit->uses[i] == q) return true;
    return false;
}

/* A rank holds what its units use; the first rank also holds what no unit uses. */
static void write_layouts(pipeline *p)
{
    for (int32_t i = 0; i < p->plan.n_params; i++) {
        nrl_param *q = p->plan.params[i];
        bool *owner_stages = p->owner_stages + (size_t)i * (size_t)p->n, any = false;
        for (int32_t u = 0; u < p->plan.n_units; u++) {
            if (!uses(&p->plan.units[u], q)) continue;
            any = owner_stages[p->ranks[u]] = true;
        }
        if (!any) owner_stages[0] = true;
        for (int k = 0; k < nrl_param_n_parts(q); k++)
            nrl_param_part(q, k)->layout = (nrl_layout){.n_holders = p->n, .owner_stages = owner_stages};
    }
}

/* "interleaved over 4 stages, 2 on each rank, of 2 + 1 + 1 + 2 units" */
static nrl_status describe(pipeline *p)
{
    const int32_t n_stages = p->n * p->shape.n_chunks;
    size_t size;
    FILE *to = open_memstream(&p->text, &size);
    if (!to) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'pipeline'");
    fprintf(to, "%s over %d stages", schedule_names[p->shape.schedule], n_stages);
    if (p->shape.n_chunks > 1) fprintf(to, ", %d on each rank,", p->shape.n_chunks);
    fputs(" of", to);
    for (int32_t s = 0; s < n_stages; s++)
        fprintf(to, "%s%d", s ? " + " : " ", p->first[s + 1] - p->first[s]);
    fputs(" units", to);
    return fclose(to) ? nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'pipeline'") : NRL_OK;
}

/* A model without gradients passes once through the ranks, so that the micro-batches of its passes follow each other
 * without a wait. */
static pipeline_shape shape_of(const pipeline *p)
{
    const pipeline_options *o = &p->options;
    int64_t n_chunks = o->stages_per_rank ? o->stages_per_rank : o->schedule == PIPELINE_INTERLEAVED ? 2 : 1;
    return (pipeline_shape){o->schedule, p->n, p->plan.instance ? 1 : (int32_t)n_chunks};
}

static nrl_status pipeline_plan(void *self, nrl_parallel_plan *plan)
{
    pipeline *p = self;
    plan->takes_split16 = plan->takes_bf16_gradients = true;
    p->plan = *plan;
    p->shape = shape_of(p);
    p->first = calloc((size_t)p->n * (size_t)p->shape.n_chunks + 1, sizeof *p->first);
    p->ranks = calloc((size_t)plan->n_units + 1, sizeof *p->ranks);
    p->costs = calloc((size_t)plan->n_units + 1, sizeof *p->costs);
    p->owner_stages = calloc((size_t)plan->n_params * (size_t)p->n + 1, sizeof *p->owner_stages);
    if (!p->first || !p->ranks || !p->costs || !p->owner_stages)
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'pipeline'");
    NRL_TRY(pipeline_split(p));
    for (int32_t stage = 0; stage < p->n * p->shape.n_chunks; stage++)
        for (int32_t u = p->first[stage]; u < p->first[stage + 1]; u++)
            p->ranks[u] = stage % p->n;
    write_layouts(p);
    NRL_TRY(pipeline_find_shared(p));
    NRL_TRY(describe(p));
    plan->stages = p->ranks;
    plan->buffer_bytes = p->chunk * (int64_t)nrl_dtype_size(plan->bf16_gradients ? NRL_DTYPE_BF16 : NRL_DTYPE_F32);
    plan->text = p->text;
    return NRL_OK;
}

static const nrl_parallel table = {
    NRL_PLUGIN(NRL_KIND_PARALLEL, nrl_parallel, pipeline_options, pipeline_rows, "pipeline", "0.1",
               "pipeline parallelism: units divided into stages, through which micro-batches pass one after the other"),
    .plugin.priority = 100,
    .plugin.check = pipeline_check,
    .axis = &pipeline_axis,
    .create = pipeline_create,
    .destroy = pipeline_destroy,
    .plan = pipeline_plan,
    .bind = pipeline_bind,
    .enter = pipeline_enter,
    .leave = pipeline_leave,
    .unbind = pipeline_unbind,
    .finish = pipeline_finish,
    .schedule = pipeline_schedule,
    .bubble = pipeline_bubble,
};
NRL_EXPORT(table)
