/*
 * open_store.c - the store of a mesh: opened where this rank holds it, connected to, and the keys of the run in
 * it. For mesh.c.
 */
#include "base/arena.h"
#include "mesh/internal.h"
#include "mesh/socket.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool mesh_holds_store(const nrl_mesh *m)
{
    return !m->folder && !m->place.store_elsewhere && m->place.rank == 0;
}

static const char *run_id(const nrl_mesh *m)
{
    return m->run_id ? m->run_id : "";
}

static store_server **held_server(nrl_mesh *m)
{
    return m->session ? &m->session->server : &m->server;
}

static nrl_status open_server(nrl_mesh *m)
{
    store_server **held = held_server(m);
    const mesh_rank_info *p = &m->place;
    const store_server_setup s = {.address = m->address,
                                  .port = p->port,
                                  .job = run_id(m),
                                  .secret = p->secret,
                                  .other_machines = p->local_world < p->world};
    return *held ? NRL_OK : store_server_open_job(&s, held);
}

static nrl_status open_keys(const nrl_mesh *m, nrl_store *store, int32_t number, nrl_store **keys)
{
    char *prefix = store_run_prefix(run_id(m), number);
    nrl_status st = store_open_prefix(store, prefix, NULL, NULL, keys);
    free(prefix);
    return st;
}

static nrl_status connect_store(const nrl_mesh *m, const store_secret *secret, double deadline, nrl_store **out)
{
    const store_client_setup s = {.address = m->address,
                                  .port = m->place.port,
                                  .timeout_s = deadline - mesh_clock(),
                                  .signal = m->signal,
                                  .secret = secret};
    return store_connect_to(&s, out);
}

/* ---- behind a store that knows no secret ---- */

/* Where rank 0's own store is, as it stands in the foreign one. */
typedef struct {
    int32_t port;
    unsigned char proof[SECRET_PROOF];
} behind;

#define BEHIND_KEY "behind"
#define BEHIND_LABEL "nrl store behind"
#define LOOK_S 0.05

static void prove_port(const nrl_mesh *m, int32_t number, behind *b)
{
    const int32_t message[] = {number, b->port};
    secret_prove(m->place.secret, BEHIND_LABEL, message, sizeof message, b->proof);
}

static nrl_status tell_port(nrl_mesh *m, nrl_store *keys, int32_t number)
{
    behind b = {0};
    m->place.port = 0; /* a free one */
    NRL_TRY(open_server(m));
    b.port = store_server_port(*held_server(m));
    prove_port(m, number, &b);
    return nrl_store_set(keys, BEHIND_KEY, &b, sizeof b);
}

static nrl_status read_port(const nrl_mesh *m, int32_t number, const void *value, size_t size, behind *b)
{
    const unsigned char *proof = (const unsigned char *)value + sizeof b->port;
    if (size == sizeof *b) {
        memcpy(b, value, size);
        const int32_t message[] = {number, b->port};
        if (secret_verify(m->place.secret, BEHIND_LABEL, message, sizeof message, proof)) return NRL_OK;
    }
    return nrl_fail(NRL_ERR_CONFIG,
                    "what stands in %s's store for rank 0's own is not proved by the job's secret\n"
                    "hint: rank 0 has another secret, or somebody else writes into that store",
                    m->origin);
}

static nrl_status hear_port(nrl_mesh *m, nrl_store *keys, int32_t number, double deadline)
{
    behind b;
    void *value = NULL;
    size_t size;
    bool found = false;
    while (!found) {
        NRL_TRY(store_try_get(keys, BEHIND_KEY, &found, &value, &size));
        if (m->signal && *m->signal)
            return nrl_fail(NRL_ERR_STOPPED, "signal %d came before rank 0 had a store", *m->signal);
        if (!found && mesh_clock() >= deadline)
            return nrl_fail(NRL_ERR_PEER, "rank 0 opened no store within %g s (launch.timeout_init)", m->timeout_init);
        if (!found) mesh_sleep(LOOK_S);
    }
    nrl_status st = read_port(m, number, value, size, &b);
    free(value);
    if (!st) m->place.port = b.port;
    return st;
}

/* torchrun's agent holds a store that asks nobody for a secret. Rank 0 opens one that does, and the foreign one only
 * says where, with a proof. */
static nrl_status open_behind(nrl_mesh *m, int32_t number, double deadline)
{
    nrl_store *foreign, *keys;
    NRL_TRY(connect_store(m, NULL, deadline, &foreign));
    nrl_status st = open_keys(m, foreign, number, &keys);
    m->place.store_elsewhere = false;
    if (!st && mesh_holds_store(m))
        st = tell_port(m, keys, number);
    else if (!st)
        st = hear_port(m, keys, number, deadline);
    if (!st && mesh_holds_store(m)) m->place.port = store_server_port(*held_server(m));
    store_close(keys);
    store_close(foreign);
    return st;
}

/* ---- the whole ---- */

/* A launcher that has something to say must know which keys are looked at. */
static nrl_status tell_number(nrl_mesh *m, int32_t number)
{
    nrl_store *first;
    char text[16];
    int n = snprintf(text, sizeof text, "%d", (int)number);
    NRL_TRY(open_keys(m, m->store, 1, &first));
    nrl_status st = nrl_store_set(first, STORE_NEWEST_KEY, text, (size_t)n);
    store_close(first);
    return st;
}

nrl_status mesh_open_store(nrl_mesh *m, double deadline)
{
    const mesh_rank_info *p = &m->place;
    int32_t number = m->session ? m->session->n_runs : 1;
    if (m->folder)
        NRL_TRY(store_open_folder(m->folder, &m->store));
    else if (p->secret && p->store_foreign)
        NRL_TRY(open_behind(m, number, deadline));
    else if (mesh_holds_store(m))
        NRL_TRY(open_server(m));
    if (!m->folder) {
        NRL_TRY(connect_store(m, p->secret, deadline, &m->store));
        NRL_TRY(store_check_job(m->store, run_id(m)));
    }
    NRL_TRY(open_keys(m, m->store, number, &m->keys));
    return number > 1 && store_counts(m->store) ? tell_number(m, number) : NRL_OK;
}
