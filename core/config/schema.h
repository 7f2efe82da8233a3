/*
 * schema.h - the core's own sections of a config, as C structs. The rows in schema.c are the only list of these
 * options: defaults, ranges, help and `nrl describe` come from them.
 *
 * Every option here is read by some code: no option is accepted and ignored. Options of plugins are not here: a
 * component slot has a name and a map, and the plugin host fills the options with the same functions.
 */
#ifndef CONFIG_SCHEMA_H
#define CONFIG_SCHEMA_H
#include "config/options.h"
#include <nrl/parallel.h>

typedef struct {
    const char *path;             /* a model on disk, "" = none */
    const char *format;           /* plugin that reads path, "" = found by probing */
    const char *config;           /* config.json of a model with random weights, "" = none */
    const nrl_node *tokenizer;    /* as written */
    config_choice tokenizer_from; /* resolved; no source = the model directory */
    const nrl_node *add_tokens;
    int64_t pad_vocab_to_multiple_of;
} config_model;

typedef struct {
    config_component component; /* name NULL = everything is trained */
    const char *section;        /* what the config calls it: "adapter", or the plugin's name */
    const char *use;            /* an adapter on disk, "" = none */
    int64_t base;               /* quantize_kind of the frozen matrices */
    const nrl_node *modules_to_save;
} config_adapter;

typedef enum {
    CONFIG_OVERLONG_ERROR = 0,
    CONFIG_OVERLONG_DROP,
    CONFIG_OVERLONG_TRUNCATE,
    CONFIG_OVERLONG_SPLIT
} config_overlong;
typedef enum { CONFIG_TRAIN_ON_ANSWER = 0, CONFIG_TRAIN_ON_ALL, CONFIG_TRAIN_ON_LAST } config_train_on;
typedef enum { CONFIG_LAST_BATCH_KEEP = 0, CONFIG_LAST_BATCH_DROP } config_last_batch;

/* data.mix. The share of an entry with n rows is proportional to n^power; an epoch has as many samples as there are
 * rows. */
typedef struct {
    double power;
    bool even; /* each step has the share of each entry */
} config_mix;

/* A set of evaluation data. */
typedef struct {
    const char *name;        /* "" = the only one */
    const nrl_node *sources; /* a list as config_data.train */
    double held_out;         /* share or number of rows that are held out of `train`; 0 = none */
} config_eval_set;

typedef struct {
    const nrl_node *train;  /* a list of {path, weight, ...}, whatever short form was written */
    const nrl_node *eval;   /* as written, or NULL */
    config_eval_set *evals; /* [n_evals] */
    size_t n_evals;
    double held_out;             /* of `train`, by one of evals */
    const nrl_node *mix;         /* as written */
    config_mix mixed;            /* resolved */
    int64_t max_length;          /* tokens a sample */
    int64_t overlong;            /* config_overlong */
    const nrl_node *template;    /* as written */
    config_choice template_from; /* resolved: "auto", a word, or a path relative to the working directory */
    int64_t train_on;            /* config_train_on */
    bool packing, prefix_sharing, shuffle;
    int64_t last_batch;      /* config_last_batch */
    const nrl_node *columns; /* a map of words, or NULL */
    const nrl_node *extra;   /* a list of words, or NULL */
    int64_t workers, prefetch;
    const char *cache; /* directory, "" = default */
    bool streaming;
    int64_t shuffle_buffer; /* samples; of a stream */
} config_data;
enum { CONFIG_SHUFFLE_BUFFER = 10000 }; /* its default */

