/*
 * copies.c - a strategy of the axis tensor that divides nothing: ranks along the axis compute the
 * same. It tests how axes compose: batches, sums, states and errors of a mesh of several axes.
 */
#include <nrl/nrl.h>

static nrl_status create(const void *options, nrl_mesh *mesh, void **self)
{
    (void)options;
    *self = mesh;
    return NRL_OK;
}

static void destroy(void *self)
{
    (void)self;
}

static nrl_status plan(void *self, nrl_parallel_plan *p)
{
    (void)self;
    p->takes_split16 = p->takes_bf16_gradients = true;
    p->text = "the same on all";
    return NRL_OK;
}

static const nrl_mesh_axis axis = {.size = sizeof axis, .divides = NRL_DIVIDES_WIDTH, .name = "tensor", .order = 400};
static const nrl_parallel table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_PARALLEL, nrl_parallel, "copies", "0", "the same on all"),
    .axis = &axis,
    .create = create,
    .destroy = destroy,
    .plan = plan,
};

NRL_EXPORT(table)
