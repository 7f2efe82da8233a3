/*
 * run.h - the heart, as the script host and the command line see it: open a run from a config tree,
 * take steps, evaluate, save, sample, export. Reading order of this folder: open.c (what a run is made
 * of), train.c (the loop), step.c (one optimizer step), work.c (the visits of a step), evaluate.c,
 * record.c, save.c, sample.c.
 *
 * A run belongs to the thread that opened it ([step]); everything it needs is checked in run_open.
 * A hook may call everything but run_step, run_train and run_finish, and a save hook not run_save; the loss of a
 * script may call nothing that returns a status. Such a call is NRL_ERR_CONFIG and changes nothing.
 */
#ifndef RUN_RUN_H
#define RUN_RUN_H
#include "config/problems.h"
#include "mesh/mesh.h"
#include "tensor/ctx.h"
#include <nrl/algorithm.h>
#include <nrl/backend.h>
#include <nrl/logger.h>

typedef struct run run;

/* What the cli knows and the config does not say. */
typedef struct {
    const char *script;          /* path of the Lua script, NULL for a YAML run */
    const char *script_hash;     /* 32 hex digits, NULL for a YAML run */
    const char *script_modules;  /* "key: value" lines, the files that it has required; NULL = none */
    const char *plugin_path;     /* colon-separated, from the environment; NULL = none */
    const char *(*variable)(const char *name); /* of the environment, for plugins; NULL = none is set */
    const char *public_key;      /* file; of verbs without a config: checkpoints must be signed by it; NULL = any */
    const char *exe_dir;         /* folder of the running binary */
    bool terminal, color;        /* stdout */
    bool quiet;                  /* no plan, no console (tests, sweeps) */
    bool check_only;             /* stop before a device is opened */
    bool no_output;              /* no output folder, no records, no saves (eval, bench) */
    bool evaluate_only;          /* no gradients, no optimizer; with no_output */
    bool no_config_plugins;      /* folders that a config names are not searched for plugins */
    const char
        *weights; /* with evaluate_only: a checkpoint of the run, or its exported model, whose
                     weights take the place of those that the config starts from; NULL = these */
    /* Algorithms made by the script, looked up by name before plugin files; NULL = none. */
    const nrl_algorithm *(*find_algorithm)(void *user, const char *name, void **self);
    void *user;
    config_problems *problems;   /* found while the config was read: told with the rest; NULL = none */
    volatile int *signal;        /* set by the cli's handlers: 0, SIGTERM, SIGUSR1, SIGINT; NULL = a signal
                                  * ends the process, there is nothing to save */
    volatile int64_t *step;      /* told the step under way, from 1; NULL = nobody asks */
    const mesh_place *place;     /* among the ranks; NULL = one process */
    mesh_session *session;       /* of a process that opens several runs; NULL = this is the only one */
} run_environment;

/* Opens everything `config` (a whole tree: defaults, file and overrides merged) names, prints the plan,
 * resumes if asked. All config mistakes come in one error. [main] */
nrl_status run_open(const nrl_node *config, const run_environment *env, run **out);
void run_close(run *r);
/* Before run_close, when whoever holds the run failed beside it: the other ranks are told why. */
void run_abandon(run *r, nrl_status st, const char *why);

/* One finished optimizer step. Borrowed until the next step. */
typedef struct {
    int64_t step; /* from 1 */
    double epoch, loss, grad_norm, lr, tokens, tokens_per_s, seconds;
    bool skipped;            /* the update was discarded: the NaN policy, or fp16 that overflowed */
    const nrl_value *values; /* everything the record holds, metrics of the algorithm included */
    size_t n_values;
} run_event;

/* Hooks of a script; a hook's error stops the run with its text. NULL members are not called. */
typedef struct {
    void *user;
    nrl_status (*step)(void *user, run *r, const run_event *e);
    nrl_status (*eval)(void *user, run *r, const run_event *e); /* values: eval_loss, ... */
    nrl_status (*before_save)(void *user, run *r); /* the place to call run_set_script_state */
    nrl_status (*save)(void *user, run *r, int64_t step, const char *path);
} run_hooks;
void run_set_hooks(run *r, const run_hooks *hooks);

