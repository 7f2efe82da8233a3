/*
 * session.h - what is open while a run lasts: config, plugins, mesh, model, data, device. The trainer and the saver of
 * a run borrow it; what they do does not change it, but for the weights and the tensors.
 *
 * The functions open it in this order; each checks what it can before anything expensive is begun. All [main].
 */
#ifndef RUN_SESSION_H
#define RUN_SESSION_H
#include <nrl/schedule.h>
#include "base/sign.h"
#include "config/schema.h"
#include "data/data.h"
#include "mesh/mesh.h"
#include "optim/options.h"
#include "optim/updates.h"
#include "plugin/host.h"
#include "base/claims.h"
#include "run/output/hooks.h"
#include "run/output/telemetry.h"
#include "run/walk/metrics.h"
#include "run/walk/storage.h"
#include "run/walk/strategy.h"
#include "run/walk/work.h"
#include "run/weights/reference.h"
#include "text/chat.h"

/* data.train or a set of data.eval; members are NULL where it is not open. */
typedef struct {
    const char *name; /* of the set; "" = the only one */
    dataset *set;
    data_plan *plan;
    data_loader *loader;
    int64_t begin; /* finished steps of the run at the first step of the plan */
} session_data;

typedef struct session session;

/* The memory that the largest micro-batch of a step holds at its peak, beside what `storage` counts. */
typedef struct {
    bool known;
    int64_t bytes, tokens;
    int64_t away_bytes; /* of activations that are elsewhere (train.offload) */
} step_estimate;

/* data.streaming, by nrl_run_services. [main] */
struct nrl_run_streams {
    /* Opens data.train, with rows that are held out or only these. With the role "train" sets se->stream. */
    nrl_status (*open)(session *se, double held_out, const char *role, dataset **first);
    void (*close)(session *se);
    /* Makes the window of this step the data to train on. *over: a pipe has ended before it. */
    nrl_status (*advance)(session *se, int64_t step, bool *over);
    double (*epoch)(const session *se, double of_plan); /* from that of the window's plan */
    nrl_node *(*node)(const session *se, arena *a);     /* for a checkpoint: where the window begins */
};

/* Zero at first, but for out_lock, which is -1. */
struct session {
    nrl_environment env;
    telemetry *telemetry;
    hooks *hooks;
    arena memory;
    config_run config;
    const nrl_node *tree;      /* what config was read from; while the run is opened, to name places */
    config_problems *problems; /* of the config, until they are reported */
    plugin_host *host;
    format_scope formats; /* of weights on disk, by probe */

    const nrl_algorithm *algorithm;
    const void *algorithm_options; /* NULL: a loss of a script */
    nrl_node *algorithm_files;     /* {OPTION: hash} of the files and models that they name; NULL until it is known */
    void *algorithm_self;
    bool algorithm_is_script; /* its instance belongs to the script host */
    metric_rows metrics;      /* of the algorithm; then of all plugins */
    bool best_is_largest;     /* of checkpoint.metric */
    const nrl_optimizer *optimizer;
    void *optimizer_plugin_options, *optimizer_self;
    update_plan updates;             /* where the optimizer's states are; empty where nothing is trained */
    optim_options optimizer_options; /* the core's rows */
    const nrl_schedule *schedule;
    void *schedule_options;
    const nrl_adapter *adapter; /* that the config names; NULL: everything is trained */
    void *adapter_options;
    const nrl_backend *backend;
    void *backend_options;
    const nrl_backend *delegate; /* of the backend; NULL = none */
    void *delegate_options;
    const nrl_backend *updater; /* of the backend; NULL = none, or train.offload.optimizer is none */
    void *updater_options;
    const char *skipped_backends; /* "NAME: why", by `backend: auto`; NULL = none */

    nrl_mesh *mesh; /* of one rank too, once session_open_mesh was called */
    const nrl_collective *collective;
    void *collective_options;
    const nrl_store_plugin *store; /* NULL: one rank, or no rank is joined */
    void *store_options;
    strategy_choices strategy_choices;
    strategy strategy; /* the policy's */
    data_shards shards;

