/*
 * hooks.h - the callback of the program that opened a run, and whose code the run is calling at the moment. That code
 * may hold the run and call it back: what is refused then depends on where it was called from.
 */
#ifndef RUN_HOOKS_H
#define RUN_HOOKS_H
#include <nrl/run.h>

/* Whose code a run is calling, which may call the run back. */
typedef enum {
    INSIDE_NOTHING = 0,
    INSIDE_LOSS, /* weight, loss, step_end: in the middle of a step or an evaluation */
    INSIDE_STEP_HOOK,
    INSIDE_EVAL_HOOK,
    INSIDE_SAVE_HOOK
} run_inside;

typedef struct {
    nrl_run *run; /* what the callback is given; NULL until nrl_run_open returns it */
    nrl_status (*event)(void *user, nrl_run *run, const nrl_run_event *event); /* NULL: nobody listens */
    void *user;
    run_inside inside;
} hooks;

/* Returns what the run was inside of before, to be entered again afterwards. */
run_inside hooks_enter(hooks *h, run_inside now);
/* Calls the callback, if there is one, `inside` which the run is then. Sets event->size. */
nrl_status hooks_emit(hooks *h, run_inside inside, nrl_run_event *event);
/* The `event` of a telemetry whose event_user is the hooks. A warning comes from any thread, so it names no run. */
void hooks_emit_text(void *user, const nrl_run_event *event);

/* The calls that are refused in more places than a loss. */
#define RUN_CALL_STEP "take a step"
#define RUN_CALL_FINISH "finish"
#define RUN_CALL_SAVE "save"
/* NRL_ERR_CONFIG where the call cannot be made from what the run is inside of; `call` completes "cannot ...". */
nrl_status hooks_check_call(const hooks *h, const char *call);

#endif
