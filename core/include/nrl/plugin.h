/*
 * plugin.h - the header that all plugins share, whatever their kind.
 *
 * A plugin is one .so with one component. It exports one function, nrl_plugin_entry, which returns a
 * static table and does nothing else, so that plugins can be listed without a device. Plugins call the
 * core by plain functions (nrl_*); the core calls plugins through the tables of this folder.
 *
 * Growth: new members are appended to a kind's table. The host copies the members it knows into a zeroed
 * table; a missing member is NULL and has the documented default. If a table is larger than the host's,
 * the surplus must be zero. Structs that begin with `size` grow in the same way. Structs in an array either
 * come with a stride, and are found by it, or are frozen by a NRL_STATIC_ASSERT; a struct inside another one is
 * frozen (checked by tests/abi).
 * Lifetime: if create or open fails, the host ignores *self and calls neither destroy nor close.
 *
 * Threads: the comment of each member names the thread that calls it: [main] while a run is opened or
 * closed; [step] the training thread; [io] a data or checkpoint thread; [any] any thread. Plugins have no
 * mutable static state: several instances may exist at once.
 */
#ifndef NRL_PLUGIN_H
#define NRL_PLUGIN_H
#include <nrl/node.h>
#ifdef __cplusplus
extern "C" {
#endif

#define NRL_ABI 3      /* raised on any change that is not "append to the end" */
#define NRL_MAX_DIMS 4 /* dimensions of a tensor */
/* Build parameters that core and plugin must share; bits 0-7: NRL_MAX_DIMS. */
#define NRL_BUILD ((uint32_t)NRL_MAX_DIMS)

typedef enum {
    NRL_KIND_NONE = 0,
    NRL_KIND_ALGORITHM = 1,  /* folder algorithms */
    NRL_KIND_PARALLEL = 2,   /* parallel   */
    NRL_KIND_OPTIMIZER = 3,  /* optimizers */
    NRL_KIND_BACKEND = 4,    /* backends   */
    NRL_KIND_COLLECTIVE = 5, /* collectives */
    NRL_KIND_LOGGER = 6,     /* loggers    */
    NRL_KIND_MODEL = 7,      /* models      */
    NRL_KIND_TOKENIZER = 8,  /* tokenizers */
    NRL_KIND_TEMPLATE = 9,   /* templates  */
    NRL_KIND_DATASET = 10,   /* datasets   */
    NRL_KIND_FORMAT = 11,    /* formats    */
    NRL_KIND_ADAPTER = 12,   /* adapters   */
    NRL_KIND_FRONTEND = 13,  /* frontends  */
    NRL_KIND_STORE = 14,     /* stores     */
    NRL_KIND_SCHEDULE = 15   /* schedules  */
} nrl_kind;

/* What a probe returns. It may run in a child process, whose changes are lost. The highest wins, then the name; of
 * datasets the first by name that returns NRL_PROBE_YES or more wins. */
enum {
    NRL_PROBE_NO = 0,
    NRL_PROBE_EXPLAINS = 1, /* nothing is recognised, but open gives the best error */
    NRL_PROBE_NAME = 20,    /* a name that this plugin looks up */
    NRL_PROBE_PERHAPS = 40, /* it may fit, but something is missing or other plugins may fit better */
    NRL_PROBE_YES = 80      /* names or first bytes decide */
};

/* ---- metrics: numbers that plugins add to the records of a run ---- */

typedef enum {
    NRL_REDUCE_NONE = 0,
    NRL_REDUCE_MEAN = 1, /* sum of values / sum of weights, over the whole global batch */
    NRL_REDUCE_SUM = 2,
    NRL_REDUCE_MAX = 3,
    NRL_REDUCE_MIN = 4,
    NRL_REDUCE_DIFFERENCE = 5 /* takes no values: the metric two rows above minus the one above (margins) */
} nrl_reduce;

/* Which values of a metric are better; checkpoint.metric uses it. */
typedef enum {
    NRL_BETTER_NONE = 0, /* not declared: the user must set checkpoint.metric_mode */
    NRL_BETTER_SMALLER = 1,
    NRL_BETTER_LARGER = 2
} nrl_better;

/* A number that a plugin reports, such as "rewards/chosen". */
typedef struct {
    const char *name; /* NULL ends the list */
    const char *unit; /* "" or "nats", "1" ... */
    uint32_t reduce;  /* nrl_reduce */
    uint32_t better;  /* nrl_better */
} nrl_metric;
NRL_STATIC_ASSERT(sizeof(nrl_metric) == 24, "plugins lay rows of nrl_metric out as an array");

/* Reports a value of `row`, a row of the `metrics` of a plugin of any kind. The values of a step are reduced as the row
 * says: those of models, algorithms and adapters once for each micro-batch, all others over all ranks that report them.
 * A value that comes before the step's record is made (from optimizers, step_end) belongs to that record, a later one
 * (from loggers) to the next. NRL_ERR_PLUGIN: no open run has the row. [any] */
NRL_API nrl_status nrl_metric_report_f64(const nrl_metric *row, double value, double weight);

/* ---- options: one row an option; the host fills the plugin's own struct ---- */

typedef enum {
    NRL_TYPE_NONE = 0,
    NRL_TYPE_INT = 1,  /* int64_t */
    NRL_TYPE_F64 = 2,  /* double */
    NRL_TYPE_BOOL = 3, /* bool */
    NRL_TYPE_STR = 4,  /* const char *, borrowed from the config, lives as long as the instance */
    NRL_TYPE_ENUM = 5, /* int64_t: index into choices */
    NRL_TYPE_PATH = 6, /* const char *, resolved relative to the file that contains it */
    NRL_TYPE_NODE = 7  /* const nrl_node *: a list or map that the plugin parses itself */
} nrl_type;

typedef struct {
    const char *name; /* key in YAML and Lua */
    /* Default value, as a user would write it; NULL = required. "" is the value of an option that is not set: 0 for
     * INT, F64 and ENUM, false, the text "" for STR and PATH, NULL for NODE */
    const char *initial;
    const char *choices; /* "a|b|c" for enums */
    const char *help;    /* one line, with the unit */
    double min, max;     /* for INT and F64, inclusive */
    uint32_t offset;     /* in the plugin's options struct; fields of two rows do not overlap */
    uint32_t type;       /* nrl_type */
} nrl_option;

/* A row with the wrong field type does not compile. */
#ifdef __cplusplus
extern "C++" {
template <typename A, typename B> struct nrl_same_type; /* only defined for equal types */
template <typename A> struct nrl_same_type<A, A> {
    static constexpr uint32_t zero = 0;
};
}
#define NRL_OFFSET(T, f, ctype) (uint32_t)(offsetof(T, f) + nrl_same_type<decltype(T::f), ctype>::zero)
#else
#define NRL_OFFSET(T, f, ctype) (uint32_t)(offsetof(T, f) + _Generic(((T *)0)->f, ctype : 0))
#endif
#define NRL_OPT_F64(T, f, ini, lo, hi, h)                                                                              \
    {                                                                                                                  \
#f, ini, NULL, h, lo, hi, NRL_OFFSET(T, f, double), NRL_TYPE_F64                                               \
    }
#define NRL_OPT_INT(T, f, ini, lo, hi, h)                                                                              \
    {                                                                                                                  \
#f, ini, NULL, h, lo, hi, NRL_OFFSET(T, f, int64_t), NRL_TYPE_INT                                              \
    }
#define NRL_OPT_BOOL(T, f, ini, h)                                                                                     \
    {                                                                                                                  \
#f, ini, NULL, h, 0, 0, NRL_OFFSET(T, f, bool), NRL_TYPE_BOOL                                                  \
    }
#define NRL_OPT_ENUM(T, f, ini, ch, h)                                                                                 \
    {                                                                                                                  \
#f, ini, ch, h, 0, 0, NRL_OFFSET(T, f, int64_t), NRL_TYPE_ENUM                                                 \
    }
#define NRL_OPT_STR(T, f, ini, h)                                                                                      \
    {                                                                                                                  \
#f, ini, NULL, h, 0, 0, NRL_OFFSET(T, f, const char *), NRL_TYPE_STR                                           \
    }
#define NRL_OPT_PATH(T, f, ini, h)                                                                                     \
    {                                                                                                                  \
#f, ini, NULL, h, 0, 0, NRL_OFFSET(T, f, const char *), NRL_TYPE_PATH                                          \
    }
#define NRL_OPT_NODE(T, f, ini, h)                                                                                     \
    {                                                                                                                  \
#f, ini, NULL, h, 0, 0, NRL_OFFSET(T, f, const nrl_node *), NRL_TYPE_NODE                                      \
    }

/* ---- the header: its layout is frozen; reserved slots leave room for growth ---- */

typedef struct {
    uint32_t abi;          /* NRL_ABI */
    uint32_t build;        /* NRL_BUILD */
    uint32_t kind;         /* nrl_kind; checked before size */
    uint32_t size;         /* of the whole table of the kind */
    uint32_t n_options;    /* rows of options */
    uint32_t option_size;  /* stride of a row */
    uint32_t options_size; /* of the plugin's options struct */
    int32_t priority;      /* if a config names no plugin of a kind, the highest above 0 is used, see the kind's header;
                              0: used only by name */
    const char *name;      /* equal to the file's name without .so */
    const char *version;
    const char *summary; /* one line for `nrl plugins` */
    const nrl_option *options;
    nrl_status (*check)(const void *options); /* [main] optional: checks rules between options */
    const nrl_metric *metrics; /* that it reports by nrl_metric_report; ended by a NULL name; NULL = none */
    const void *reserved[3];
} nrl_plugin;
NRL_STATIC_ASSERT(sizeof(nrl_plugin) == 104, "nrl_plugin is frozen: use a reserved slot");

/* The first initializer of a kind's table: kind, table type, options struct and rows; name, version, summary. */
#define NRL_PLUGIN(K, T, O, rows, nm, ver, sum)                                                                        \
    .plugin = {.abi = NRL_ABI,                                                                                         \
               .build = NRL_BUILD,                                                                                     \
               .kind = (K),                                                                                            \
               .size = sizeof(T),                                                                                      \
               .n_options = sizeof(rows) / sizeof(*(rows)),                                                            \
               .option_size = sizeof(nrl_option),                                                                      \
               .options_size = sizeof(O),                                                                              \
               .name = (nm),                                                                                           \
               .version = (ver),                                                                                       \
               .summary = (sum),                                                                                       \
               .options = (rows)}

/* The same for a plugin without options. */
#define NRL_PLUGIN_PLAIN(K, T, nm, ver, sum)                                                                           \
    .plugin = {.abi = NRL_ABI,                                                                                         \
               .build = NRL_BUILD,                                                                                     \
               .kind = (K),                                                                                            \
               .size = sizeof(T),                                                                                      \
               .option_size = sizeof(nrl_option),                                                                      \
               .name = (nm),                                                                                           \
               .version = (ver),                                                                                       \
               .summary = (sum)}

#ifdef __cplusplus
#define NRL_EXTERN_C extern "C"
#else
#define NRL_EXTERN_C
#endif
#define NRL_EXPORT(table)                                                                                              \
    NRL_EXTERN_C NRL_API const nrl_plugin *nrl_plugin_entry(void);                                                     \
    const nrl_plugin *nrl_plugin_entry(void)                                                                           \
    {                                                                                                                  \
        return &(table).plugin;                                                                                        \
    }

#ifdef __cplusplus
}
#endif
#endif