    model_origin origin;       /* of the weights */
    arena model_memory;        /* config.json's tree */
    const char *base_key;      /* of the weights beside adapters, once it was asked for; NULL before */
    const char *tokenizer_dir; /* what came with them; NULL = nothing */
    nrl_node *new_tokens;      /* tokens beside those of the tokenizer's files: of model.path, and model.add_tokens */
    model *model;

    tokenizer *tokenizer;      /* NULL: pre-tokenized data only */
    const chat_template *chat; /* NULL: none that can be used */
    const char *chat_problem;  /* why there is none */
    session_data train, *evals;
    size_t n_evals;
    void *stream;               /* of the services' streams, whose current window `train` is; else NULL */
    int64_t micro_batch_size;   /* tokens or samples, after a step that lacked memory; 0 = of the config */
    session_data later;         /* in the place of `train`, once a program has set it; else closed */
    const nrl_node *later_node; /* the same for a checkpoint; NULL = none */
    int64_t total_steps;

    device device;
    nrl_ctx *ctx;
    storage storage;
    step_estimate estimate; /* of `nrl check` */
    work work;
    reference_options reference_options;
    reference *reference;      /* NULL: the algorithm needs none */
    const char *reference_key; /* identity of its weights; NULL: none, or the policy's own */

    claims claims;                     /* rank 0's: what may be written in `out` */
    int out_lock;                      /* rank 0's hold of `out` until the run is finished; -1 = none */
    sign_secret_key *sign_key;         /* rank 0's, where checkpoint.sign; else NULL */
    const sign_public_key *public_key; /* checkpoint.public_key; NULL = none is demanded */
};

nrl_status session_open_plugins(session *se); /* options of everything */
nrl_status session_open_mesh(session *se);    /* joins the other ranks */
nrl_status session_open_keys(session *se);    /* to sign and to verify checkpoints */
nrl_status session_open_model(session *se);   /* architecture, from config.json */
/* What a model and a folder of results need before a device: the output folder, the files of the weights, tokenizer
 * and template, data. The first rank of a node reads the data and leaves its cache; the others find it there. */
nrl_status session_open_inputs(session *se);
/* The metrics of all open plugins, which must be the same on all ranks. */
nrl_status session_open_metrics(session *se);
nrl_status session_open_loaders(session *se); /* after both: plans and loaders */
int64_t session_updates(const session *se);   /* the steps that the algorithm takes on each batch of the data */
/* Puts another set in the place of `train`, which is closed. Takes ownership of the set, also on failure. */
nrl_status session_set_train(session *se, dataset *set);
/* Divides the steps to come into micro-batches of half the size, with the same global batches. NRL_ERR_MEMORY: they are
 * as small as the samples allow. The same on all ranks. */
nrl_status session_shrink_micro_batches(session *se);
/* Whether the backend runs here, without opening it. Backends other than nrl's own are asked in a child process. */
nrl_status session_probe_backend(session *se);
nrl_status session_open_device(session *se); /* backend, storage, weights */
/* Why results must have the same bits on all ranks although train.deterministic is false: where ranks compute the same
 * values alone, they decide by them (routers), and their parameters may not drift apart. NULL: they need not. After
 * session_open_device or session_plan_storage. */
const char *session_exact_for(const session *se, arena *a);
nrl_status session_open_reference(session *se);
nrl_status session_inspect_reference(session *se); /* whether there is such a model: for `nrl check` */
/* What a rank would hold, for `nrl check`: the strategy plans, nothing is allocated. */
nrl_status session_plan_storage(session *se);
/* Walks a step by its shapes alone; what cannot be walked stays unknown. NRL_ERR_PLUGIN: the backend lacks an
 * operation. */
nrl_status session_estimate(session *se);
nrl_status session_check_operations(session *se); /* whether the backend has the operations that training needs */
/* Both skip members that were not opened. session_close_device gives back the device, before session_close closes what
 * the device uses. */
void session_close_device(session *se);
void session_close(session *se);

