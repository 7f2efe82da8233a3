/*
 * internal.h - what a run is made of; private to this folder.
 */
#ifndef RUN_INTERNAL_H
#define RUN_INTERNAL_H
#include "checkpoint/checkpoint.h"
#include "config/schema.h"
#include "data/data.h"
#include "model/save.h"
#include "optim/clip.h"
#include "optim/loss_scale.h"
#include "optim/options.h"
#include "optim/schedule.h"
#include "optim/slices.h"
#include "plugin/host.h"
#include "mesh/mesh.h"
#include "run/output/claims.h"
#include "run/weights/reference.h"
#include "run/walk/storage.h"
#include "run/walk/strategy.h"
#include "run/output/telemetry.h"
#include "run/walk/work.h"
#include "text/chat.h"

typedef struct nrl_run run; /* as this folder calls it */

enum { RUN_MAX_METRICS = 4096 }; /* beyond it a table is taken for one without an end */

/* Whose code a run is calling, which may call the run back. */
typedef enum {
    INSIDE_NOTHING = 0,
    INSIDE_LOSS, /* weight, loss, step_end: in the middle of a step or an evaluation */
    INSIDE_STEP_HOOK,
    INSIDE_EVAL_HOOK,
    INSIDE_SAVE_HOOK
} run_inside;

/* A metric of the algorithm, reduced over a step or an evaluation. */
typedef struct {
    double value, weight;
    bool any;
} run_metric;

/* What a checkpoint holds beside tensors; plain numbers, see save.c. */
typedef struct {
    int64_t step;             /* finished steps, those omitted by the NaN policy included */
    int64_t updates;          /* of the optimizer: what its bias correction counts */
    int64_t tokens;           /* trained on so far */
    int64_t skipped_in_a_row; /* NaN policy */
    int64_t evals_without_best;
    double first_loss; /* of the first step that updated; NaN = not known */
    int64_t far_steps; /* in a row, whose loss was train.diverge_factor times that */
    double best;       /* of checkpoint.metric */
    int64_t best_step; /* 0 = none yet */
} run_progress;

/* Seconds of saves. */
typedef struct {
    /* of the current one */
    double start; /* the run waited: for the snapshot, or without checkpoint.async for all of it */
    double late;  /* the run waited later: for what was not written yet */
    /* of the last complete one */
    double whole;           /* until it was durable */
    double snapshot, stall; /* its `start`; with its `late` */
    bool is_unreported;     /* no record has told it yet */
} save_times;

/* What a step's largest micro-batch holds at its peak, beside what `storage` counts. */
typedef struct {
    bool known;
    int64_t bytes, tokens;
} step_estimate;

struct nrl_run {
    nrl_environment env;
    arena memory;
    config_run config;
    const nrl_node *tree;      /* what config was read from; while the run is opened, to name places */
    config_problems *problems; /* found before it was opened; until they are reported */
    optim_options optimizer_options;
    plugin_host *host;
    format_scope formats; /* of weights on disk, by probe */

    nrl_mesh *mesh; /* of one rank too, once open_mesh was called */
    const nrl_collective *collective;
    void *collective_options;
    strategy_choices strategy_choices;
    strategy strategy; /* the policy's */

    device device;
    nrl_ctx *ctx;
    arena model_memory;        /* config.json's tree */
    model_origin origin;       /* of the weights */
    const char *base_key;      /* of what adapters stand on, once it was asked for; NULL before */
    const char *tokenizer_dir; /* what came with them; NULL = nothing */
    model *model;
    storage storage;
    step_estimate estimate; /* of `nrl check` */
    work work;

    const nrl_algorithm *algorithm;
    void *algorithm_self;
    reference_options reference_options;
    reference *reference;      /* NULL: the algorithm needs none */
    const char *reference_key; /* identity of its weights; NULL: none, or the policy's own */
    bool algorithm_is_script;  /* its instance belongs to the script host */
    const nrl_optimizer *optimizer;
    void *optimizer_options_of_plugin, *optimizer_self;
    const nrl_backend *backend;
    const char *skipped_backends; /* "NAME: why", by `backend: auto`; NULL = none */
    void *backend_options;
    schedule_options schedule_options;
    arena slice_memory;
    nrl_slice *slices;
    bool *slice_counts; /* [n_slices] no lower rank holds it too: its norm counts here */
    int64_t n_slices;
    schedule schedule;
    loss_scale loss_scale;
    double lr_override; /* < 0 = the schedule's */

