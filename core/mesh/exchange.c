/*
 * exchange.c - small exchanges of host memory among all ranks, as calls of all.
 */
#include "mesh/internal.h"
#include <string.h>

static nrl_status run(nrl_mesh *m, mesh_op op, const char *what, nrl_comm_args *a)
{
    nrl_work *w;
    a->size = sizeof *a;
    if (op != MESH_BARRIER) a->dtype = NRL_DTYPE_U8;
    NRL_TRY(call_settle(m)); /* host memory goes to a device behind what is under way there */
    NRL_TRY(call_start(mesh_all(m), op, a, what, &w));
    nrl_status st = call_wait(w);
    call_release(w);
    return st;
}

static bool is_alone(const nrl_mesh *m)
{
    return m->place.world == 1 || m->planned;
}

nrl_status mesh_exchange(nrl_mesh *m, const char *what, const void *mine, size_t size, void *all)
{
    if (is_alone(m)) {
        if (size) memmove(all, mine, size);
        return NRL_OK;
    }
    return run(m, MESH_ALL_GATHER, what,
               &(nrl_comm_args){.send = mine, .receive = all, .count = (int64_t)size});
}

nrl_status mesh_broadcast(nrl_mesh *m, const char *what, int32_t from, void *bytes, size_t size)
{
    if (is_alone(m)) return NRL_OK;
    return run(m, MESH_BROADCAST, what,
               &(nrl_comm_args){.receive = bytes, .count = (int64_t)size, .peer = from});
}

nrl_status mesh_barrier(nrl_mesh *m, const char *what)
{
    return is_alone(m) ? NRL_OK : run(m, MESH_BARRIER, what, &(nrl_comm_args){0});
}
