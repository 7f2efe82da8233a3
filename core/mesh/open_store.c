/*
 * open_store.c - the store of a mesh: held where this rank does so, opened, and the keys of the run in it. For mesh.c.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "mesh/internal.h"
#include <stdio.h>
#include <stdlib.h>

/* Another program's store knows no secret: behind it rank 0 holds one that does. */
static bool is_behind(const nrl_mesh *m)
{
    return m->place.store_foreign && m->place.secret;
}

int32_t mesh_store_holder(const nrl_mesh *m)
{
    const nrl_store_plugin *t = m->store_kind.table;
    return t && t->serve && (!m->place.store_elsewhere || is_behind(m)) ? 0 : -1;
}

bool mesh_holds_store(const nrl_mesh *m)
{
    return m->place.rank == mesh_store_holder(m);
}

static nrl_status open_keys(const nrl_mesh *m, int32_t number, nrl_store **keys)
{
    char *prefix = store_run_prefix(m->run_id ? m->run_id : "", number);
    nrl_status st = store_open_prefix(m->store, prefix, NULL, NULL, keys);
    free(prefix);
    return st;
}

/* A launcher that has something to say must know which keys are looked at. */
static nrl_status tell_number(nrl_mesh *m, int32_t number)
{
    nrl_store *first;
    char text[16];
    int n = snprintf(text, sizeof text, "%d", (int)number);
    NRL_TRY(open_keys(m, 1, &first));
    nrl_status st = nrl_store_set(first, STORE_NEWEST_KEY, text, (size_t)n);
    store_close(first);
    return st;
}

nrl_status mesh_open_store(nrl_mesh *m, double deadline)
{
    const mesh_rank_info *p = &m->place;
    int32_t number = m->session ? m->session->n_runs : 1;
    store_server **held = m->session ? &m->session->server : &m->server;
    store_setup s = {.address = m->address,
                     .job = m->run_id ? m->run_id : "",
                     .secret = p->secret,
                     .timeout_s = deadline - clock_seconds(),
                     .signal = m->signal};
    if (p->local_world < p->world) s.flags |= NRL_STORE_OTHER_MACHINES;
    if (p->store_foreign) s.flags |= NRL_STORE_FOREIGN;
    if (mesh_holds_store(m) && !*held) NRL_TRY(store_serve(&m->store_kind, &s, held));
    s.timeout_s = deadline - clock_seconds();
    NRL_TRY(store_open(&m->store_kind, &s, &m->store));
    NRL_TRY(open_keys(m, number, &m->keys));
    return number > 1 && store_counts(m->store) ? tell_number(m, number) : NRL_OK;
}