    tokenizer *tokenizer;      /* NULL: pre-tokenized data only */
    const chat_template *chat; /* NULL: none that can be used */
    const char *chat_problem;  /* why there is none */
    dataset *train_data, *eval_data;
    data_plan *train_plan, *eval_plan;
    data_loader *train_loader, *eval_loader;
    int64_t total_steps;

    telemetry telemetry;
    bool plans; /* what it says are lines of the plan */
    run_inside inside;
    run_progress progress;
    char *script_state;
    const char *stop_reason;
    bool finished;
    claims claims;                     /* rank 0's: what may be written in `out` */
    int out_lock;                      /* rank 0's hold of `out` until the run is finished; -1 = none */
    sign_secret_key *sign_key;         /* rank 0's, where checkpoint.sign; else NULL */
    const sign_public_key *public_key; /* checkpoint.public_key; NULL = none is demanded */
    checkpoint_writer *writer;         /* NULL until the first save, or the trial before it */
    int64_t last_saved;                /* step of the newest save, perhaps still being written; -1 = none */
    int64_t last_save_step;            /* of last_save */
    save_times save_times;
    bool hook_due; /* the script has not heard of last_save yet */
    double last_save_time;
    bool save_by_clock;    /* checkpoint.every_minutes are over: rank 0's clock, told at a step's end */
    int signal;            /* that any rank got, told at a step's end; 0 = none */
    const char *last_save; /* folder of the newest complete one */

    run_metric *metrics; /* [n_metrics] */
    uint32_t n_metrics;
    nrl_value *values, *eval_values; /* room for every metric and what the core adds */
    size_t values_room, n_values, n_eval_values;
    bool best_is_largest; /* of checkpoint.metric */
    /* of the current step, but for the first; bytes sent by this rank, operations that it computed */
    double started, data_seconds, comm_seconds, comm_bytes, flops;
    int64_t resumed_from, resumed_updates, resumed_tokens; /* steps, updates, tokens at the start of this process */
};

