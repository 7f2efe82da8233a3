/*
 * mesh.c - opening and closing a mesh, and its properties. Opening goes through the store, the join requests, the watch
 * and the collective, in this order. A mesh of one rank is the struct and nothing else.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "mesh/internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the store: held where this rank does so, opened, and the keys of the run in it ---- */

static int32_t mesh_store_holder(const nrl_mesh *m)
{
    const nrl_store_plugin *t = m->store_kind.table;
    /* A store of another program supports no secret, so rank 0 serves a second store that does. */
    return t && t->serve && (!m->place.store_elsewhere || (m->place.store_foreign && m->place.secret)) ? 0 : -1;
}

static bool mesh_holds_store(const nrl_mesh *m)
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

/* A launcher that reports to the ranks must know which keys they read. */
static nrl_status publish_number(nrl_mesh *m, int32_t number)
{
    nrl_store *first;
    char text[16];
    int n = snprintf(text, sizeof text, "%d", (int)number);
    NRL_TRY(open_keys(m, 1, &first));
    nrl_status st = nrl_store_set(first, STORE_NEWEST_KEY, text, (size_t)n);
    store_close(first);
    return st;
}

static nrl_status mesh_open_store(nrl_mesh *m, double deadline)
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
    return number > 1 && store_counts(m->store) ? publish_number(m, number) : NRL_OK;
}

/* ---- opening ---- */

static nrl_status check_setup(const mesh_setup *s)
{
    const mesh_rank_info *p = &s->place;
    if (p->rank < 0 || p->rank >= p->world)
        return nrl_fail(NRL_ERR_CONFIG, "rank %d of %d: expected a rank from 0 to %d", (int)p->rank, (int)p->world,
                        (int)p->world - 1);
    if (!s->collective) return nrl_fail(NRL_ERR_BUG, "%d ranks without a collective", (int)p->world);
    if (!p->store || !s->store.table)
        return nrl_fail(NRL_ERR_CONFIG, "cannot join %d ranks: expected the address of a store", (int)p->world);
    return NRL_OK;
}

static char *copy_text(const char *text)
{
    return text ? mem_strdup(text) : NULL;
}

static nrl_mesh *new_mesh(const mesh_setup *s)
{
    nrl_mesh *m = mem_alloc(sizeof *m);
    m->place = s->place;
    m->place.store = m->address = copy_text(s->place.store);
    m->store_kind = s->store;
    m->place.origin = m->origin = copy_text(s->place.origin);
    m->place.run_id = m->run_id = copy_text(s->place.run_id);
    if (s->place.secret) m->secret = *s->place.secret;
    m->place.secret = s->place.secret ? &m->secret : NULL;
    if (m->place.world < 1) m->place.world = 1;
    m->timeout_init = s->timeout_init;
    m->timeout_step = s->timeout_step;
    m->signal = s->signal;
    m->session = s->session;
    m->bucket_bytes = s->bucket_bytes;
    m->solo = (nrl_comm){.mesh = m, .name = "none", .size = 1, .stride = 1};
    record_open(&m->calls);
    pthread_mutex_init(&m->abort_lock, NULL);
    return m;
}

static void print_record(void *user, buffer *text)
{
    record_print(&((nrl_mesh *)user)->calls, text);
}

static void allow_aborts(nrl_mesh *m, bool can_abort)
{
    pthread_mutex_lock(&m->abort_lock);
    m->can_abort = can_abort;
    pthread_mutex_unlock(&m->abort_lock);
}

/* The step thread is computing, and its next call returns the failure; or it waits for a device that waits for an
 * exchange with a lost rank, which only an abort ends. */
static void report_unheard(void *user)
{
    nrl_mesh *m = user;
    if (mesh_failure_cause_error(m, NULL, 0)) nrl_warn("%s", nrl_error_text());
    pthread_mutex_lock(&m->abort_lock);
    if (m->can_abort && m->table.abort) m->table.abort(m->self);
    pthread_mutex_unlock(&m->abort_lock);
}

