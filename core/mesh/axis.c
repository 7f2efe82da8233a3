/*
 * axis.c - arranges the ranks along named axes, splits an axis into two, and creates a group of the collective for each
 * axis. An axis with one rank and an axis that the config does not name have no group.
 */
#include "mesh/internal.h"
#include "base/clock.h"
#include <nrl/parallel.h>
#include <stdio.h>
#include <string.h>

static nrl_comm *find_axis(const nrl_mesh *m, const char *axis)
{
    for (int i = 0; i < m->n_axes; i++)
        if (!strcmp(m->axes[i].name, axis)) return (nrl_comm *)(uintptr_t)&m->axes[i];
    return NULL;
}

static nrl_comm *add_axis(nrl_mesh *m, const char *name, uint32_t divides, int32_t size, int32_t stride)
{
    nrl_comm *c = &m->axes[m->n_axes++];
    int32_t coord = m->place.rank / stride % size;
    *c = (nrl_comm){.mesh = m, .divides = divides, .size = size, .coord = coord, .stride = stride};
    c->base = m->place.rank - coord * stride;
    snprintf(c->name, sizeof c->name, "%s", name);
    return c;
}

int32_t nrl_mesh_size(const nrl_mesh *mesh, const char *axis)
{
    const nrl_comm *c = find_axis(mesh, axis);
    return c ? c->size : 1;
}

int32_t nrl_mesh_coord(const nrl_mesh *mesh, const char *axis)
{
    const nrl_comm *c = find_axis(mesh, axis);
    return c ? c->coord : 0;
}

int32_t mesh_comm_ranks(const nrl_comm *c, int32_t *base, int32_t *stride)
{
    *base = c->base;
    *stride = c->stride;
    return c->size;
}

int32_t mesh_coord_of(const nrl_mesh *m, int32_t rank, const char *axis)
{
    const nrl_comm *c = find_axis(m, axis);
    return c ? rank / c->stride % c->size : 0;
}

int32_t nrl_mesh_local_size(const nrl_mesh *mesh, const char *axis)
{
    const nrl_comm *c = find_axis(mesh, axis);
    const int32_t on_node = mesh->node_divisor ? mesh->node_divisor : nrl_mesh_local_world(mesh);
    int32_t local = c ? on_node / c->stride : 1;
    return local < 1 ? 1 : c && local > c->size ? c->size : local;
}

static bool has_own_batches(const nrl_comm *axis)
{
    return axis->divides == NRL_DIVIDES_BATCH || axis->divides == NRL_DIVIDES_EXPERTS;
}

int32_t mesh_n_batches(const nrl_mesh *m)
{
    int32_t n = 1;
    for (int i = 0; m && i < m->n_axes; i++)
        if (has_own_batches(&m->axes[i])) n *= m->axes[i].size;
    return n;
}

int32_t mesh_batch(const nrl_mesh *m)
{
    int32_t at = 0;
    for (int i = 0; m && i < m->n_axes; i++)
        if (has_own_batches(&m->axes[i])) at = at * m->axes[i].size + m->axes[i].coord;
    return at;
}

/* Whether this rank is not the first one on an axis that divides `divides`. */
static bool is_behind(const nrl_mesh *m, uint32_t divides)
{
    for (int i = 0; m && i < m->n_axes; i++)
        if (m->axes[i].divides == divides && m->axes[i].coord) return true;
    return false;
}

bool mesh_counts(const nrl_mesh *m)
{
    return !is_behind(m, NRL_DIVIDES_DEPTH) && !mesh_is_copy(m);
}

bool mesh_is_copy(const nrl_mesh *m)
{
    return is_behind(m, NRL_DIVIDES_WIDTH) || is_behind(m, NRL_DIVIDES_TOKENS);
}

bool mesh_copies_loss(const nrl_mesh *m)
{
    return is_behind(m, NRL_DIVIDES_WIDTH) || (!m->loss_by_tokens && is_behind(m, NRL_DIVIDES_TOKENS));
}

bool mesh_copies_terms(const nrl_mesh *m)
{
    return is_behind(m, NRL_DIVIDES_WIDTH);
}

void mesh_set_loss_by_tokens(nrl_mesh *m, bool by_tokens)
{
    m->loss_by_tokens = by_tokens;
}