/* An event with these words: a line of the plan while that is made, else of news; and of any kind. */
void run_say(run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void run_tell(run *r, nrl_run_event_kind kind, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
const char *run_thousands(int64_t n); /* 1234567 -> "1,234,567", in one of a few rotating buffers */

/* nrl_run_open of a tree; `problems` were found while it was read and are reported with the rest, NULL = none. */
nrl_status run_open(const nrl_node *config, config_problems *problems, const nrl_environment *env, run **out);
/* Calls the embedder's callback, if there is one, `inside` which the run is then. (call.c) */
nrl_status run_emit(run *r, run_inside inside, nrl_run_event *event);
void run_emit_text(void *user, const nrl_run_event *event); /* what comes by telemetry; `user` is the run */

/* open.c and its parts; each checks what it can into `problems` before anything is opened. */
nrl_status open_plugins(run *r, const nrl_node *config); /* open_plugins.c: options of everything */
nrl_status open_mesh(run *r);                            /* open_mesh.c: joins the other ranks */
/* Ranks that there are; for `nrl check` also those that the sizes of axes announce. */
int32_t run_world(const run *r);
/* Ranks of an axis of the config; what the others leave, where it has no size. */
int32_t run_axis_size(const run *r, const config_axis *axis);
bool run_is_rank0(const run *r); /* the rank that speaks, writes records and decides */
nrl_status open_model(run *r);   /* open_model.c: architecture, from config.json */
/* adapters.c: section lora; nothing without it */
nrl_status adapters_open(run *r);                    /* attaches them, before anything is planned */
void adapters_say(run *r);                           /* their lines of the plan */
nrl_status adapters_base(run *r, const char **key);  /* what they stand on; the same on all ranks, which all ask */
nrl_status open_weights(run *r);                     /* open_model.c: their files mapped and compared with it */
nrl_status open_eval_file(run *r, const char *path); /* open_data.c: in the place of data.eval; eval_data is NULL */
void close_eval(run *r);
nrl_status open_text(run *r); /* open_data.c: tokenizer and template */
nrl_status open_train_data(run *r);
nrl_status open_eval_data(run *r);
nrl_status open_loaders(run *r);      /* after both: plans and loaders */
const char *run_cache_folder(run *r); /* NULL: nothing may be left behind */
nrl_status open_reference(run *r);    /* open_device.c, after data and device */
nrl_status look_at_reference(run *r); /* whether there is such a model: for `nrl check` */
nrl_status open_device(run *r);       /* open_device.c: backend, storage, weights */
nrl_status open_plan(run *r);         /* print_summary.c: says what is about to happen */
void estimate_step(run *r);           /* estimate.c: by shapes alone; what cannot be walked so stays unknown */

/* step.c */
/* *done: rank 0's script stopped the run; no step was taken. */
nrl_status step_take(run *r, nrl_run_event *e, bool *done);
/* The same on given batches, begun at `start` (now_seconds). */
nrl_status step_on(run *r, const data_step *data, double start, nrl_run_event *e, bool *done);

/* metrics.c: metrics of the algorithm over a step or an evaluation */
nrl_status metrics_open(run *r); /* counts them; a name that a record has already is a mistake */
void metrics_reset(run *r);
void metric_add(run_metric *m, uint32_t reduce, double value, double weight);
nrl_status metrics_collect(run *r);
void metrics_append(const run *r, const char *prefix, nrl_value *values, size_t *n, arena *names);
void value_append(const run *r, nrl_value *values, size_t *n, const char *name, const char *unit, double value);

/* evaluate.c */
nrl_status evaluate_due(run *r);
/* After a resume, where the best is to be exported: its checkpoint must be in this run's folder, or the best is
 * looked for anew. */
nrl_status best_resume(run *r);

/* save.c */
nrl_status save_due(run *r);
nrl_status save_last(run *r); /* at the end: until it is there; a failure by checkpoint.on_error, as any */
nrl_status save_now(run *r, const char **path); /* complete when it returns */
nrl_status save_wait(run *r);                   /* until what is being written is complete */
void save_close(run *r);
void save_tell(run *r, nrl_value *values, size_t *n); /* of the last save, once: into a record */
nrl_status save_at_start(run *r);
nrl_status save_config(run *r);

/* train.c: NRL_ERR_STOPPED where a signal came, for the time before the first step: there is nothing to save yet */
nrl_status run_heed_early(const run *r);

/* resume.c */
nrl_status resume_due(run *r);
nrl_status resume_weights(run *r); /* what env.weights names */

/* export.c */
/* The weights as they are, or, where `from` is not NULL, those of a checkpoint of this run. */
nrl_status export_to(run *r, const char *from, const char *dir);
const char *export_template(const run *r, arena *a);

/* call.c: what every public call of a run begins with, NRL_ERR_CONFIG where it cannot be made from what the run
 * is inside of (`call` completes "cannot ..."); and what it returns through: an error is told to the other ranks */
#define RUN_CALL_STEP "take a step"
#define RUN_CALL_FINISH "finish"
#define RUN_CALL_SAVE "save"
nrl_status run_begin_call(const run *r, const char *call);
nrl_status run_end_call(run *r, nrl_status st);
run_inside run_enter(run *r, run_inside now); /* the one before, to be entered again afterwards */

/* out.c */
nrl_status out_prepare(run *r); /* rank 0: makes it, and keeps other runs out of it */
void out_unlock(run *r);
/* Rank 0, once everything else is open: removes an earlier run that is replaced, and marks what this one will
 * write as a run's. */
nrl_status out_claim(run *r);
nrl_status out_mark(run *r); /* once the loggers are open too: the marker says so */

strategy_setup strategy_setup_of(const run *r); /* the policy's */
nrl_dtype run_compute(const run *r);            /* the dtype of WEIGHT: train.precision */
double now_seconds(void);                       /* monotonic */

#endif