/* Ends the waits of the collective's rendezvous in the store after a failure. */
static bool is_over(void *user)
{
    nrl_mesh *m = user;
    return control_failed(m->control) && mesh_failure_cause_error(m, NULL, 0) != NRL_OK;
}

static nrl_status open_collective(nrl_mesh *m, const mesh_setup *s, double deadline)
{
    size_t known = s->collective->plugin.size;
    memcpy(&m->table, s->collective, known < sizeof m->table ? known : sizeof m->table);
    NRL_TRY(store_open_prefix(m->keys, m->table.plugin.name, is_over, m, &m->meeting));
    double left = deadline - clock_seconds();
    nrl_status st =
        m->table.open(s->collective_options, m->meeting, m->place.rank, m->place.world, left > 1 ? left : 1, &m->self);
    if (st) m->self = NULL; /* a failed open may have left a value here */
    if (st && control_failed(m->control)) st = mesh_failure_cause_error(m, NULL, 0);
    if (!st) {
        allow_aborts(m, true);
        return mesh_open_axes(m, s->axes, s->n_axes);
    }
    char *said = mem_strdup(nrl_error_text());
    control_report(m->control, st, said);
    nrl_fail(st, "%s", said);
    free(said);
    return st;
}

/* A rank that stops while it joins reports this to the others. A process that is not one of the ranks, because another
 * process has its number, reports nothing. */
static void report_join_failure(nrl_mesh *m, nrl_status code)
{
    if (!m->is_member) return;
    abort_record w = {.kind = ABORT_REPORTED, .code = code, .culprit = m->place.rank, .reporter = m->place.rank};
    char *said = mem_strdup(nrl_error_text());
    snprintf(w.text, sizeof w.text, "%s", said);
    abort_record_write(m->keys, &w);
    nrl_fail(code, "%s", said);
    free(said);
}

static nrl_status join(nrl_mesh *m, const mesh_setup *s)
{
    double deadline = clock_seconds() + m->timeout_init;
    nrl_status st = check_setup(s);
    if (!st) st = mesh_open_store(m, deadline);
    if (st) return st;
    st = mesh_join(m, s->fingerprint, deadline);
    control_setup c = {.store = m->keys,
                       .rank = m->place.rank,
                       .world = m->place.world,
                       .holder = mesh_store_holder(m),
                       .record = print_record,
                       .unheard = report_unheard,
                       .user = m};
    if (!st) st = control_open(&c, &m->control);
    if (st) {
        report_join_failure(m, st);
        return st;
    }
    return open_collective(m, s, deadline);
}

nrl_status mesh_open(const mesh_setup *setup, nrl_mesh **out)
{
    nrl_mesh *m = new_mesh(setup);
    m->planned = setup->planned;
    if (m->place.world == 1 || m->planned) {
        *out = m;
        /* Opens a mesh of one rank, or a planned one: it has axes and nothing else. */
        if (m->place.world == 1) m->place.local_world = 1;
        NRL_TRY(mesh_open_axes(m, setup->axes, setup->n_axes));
        if (m->planned && setup->collective) m->table = *setup->collective;
        m->all.group = &m->all;
        m->text = m->planned ? mem_printf("%d ranks, not joined", (int)m->place.world) : mem_strdup("1 rank");
        return NRL_OK;
    }
    nrl_status st = join(m, setup);
    if (!st) {
        buffer b = {0};
        nrl_collective_info f = {.size = sizeof f};
        buffer_print(&b, "%d ranks on %d node%s", (int)m->place.world, (int)m->n_nodes, m->n_nodes > 1 ? "s" : "");
        if (m->origin) buffer_print(&b, " (%s)", m->origin);
        if (m->table.info) m->table.info(m->self, &f);
        buffer_print(&b, ", %s", f.text ? f.text : m->table.plugin.name);
        if (!store_counts(m->store))
            buffer_print(&b, ", store (%s) without counters: a lost rank is detected only by time-outs",
                         m->store_kind.table->plugin.name);
        m->text = buffer_take(&b);
        *out = m;
        return NRL_OK;
    }
    m->dead = true;
    mesh_close(m);
    return st;
}