int32_t mesh_stage_of(const nrl_mesh *m, int32_t rank)
{
    for (int i = 0; i < m->n_axes; i++)
        if (m->axes[i].divides == NRL_DIVIDES_DEPTH) return rank / m->axes[i].stride % m->axes[i].size;
    return 0;
}

nrl_comm *nrl_mesh_comm(nrl_mesh *mesh, const char *axis)
{
    nrl_comm *c = find_axis(mesh, axis);
    return c ? c : &mesh->solo;
}

int64_t nrl_comm_bucket_bytes(const nrl_comm *c)
{
    return c->mesh->bucket_bytes;
}

/* Creates a group of the collective for the ranks of the axis. All ranks call it. */
static nrl_status open_group(nrl_comm *c)
{
    nrl_mesh *m = c->mesh;
    if (m->planned) c->group = c;
    if (c->size == 1 || m->planned) return NRL_OK;
    record_call call = {.axis = c->name, .op = "split", .number = 0, .step = m->step, .peer = -1};
    double begin = clock_seconds();
    nrl_status st = NRL_OK;
    if (m->dead) return mesh_dead_error(m);
    if (c->size == m->place.world) {
        c->group = m->self;
    } else {
        if (!m->table.split)
            return nrl_fail(NRL_ERR_PLUGIN, "collective '%s' cannot split an axis", m->table.plugin.name);
        st = m->table.split(m->self, c->base, c->coord, &c->group);
        c->owns_group = st == NRL_OK;
    }
    if (!st && c->divides == NRL_DIVIDES_DEPTH && m->table.connect) st = m->table.connect(c->group);
    if (!st) return NRL_OK;
    return mesh_broken(m, mesh_all(m), &call, st, clock_seconds() - begin);
}

nrl_comm *mesh_all(nrl_mesh *m)
{
    for (int i = 0; i < m->n_axes; i++)
        if (m->axes[i].size == m->place.world) return &m->axes[i];
    return &m->all;
}

nrl_status mesh_open_axes(nrl_mesh *m, const mesh_axis *axes, int32_t n)
{
    int32_t stride = m->place.world;
    m->all =
        (nrl_comm){.mesh = m, .name = "all", .size = stride, .coord = m->place.rank, .stride = 1, .group = m->self};
    for (int32_t i = 0; i < n; i++) {
        stride /= axes[i].size;
        add_axis(m, axes[i].name, axes[i].divides, axes[i].size, stride);
    }
    if (n) NRL_ASSERT(stride, ==, 1);
    for (int i = 0; i < m->n_axes; i++)
        NRL_TRY(open_group(&m->axes[i]));
    return NRL_OK;
}

nrl_status nrl_mesh_split(nrl_mesh *mesh, const char *axis, int32_t size, const char *inner, const char *outer)
{
    const nrl_comm *c = find_axis(mesh, axis), *i = find_axis(mesh, inner), *o = find_axis(mesh, outer);
    if (c && i && o && i->size == size && i->stride == c->stride && o->stride == c->stride * size &&
        o->size * size == c->size)
        return NRL_OK;
    if (!c) return nrl_fail(NRL_ERR_CONFIG, "cannot split axis '%s': it does not exist", axis);
    if (size < 1 || c->size % size)
        return nrl_fail(NRL_ERR_CONFIG, "cannot split axis '%s': its %d ranks are not divisible by %d", axis,
                        (int)c->size, (int)size);
    if (strlen(inner) >= MESH_AXIS_NAME || strlen(outer) >= MESH_AXIS_NAME || !strcmp(inner, outer))
        return nrl_fail(NRL_ERR_BUG, "axes '%s' and '%s'", inner, outer);
    if (find_axis(mesh, inner) || find_axis(mesh, outer))
        return nrl_fail(NRL_ERR_CONFIG, "axis '%s' is already split: '%s' or '%s' exists", axis, inner, outer);
    if (mesh->n_axes + 2 > MESH_MAX_AXES) return nrl_fail(NRL_ERR_CONFIG, "more than %d axes", MESH_MAX_AXES);
    int32_t runs = c->size / size, stride = c->stride;
    nrl_comm *in = add_axis(mesh, inner, NRL_DIVIDES_NONE, size, stride);
    nrl_comm *out = add_axis(mesh, outer, NRL_DIVIDES_NONE, runs, stride * size);
    nrl_status st = open_group(in);
    if (!st) st = open_group(out);
    if (st) mesh->n_axes -= out->owns_group || in->owns_group ? 0 : 2;
    return st;
}
