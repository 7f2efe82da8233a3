/*
 * mesh.c - joining: the store, join_request, the watch, the collective, in this order. A mesh of one rank is the
 * struct and nothing else. Leaving is leave.c.
 */
#include "base/arena.h"
#include "mesh/internal.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static nrl_status check_setup(const mesh_setup *s)
{
    const mesh_rank_info *p = &s->place;
    if (p->rank < 0 || p->rank >= p->world)
        return nrl_fail(NRL_ERR_CONFIG, "rank %d of %d: ranks go from 0 to %d", (int)p->rank, (int)p->world,
                        (int)p->world - 1);
    if (!s->collective) return nrl_fail(NRL_ERR_BUG, "%d ranks without a collective", (int)p->world);
    if (!p->store || !s->store.table)
        return nrl_fail(NRL_ERR_CONFIG, "cannot join %d ranks: expected the address of a store to meet at",
                        (int)p->world);
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
    m->solo = (nrl_comm){.mesh = m, .name = "none", .size = 1, .stride = 1};
    record_open(&m->calls);
    return m;
}

static void print_record(void *user, buffer *text)
{
    record_print(&((nrl_mesh *)user)->calls, text);
}

/* The step thread computes; it will hear of it with its next call. */
static void say_unheard(void *user)
{
    nrl_mesh *m = user;
    if (mesh_failure_cause_error(m, NULL, 0)) nrl_warn("%s", nrl_error_text());
}

static nrl_status open_control(nrl_mesh *m)
{
    control_setup s = {.store = m->keys,
                       .rank = m->place.rank,
                       .world = m->place.world,
                       .holder = mesh_store_holder(m),
                       .record = print_record,
                       .unheard = say_unheard,
                       .user = m};
    return control_open(&s, &m->control);
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
    if (st) m->self = NULL; /* whatever a failed open left there */
    if (st && control_failed(m->control)) st = mesh_failure_cause_error(m, NULL, 0);
    if (!st) return mesh_open_axes(m, s->axes, s->n_axes);
    char *said = mem_strdup(nrl_error_text());
    control_tell(m->control, st, said);
    nrl_fail(st, "%s", said);
    free(said);
    return st;
}

/* What stops a rank while it joins stops the others too. A process that is none of them, as another has its
 * number, says nothing. */
static void tell_join_failure(nrl_mesh *m, nrl_status code)
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
    if (!st) st = open_control(m);
    if (st) {
        tell_join_failure(m, st);
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
        /* Of one rank, or planned: axes and nothing else. */
        if (m->place.world == 1) m->place.local_world = 1;
        NRL_TRY(mesh_open_axes(m, setup->axes, setup->n_axes));
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
            buffer_print(&b, ", met in a store (%s) without counters: a lost rank is noticed by time-outs alone",
                         m->store_kind.table->plugin.name);
        m->text = buffer_take(&b);
        *out = m;
        return NRL_OK;
    }
    m->dead = true;
    mesh_close(m);
    return st;
}
