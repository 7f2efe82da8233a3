/*
 * run.h - for programs that embed libnrl, and for frontends: open a run from a config tree, take steps, evaluate,
 * save, sample, export. Everything that `nrl run` and a script can do is here.
 *
 *     nrl_arena *memory = nrl_arena_create();
 *     nrl_config *config = nrl_config_create(memory);
 *     nrl_environment env = {.size = sizeof env};
 *     nrl_run *run = NULL;
 *     nrl_status st = nrl_config_read(config, "run.yaml");
 *     if (st == NRL_OK) st = nrl_run_open(config, &env, &run);
 *     if (st == NRL_OK) st = nrl_run_train(run);
 *     if (st != NRL_OK) fprintf(stderr, "error: %s\n", nrl_error_text());
 *     nrl_run_close(run);
 *     nrl_config_destroy(config);
 *     nrl_arena_destroy(memory);
 *
 * Threads: a run belongs to the thread that opened it; every function here is called by that thread, except
 * nrl_run_steps_done and those marked [any]. Several runs may be open at once, each in the thread of its own choice;
 * runs of several ranks need an nrl_session and are opened in the same order on every rank.
 * Ownership: what a function returns through `const` pointers is borrowed, as long as stated. What is said to be
 * allocated is given back by nrl_free. Texts and trees given to a function are copied unless stated.
 * Errors: a status; nrl_error_text() has the words. After a failed step, train, save or finish only nrl_run_close (and
 * nrl_run_abandon before it) may follow, after NRL_ERR_CONFIG from a call that was refused anything may.
 * Growth: structs that begin with `size` are filled with their own sizeof by the caller; members behind that size have
 * their default, zero.
 *
 * Reentry: an event callback may call everything but nrl_run_step, nrl_run_train, nrl_run_finish and nrl_run_close, and
 * on NRL_EVENT_SAVE not nrl_run_save; the callbacks of an algorithm may call nothing that returns a status. Such a
 * call is NRL_ERR_CONFIG and changes nothing.
 */
