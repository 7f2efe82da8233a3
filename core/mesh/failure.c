/*
 * failure.c - error texts of failures: which rank was lost, in which call, and how long this rank waited.
 */
#include "base/arena.h"
#include "mesh/internal.h"
#include "base/clock.h"
#include <stdlib.h>
#include <string.h>

static const char *name_of(const nrl_mesh *m, int32_t rank)
{
    if (rank >= 0 && rank < m->place.world && m->names && m->names[rank]) return m->names[rank];
    return "a rank";
}

static void print_failure_cause(const nrl_mesh *m, const abort_record *w, buffer *text)
{
    bool own = w->culprit == m->place.rank;
    switch (w->kind) {
    case ABORT_REPORTED:
        if (own)
            buffer_puts(text, w->text);
        else
            buffer_print(text, "rank %d failed: %s", (int)w->culprit, w->text);
        break;
    case ABORT_LOST:
    case ABORT_SILENT:
        if (own)
            buffer_print(text, "rank %d considers this rank lost: %s", (int)w->reporter, w->text);
        else
            buffer_print(text, "%s was lost: %s", name_of(m, w->culprit), w->text);
        break;
    case ABORT_LATE:
        buffer_print(text, "rank %d gave up: %s", (int)w->reporter, w->text);
        break;
    default:
        if (w->culprit >= 0)
            buffer_print(text, "%s, which holds the ranks' store, was lost: ", name_of(m, w->culprit));
        else
            buffer_print(text, "the ranks' store at %s was lost: ", m->address);
        buffer_puts(text, w->text);
    }
}

/* Lack of memory on any rank is the error of all ranks, because the run as a whole needs more memory. Other failures of
 * a rank are NRL_ERR_PEER on the others. */
static nrl_status status_of(const nrl_mesh *m, const abort_record *w)
{
    bool own = w->kind == ABORT_REPORTED && w->culprit == m->place.rank;
    bool lacks_memory = w->kind == ABORT_REPORTED && w->code == NRL_ERR_MEMORY;
    return w->code && (own || lacks_memory) ? w->code : NRL_ERR_PEER;
}

nrl_status mesh_failure_cause_error(nrl_mesh *m, const record_call *call, double waited)
{
    abort_record w;
    buffer text = {0};
    control_failure_cause(m->control, &w);
    print_failure_cause(m, &w, &text);
    if (w.kind != ABORT_REPORTED) {
        if (call) {
            buffer_puts(&text, "\nthis rank was in ");
            record_describe(call, &text);
            buffer_print(&text, ", step %lld, and waited %.1f s", (long long)call->step, waited);
        } else {
            buffer_print(&text, "\nthis rank was not in a call, step %lld", (long long)m->step);
        }
    }
    nrl_status st = nrl_fail(status_of(m, &w), "%s", text.text);
    buffer_free(&text);
    return st;
}

nrl_status mesh_check(nrl_mesh *m)
{
    abort_record w;
    buffer text = {0};
    if (!m->control || !control_failed(m->control)) return NRL_OK;
    control_failure_cause(m->control, &w);
    print_failure_cause(m, &w, &text);
    nrl_status st = nrl_fail(status_of(m, &w), "%s", text.text);
    buffer_free(&text);
    return st;
}

nrl_status mesh_dead_error(const nrl_mesh *m)
{
    return nrl_fail(NRL_ERR_PEER, "%s", m->reason ? m->reason : "the ranks of this run have disconnected");
}

/* ---- a call that broke ---- */

static int32_t lost_rank(nrl_mesh *m, const nrl_comm *c)
{
    int32_t peer = m->table.failed_peer ? m->table.failed_peer(c->group) : -1;
    return peer >= 0 && peer < c->size ? c->base + peer * c->stride : -1;
}

/* Returns the text after the empty line: all calls, instead of the last one of each axis. */
static const char *all_calls(const char *text)
{
    if (!text) return "(did not answer)\n";
    const char *gap = strstr(text, "\n\n");
    return gap ? gap + 2 : text;
}

/* The rank that first notices the time-out prints the calls of all ranks, grouped by the call that they entered. */
static nrl_status late_error(nrl_mesh *m, const nrl_comm *c, const record_call *call, double waited)
{
    char **records = mem_alloc((size_t)m->place.world * sizeof *records);
    buffer what = {0};
    abort_record w;
    record_describe(call, &what);
    buffer_print(&what, ", step %lld, was awaited for %.1f s, more than the allowed %g s (launch.timeout_step)",
                 (long long)call->step, waited, m->timeout_step);
    control_late(m->control, what.text, records);
    control_failure_cause(m->control, &w);
    nrl_status st = NRL_ERR_PEER;
    if (w.kind == ABORT_LATE && w.reporter == m->place.rank) {
        buffer text = {0};
        for (int32_t r = 0; r < m->place.world; r++)
            buffer_print(&text, "\n---- last calls of rank %d\n%s", (int)r, all_calls(records[r]));
        nrl_warn("a call does not complete%s", text.text);
        buffer_free(&text);
        buffer_puts(&what, "\nlast calls on this axis:");
        record_compare(records, m->place.world, c->name, &what);
        nrl_fail(st, "%s", what.text);
    } else {
        st = mesh_failure_cause_error(m, call, waited);
    }
    for (int32_t r = 0; r < m->place.world; r++)
        free(records[r]);
    free(records);
    buffer_free(&what);
    return st;
}

/* The error record has the text of the collective, which is the last resort. */
static nrl_status broken_error(nrl_mesh *m, nrl_comm *c, const record_call *call, nrl_status st, double waited)
{
    char *said = mem_strdup(nrl_error_text());
    if (!control_failed(m->control) && st == NRL_ERR_PEER) control_suspect(m->control, lost_rank(m, c));
    if (control_failed(m->control)) {
        st = mesh_failure_cause_error(m, call, waited);
    } else {
        buffer text = {0};
        record_describe(call, &text);
        nrl_fail(st, "%s: %s", text.text, said);
        control_report(m->control, st, nrl_error_text());
        nrl_fail(st, "%s: %s", text.text, said);
        buffer_free(&text);
    }
    free(said);
    return st;
}

nrl_status mesh_broken(nrl_mesh *m, nrl_comm *c, const record_call *call, nrl_status st, double waited)
{
    if (m->dead) return mesh_dead_error(m);
    bool late = st == NRL_OK && !control_failed(m->control);
    if (late)
        st = late_error(m, c, call, waited);
    else if (st == NRL_OK)
        st = mesh_failure_cause_error(m, call, waited);
    else
        st = broken_error(m, c, call, st, waited);
    m->dead = true;
    m->reason = mem_strdup(nrl_error_text());
    if (m->self && m->table.abort) m->table.abort(m->self);
    nrl_fail(st, "%s", m->reason);
    return st;
}
