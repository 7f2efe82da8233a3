/*
 * exchange.c - small exchanges of host memory among all ranks, as calls on the axis of all.
 */
#include "mesh/internal.h"
#include <string.h>

static nrl_status run(nrl_mesh *m, mesh_op op, const char *what, nrl_comm_args *a)
{
    nrl_work *w;
    a->size = sizeof *a;
    if (op != MESH_BARRIER) a->dtype = NRL_DTYPE_U8;
    NRL_TRY(call_start(&m->axes[0], op, a, what, &w));
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

static nrl_status check_peer(const nrl_mesh *m, int32_t peer)
{
    if (peer >= 0 && peer < m->place.world && peer != m->place.rank) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "rank %d exchanges with rank %d of %d", (int)m->place.rank, (int)peer,
                    (int)m->place.world);
}

nrl_status mesh_send(nrl_mesh *m, const char *what, int32_t to, const void *bytes, size_t size)
{
    NRL_TRY(check_peer(m, to));
    return run(m, MESH_SEND, what,
               &(nrl_comm_args){.send = bytes, .count = (int64_t)size, .peer = to});
}

nrl_status mesh_receive(nrl_mesh *m, const char *what, int32_t from, void *bytes, size_t size)
{
    NRL_TRY(check_peer(m, from));
    return run(m, MESH_RECV, what,
               &(nrl_comm_args){.receive = bytes, .count = (int64_t)size, .peer = from});
}
