/*
 * info.c - what a mesh says of itself.
 */
#include "mesh/internal.h"

int32_t nrl_mesh_rank(const nrl_mesh *mesh)
{
    return mesh->place.rank;
}

int32_t nrl_mesh_world(const nrl_mesh *mesh)
{
    return mesh->place.world;
}

int32_t nrl_mesh_local_world(const nrl_mesh *mesh)
{
    return mesh->place.local_world > 0 ? mesh->place.local_world : 1;
}

const mesh_rank_info *mesh_where(const nrl_mesh *m)
{
    return &m->place;
}

const char *mesh_rank_name(const nrl_mesh *m, int32_t rank)
{
    return m->names[rank];
}

void mesh_set_step(nrl_mesh *m, int64_t step)
{
    m->step = step;
}

double mesh_wait_seconds(const nrl_mesh *m)
{
    return m->wait_seconds;
}

/* Groups share the connections of the whole. */
void mesh_traffic(const nrl_mesh *m, int64_t *sent, int64_t *received)
{
    nrl_collective_info f = {.size = sizeof f};
    if (m->self && m->table.info) m->table.info(m->self, &f);
    *sent = f.bytes_sent;
    *received = f.bytes_received;
}

const char *mesh_text(const nrl_mesh *m)
{
    return m->text;
}

nrl_store *mesh_store(const nrl_mesh *m)
{
    return m->meeting;
}
