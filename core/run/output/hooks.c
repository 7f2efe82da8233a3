/*
 * hooks.c - guards the calls of code that is not the run's own: the algorithm's weight, loss and step_end in the middle
 * of a step or an evaluation, and hooks between two of them. Refuses calls of the run that are not possible there.
 */
#include "run/output/hooks.h"
#include <string.h>

run_inside hooks_enter(hooks *h, run_inside now)
{
    run_inside was = h->inside;
    h->inside = now;
    return was;
}

nrl_status hooks_emit(hooks *h, run_inside inside, nrl_run_event *event)
{
    if (!h->event) return NRL_OK;
    event->size = sizeof *event;
    run_inside was = hooks_enter(h, inside);
    nrl_status st = h->event(h->user, h->run, event);
    hooks_enter(h, was);
    return st;
}

void hooks_emit_text(void *user, const nrl_run_event *event)
{
    const hooks *h = user;
    h->event(h->user, event->kind == NRL_EVENT_WARNING ? NULL : h->run, event);
}

/* A loss is called while batches, tapes and sums of its step are in use. A hook is called between two steps, so it
 * may do all that leaves the state as it is; a save hook is called by a save, which cannot begin another one. */
nrl_status hooks_check_call(const hooks *h, const char *call)
{
    static const char *const places[] = {[INSIDE_LOSS] = "a loss",
                                         [INSIDE_STEP_HOOK] = "a step hook",
                                         [INSIDE_EVAL_HOOK] = "an eval hook",
                                         [INSIDE_SAMPLES_HOOK] = "a samples hook",
                                         [INSIDE_SAVE_HOOK] = "a save hook"};
    bool steps = !strcmp(call, RUN_CALL_STEP) || !strcmp(call, RUN_CALL_FINISH);
    bool saves = !strcmp(call, RUN_CALL_SAVE) && h->inside == INSIDE_SAVE_HOOK;
    bool evaluates = !strcmp(call, RUN_CALL_EVALUATE) && h->inside == INSIDE_SAMPLES_HOOK;
    if (h->inside == INSIDE_NOTHING || (h->inside != INSIDE_LOSS && !steps && !saves && !evaluates)) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "cannot %s from %s: %s\nhint: %s", call, places[h->inside],
                    h->inside == INSIDE_LOSS ? "its step or evaluation has not finished"
                    : saves                  ? "a save is not over"
                    : evaluates              ? "its evaluation is not over"
                                             : "a step is not over",
                    h->inside == INSIDE_LOSS ? "only hooks, and the script between two steps, can do that"
                    : evaluates              ? "an eval hook, or the script between two steps, can do that"
                                             : "only the script can do that, between two steps");
}
