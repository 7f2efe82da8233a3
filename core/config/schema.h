/*
 * schema.h - the core's own sections of a config, as C structs. The rows in schema.c are the only
 * list of these options: defaults, ranges, help and `nrl describe` come from them.
 *
 * An option comes here together with the code that reads it: none is accepted and ignored.
 * Plugins' options are not here: a component slot holds a name and a map, and the plugin host fills
 * them by the same validator.
 */
#ifndef CONFIG_SCHEMA_H
#define CONFIG_SCHEMA_H
#include "config/options.h"
#include <nrl/parallel.h>

typedef struct {
    const char *path;             /* of a model on disk, "" = none */
    const char *format;           /* plugin that reads it, "" = by probe */
    const char *config;           /* config.json for a random start, "" = none */
    const nrl_node *tokenizer;    /* as written */
    config_choice tokenizer_from; /* what it means; no source = the model directory */
} config_model;

typedef struct {
    bool on;
    int64_t rank;
    double alpha, dropout;
    bool rslora;
    const nrl_node *targets; /* a word or a list of words */
    const char *use;         /* peft directory, "" = none */
    nrl_node *resolved;      /* the section in the resolved config */
} config_lora;

typedef enum { CONFIG_OVERLONG_ERROR = 0, CONFIG_OVERLONG_DROP, CONFIG_OVERLONG_TRUNCATE } config_overlong;
typedef enum { CONFIG_TRAIN_ON_ANSWER = 0, CONFIG_TRAIN_ON_ALL, CONFIG_TRAIN_ON_LAST } config_train_on;
typedef enum { CONFIG_LAST_BATCH_KEEP = 0, CONFIG_LAST_BATCH_DROP } config_last_batch;

typedef struct {
    const nrl_node *train;       /* a list of {path, weight, reader}, whatever short form was written */
    const nrl_node *eval;        /* the same, or NULL; paths are ready to open */
    int64_t max_length;          /* tokens a sample */
    int64_t overlong;            /* config_overlong */
    const nrl_node *template;    /* as written */
    config_choice template_from; /* what it means: "auto", a word, or a path ready to open */
    int64_t train_on;            /* config_train_on */
    bool packing, prefix_sharing, shuffle;
    int64_t last_batch;      /* config_last_batch */
    const nrl_node *columns; /* a map of words, or NULL */
    const nrl_node *extra;   /* a list of words, or NULL */
    int64_t workers, prefetch;
    const char *cache; /* directory, "" = the core's choice */
} config_data;

typedef enum { CONFIG_FP32 = 0, CONFIG_BF16, CONFIG_FP16 } config_precision;
typedef enum { CONFIG_MASTER_FP32 = 0, CONFIG_MASTER_SPLIT16 } config_master;
typedef enum { CONFIG_GRADIENTS_FP32 = 0, CONFIG_GRADIENTS_BF16 } config_gradients;
typedef enum { CONFIG_NAN_STOP = 0, CONFIG_NAN_SKIP } config_nan;
typedef enum {
    CONFIG_RECOMPUTE_NONE = 0,
    CONFIG_RECOMPUTE_ALL,
    CONFIG_RECOMPUTE_EVERY, /* every n-th layer */
    CONFIG_RECOMPUTE_RATIO, /* that share of the layers, from the first */
    CONFIG_RECOMPUTE_LAYERS /* those in the list */
} config_recompute_kind;

typedef struct {
    config_recompute_kind kind;
    int64_t every;
    double ratio;
    const nrl_node *layers; /* list of whole numbers from 0 */
} config_recompute;

typedef struct {
    bool dynamic;
    double init; /* a scale that stays, where not dynamic; 1 without fp16 */
    double growth, backoff, min;
    int64_t growth_interval;
} config_loss_scale;

typedef struct {
    int64_t steps, epochs; /* one of them is 0 */
    int64_t global_batch;  /* samples a step, before packing */
    int64_t micro_batch_tokens;
    int64_t micro_batch;                      /* samples, 0 = by tokens */
    int64_t precision;                        /* config_precision */
    const nrl_node *loss_scale;               /* as written */
    config_loss_scale scale;                  /* what it means */
    int64_t master;                           /* config_master */
    int64_t gradients;                        /* config_gradients */
    const nrl_node *activation_checkpointing; /* as written */
    config_recompute recompute;               /* what it means */
    int64_t seed;
    int64_t nan; /* config_nan */
    int64_t nan_limit;
    double diverge_factor; /* 0 = off */
    bool check_gradient;
    int64_t logits_mb;
    bool deterministic;
} config_train;

typedef struct {
    int64_t every, early_stop;
} config_eval;