typedef enum { CONFIG_FP32 = 0, CONFIG_BF16, CONFIG_FP16, CONFIG_FP8 } config_precision;
typedef enum { CONFIG_FP8_DELAYED = 0, CONFIG_FP8_CURRENT, CONFIG_FP8_BLOCK } config_fp8_recipe;
typedef enum { CONFIG_MASTER_FP32 = 0, CONFIG_MASTER_SPLIT16 } config_master;
typedef enum { CONFIG_GRADIENTS_FP32 = 0, CONFIG_GRADIENTS_BF16 } config_gradients;
typedef enum { CONFIG_LOGITS_FP32 = 0, CONFIG_LOGITS_BF16 } config_logits;
typedef enum { CONFIG_OFFLOAD_NONE = 0, CONFIG_OFFLOAD_HOST, CONFIG_OFFLOAD_DISK } config_place;
typedef struct {
    int64_t optimizer, activations; /* config_place */
    const char *folder;             /* "" = out */
} config_offload;
typedef enum { CONFIG_LEAK_OFF = 0, CONFIG_LEAK_WARN, CONFIG_LEAK_STOP } config_leak;
typedef enum { CONFIG_OOM_STOP = 0, CONFIG_OOM_RETRY } config_oom;
typedef enum { CONFIG_NAN_STOP = 0, CONFIG_NAN_SKIP } config_nan;
typedef enum {
    CONFIG_RECOMPUTE_NONE = 0,
    CONFIG_RECOMPUTE_ALL,
    CONFIG_RECOMPUTE_EVERY, /* every n-th layer */
    CONFIG_RECOMPUTE_RATIO, /* this share of the layers, from the first */
    CONFIG_RECOMPUTE_LAYERS /* the layers in the list */
} config_recompute_kind;

typedef struct {
    config_recompute_kind kind;
    int64_t every;
    double ratio;
    const nrl_node *layers; /* list of whole numbers from 0 */
} config_recompute;

typedef struct {
    bool dynamic;
    double init; /* the constant scale if not dynamic; 1 without fp16 */
    double growth, backoff, min;
    int64_t growth_interval;
} config_loss_scale;

/* How fp8 chooses scales. */
typedef struct {
    int64_t recipe;  /* config_fp8_recipe */
    int64_t history; /* steps whose largest values set the scale of a delayed one */
    int64_t margin;  /* a scale is 2^margin smaller than these values allow */
} config_fp8;

typedef struct {
    int64_t steps, epochs; /* one of them is 0 */
    int64_t global_batch;  /* samples per step, before packing */
    int64_t micro_batch_tokens;
    int64_t micro_batch;                      /* samples, 0 = by tokens */
    int64_t precision;                        /* config_precision */
    const nrl_node *loss_scale;               /* as written */
    config_loss_scale scale;                  /* resolved */
    const nrl_node *fp8;                      /* as written */
    config_fp8 fp8_scaling;                   /* resolved */
    int64_t master;                           /* config_master */
    int64_t gradients;                        /* config_gradients */
    const nrl_node *activation_checkpointing; /* as written */
    config_recompute recompute;               /* resolved */
    int64_t seed;
    int64_t nan; /* config_nan */
    int64_t nan_limit;
    const nrl_node *offload;  /* as written */
    config_offload offloaded; /* resolved */
    int64_t on_oom;           /* config_oom */
    int64_t leak_check;       /* config_leak */
    double diverge_factor;    /* 0 = off */
    bool check_gradient;
    const nrl_node *trainable, *freeze; /* patterns of names */
    double neftune_alpha;
    int64_t logits; /* config_logits */
    int64_t logits_mb;
    bool recompute_cheap, deterministic;
} config_train;

typedef struct {
    int64_t every, early_stop;
    const nrl_node *samples; /* as written, or NULL */
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
    const char *export_format; /* plugin that writes OUT/model, "" = as read */
    int64_t export_dtype;      /* 0 = as the model's config.json names it; else 1 f32, 2 bf16, 3 f16 */
    bool async;
    int64_t threads;
    int64_t on_error;       /* config_on_error */
    int64_t mismatch;       /* config_on_error: for differences between a run and the checkpoint it resumes */
    int64_t fallback;       /* config_fallback */
    const char *sign;       /* file of a secret key, "" = unsigned */
    const char *public_key; /* file of a public key, "" = accept any checkpoint */
} config_checkpoint;

typedef struct {
    double timeout_init, timeout_step; /* seconds */
    const nrl_node *nodes;             /* as written, for `nrl launch` */
} config_launch;