#ifndef NRL_RUN_H
#define NRL_RUN_H
#include <nrl/algorithm.h>
#include <nrl/backend.h>
#include <nrl/logger.h>
#ifdef __cplusplus
extern "C" {
#endif

NRL_API void nrl_free(void *allocated); /* NULL is fine [any] */
NRL_API const char *nrl_version(void);  /* of the library, "0.1.0" [any] */

/* ---- the config of a run: a tree, and the mistakes found while it was read ---- */

typedef struct nrl_config nrl_config;

/* An empty config whose nodes live in `memory`, which outlives it. [any] */
NRL_API nrl_config *nrl_config_create(nrl_arena *memory);
NRL_API void nrl_config_destroy(nrl_config *config); /* not the memory; NULL is fine */

/* Each of these three replaces the tree. A YAML file, with what its `defaults:` names merged below it; NRL_ERR_CONFIG,
 * NRL_ERR_IO. */
NRL_API nrl_status nrl_config_read(nrl_config *config, const char *path);
/* YAML text; `source` names it in messages, and relative paths in it start at the working directory. */
NRL_API nrl_status nrl_config_parse(nrl_config *config, const char *source, const char *text, size_t size);
/* A map made with nrl_node_new; it lives in the config's memory. */
NRL_API void nrl_config_set_root(nrl_config *config, nrl_node *map);

/* Applies "optimizer.lr=5e-6". A mistake is kept and reported by nrl_run_open, together with all others. */
NRL_API void nrl_config_override(nrl_config *config, const char *assignment);
/* Replaces ${env:NAME} in every text, after the overrides; `lookup` is getenv or the like,
 * NULL = none is set. Mistakes as above. */
NRL_API void nrl_config_substitute(nrl_config *config, const char *(*lookup)(const char *name));

NRL_API nrl_node *nrl_config_root(nrl_config *config); /* NULL where it is empty */

/* ---- the surroundings of a run ---- */

/* What only the ranks of one job know: the key that they derive from a secret text. */
enum { NRL_SECRET_MIN = 16, NRL_SECRET_MAX = 4096 }; /* bytes of the text */
typedef struct nrl_job_secret {
    unsigned char key[32];
} nrl_job_secret;
/* The same text gives another key for another run_id. [any] */
NRL_API void nrl_job_secret_derive(const void *text, size_t size, const char *run_id, nrl_job_secret *out);

/* Who this process is among the ranks of a run. */
typedef struct {
    int32_t rank, world;
    int32_t local_rank, local_world; /* on this node */
    const char *origin;              /* who said so: "torchrun", "slurm", "nrl launch"; for messages */
    const char *store;               /* where the ranks meet: an address that a store plugin serves (nrl/store.h) */
    bool store_elsewhere;            /* a launcher holds the store; else rank 0 does, or no process of the run */
    bool store_foreign;              /* another program's, which knows no secret */
    const nrl_job_secret *secret;    /* NULL = the ranks believe each other */
    const char *run_id;              /* distinguishes jobs, and restarts of one job, in a store; "" = none */
} nrl_rank_info;

/* What the runs of one process share among several ranks: one store, in which each run has keys of its own. */
typedef struct nrl_session nrl_session;
NRL_API nrl_session *nrl_session_create(void);
/* After the last run is closed: waits for ranks that finish later, unless this one `failed`, and frees. NULL is fine.
 */
NRL_API void nrl_session_end(nrl_session *session, bool failed);

typedef struct nrl_run nrl_run;

/* What the embedder knows and the config does not say. Copied when a run is opened; what pointers lead to lives as long
 * as the run. All zero but `size` is a run of one process that prints nothing about its surroundings. */
typedef struct {
    uint32_t size;
    bool terminal, color;    /* stdout, for loggers that print there */
    bool quiet;              /* no plan, no console (tests, sweeps) */
    bool check_only;         /* stop before a device is opened */
    bool no_output;          /* no output folder, no records, no saves (eval, bench) */
    bool evaluate_only;      /* no gradients, no optimizer; with no_output */
    bool no_config_plugins;  /* folders that a config names are not searched for plugins */
    const char *plugin_path; /* colon-separated; NULL = none */
    const char *exe_dir;     /* folder of the running program, ../lib/nrl from there has the installed plugins;
                              * NULL = those installed with libnrl */
    const char *(*variable)(
        const char *name);   /* of the environment, for plugins, getenv or the like; NULL = none is set */
    const char *public_key;  /* file; without a config: checkpoints must be signed by it; NULL = any */
    const char *weights;     /* with evaluate_only: a checkpoint of the run, or its exported model, whose weights take
                              * the place of those that the config starts from; NULL = these */
    const char *script;      /* path of what drives the run, kept in checkpoints; NULL = nothing but the config */
    const char *script_hash; /* 32 hex digits; NULL without a script */
    const char *script_modules; /* "key: value" lines, the files that it has loaded; NULL = none */
    const char *frontend;       /* "NAME VERSION, HASH" of the plugin that runs the script; NULL = none */
    /* Algorithms of the embedder, looked up by name before plugin files: the table and its instance, which stay the
     * embedder's; NULL = there is none of that name, or no such function. */
    const nrl_algorithm *(*find_algorithm)(void *algorithm_user, const char *name, void **self);
    void *algorithm_user;
    /* Every event (nrl/logger.h), one at a time, in the run's thread; a WARNING in any. A status other than NRL_OK on
     * STEP, EVAL, BEFORE_SAVE and SAVE stops the run and is what the call that ran it returns; elsewhere it is ignored.
     * `run` is NULL while the run is being opened, and for a WARNING. NULL: the loggers alone take events. */
    nrl_status (*event)(void *event_user, nrl_run *run, const nrl_run_event *event);
    bool takes_warnings; /* `event` prints them; else they go to stderr where no logger takes them */
    void *event_user;
    volatile int *signal;       /* set by a signal handler: 0, SIGTERM, SIGUSR1 or SIGINT; NULL = a signal ends the
                                 * process, there is nothing to save */
    volatile int64_t *step;     /* told the step under way, from 1; NULL = nobody asks */
    const nrl_rank_info *ranks; /* NULL = one process */
    nrl_session *session;       /* of a process that opens several runs of several ranks; NULL = this is the only one */
} nrl_environment;

/* ---- a run ---- */

/* Opens everything that the config names, and resumes if asked. All mistakes of the config come in one
 * NRL_ERR_CONFIG. The config's memory outlives the run; the nrl_config itself may go, and may open
 * another run once this one is closed. */
NRL_API nrl_status nrl_run_open(nrl_config *config, const nrl_environment *env, nrl_run **out);
NRL_API void nrl_run_close(nrl_run *run); /* NULL is fine */
/* Before nrl_run_close, where whoever holds the run failed beside it: the other ranks learn why. */
NRL_API void nrl_run_abandon(nrl_run *run, nrl_status st, const char *why);

/* Takes one step and what is due after it (evaluation, save, records). *done: nothing was left to do, and *event is not
 * filled; event->size is set by the caller. NRL_ERR_STOPPED after a signal, with the state saved. */
NRL_API nrl_status nrl_run_step(nrl_run *run, nrl_run_event *event, bool *done);
/* Steps until done, then nrl_run_finish. */
NRL_API nrl_status nrl_run_train(nrl_run *run);
/* The final save and, where configured, the export: for whoever takes the steps. A second call does nothing. */
NRL_API nrl_status nrl_run_finish(nrl_run *run);

NRL_API void nrl_run_stop(nrl_run *run, const char *reason); /* no step after this one; the reason is reported */
NRL_API void nrl_run_set_lr(nrl_run *run, double lr);        /* from the next step on, instead of the schedule's */
NRL_API int64_t nrl_run_steps_done(const nrl_run *run);
NRL_API int64_t nrl_run_total_steps(const nrl_run *run);
NRL_API const nrl_node *nrl_run_config(const nrl_run *run); /* resolved; borrowed, as long as the run */
NRL_API const char *nrl_run_out(const nrl_run *run);        /* its folder; borrowed, as long as the run */

/* Evaluates on data.eval, or on `file` (not NULL) with the other data options of the config. Values (eval_loss,
 * eval_tokens, eval_NAME...) are borrowed until the next call on the run. NRL_ERR_CONFIG without either. */
NRL_API nrl_status nrl_run_evaluate(nrl_run *run, const char *file, const nrl_value **values, size_t *n_values);
/* Which weights an evaluate_only run has; borrowed, as long as the run. */
NRL_API const char *nrl_run_weights(nrl_run *run);
/* Saves the complete state; *path (borrowed until the next call) is the folder of the new checkpoint. */
NRL_API nrl_status nrl_run_save(nrl_run *run, const char **path);
/* Writes the weights as a Hugging Face directory. */
NRL_API nrl_status nrl_run_export(nrl_run *run, const char *dir);

typedef struct {
    uint32_t size;
    bool chat;          /* prompts are user messages, rendered by the run's template */
    bool keep_special;  /* special tokens stay in the text */
    int64_t max_tokens; /* new ones */
    double temperature; /* 0 = always the likeliest */
    double top_p;       /* 1 = all */
    uint64_t seed;
    /* Called with each new token as it is chosen, prompts in turn: the prompt's index, the id, and the text that became
     * certain with it, empty amid a character and for the token that ends a text. The texts of a prompt add up to
     * texts[i]. A status other than NRL_OK ends the sampling and is what it returns. Every rank calls its own. NULL =
     * nobody asks. It may not call the run or the model. */
    nrl_status (*token)(void *token_user, size_t prompt, int32_t id, const char *text, size_t size);
    void *token_user;
} nrl_sample_options;
/* Continues n prompts together. texts[i] is allocated (nrl_free) and lacks the prompt; n_tokens[i] new tokens, NULL =
 * nobody asks. After a failure nothing is allocated. */
NRL_API nrl_status nrl_run_sample(nrl_run *run, const char *const *prompts, size_t n, const nrl_sample_options *options,
                                  char **texts, int64_t *n_tokens);

/* A text of the embedder (JSON, by custom) that checkpoints hold and a resumed run has again; borrowed until the next
 * nrl_run_set_state; NULL = none. */
NRL_API const char *nrl_run_state(const nrl_run *run);
NRL_API void nrl_run_set_state(nrl_run *run, const char *text);

/* ---- what a step costs ---- */

/* Where the time of a step goes. */
typedef enum {
    NRL_PHASE_NONE = 0, /* outside of a step: evaluations, saves */
    NRL_PHASE_DATA,     /* waiting for a batch */
    NRL_PHASE_FORWARD,
    NRL_PHASE_RECOMPUTE,
    NRL_PHASE_BACKWARD,
    NRL_PHASE_HEAD,          /* the head and the loss, both ways */
    NRL_PHASE_REFERENCE,     /* the reference model's log-probs */
    NRL_PHASE_COMMUNICATION, /* what is not hidden behind computing: a strategy's calls, exchanges of ranks */
    NRL_PHASE_UPDATE,        /* the norm of the gradients, clipping, the optimizer */
    NRL_PHASE_HOST,          /* the rest: weighing, numbers of the record, loggers, events */
    NRL_PHASE_COUNT
} nrl_phase;
NRL_API const char *nrl_phase_name(nrl_phase phase); /* "forward" [any] */

/* One operation, in total over the profiled steps. */
typedef struct {
    const char *name;
    nrl_phase phase;     /* NONE where phases are not told apart */
    int64_t dims[3];     /* of a matrix product: rows, columns, depth; zero where shapes are not told apart */
    double seconds;      /* of the device */
    double host_seconds; /* that the calls took on the host; equal to `seconds` where they do the work */
    double flops, bytes;
    int64_t calls;
    bool on_host; /* no operation but work of the host, during which the device may be busy */
} nrl_op_time;
enum { NRL_BY_PHASE = 1, NRL_BY_SHAPE = 2 };

/* Times operations and phases from the next step on, or ends that; clears what was gathered. */
NRL_API nrl_status nrl_run_profile(nrl_run *run, bool on);
/* Operations by falling time, told apart as `by` says. *rows is allocated; rows are sizeof(nrl_op_time) of the library
 * apart, *stride (NULL = nobody asks). */
NRL_API nrl_status nrl_run_op_times(const nrl_run *run, unsigned by, nrl_op_time **rows, size_t *n, size_t *stride);

/* Phases of the profiled steps, in seconds. */
typedef struct {
    uint32_t size;
    int64_t steps;
    double seconds[NRL_PHASE_COUNT];      /* of all steps; they add up to the time from each one's begin to its end */
    double busy[NRL_PHASE_COUNT];         /* of them inside operations and copies */
    double host_seconds[NRL_PHASE_COUNT]; /* the host's clock between the same marks */
    double least[NRL_PHASE_COUNT], most[NRL_PHASE_COUNT]; /* `seconds` of any rank */
} nrl_phase_times;
NRL_API nrl_status nrl_run_phase_times(nrl_run *run, nrl_phase_times *fill); /* all ranks call it */

/* What the device measures between the two calls, by the names of nrl/backend.h; *n is 0 where it measures nothing.
 * At most NRL_MAX_WATCHED values, borrowed until the next nrl_run_watch_begin. */
enum { NRL_MAX_WATCHED = 64 };
NRL_API nrl_status nrl_run_watch_begin(nrl_run *run);
NRL_API nrl_status nrl_run_watch_end(nrl_run *run, nrl_value values[NRL_MAX_WATCHED], size_t *n);

/* What a run holds and runs on. Bytes of this rank. */
typedef struct {
    uint32_t size;
    int32_t ranks;
    int64_t parameters, trained_parameters;
    int64_t trained_bytes, frozen_bytes; /* of whole weights in the compute dtype */
    int64_t weight_bytes, master_bytes, gradient_bytes, optimizer_bytes;
    int64_t reference_bytes, strategy_bytes;      /* a reference model's weights; buffers of the strategy */
    int64_t activation_bytes;                     /* most at once beside those above, scratch included */
    int64_t used_peak_bytes, reserved_peak_bytes; /* of the pool: in use; got from the device */
    int64_t peak_rss;                             /* of the process */
    bool on_device;                               /* memory and clock are not the host's */
    const char *clock;                            /* of a profile; borrowed, as long as the run */
    nrl_device_info device;
} nrl_run_info;
NRL_API void nrl_run_info_fill(const nrl_run *run, nrl_run_info *fill);

#ifdef __cplusplus
}
#endif
#endif
