/*
 * handle.h - a run as a Lua value. Private to run.c, hooks.c and sample.c.
 *
 * Every C function that calls the core keeps the run at stack index 1, where hooks find it, because
 * the core calls them below that function's own frame.
 */
#ifndef SCRIPT_HANDLE_H
#define SCRIPT_HANDLE_H
#include "host.h"

enum { HANDLE_STATE = 1, HANDLE_HOOKS, HANDLE_CONFIG, HANDLE_VALUES = HANDLE_CONFIG }; /* user values */

typedef struct {
    nrl_run *r; /* NULL once closed */
    script_host *host;
    struct script_loss *loss; /* the run's own, of nrl.loss; NULL = it has a plugin's */
    int depth;                /* calls into the core in progress */
    bool training;            /* steps remain; counted in the host */
    bool has_state;           /* the core holds a text for run.state */
    script_rules rules;
    double lr;          /* of the latest step, or as set by set_lr; NaN = unknown */
    nrl_run_event last; /* latest step without its values; step 0 = none */
} handle;

/* The open run at idx, or an error. */
handle *handle_at(lua_State *L, int idx);

/* Around every call of the core: enter passes run.state to the core; leave raises a failure. */
handle *handle_enter(lua_State *L);
void handle_leave(lua_State *L, handle *h, nrl_status st);
/* Enter for calls that are not allowed in a hook: steps inside a step, closing. */
handle *handle_enter_outside(lua_State *L, const char *method);

/* Passes run.state to the core as text; the run is at stack index 1. Raises for values that JSON cannot hold. */
void handle_sync_state(lua_State *L, handle *h);

/* Pushes {step =, loss =, ..., and every value by name}. */
void handle_push_event(lua_State *L, const nrl_run_event *e);
void handle_push_values(lua_State *L, const nrl_value *values, size_t n);

/* run:on(name, function) and the callbacks behind it (hooks.c). */
int handle_on(lua_State *L);
/* For nrl_environment; user is the handle. */
nrl_status handle_event(void *user, nrl_run *r, const nrl_run_event *e);

int handle_sample(lua_State *L); /* sample.c */

#endif