/* An axis of the mesh that the config asks for. */
typedef struct {
    const nrl_mesh_axis *axis; /* declared by a plugin that serves it */
    config_component strategy; /* name NULL = none, or is_default */
    int64_t size;              /* number of ranks in the config; 0 = the remaining ranks */
    bool is_default; /* the config names no strategy: the one that serves the axis is used if it has several ranks */
} config_axis;

/* A strategy that serves an axis. */
typedef struct {
    const nrl_parallel *table;
    const nrl_mesh_axis *axis;
    bool by_default; /* may be chosen although the config does not name it */
} config_server;

typedef struct {
    bool sandbox;
    int64_t loss_instructions; /* limit of Lua instructions in one call */
    int64_t loss_memory_mb;
} config_script;

typedef struct {
    config_model model;
    config_adapter adapter;
    config_data data;
    config_train train;
    config_eval eval;
    config_checkpoint checkpoint;
    config_script script;
    config_component algorithm, optimizer, schedule,
        backend;              /* algorithm, optimizer, schedule: name "" = the default plugin */
    const nrl_node *parallel; /* as written; config_axes fills axes and n_axes from it */
    config_axis *axes;        /* [n_axes] outermost first: consecutive ranks differ in the last axis */
    size_t n_axes;
    config_component collective, store; /* "auto" if unset */
    config_launch launch;
    const nrl_node *debug; /* as written */
    int64_t debug_every;   /* steps between comparisons of the ranks; 0 = off */
    config_component *loggers;
    size_t n_loggers;
    bool loggers_unset;   /* use the default loggers */
    const char **plugins; /* directories, relative to the working directory */
    size_t n_plugins;
    const nrl_node *plugin_folders; /* the same as written, for messages: a text or a list of equal length */
    const char **plugins_allow;     /* plugins.allow; NULL = unset: any plugin may be opened */
    size_t n_plugins_allow;
    bool overwrite;
    const char *resume, *out, *name;
    nrl_node *resolved; /* everything above as one tree; plugins append to their component's map */
} config_run;

/* Fills *out from a whole tree, except what config_fill_adapter adds; all mistakes go to `problems`. Reads only the
 * names of components: the code that knows their rows fills their options. Strings live as long as `a` and the tree.
 * [main] */
void config_fill(arena *a, config_problems *problems, const nrl_node *root, config_run *out);

/* Returns the tree in which a section named after an adapter plugin (`names`: all plugins) is the component `adapter`:
 * for a plugin NAME, `NAME: {rank: 8}` becomes `adapter: {name: NAME, rank: 8}`. *section is its original name.
 * `problems` may be NULL. [main] */
const nrl_node *config_fold_adapter(arena *a, config_problems *problems, const char *const *names, size_t n,
                                    const nrl_node *root, const char **section);
/* The rest of config_fill, which depends on the installed adapters: the component `adapter` of a folded tree, and the
 * report of unknown keys of the top level. [main] */
void config_fill_adapter(arena *a, config_problems *problems, const nrl_node *root, const char *section,
                         config_run *run);
extern const nrl_option adapter_rows[]; /* of config_adapter: the core's options of every adapter */
extern const size_t adapter_n_rows;

/* Returns the strategy of an axis for which the config names none: the one with the highest priority among the default
 * ones or, if there are no default ones, among all. `axis` NULL: any axis that takes the remaining ranks. NULL: there
 * is none. */
const config_server *config_server_of(const config_server *servers, size_t n, const char *axis);
/* Whether the key is an option of that strategy. */
bool config_has_option(const config_server *servers, size_t n, const char *plugin, const char *key);
/* Reads `parallel` of a filled config: sets run->axes and writes the resolved config. Separate from config_fill,
 * because the plugins that declare the axes must be open. [main] */
void config_axes(arena *a, config_problems *problems, const config_server *servers, size_t n, config_run *run);

/* A section of the config and its rows, for `nrl describe`. */
typedef struct {
    const char *name; /* "" = the top level */
    const char *help;
    const nrl_option *rows;
    size_t n_rows;
} config_section;
const config_section *config_sections(size_t *n);

#endif
