/*
 * run.h - for programs that embed libnrl, and for frontends: open a run from a config tree, take steps, evaluate,
 * save, sample, export. It provides everything that `nrl run` and a script can do.
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
 * Threads: a run belongs to the thread that opened it; only that thread may call the functions here, except
 * nrl_run_steps_done and those marked [any]. Several runs may be open at once, each in any thread; runs of several
 * ranks need an nrl_session and must be opened in the same order on every rank.
 * Ownership: results through `const` pointers are borrowed, for as long as stated. Results described as allocated are
 * freed with nrl_free. Texts and trees passed to a function are copied unless stated otherwise.
 * Errors: a status; nrl_error_text() returns the text. After a failed step, train, save or finish, only
 * nrl_run_abandon and nrl_run_close may be called. A call that was rejected with NRL_ERR_CONFIG changes nothing, and
 * any call may follow.
 * Growth: the caller sets `size` of a struct to its sizeof; members beyond that size have their default, zero.
 *
 * Reentry: an event callback may call every function but nrl_run_step, nrl_run_train, nrl_run_finish, nrl_run_close,
 * and on NRL_EVENT_SAVE nrl_run_save; the callbacks of an algorithm may not call functions that return a status. Such
 * calls are rejected with NRL_ERR_CONFIG.
 */
