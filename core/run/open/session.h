/*
 * session.h - what is open during a run: config, plugins, mesh, model, data, device. The trainer and the saver of a run
 * borrow it and change only weights and tensors.
 *
 * The functions below open it in this order; each checks what it can before anything expensive begins. All [main].
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

/* The peak memory of the largest micro-batch of a step, in addition to what `storage` counts. */
typedef struct {
    bool known;
    int64_t bytes, tokens;
    int64_t away_bytes; /* of activations that are elsewhere (train.offload) */
} step_estimate;

/* data.streaming, by nrl_run_services. [main] */
struct nrl_run_streams {
    /* Opens data.train without the rows that are held out, or only these. With the role "train" sets se->stream. */
    nrl_status (*open)(session *se, double held_out, const char *role, dataset **first);
    void (*close)(session *se);
    /* Makes the window of this step the data to train on. *over: a pipe ended before this window. */
    nrl_status (*advance)(session *se, int64_t step, bool *over);
    double (*epoch)(const session *se, double of_plan); /* from the epoch of the window's plan */
    nrl_node *(*node)(const session *se, arena *a);     /* for a checkpoint: where the window begins */
};

/* Zero-initialised, except out_lock, which is -1. */
struct session {
    nrl_environment env;
    telemetry *telemetry;
    hooks *hooks;
    arena memory;
    config_run config;
    const nrl_node *tree;      /* the tree of `config`, for places in errors while the run is opened */
    config_problems *problems; /* of the config, until they are reported */
    plugin_host *host;
    format_scope formats; /* of weights on disk, by probe */

    const nrl_algorithm *algorithm;
    const void *algorithm_options; /* NULL: a loss of a script */
    nrl_node *algorithm_files;     /* {OPTION: hash} of files and models that options name; NULL = not known yet */
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

    nrl_mesh *mesh; /* also with one rank, after session_open_mesh */
    const nrl_collective *collective;
    void *collective_options;
    const nrl_store_plugin *store; /* NULL: one rank, or no rank is joined */
    void *store_options;
    strategy_choices strategy_choices;
    strategy strategy; /* the policy's */
    data_shards shards;

    model_origin origin;       /* of the weights */
    arena model_memory;        /* config.json's tree */
    const char *base_key;      /* of the base weights of adapters; NULL = not requested yet */
    const char *tokenizer_dir; /* the directory that came with the weights; NULL = none */
    nrl_node *new_tokens;      /* in addition to the tokenizer's files: of model.path and of model.add_tokens */
    model *model;

    tokenizer *tokenizer;      /* NULL: pre-tokenized data only */
    const chat_template *chat; /* NULL: no usable template */
    const char *chat_problem;  /* the reason */
    session_data train, *evals;
    size_t n_evals;
    void *stream;               /* of nrl_run_streams, with `train` as its current window; else NULL */
    int64_t micro_batch_size;   /* tokens or samples, after a step ran out of memory; 0 = as in the config */
    session_data later;         /* replaces `train` if a program has set other data; else closed */
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
    int out_lock;                      /* rank 0's lock of `out` until the run is finished; -1 = none */
    sign_secret_key *sign_key;         /* rank 0's, with checkpoint.sign; else NULL */
    const sign_public_key *public_key; /* checkpoint.public_key; NULL = no signature is required */
};

nrl_status session_open_plugins(session *se); /* of all components, with their options */
nrl_status session_open_mesh(session *se);    /* joins the other ranks */
nrl_status session_open_keys(session *se);    /* to sign and to verify checkpoints */
nrl_status session_open_model(session *se);   /* architecture, from config.json */
/* Opens what needs no device: the output directory, the files of the weights, tokenizer and template, data. The first
 * rank of a node reads the data and writes the token cache, which the others use. */
nrl_status session_open_inputs(session *se);
/* The metrics of all open plugins, which must be the same on all ranks. */
nrl_status session_open_metrics(session *se);
nrl_status session_open_loaders(session *se); /* after both: plans and loaders */
int64_t session_updates(const session *se);   /* the steps that the algorithm takes on each batch of the data */
/* Replaces `train`, which is closed, by another set. Takes ownership of the set, also on failure. */
nrl_status session_set_train(session *se, dataset *set);
/* Divides later steps into micro-batches of half the size, with the same global batches. NRL_ERR_MEMORY: the
 * micro-batches are as small as the samples allow. The same on all ranks. */