typedef enum { CONFIG_ON_ERROR_STOP = 0, CONFIG_ON_ERROR_WARN } config_on_error;
typedef enum { CONFIG_METRIC_AUTO = 0, CONFIG_METRIC_MIN, CONFIG_METRIC_MAX } config_metric_mode;
typedef enum { CONFIG_EXPORT_NONE = 0, CONFIG_EXPORT_LAST, CONFIG_EXPORT_BEST } config_export;
typedef enum { CONFIG_FALLBACK_NONE = 0, CONFIG_FALLBACK_PREVIOUS } config_fallback;

typedef struct {
    int64_t every;
    double every_minutes;
    int64_t keep, keep_best;
    const char *metric;
    int64_t metric_mode; /* config_metric_mode */
    bool save_at_start;
    int64_t export;            /* config_export: OUT/model at the end */
    const char *export_format; /* plugin that writes it, "" = as read */
    bool async;
    int64_t threads;
    int64_t on_error;       /* config_on_error */
    int64_t mismatch;       /* config_on_error: of a run and the checkpoint it goes on from */
    int64_t fallback;       /* config_fallback */
    const char *sign;       /* file of a secret key, "" = unsigned */
    const char *public_key; /* file of a public key, "" = any checkpoint is taken */
} config_checkpoint;

/* One host of a run, as `nrl launch` counts ranks over it. */
typedef struct {
    const char *address;
    int64_t slots;        /* ranks on it */
    const nrl_node *gpus; /* list of whole numbers, one a slot, or NULL */
} config_host;

typedef struct {
    double timeout_init, timeout_step; /* seconds */
    const nrl_node *nodes;             /* as written */
    config_host *hosts;                /* what it means */
    size_t n_hosts;
} config_launch;

/* An axis of the mesh that the config asks for. */
typedef struct {
    const nrl_mesh_axis *axis; /* as a plugin that serves it declares it */
    config_component strategy; /* name NULL = none, or with `is_auto` the default one of the axis */
    int64_t size;              /* ranks that the config asks for; 0 = what the others leave */
    bool is_auto;
} config_axis;

/* A strategy that a run may choose. */
typedef struct {
    const nrl_parallel *table;
    const nrl_mesh_axis *axis;
    bool by_default; /* also where the config does not name it */
} config_server;

typedef struct {
    bool sandbox;
    int64_t loss_instructions; /* of Lua, in one call */
    int64_t loss_memory_mb;
} config_script;

typedef struct {
    config_model model;
    config_lora lora;
    config_data data;
    config_train train;
    config_eval eval;
    config_checkpoint checkpoint;
    config_script script;
    config_component algorithm, optimizer, schedule, backend; /* the first two by "" where unset: the default plugin */
    const nrl_node *parallel;                                 /* as written; config_axes makes of it what follows */
    config_axis *axes; /* [n_axes] outermost first: ranks that are neighbours differ in the last */
    size_t n_axes;
    config_component collective; /* "auto" where unset */
    config_launch launch;
    const nrl_node *debug; /* as written */
    int64_t debug_every;   /* steps between comparisons of the ranks; 0 = off */
    config_component *loggers;
    size_t n_loggers;
    bool loggers_unset;   /* the default ones */
    const char **plugins; /* folders, ready to open */
    size_t n_plugins;
    const nrl_node *plugin_folders; /* where they were written: a text, or a list of as many */
    const char **plugins_allow;     /* plugins.allow; NULL = not set, any may be opened */
    size_t n_plugins_allow;
    bool overwrite;
    const char *resume, *out, *name;
    nrl_node *resolved; /* everything above as one tree; plugins append to their component's map */
} config_run;

/* Fills *out from a whole tree; all mistakes go to `problems`. Components are only named: their
 * options are filled by who knows their rows. Strings live as long as `a` and the tree. [main] */
void config_fill(arena *a, config_problems *problems, const nrl_node *root, config_run *out);

/* The strategy that serves an axis where the config names none: of those by default, and of all where there are none
 * such, the one of the highest priority. `axis` NULL: any axis that takes the rest. NULL: there is none. */
const config_server *config_server_of(const config_server *servers, size_t n, const char *axis);
/* Whether the key is an option of that strategy. */
bool config_has_option(const config_server *servers, size_t n, const char *plugin, const char *key);
/* What `parallel` of a filled config says of axes: run->axes, and its place in the resolved config. After
 * config_fill, as only plugins know which axes there are. [main] */
void config_axes(arena *a, config_problems *problems, const config_server *servers, size_t n, config_run *run);

/* What `nrl describe` shows: every section of this file and its rows. */
typedef struct {
    const char *name; /* "" = the top level */
    const char *help;
    const nrl_option *rows;
    size_t n_rows;
} config_section;
const config_section *config_sections(size_t *n);

#endif