/* ---- closing ---- */

#define LEAVE_S 30.0 /* for which the rank that serves the store waits for ranks that finish later */
#define LOOK_S 0.02

/* Leaving keeps the caller's error record as it is. */
static void restore_error(char *said)
{
    nrl_fail(NRL_OK, "%s", said);
    free(said);
}

void mesh_report_failure(nrl_mesh *m, nrl_status code, const char *text)
{
    if (!m || !m->control || m->dead) return;
    char *said = mem_strdup(nrl_error_text());
    control_report(m->control, code, text);
    restore_error(said);
}

void mesh_settle(nrl_mesh *m)
{
    if (!m || !m->fenced) return;
    char *said = mem_strdup(nrl_error_text());
    (void)call_settle(m); /* otherwise the collective is aborted, which ends it too */
    restore_error(said);
}

/* The rank that serves the store leaves last: when no rank is connected, or after LEAVE_S. */
static void close_server(store_server *server, bool failed)
{
    double until = clock_seconds() + (failed ? 0 : LEAVE_S);
    while (server && store_server_clients(server) && clock_seconds() < until)
        clock_sleep(LOOK_S);
    store_server_close(server);
}

nrl_session *nrl_session_create(void)
{
    return mem_alloc(sizeof(nrl_session));
}

void nrl_session_end(nrl_session *s, bool failed)
{
    if (!s) return;
    close_server(s->server, failed);
    free(s);
}

void mesh_close(nrl_mesh *m)
{
    if (!m) return;
    char *said = mem_strdup(nrl_error_text());
    bool failed = m->dead || (m->control && control_failed(m->control));
    if (m->control && control_failed(m->control) && mesh_holds_store(m))
        control_linger(m->control);
    else if (failed && mesh_holds_store(m) && m->keys)
        clock_sleep(1.0); /* ranks that are joining look for the failure more often than that */
    if (m->self && control_failed(m->control) && m->table.abort) m->table.abort(m->self);
    mesh_settle(m);
    call_forget(m);
    allow_aborts(m, false);
    for (int i = m->n_axes; i-- > 0;)
        if (m->axes[i].owns_group && m->axes[i].group) m->table.close(m->axes[i].group);
    if (m->self) m->table.close(m->self);
    control_close(m->control);
    store_close(m->meeting);
    store_close(m->keys);
    store_close(m->store);
    close_server(m->server, failed);
    for (int32_t r = 0; m->names && r < m->place.world; r++) {
        free(m->names[r]);
        free(m->hosts[r]);
    }
    for (nrl_work *w = m->spare_works, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    for (mesh_staged *s = m->staged, *next; s; s = next) {
        next = s->next;
        free(s->memory);
        free(s);
    }
    record_close(&m->calls);
    char *texts[] = {m->text, m->address, m->origin, m->run_id, m->reason};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    free(m->names);
    free(m->hosts);
    secret_wipe(&m->secret, sizeof m->secret);
    pthread_mutex_destroy(&m->abort_lock);
    free(m);
    restore_error(said);
}

/* ---- properties ---- */

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

/* Groups use the connections of the group of all ranks. */
nrl_collective_info mesh_traffic(const nrl_mesh *m)
{
    nrl_collective_info f = {.size = sizeof f};
    if (m->self && m->table.info) m->table.info(m->self, &f);
    return f;
}

const char *mesh_text(const nrl_mesh *m)
{
    return m->text;
}

nrl_store *mesh_store(const nrl_mesh *m)
{
    return m->meeting;
}