nrl_status session_shrink_micro_batches(session *se);
/* Whether the backend runs here, without opening it. Backends other than nrl's own are asked in a child process. */
nrl_status session_probe_backend(session *se);
nrl_status session_open_device(session *se); /* backend, storage, weights */
/* Why results must have the same bits on all ranks although train.deterministic is false: ranks that compute the same
 * values separately use them for decisions (routers), and their parameters must not diverge. NULL: they need not. After
 * session_open_device or session_plan_storage. */
const char *session_exact_for(const session *se, arena *a);
nrl_status session_open_reference(session *se);
nrl_status session_inspect_reference(session *se); /* whether there is such a model: for `nrl check` */
/* The memory that a rank would need, for `nrl check`: strategies write layouts, and nothing is allocated. */
nrl_status session_plan_storage(session *se);
/* Runs a step with shapes only; the estimate stays unknown if that is not possible. NRL_ERR_PLUGIN: the backend lacks
 * an operation. */
nrl_status session_estimate(session *se);
nrl_status session_check_operations(session *se); /* whether the backend has the operations that training needs */
/* Both skip members that were not opened. session_close_device comes before session_close, which closes what the device
 * uses. */
void session_close_device(session *se);
void session_close(session *se);

/* Parts of session_open_inputs. */
nrl_status open_weights(session *se);           /* files mapped and compared with the model */
nrl_status session_open_tokenizer(session *se); /* once; before the model if new tokens change its shape */
nrl_status open_text(session *se);
nrl_status open_train_data(session *se);
nrl_status open_eval_data(session *se);
/* The options of a set of `source`, either without the rows that are held out or with only these. */
dataset_options session_dataset_options(session *se, const nrl_node *source, double held_out, const char *role);
/* Opens `sources` as a set of evaluation data or, with the role "train", as data to train on. */
nrl_status open_more_data(session *se, const nrl_node *sources, const char *role, session_data *out);
void close_data(session_data *d);
nrl_status out_prepare(session *se); /* rank 0: makes `out`, and keeps other runs out of it */
void out_unlock(session *se);
/* Rank 0, after everything else is open: removes an earlier run that is replaced, and marks the names that this run
 * will write as files of a run. */
nrl_status out_claim(session *se);
nrl_status out_write_config(session *se); /* OUT/config.yaml */
nrl_status out_mark(session *se);         /* after the loggers are open: writes the marker */

/* open_adapter.c: the component `adapter`; nothing without it */
nrl_status open_adapter(session *se);                   /* attaches it, before layouts are planned */
nrl_status adapter_base(session *se, const char **key); /* of the base weights; collective */

bool session_is_rank0(const session *se);   /* the rank that prints, writes records and decides */
bool session_is_planned(const session *se); /* `nrl check` or a dry run: does not join other ranks */
int32_t session_world(const session *se);   /* ranks; if planned, as many as the sizes of axes require */
/* Ranks of an axis of the config; the remaining ranks if it has no size. */
int32_t session_axis_size(const session *se, const config_axis *axis);
/* Bytes of weights, masters, gradients and states that are elsewhere. Tensors that a strategy binds stay on the
 * device. */
static inline int64_t session_offloaded_bytes(const session *se)
{
    const int64_t masters = se->strategy.plan.gathers_weights ? 0 : se->storage.master_bytes;
    return (se->config.train.offloaded.optimizer ? se->storage.state_bytes + masters : 0) +
           se->strategy.plan.offloaded_bytes;
}
nrl_dtype session_compute(const session *se);             /* the dtype of WEIGHT: train.precision */
nrl_dtype session_logits(const session *se);              /* of ctx_settings.logits: train.logits */
strategy_setup session_strategy_setup(const session *se); /* the policy's */
const char *session_cache_folder(session *se);            /* NULL: no cache may be kept */
/* What a checkpoint records of the run, in `a`: a map of the nodes "config", "model", "plugins"... A run that resumes
 * compares itself with them, and programs find the tokenizer there. [step] */
nrl_status session_describe(session *se, arena *a, nrl_node **map);
/* The open plugins that the run uses, without loggers; in `a`. */
size_t session_plugins(const session *se, arena *a, const nrl_plugin ***list);
/* The chat template of the run, in Jinja, for an export; NULL if it is the tokenizer's own, or if there is none. */
const char *session_template(const session *se, arena *a);
/* NRL_ERR_STOPPED if a signal came before the first step: there is nothing to save yet. */
nrl_status session_handle_signal(const session *se);

/* ---- identity ----
 *
 * Compares what each rank runs and reads: the build and plugins before the ranks join, files after they are open. Ranks
 * that read different bytes under one path would train replicas that differ, or wait for each other forever; instead
 * all of them end before the first step, and the message names what differs and on which ranks.
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
