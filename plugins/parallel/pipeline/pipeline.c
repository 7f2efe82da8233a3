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
        pipeline_options, schedule, "1f1b", "1f1b|gpipe",
        "1f1b: a stage holds at most as many micro-batches as there are stages; gpipe: it holds all of a step"),
    NRL_OPT_NODE(pipeline_options, split, "",
                 "number of units of each stage, such as [3, 3]; unset: stages of about equal cost"),
};

static const nrl_mesh_axis pipeline_axis = {
    .size = sizeof(nrl_mesh_axis),
    .divides = NRL_DIVIDES_DEPTH,
    .name = "pipeline",
    .order = 100,
};

static void pipeline_destroy(void *self)
{
    pipeline *p = self;
    free(p->stages);
    free(p->owner_stages);
    free(p->shared);
    free(p);
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

/* A stage holds what its units use; the first stage also holds what no unit uses. */
static void write_layouts(pipeline *p)
{
    for (int32_t i = 0; i < p->plan.n_params; i++) {
        nrl_param *q = p->plan.params[i];
        bool *owner_stages = p->owner_stages + (size_t)i * (size_t)p->n, any = false;
        for (int32_t u = 0; u < p->plan.n_units; u++) {
            if (!uses(&p->plan.units[u], q)) continue;
            any = owner_stages[p->stages[u]] = true;
        }
        if (!any) owner_stages[0] = true;
        for (int k = 0; k < nrl_param_n_parts(q); k++)
            nrl_param_part(q, k)->layout = (nrl_layout){.n_holders = p->n, .owner_stages = owner_stages};
    }
}

static void find_units(pipeline *p)
{
    p->first = p->plan.n_units;
    for (int32_t u = 0; u < p->plan.n_units; u++) {
        if (p->stages[u] != p->index) continue;
        if (u < p->first) p->first = u;
        p->end = u + 1;
    }
}

/* "1f1b over 2 stages: units 3 + 3; ..." */
static void describe(pipeline *p)
{
    static const char *const names[] = {"1f1b", "gpipe"};
    size_t room = sizeof p->text;
    int at = snprintf(p->text, room, "%s over %d stages of", names[p->options.schedule], p->n);
    for (int32_t s = 0; s < p->n && (size_t)at < room; s++) {
        int32_t units = 0;
        for (int32_t u = 0; u < p->plan.n_units; u++)
            units += p->stages[u] == s;
        at += snprintf(p->text + at, room - (size_t)at, "%s%d", s ? " + " : " ", units);
    }
    if ((size_t)at < room) snprintf(p->text + at, room - (size_t)at, " units");
}

static nrl_status pipeline_plan(void *self, nrl_parallel_plan *plan)
{
    pipeline *p = self;
    plan->takes_split16 = plan->takes_bf16_gradients = true;
    p->plan = *plan;
    p->stages = calloc((size_t)plan->n_units + 1, sizeof *p->stages);
    p->owner_stages = calloc((size_t)plan->n_params * (size_t)p->n + 1, sizeof *p->owner_stages);
    if (!p->stages || !p->owner_stages) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'pipeline'");
    NRL_TRY(pipeline_split(p));
    find_units(p);
    write_layouts(p);
    NRL_TRY(pipeline_find_shared(p));
    describe(p);
    plan->stages = p->stages;
    plan->buffer_bytes = p->chunk * (int64_t)nrl_dtype_size(plan->bf16_gradients ? NRL_DTYPE_BF16 : NRL_DTYPE_F32);
    plan->text = p->text;
    return NRL_OK;
}

static const nrl_parallel table = {
    NRL_PLUGIN(NRL_KIND_PARALLEL, nrl_parallel, pipeline_options, pipeline_rows, "pipeline", "0.1",
               "pipeline parallel: units divided over stages; micro-batches pass through them one after the other"),
    .plugin.priority = 100,
    .axis = &pipeline_axis,
    .create = pipeline_create,
    .destroy = pipeline_destroy,
    .plan = pipeline_plan,
    .bind = pipeline_bind,
    .unbind = pipeline_unbind,
    .finish = pipeline_finish,
    .schedule = pipeline_schedule,
};
NRL_EXPORT(table)
