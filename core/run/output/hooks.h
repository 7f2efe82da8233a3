/*
 * hooks.h - the callback of the program that opened a run, and a record of the foreign code that the run is calling.
 * That code may call functions of the run; which calls are refused depends on where it was called from.
 */
#ifndef RUN_HOOKS_H
#define RUN_HOOKS_H
#include <nrl/run.h>

/* The foreign code that a run is calling, which may itself call the run. */
typedef enum {
    INSIDE_NOTHING = 0,
    INSIDE_LOSS, /* weight, loss, step_end: in the middle of a step or an evaluation */
    INSIDE_STEP_HOOK,
    INSIDE_EVAL_HOOK,
    INSIDE_SAMPLES_HOOK, /* of an evaluation, whose values are not complete */
    INSIDE_SAVE_HOOK
} run_inside;

typedef struct {
    nrl_run *run; /* what the callback is given; NULL until nrl_run_open returns it */
    nrl_status (*event)(void *user, nrl_run *run, const nrl_run_event *event); /* NULL: no callback */
    void *user;
    run_inside inside;
} hooks;

/* Returns the previous value, to be entered again afterwards. */
run_inside hooks_enter(hooks *h, run_inside now);
/* Calls the callback, if there is one, with h->inside set to `inside`. Sets event->size. */
nrl_status hooks_emit(hooks *h, run_inside inside, nrl_run_event *event);
/* For telemetry.event, with the hooks as event_user. A warning may come from any thread, so it names no run. */
void hooks_emit_text(void *user, const nrl_run_event *event);

/* Calls that are refused not only in a loss. */
#define RUN_CALL_STEP "take a step"
#define RUN_CALL_FINISH "finish"
#define RUN_CALL_SAVE "save"
#define RUN_CALL_EVALUATE "evaluate"
/* NRL_ERR_CONFIG if the call cannot be made from h->inside; `call` completes "cannot ...". */
nrl_status hooks_check_call(const hooks *h, const char *call);

#endif
