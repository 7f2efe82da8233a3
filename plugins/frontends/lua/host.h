/*
 * host.h - shared by the files of this folder. L is a Lua thread of one host.
 *
 * Rule of this folder: a Lua error (longjmp) never crosses a frame of another module. C functions
 * called by Lua call the core, wait for its status and only then raise; callbacks called by the core
 * enter Lua only through script_call.
 */
#ifndef SCRIPT_HOST_H
#define SCRIPT_HOST_H
#include "base/node.h"
#include "script.h"
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

/* The permissions of functions that a run calls: section `script` of its config. */
typedef struct {
    bool sandbox;              /* of hooks and losses */
    int64_t loss_instructions; /* Lua instructions in one call of a loss */
    size_t loss_bytes;         /* bytes of Lua, and as many of tensors */
} script_rules;

enum { SCRIPT_PLACE = 128 }; /* bytes of "file:line: " */

/* The current call of a loss (loss.c); handles of other calls are rejected. */
typedef struct {
    uint64_t number;                /* number of the call, from 1 */
    nrl_ctx *ctx;                   /* NULL outside a call, and inside `weight` */
    const struct script_loss *loss; /* the loss that is called */
    bool open;                      /* a call is in progress */
    int64_t left;                   /* Lua instructions left; below 0 = used up */
    size_t most_bytes;              /* limit of the bytes that Lua holds */
    size_t tensor_bytes;            /* bytes of the tensors that the call created */
    bool refused;                   /* memory was refused because of the limit */
    char place[SCRIPT_PLACE];       /* where the latest allocation was refused */
} script_loss_call;

typedef struct {
    const nrl_frontend_job *job;
    nrl_environment run;        /* the environment of this script's runs */
    const char *path;           /* of the script; the source of the values that it creates */
    arena memory;               /* trees behind the tables of nrl.config; outlives every run */
    nrl_status status;          /* of the latest failure that was raised */
    bool from_callback;         /* the core's error text already names a script line */
    bool exiting;               /* os.exit was called: everything unwinds */
    lua_State *L;               /* the thread that called the core, for callbacks */
    struct script_loss *losses; /* losses of nrl.loss, latest first; in memory */
    script_loss_call call;
    uint64_t n_calls;   /* of losses so far */
    script_rules rules; /* of the current run */
    int sandboxes;      /* number of active sandboxes */
    size_t lua_bytes;   /* held by Lua */
    int n_training;     /* open runs with steps left: they handle signals themselves */
    nrl_session *ranks; /* shared by the script's runs over several ranks */
    nrl_status failure; /* of the whole script, once it has ended: open runs are abandoned */
    int exit_code;
} script_host;

script_host *script_of(lua_State *L);

/* ---- failures (failure.c) ---- */

/* Raises the core's error text with the script's line; keeps its status for the exit code. */
int script_raise(lua_State *L, nrl_status st);
/* required.c: one line "key: value" for each file that the script has required so far; in `a`. */
const char *script_required(lua_State *L, arena *a);
/* The same for a script error that nrl detects: NRL_ERR_CONFIG. */
int script_fail(lua_State *L, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same at a place given as "file:line: ", for errors outside of running Lua functions. */
int script_fail_at(lua_State *L, const char *place, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Calls the function below n arguments; an error becomes a status and nrl_error_text. Never raises. */
nrl_status script_call(lua_State *L, int n_arguments, int n_results);
/* Raises the value that ends the script without an error. */
int script_exit(lua_State *L, int code);

/* ---- what callbacks of a run may do (rules.c) ---- */

/* The rules in a resolved config; defaults if config is NULL or has no such section. */
script_rules script_rules_of(const nrl_node *config);

/* script_call without results, for functions that a run calls. In the sandbox, if the run's rules enable
 * it, the globals that reach outside of Lua are nil. */
nrl_status script_callback(lua_State *L, int n_arguments);

/* Around a call of a loss: begin resets its budgets; end reports the limit that ended it, with its place. */
void script_limits_begin(script_host *h);
nrl_status script_limits_end(script_host *h, lua_State *L, nrl_status st);
/* Every SCRIPT_PERIOD instructions: raises if the current loss is over a limit. */
void script_limits_check(lua_State *L);
/* Whether Lua may allocate so many bytes more; is_new: for a new object, not for one that grows. */
bool script_limits_allow(script_host *h, size_t held, size_t more, bool is_new);
/* Counts a tensor of the current loss; raises beyond the limit. */
void script_limits_tensor(lua_State *L, int64_t numel);

enum { SCRIPT_PERIOD = 10000 };
void script_watch(lua_State *L, int period); /* host.c: checks every `period` instructions */

/* ---- memory (host.c) ---- */

/* Pushes an arena that the collector frees; valid while the value is on the stack. */
arena *script_arena(lua_State *L);

/* ---- values and trees (value.c) ---- */

enum {
    VALUE_CONFIG = 1 /* nulls in maps are omitted; the tree outlives Lua and provides places */
};
void script_push_node(lua_State *L, const nrl_node *node, unsigned flags);
/* A tree of the value at idx, in `a`; raises for values that neither a config nor JSON can hold. Keys are
 * sorted. Unchanged values of nrl.config keep their place. `what` names the value in errors. */
nrl_node *script_to_node(lua_State *L, int idx, arena *a, const char *what);
void script_mark_list(lua_State *L, int idx); /* marks {} as an empty list */
void script_push_null(lua_State *L);

/* ---- named arguments (arguments.c): f{key = value} ---- */

/* Raises for a key that is not in the NULL-terminated list. */
void script_check_keys(lua_State *L, int idx, const char *function, const char *const *keys);
/* Fields with defaults; raise for example "sample: temperature: expected a number, got text". */
int64_t script_int(lua_State *L, int idx, const char *function, const char *key, int64_t or_value);
double script_f64(lua_State *L, int idx, const char *function, const char *key, double or_value);
bool script_bool(lua_State *L, int idx, const char *function, const char *key, bool or_value);
/* The field itself, left on the stack to keep it alive; NULL if absent. */
const char *script_text(lua_State *L, int idx, const char *function, const char *key);
/* A list of texts (or one text) as an array of n; it stays on the stack. NULL and n = 0 if absent. */
const char **script_texts(lua_State *L, int idx, const char *function, const char *key, size_t *n);

/* ---- parts of the module: each adds its functions to the table on top ---- */

void script_open_json(lua_State *L);      /* json.c */
void script_open_tokenizer(lua_State *L); /* tokenizer.c */
void script_open_run(lua_State *L);       /* run.c */
void script_open_tensors(lua_State *L);   /* tensor.c: nrl.where */
void script_open_batches(lua_State *L);   /* batch.c */
void script_open_losses(lua_State *L);    /* loss.c: nrl.loss, nrl.gradcheck */
int script_region(lua_State *L);          /* region.c: nrl.region */
int script_open_module(lua_State *L);     /* module.c: require "nrl" */

#endif
