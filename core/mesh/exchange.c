/*
 * exchange.c - small exchanges of host memory between all ranks, as collective calls, and comparisons of lines that
 * must be equal on all ranks.
 */
#include "base/arena.h"
#include "base/hash.h"
#include "base/lines.h"
#include "mesh/internal.h"
#include <stdlib.h>
#include <string.h>

static nrl_status run(nrl_mesh *m, mesh_op op, const char *what, nrl_comm_args *a)
{
    nrl_work *w;
    a->size = sizeof *a;
    if (op != MESH_BARRIER) a->dtype = NRL_DTYPE_U8;
    NRL_TRY(call_settle(m)); /* a collective on a device would queue this call behind the work in progress there */
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
    for (int32_t r = 0; is_alone(m) && size && r < m->place.world; r++) /* in a planned mesh all ranks count as equal */
        memmove((char *)all + (size_t)r * size, mine, size);
    if (!m->table.wait) return NRL_OK;
    return run(m, MESH_ALL_GATHER, what, &(nrl_comm_args){.send = mine, .receive = all, .count = (int64_t)size});
}

nrl_status mesh_broadcast(nrl_mesh *m, const char *what, int32_t from, void *bytes, size_t size)
{
    if (!m->table.wait) return NRL_OK;
    return run(m, MESH_BROADCAST, what, &(nrl_comm_args){.receive = bytes, .count = (int64_t)size, .peer = from});
}

nrl_status mesh_barrier(nrl_mesh *m, const char *what)
{
    return !m->table.wait ? NRL_OK : run(m, MESH_BARRIER, what, &(nrl_comm_args){0});
}

/* ---- comparing ---- */

typedef struct {
    uint64_t size;
    char hash[HASH_TEXT];
} digest;

static nrl_status find_differences(nrl_mesh *m, const char *what, const char *lines, size_t size, const char *hint)
{
    lines_record *records = mem_try((size_t)m->place.world * sizeof *records, what);
    char *first = mem_try(size + 1, what);
    nrl_status st = records && first ? NRL_OK : NRL_ERR_MEMORY;
    /* Sends the lines of rank 0 to all ranks, and then the differences that each rank found to all ranks. */
    if (st == NRL_OK && m->place.rank == 0) memcpy(first, lines, size);
    if (st == NRL_OK) st = mesh_broadcast(m, what, 0, first, size);
    if (st == NRL_OK) {
        lines_record own;
        lines_compare(first, lines, &own);
        st = mesh_exchange(m, what, &own, sizeof own, records);
    }
    if (st == NRL_OK) {
        (void)mesh_barrier(m, what); /* no rank leaves before all ranks have what they compare */
        st = lines_report(records, (const char *const *)m->hosts, m->place.world, first, hint);
        if (st == NRL_OK) st = nrl_fail(NRL_ERR_CONFIG, "cannot start: %s have a different order on some ranks", what);
    }
    free(first);
    free(records);
    return st;
}

nrl_status mesh_compare(nrl_mesh *m, const char *what, const char *lines, const char *hint)
{
    digest own = {.size = strlen(lines)};
    if (is_alone(m)) return NRL_OK;
    digest *all = mem_alloc((size_t)m->place.world * sizeof *all);
    bool same = true;
    hash_bytes(lines, own.size, own.hash);
    nrl_status st = mesh_exchange(m, what, &own, sizeof own, all);
    for (int32_t r = 1; r < m->place.world && st == NRL_OK; r++)
        same = same && all[r].size == all[0].size && !strcmp(all[r].hash, all[0].hash);
    uint64_t size = all[0].size;
    free(all);
    if (st != NRL_OK || same) return st;
    return find_differences(m, what, lines, (size_t)size, hint);
}
