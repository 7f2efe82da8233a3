/*
 * host.h - what the files of this folder share. L is a Lua thread of one host.
 *
 * Rule of this folder: a Lua error (longjmp) never crosses a frame of another module. C functions
 * called by Lua call the core, wait for its status and only then raise; callbacks called by the
 * core enter Lua through script_call alone.
 */
#ifndef SCRIPT_HOST_H
#define SCRIPT_HOST_H
#include "base/node.h"
#include "script.h"
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

/* What the config of a run allows the functions that it calls: its section `script`. */
typedef struct {
    bool sandbox;              /* of hooks and losses */
    int64_t loss_instructions; /* of Lua, in one call of a loss */
    size_t loss_bytes;         /* of Lua, and as many of tensors */
} script_rules;

enum { SCRIPT_PLACE = 128 }; /* bytes of "file:line: " */

/* The call of a loss at hand (loss.c); handles of another call are refused. */
typedef struct {
    uint64_t number;                /* of all calls, from 1 */
    nrl_ctx *ctx;                   /* NULL outside a call, and inside `weight` */
    const struct script_loss *loss; /* whose call */
    bool open;                      /* a call is at hand */
    int64_t left;                   /* Lua instructions it may still take; below 0 = ended */
    size_t most_bytes;              /* that Lua may hold by its end */
    size_t tensor_bytes;            /* of the tensors it made */
    bool refused;                   /* memory, for the limit */
    char place[SCRIPT_PLACE];       /* where the newest object was refused */
} script_loss_call;

typedef struct {
    const nrl_frontend_job *job;
    nrl_environment run;        /* what runs of this script are given */
    const char *path;           /* of the script; the source of values it makes */
    arena memory;               /* trees behind the tables of nrl.config; outlives every nrl_run */
    nrl_status status;          /* of the newest failure that was raised */
    bool from_callback;         /* the core's error text already names a script line */
    bool exiting;               /* os.exit was called: unwind everything */
    lua_State *L;               /* the thread inside the core, for callbacks */
    struct script_loss *losses; /* of nrl.loss, newest first; in memory */
    script_loss_call call;
    uint64_t n_calls;   /* of losses so far */
    script_rules rules; /* of the current run */
    int sandboxes;      /* entered and not left */
    size_t lua_bytes;   /* held by Lua */
    int n_training;     /* open runs with steps left: they heed signals themselves */
    nrl_session *ranks; /* what its runs share among several ranks */
    nrl_status failure; /* of the whole script, when it is over: runs that are still open are abandoned */
    int exit_code;
} script_host;

script_host *script_of(lua_State *L);

/* ---- failures (failure.c) ---- */

/* Raises the core's error text with the script's line; keeps its status for the exit code. */
int script_raise(lua_State *L, nrl_status st);
/* required.c: a line "key: value" for each file that the script has required so far; in `a`. */
const char *script_required(lua_State *L, arena *a);
/* The same for a mistake of the script that nrl finds: NRL_ERR_CONFIG. */
int script_fail(lua_State *L, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same at a place given as "file:line: ", for what no Lua function is running for. */
int script_fail_at(lua_State *L, const char *place, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Calls the function below n arguments; an error becomes a status and nrl_error_text. Never raises.
 */
nrl_status script_call(lua_State *L, int n_arguments, int n_results);
/* Raises what ends the script without an error. */
int script_exit(lua_State *L, int code);

/* ---- what callbacks of a run may do (rules.c) ---- */

/* The section of a resolved config; NULL or without it: the defaults. */
script_rules script_rules_of(const nrl_node *config);

/* script_call without results, for what a run calls. In the sandbox, where the run's rules ask for
 * one, the globals that reach out of Lua are nil. */
nrl_status script_callback(lua_State *L, int n_arguments);

/* Around a call of a loss: its budgets begin, and the limit that ended it is told with its place.
 */
void script_limits_begin(script_host *h);
nrl_status script_limits_end(script_host *h, lua_State *L, nrl_status st);
/* Every SCRIPT_PERIOD instructions: raises where the current loss is over a limit. */
void script_limits_check(lua_State *L);
/* Whether Lua may have so many bytes more; is_new: for an object, not for one that grows. */
bool script_limits_allow(script_host *h, size_t held, size_t more, bool is_new);
/* Counts a tensor of the current loss; raises beyond the limit. */
void script_limits_tensor(lua_State *L, int64_t numel);

enum { SCRIPT_PERIOD = 10000 };
void script_watch(lua_State *L, int period); /* host.c: checks every so many instructions */

/* ---- memory (host.c) ---- */

/* Pushes an arena that the collector frees; valid while the value is on the stack. */
arena *script_arena(lua_State *L);

/* ---- values and trees (value.c) ---- */

enum {
    VALUE_CONFIG = 1 /* nulls in maps are omitted; the tree outlives Lua and gives places */
};
void script_push_node(lua_State *L, const nrl_node *node, unsigned flags);
/* A tree of the value at idx, in `a`; raises for what no config or JSON can hold. Keys are sorted.
 * Values that nrl.config read and nobody changed keep their place. `what` names it in errors. */
nrl_node *script_to_node(lua_State *L, int idx, arena *a, const char *what);
void script_mark_list(lua_State *L, int idx); /* {} means an empty list here */
void script_push_null(lua_State *L);

/* ---- named arguments (arguments.c): f{key = value} ---- */

/* Raises for a key that is not in the NULL-ended list. */
void script_check_keys(lua_State *L, int idx, const char *function, const char *const *keys);
/* Fields with defaults; raise "sample: temperature: expected a number, found text". */
int64_t script_int(lua_State *L, int idx, const char *function, const char *key, int64_t or_value);
double script_f64(lua_State *L, int idx, const char *function, const char *key, double or_value);
bool script_bool(lua_State *L, int idx, const char *function, const char *key, bool or_value);
/* The field itself, left on the stack to keep it alive; NULL if absent. */
const char *script_text(lua_State *L, int idx, const char *function, const char *key);
/* A list of texts (or one text) as an array of n; left on the stack. NULL and n = 0 if absent. */
const char **script_texts(lua_State *L, int idx, const char *function, const char *key, size_t *n);

/* ---- parts of the module: each adds its functions to the table on top ---- */

void script_open_json(lua_State *L);      /* json.c */
void script_open_tokenizer(lua_State *L); /* tokenizer.c */
void script_open_run(lua_State *L);       /* run.c */
void script_open_tensors(lua_State *L);   /* tensor.c: nrl.where */
void script_open_batches(lua_State *L);   /* batch.c */
void script_open_losses(lua_State *L);    /* loss.c: nrl.loss, nrl.gradcheck */
int script_open_module(lua_State *L);     /* module.c: require "nrl" */

void script_close_losses(script_host *h); /* after the last nrl_run */

/* For nrl_environment: the loss of that name; user is the host. (loss.c) */
const nrl_algorithm *script_find_loss(void *user, const char *name, void **self);

#endif
