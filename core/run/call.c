/*
 * call.c - what every public call of a run begins and ends with. A run calls code that is not its own: the
 * algorithm's weight, loss and step_end in the middle of a step or an evaluation, and hooks between two of them.
 * That code may hold the run and call it back; what the run cannot do from there is refused here.
 */
#include "run/internal.h"
#include <string.h>

run_inside run_enter(run *r, run_inside now)
{
    run_inside was = r->inside;
    r->inside = now;
    return was;
}

/* A loss is called while batches, tapes and sums of its step are in use. A hook is called between two steps, so it
 * may do all that leaves the state as it is; a save hook is called by a save, which cannot begin another one. */
nrl_status run_begin_call(const run *r, const char *call)
{
    static const char *const places[] = {[INSIDE_LOSS] = "a loss",
                                         [INSIDE_STEP_HOOK] = "a step hook",
                                         [INSIDE_EVAL_HOOK] = "an eval hook",
                                         [INSIDE_SAVE_HOOK] = "a save hook"};
    bool steps = !strcmp(call, RUN_CALL_STEP) || !strcmp(call, RUN_CALL_FINISH);
    bool saves = !strcmp(call, RUN_CALL_SAVE) && r->inside == INSIDE_SAVE_HOOK;
    if (r->inside == INSIDE_NOTHING || (r->inside != INSIDE_LOSS && !steps && !saves)) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "cannot %s from %s: %s\nhint: %s", call, places[r->inside],
                    r->inside == INSIDE_LOSS ? "its step or evaluation is not over"
                    : saves                  ? "a save is not over"
                                             : "a step is not over",
                    r->inside == INSIDE_LOSS ? "hooks, and the script between two steps, can do that"
                                             : "the script can do that between two steps");
}

/* No run is handed out before nrl_run_open returns. */
nrl_status run_emit(run *r, run_inside inside, nrl_run_event *event)
{
    if (!r->env.event) return NRL_OK;
    event->size = sizeof *event;
    run_inside was = run_enter(r, inside);
    nrl_status st = r->env.event(r->env.event_user, r->tree ? NULL : r, event);
    run_enter(r, was);
    return st;
}

void run_emit_text(void *user, const nrl_run_event *event)
{
    run *r = user;
    bool is_warning = event->kind == NRL_EVENT_WARNING; /* of any thread */
    r->env.event(r->env.event_user, is_warning || r->tree ? NULL : r, event);
}

/* A rank that leaves with an error tells the others why. */
nrl_status run_end_call(run *r, nrl_status st)
{
    if (st != NRL_OK && st != NRL_ERR_STOPPED && r->mesh) mesh_tell_failure(r->mesh, st, nrl_error_text());
    return st;
}

void nrl_run_abandon(run *r, nrl_status st, const char *why)
{
    mesh_tell_failure(r->mesh, st, why);
}