/* The lesser parts of session_open_inputs. */
nrl_status open_weights(session *se);           /* files mapped and compared with the model */
nrl_status session_open_tokenizer(session *se); /* once; before the model where the tokens decide its shape */
nrl_status open_text(session *se);
nrl_status open_train_data(session *se);
nrl_status open_eval_data(session *se);
/* The options of a set of `source`, with only the rows that are held out or without them. */
dataset_options session_dataset_options(session *se, const nrl_node *source, double held_out, const char *role);
/* Opens a file as a set of evaluation data, or with the role "train" the `sources` of data to train on. */
nrl_status open_more_data(session *se, const nrl_node *sources, const char *role, session_data *out);
void close_data(session_data *d);
nrl_status out_prepare(session *se); /* rank 0: makes `out`, and keeps other runs out of it */
void out_unlock(session *se);
/* Rank 0, once everything else is open: removes an earlier run that is replaced, and marks what this one will
 * write as a run's. */
nrl_status out_claim(session *se);
nrl_status out_write_config(session *se); /* OUT/config.yaml */
nrl_status out_mark(session *se);         /* once the loggers are open too: the marker says so */

/* open_adapter.c: the component `adapter`; nothing without it */
nrl_status open_adapter(session *se); /* attaches it, before anything is planned */
nrl_status adapter_base(session *se,
                        const char **key); /* the weights beside it; the same on all ranks, which all ask */

bool session_is_rank0(const session *se);   /* the rank that speaks, writes records and decides */
bool session_is_planned(const session *se); /* `nrl check` or a dry run: does not join other ranks */
int32_t session_world(const session *se);   /* ranks; if planned also those that the sizes of axes announce */
/* Ranks of an axis of the config; what the others leave, where it has no size. */
int32_t session_axis_size(const session *se, const config_axis *axis);
/* Of weights, masters, gradients and states: elsewhere. What a strategy binds itself stays on the device. */
static inline int64_t session_offloaded_bytes(const session *se)
{
    const int64_t masters = se->strategy.plan.gathers_weights ? 0 : se->storage.master_bytes;
    return (se->config.train.offloaded.optimizer ? se->storage.state_bytes + masters : 0) +
           se->strategy.plan.offloaded_bytes;
}
nrl_dtype session_compute(const session *se);             /* the dtype of WEIGHT: train.precision */
nrl_dtype session_logits(const session *se);              /* of ctx_settings.logits: train.logits */
strategy_setup session_strategy_setup(const session *se); /* the policy's */
const char *session_cache_folder(session *se);            /* NULL: nothing may be left behind */
/* What a checkpoint records of the run, in `a`: a map of the nodes "config", "model", "plugins"... by which a run that
 * goes on from it is compared, and programs find its tokenizer. [step] */
nrl_status session_describe(session *se, arena *a, nrl_node **map);
/* The plugins that are open and do something in the run, but for the loggers; in `a`. */
size_t session_plugins(const session *se, arena *a, const nrl_plugin ***list);
/* The chat template of the training, in Jinja, for an export; NULL if it is the tokenizer's own, or there is none. */
const char *session_template(const session *se, arena *a);
/* NRL_ERR_STOPPED if a signal came before the first step: there is nothing to save yet. */
nrl_status session_handle_signal(const session *se);

/* ---- identity ----
 *
 * What each rank runs and reads, made comparable: the build and plugins before the ranks join,
 * files once they are open. Ranks that read different bytes under one path would train replicas that never
 * agree, or wait for each other for ever; here all of them end before the first step, and the message names
 * what differs and on which ranks.
 *
 * Data, tokenizer, template, adapters and plugins are compared by all their bytes, which are read anyway;
 * weights by the headers and samples of every tensor, and by what ranks read while they load (read_check.h). */

/* Malloc'd "key: value" lines about the build and the plugins of the config. NRL_ERR_IO. [main] */
nrl_status identity_of_code(session *se, char **lines);

/* Identifies the files that options of the algorithm name, and compares the files of all ranks once they are open.
 * NRL_ERR_CONFIG, the same on every rank. [main] */
nrl_status identity_check_files(session *se);
/* The file or model that row i of the algorithm's options names. NULL: the row is not a path, or not set. */
const char *session_algorithm_path(const session *se, uint32_t i);

#endif
