/*
 * leave.c - the end of a mesh: why this rank goes is told, the collective is closed or aborted, and the
 * holder of the store goes last.
 */
#include "base/arena.h"
#include "mesh/internal.h"
#include "base/clock.h"
#include <stdlib.h>

#define LEAVE_S 30.0 /* for the store's holder to wait for ranks that finish later */
#define LOOK_S 0.02

/* Leaving keeps the caller's error record as it is. */
static void restore_error(char *said)
{
    nrl_fail(NRL_OK, "%s", said);
    free(said);
}

void mesh_tell_failure(nrl_mesh *m, nrl_status code, const char *text)
{
    if (!m || !m->control || m->dead) return;
    char *said = mem_strdup(nrl_error_text());
    control_tell(m->control, code, text);
    restore_error(said);
}

void mesh_settle(nrl_mesh *m)
{
    if (!m || !m->fenced) return;
    char *said = mem_strdup(nrl_error_text());
    (void)call_settle(m); /* or the collective is aborted, which ends it too */
    restore_error(said);
}

/* The holder of the store goes last: until nobody is connected, or no longer than is fair. */
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
        clock_sleep(1.0); /* who joins looks every moment */
    if (m->self && control_failed(m->control) && m->table.abort) m->table.abort(m->self);
    mesh_settle(m);
    call_forget(m);
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
    free(m);
    restore_error(said);
}