#ifndef NRL_RUN_H
#define NRL_RUN_H
#include <nrl/algorithm.h>
#include <nrl/backend.h>
#include <nrl/collective.h>
#include <nrl/logger.h>
#ifdef __cplusplus
extern "C" {
#endif

NRL_API void nrl_free(void *allocated); /* may be NULL [any] */
NRL_API const char *nrl_version(void);  /* of the library, "0.1.0" [any] */

/* ---- the config of a run: a tree, and the mistakes found while reading it ---- */

typedef struct nrl_config nrl_config;

/* Creates an empty config whose nodes live in `memory`, which must outlive it. [any] */
NRL_API nrl_config *nrl_config_create(nrl_arena *memory);
NRL_API void nrl_config_destroy(nrl_config *config); /* does not free `memory`; config may be NULL */

/* The next three functions replace the tree. This one reads a YAML file, which overrides the files in its `defaults:`.
 * NRL_ERR_CONFIG, NRL_ERR_IO. */
NRL_API nrl_status nrl_config_read(nrl_config *config, const char *path);
/* Parses YAML text; `source` is its name in messages. Paths in the text are relative to the working directory. */
NRL_API nrl_status nrl_config_parse(nrl_config *config, const char *source, const char *text, size_t size);
/* Sets a map created with nrl_node_new in the config's memory. */
NRL_API void nrl_config_set_root(nrl_config *config, nrl_node *map);

/* Applies "optimizer.lr=5e-6". nrl_run_open reports mistakes, together with all others. */
NRL_API void nrl_config_override(nrl_config *config, const char *assignment);
/* Replaces ${env:NAME} in every text; call it after the overrides. `lookup` returns the value of a variable (getenv);
 * NULL = no variable is set. Mistakes as above. */
NRL_API void nrl_config_substitute(nrl_config *config, const char *(*lookup)(const char *name));

/* Adds a mistake that the program itself found, at the place of a node (NULL: no place), to those that nrl_run_open
 * reports. */
NRL_API void nrl_config_mistake(nrl_config *config, const nrl_node *at, const char *text);

NRL_API nrl_node *nrl_config_root(nrl_config *config); /* NULL if the config is empty */

/* The i-th key whose value is `auto`, from 0; NULL: no more. nrl_run_open reports them as mistakes: a value is chosen
 * before, by `nrl plan` or nrl_plan_search (nrl/plan.h), and set by nrl_config_override. Of these keys only:
 * train.micro_batch_tokens, train.activation_checkpointing, parallel, parallel.AXIS.costs. */
NRL_API const char *nrl_config_auto(const nrl_config *config, size_t i);

/* ---- the environment of a run ---- */

/* Authenticates the ranks of a job: a key that they derive from a secret text. */
enum { NRL_SECRET_MIN = 16, NRL_SECRET_MAX = 4096 }; /* bytes of the text */
typedef struct nrl_job_secret {
    unsigned char key[32];
} nrl_job_secret;
/* Different values of run_id give different keys for the same text. [any] */
NRL_API void nrl_job_secret_derive(const void *text, size_t size, const char *run_id, nrl_job_secret *out);

/* The place of this process among the ranks of a run. */
typedef struct {
    int32_t rank, world;
    int32_t local_rank, local_world; /* on this node */
    const char *origin;              /* the launcher: "torchrun", "slurm", "nrl launch"; for messages */
    const char *store;               /* address of the rendezvous, for a store plugin (nrl/store.h) */
    bool store_elsewhere;            /* a launcher serves the store; else rank 0 does, or no process of the run */
    bool store_foreign;              /* the store belongs to another program and does not support a secret */
    const nrl_job_secret *secret;    /* NULL = no authentication */
    const char *run_id;              /* distinguishes jobs, and restarts of one job, in a store; "" = none */
} nrl_rank_info;

/* State shared by the runs of a process among several ranks: one store, in which each run has its own keys. */
typedef struct nrl_session nrl_session;
NRL_API nrl_session *nrl_session_create(void);
/* Call it after the last run is closed: waits for the other ranks, unless this rank has `failed`, and frees the
 * session, which may be NULL. */
NRL_API void nrl_session_end(nrl_session *session, bool failed);

typedef struct nrl_run nrl_run;

/* Functions of another library that a run calls in its own thread; nrl_inference_services() (nrl/inference.h) provides
 * all of them. */
typedef struct {
    uint32_t size;
    uint32_t reserved;
    /* The text of README.md, allocated, for the weights of `step` in the directory `dir`; NULL: none is written. Called
     * on rank 0, before the export at the end of a run. */
    char *(*model_card)(nrl_run *run, const char *dir, int64_t step);
    /* A checkpoint was restored: restores what services have added to it, on all ranks. */
    nrl_status (*resumed)(nrl_run *run, const char *checkpoint);
    /* eval.samples: reads its options and prompts while the run is opened. NRL_ERR_CONFIG, NRL_ERR_DATA. */
    nrl_status (*samples_open)(nrl_run *run, void **samples);
    void (*samples_close)(void *samples);
    /* Generates the texts of an evaluation with the current weights and adds their metrics, on all ranks. */
    nrl_status (*samples_make)(void *samples, nrl_run *run);
    /* The metrics of texts, named without "eval_"; ended by a NULL name. */
    const nrl_metric *sample_metrics;
    /* Adds values to the record of a step, on all ranks. */
    nrl_status (*measure)(nrl_run *run, nrl_run_event *step);
    const struct nrl_run_streams *streams;     /* data.streaming; private */
    const struct nrl_rank_checks *rank_checks; /* debug: true; private */
} nrl_run_services;

/* Settings of the embedding program that are not in the config. Copied when a run is opened; memory behind pointers
 * must live as long as the run. All zero except `size`: a run of one process without a terminal. */
typedef struct nrl_environment {
    uint32_t size;
    bool terminal, color;    /* stdout, for loggers that print there */
    bool quiet;              /* no plan, no console (tests, sweeps) */
    bool check_only;         /* stop before a device is opened */
    bool no_output;          /* no output directory, no records, no saves (eval, bench) */
    bool evaluate_only;      /* no gradients, no optimizer; with no_output */
    bool no_config_plugins;  /* do not search for plugins in directories that the config names */
    const char *plugin_path; /* directories, colon-separated; NULL = none */
    const char *exe_dir;     /* directory of the running program, for plugins installed in ../lib/nrl relative to it;
                                NULL = plugins installed with libnrl */
    /* Reads environment variables for plugins (getenv); NULL = no variable is set. */
    const char *(*variable)(const char *name);
    const char *public_key;     /* file, if there is no config: checkpoints must be signed by this key; NULL = any */
    const char *weights;        /* with evaluate_only: a checkpoint of the run, or its exported model, whose weights are
                                   evaluated; NULL = the weights that the config starts from */
    const char *script;         /* path of the script that controls the run, stored in checkpoints; NULL = none */
    const char *script_hash;    /* 32 hex digits; NULL without a script */
    const char *script_modules; /* "key: value" lines, the files that the script has loaded; NULL = none */
    const char *frontend;       /* "NAME VERSION, HASH" of the plugin that runs the script; NULL = none */
    /* Returns an algorithm of the embedding program by name, and its instance, both borrowed; NULL = none of that name.
     * It is asked before plugin files. The function may be NULL. */
    const nrl_algorithm *(*find_algorithm)(void *algorithm_user, const char *name, void **self);
    void *algorithm_user;
    /* Called for every event (nrl/logger.h), one at a time, in the run's thread; for a WARNING in any thread. A status
     * other than NRL_OK on STEP, EVAL, BEFORE_SAVE and SAVE stops the run and is returned by the current call on the
     * run; for other events it is ignored. `run` is NULL while the run is being opened, and for a WARNING. NULL: only
     * loggers receive events. */
    nrl_status (*event)(void *event_user, nrl_run *run, const nrl_run_event *event);
    bool takes_warnings; /* `event` prints warnings; otherwise they are written to stderr unless a logger receives
                            them */
    void *event_user;
    volatile int *signal;       /* set by a signal handler: 0, SIGTERM, SIGUSR1 or SIGINT; NULL = signals end the
                                   process and nothing is saved. Every signal handler of the process must run on a stack
                                   of its own (sigaltstack, SA_ONSTACK): code that oneDNN generates uses memory below
                                   the stack pointer, where the frame of a handler would be */
    volatile int64_t *step;     /* set to the current step, from 1; may be NULL */
    const nrl_rank_info *ranks; /* NULL = one process */
    nrl_session *session;       /* needed if the process opens several runs of several ranks; else NULL */
    const char *user_plugins;   /* directory of the user's plugins, searched after those of the config; NULL = none */
    const nrl_run_services *services; /* NULL = none */
    /* A dry run if not NULL, with no_output: operations have shapes and no values, no weights are read, and other ranks
     * are not joined. A step then ends at once, with a loss of 0, and takes the memory that it would take
     * (nrl_run_info_fill of nrl/profile.h). The table stands for the collective of several ranks; `self` of its
     * operations is the nrl_comm of the call. */
    const nrl_collective *dry_run;
} nrl_environment;

/* ---- a run ---- */

/* Opens a run, and resumes it if the config says so. One NRL_ERR_CONFIG error lists all mistakes of the config. The
 * config's memory must outlive the run; the nrl_config itself may be destroyed, or used for another run after this one
 * is closed. */
NRL_API nrl_status nrl_run_open(nrl_config *config, const nrl_environment *env, nrl_run **out);
NRL_API void nrl_run_close(nrl_run *run); /* run may be NULL */
/* Reports a failure of the embedding program outside the run to the other ranks; call it before nrl_run_close. */
NRL_API void nrl_run_abandon(nrl_run *run, nrl_status st, const char *why);

/* Runs one step and what is due after it (evaluation, save, records). *done: no step was left, and *event is not
 * filled; the caller sets event->size. NRL_ERR_STOPPED after a signal, with the state saved. */
NRL_API nrl_status nrl_run_step(nrl_run *run, nrl_run_event *event, bool *done);
/* Calls nrl_run_step until done, then nrl_run_finish. */
NRL_API nrl_status nrl_run_train(nrl_run *run);
/* Makes the final save and the export, if configured. Callers of nrl_run_step call it at the end. A second call does
 * nothing. */
NRL_API nrl_status nrl_run_finish(nrl_run *run);

NRL_API void nrl_run_stop(nrl_run *run, const char *reason); /* ends the run after the current step; logs the reason */
/* Sets the learning rate from the next step on, instead of that of the schedule; a number below 0 or one that is not
 * finite: that of the schedule again, with a warning. */
NRL_API void nrl_run_set_lr(nrl_run *run, double lr);
/* Writes a number to the loggers, in a record of its own for the current step. Ranks other than 0 report nothing. If
 * the records of the run already use the name, nothing is written, and one warning is reported. */
NRL_API void nrl_run_report(nrl_run *run, const char *name, const char *unit, double value);
NRL_API int64_t nrl_run_steps_done(const nrl_run *run);
NRL_API int64_t nrl_run_total_steps(const nrl_run *run);
NRL_API const nrl_node *nrl_run_config(const nrl_run *run); /* resolved; borrowed, as long as the run */
NRL_API const char *nrl_run_out(const nrl_run *run);        /* its directory; borrowed, as long as the run */

/* Sample i of data.train, from 0, as text with each range of trained tokens between white square brackets (U+27E6,
 * U+27E7), or its ids without a tokenizer; allocated. *n is the number of samples. NULL: i is not below *n, or
 * NRL_ERR_MEMORY. */
NRL_API char *nrl_run_sample_text(const nrl_run *run, int64_t i, int64_t *n);

/* Evaluates on data.eval, or on `file` (not NULL) with the other data options of the config. Values (eval_loss,
 * eval_tokens, eval_NAME...) are borrowed until the next call on the run. NRL_ERR_CONFIG without either. */
NRL_API nrl_status nrl_run_evaluate(nrl_run *run, const char *file, const nrl_value **values, size_t *n_values);
/* A description of the weights of an evaluate_only run; borrowed, as long as the run. */
NRL_API const char *nrl_run_weights(nrl_run *run);
/* Saves the complete state; *path (borrowed until the next call) is the directory of the new checkpoint. */
NRL_API nrl_status nrl_run_save(nrl_run *run, const char **path);
/* Writes the weights as a Hugging Face directory. */
NRL_API nrl_status nrl_run_export(nrl_run *run, const char *dir);

/* A text of the embedding program (by convention JSON) that is saved in checkpoints and restored by a resume; borrowed
 * until the next nrl_run_set_state; NULL = none. */
NRL_API const char *nrl_run_state(const nrl_run *run);
NRL_API void nrl_run_set_state(nrl_run *run, const char *text);

/* ---- profiling: nrl/profile.h ---- */

/* The phases of a step. */
typedef enum {
    NRL_PHASE_NONE = 0, /* outside a step: evaluations, saves */
    NRL_PHASE_DATA = 1, /* waiting for a batch */
    NRL_PHASE_FORWARD = 2,
    NRL_PHASE_RECOMPUTE = 3,
    NRL_PHASE_BACKWARD = 4,
    NRL_PHASE_HEAD = 5,          /* forward and backward of the head and the loss */
    NRL_PHASE_REFERENCE = 6,     /* the reference model's log-probs */
    NRL_PHASE_COMMUNICATION = 7, /* communication of a strategy and between ranks that computation does not hide */
    NRL_PHASE_UPDATE = 8,        /* the norm of the gradients, clipping, the optimizer */
    NRL_PHASE_HOST = 9,          /* the rest: loss weights, values of the record, loggers, events */
    NRL_PHASE_COUNT = 10
} nrl_phase;

#ifdef __cplusplus
}
#endif
#endif