/* Takes one step with everything due after it (evaluate, save, log). *done = nothing is left: *e is
 * not filled then. NRL_ERR_STOPPED after a signal, state saved. */
nrl_status run_step(run *r, run_event *e, bool *done);
/* Steps until done; then the final save and, where configured, the export. */
nrl_status run_train(run *r);
/* What run_train does after the last step; called by scripts that iterate themselves. Idempotent. */
nrl_status run_finish(run *r);

void run_stop(run *r, const char *reason); /* no further step after this one; reason is printed */
void run_set_lr(run *r, double lr);        /* from the next step on, instead of the schedule's */
int64_t run_steps_done(const run *r);
int64_t run_total_steps(const run *r);

/* Evaluation over data.eval, or over `file` (not NULL) with the other data options of the config; values (eval_loss,
 * eval_tokens, eval_<metric>...) are borrowed until the next call. NRL_ERR_CONFIG without either. */
nrl_status run_evaluate(run *r, const char *file, const nrl_value **values, size_t *n_values);
/* Which weights those are; of a run that only evaluates. Borrowed, as long as the run. */
const char *run_weights(run *r);
/* Saves a complete state; *path (borrowed) is the new checkpoint's directory. */
nrl_status run_save(run *r, const char **path);
/* Writes a Hugging Face directory. */
nrl_status run_export(run *r, const char *dir);

typedef struct {
    int64_t max_tokens;   /* new ones; default 64 */
    double temperature;   /* 0 = greedy */
    double top_p;         /* 1 = all */
    uint64_t seed;
    bool chat;            /* prompts are user messages, rendered by the run's template */
    bool keep_special;    /* special tokens stay in the text */
} run_sample_options;
/* Continues n prompts together; texts[i] is malloc'd by the callee, without the prompt. n_tokens[i]
 * (optional) new tokens. */
nrl_status run_sample(run *r, const char *const *prompts, size_t n, const run_sample_options *o,
                      char **texts, int64_t *n_tokens);

/* What survives a restart for the script: `run.state`, as JSON text; borrowed; NULL = none. */
const char *run_script_state(const run *r);
void run_set_script_state(run *r, const char *json);

/* ---- what a step costs: for nrl bench, nrl profile and scripts ---- */
/* Time by operation and phase from the next step on; also clears what was gathered. */
nrl_status run_profile(run *r, bool on);
/* Operations by falling time, told apart as `by` says (CTX_BY_PHASE, CTX_BY_SHAPE); malloc'd. */
nrl_status run_profile_rows(const run *r, unsigned by, ctx_op_time **rows, int *n);

/* Phases of the profiled steps, and the least and most seconds of any rank. All ranks call it. */
typedef struct {
    ctx_phase_times own;
    double least[CTX_PHASES], most[CTX_PHASES];
} run_phases;
nrl_status run_phases_fill(run *r, run_phases *fill);

/* What the device tells of itself between the two calls, by the names of nrl/backend.h; *n is 0 where it tells
 * nothing. Values are borrowed until the next run_watch_begin. */
enum { RUN_MAX_FIGURES = 64 };
nrl_status run_watch_begin(run *r);
nrl_status run_watch_end(run *r, nrl_value values[RUN_MAX_FIGURES], size_t *n);

/* What a run holds and runs on. Bytes of this rank. */
typedef struct {
    int64_t parameters, trained_parameters;
    int64_t trained_bytes, frozen_bytes; /* of whole weights in the compute dtype */
    int64_t weight_bytes, master_bytes, gradient_bytes, optimizer_bytes;
    int64_t reference_bytes, strategy_bytes; /* a reference model's weights; buffers of the strategy */
    int64_t activation_bytes; /* most at once beside those above, scratch included */
    int64_t used_peak_bytes, reserved_peak_bytes; /* of the pool: in use; got from the device */
    int64_t peak_rss;         /* of the process */
    int32_t ranks;
    bool on_device;           /* memory and clock are not the host's */
    const char *clock;        /* of a profile */
    nrl_device_facts device;
} run_figures;
void run_figures_fill(const run *r, run_figures *fill);

const nrl_node *run_config(const run *r); /* resolved */
const char *run_out(const run *r);        /* its directory */

#endif
