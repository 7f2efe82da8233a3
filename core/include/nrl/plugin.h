/*
 * plugin.h - what every plugin says about itself, whatever its kind.
 *
 * A plugin is one .so with one component. It exports one function, nrl_plugin_entry, that returns
 * a static table and runs no other code, so that listing plugins needs no device. Calls into the
 * core are plain functions (nrl_*); calls out of the core go through the tables of this folder.
 *
 * Growth: a kind's table only gains members at its end. The host copies what it knows into a zeroed
 * one; a missing member is NULL: the default beside it. A larger table may have zero surplus only.
 * Life: what a failed create or open left in *self is not looked at, nor destroyed or closed.
 *
 * Threads: each member of a table carries the tag of the thread that calls it:
 * [main] while a run is opened or closed; [step] the thread that trains; [io] a data or checkpoint
 * thread; [any]. A table holds no mutable static state: several instances may live side by side.
 */
#ifndef NRL_PLUGIN_H
#define NRL_PLUGIN_H
#include <nrl/node.h>
#ifdef __cplusplus
extern "C" {
#endif

#define NRL_ABI 1      /* raised on any change that is not "append to the end" */
#define NRL_MAX_DIMS 4 /* dimensions of a tensor */
/* Build parameters that must agree between core and plugin; bits 0-7: NRL_MAX_DIMS. */
#define NRL_BUILD ((uint32_t)NRL_MAX_DIMS)

typedef enum {
    NRL_KIND_NONE = 0,
    NRL_KIND_ALGORITHM, /* folder algorithms */
    NRL_KIND_PARALLEL,  /* parallel    */
    NRL_KIND_OPTIMIZER, /* optimizers  */
    NRL_KIND_BACKEND,   /* backends    */
    NRL_KIND_COLLECTIVE, /* collectives */
    NRL_KIND_LOGGER,    /* loggers     */
    NRL_KIND_MODEL = 7, /* models      */
    NRL_KIND_TOKENIZER = 8, /* tokenizers */
    NRL_KIND_TEMPLATE = 9,  /* templates  */
    NRL_KIND_DATASET = 10,  /* datasets   */
    NRL_KIND_FORMAT = 11,   /* formats    */
    NRL_KIND_ADAPTER = 12,  /* adapters   */
    NRL_KIND_FRONTEND = 13  /* frontends  */
} nrl_kind;

/* What the probes of several kinds return. The surest plugin serves what is opened; equal ones by name. */
enum {
    NRL_PROBE_NO = 0,
    NRL_PROBE_EXPLAINS = 1, /* nothing is recognised, but open reports best what is missing */
    NRL_PROBE_NAME = 20,    /* a name that this plugin looks up */
    NRL_PROBE_PERHAPS = 40, /* it looks like it, but something is missing or others may know better */
    NRL_PROBE_YES = 80      /* names or first bytes decide */
};

/* ---- options: one row per knob; the host fills the plugin's own struct ---- */

typedef enum {
    NRL_TYPE_NONE = 0,
    NRL_TYPE_INT,  /* int64_t */
    NRL_TYPE_F64,  /* double */
    NRL_TYPE_BOOL, /* bool */
    NRL_TYPE_STR,  /* const char *, borrowed from the config, lives as long as the instance */
    NRL_TYPE_ENUM, /* int64_t: index into choices */
    NRL_TYPE_PATH, /* const char *, made relative to the file that names it */
    NRL_TYPE_NODE  /* const nrl_node *: a list or map that the plugin reads itself */
} nrl_type;

typedef struct {
    const char *name;    /* key in YAML and Lua */
    const char *initial; /* default, as the user would write it; NULL = required */
    const char *choices; /* "a|b|c" for enums */
    const char *help;    /* one line; units go here */
    double min, max;     /* for INT and F64, inclusive */
    uint32_t offset;     /* in the plugin's options struct */
    uint32_t type;       /* nrl_type */
} nrl_option;

/* _Generic has no branch for any other type, so a row that lies about its field does not compile. */
#define NRL_OFFSET(T, f, ctype) (uint32_t)(offsetof(T, f) + _Generic(((T *)0)->f, ctype : 0))
#define NRL_OPT_F64(T, f, ini, lo, hi, h) {#f, ini, NULL, h, lo, hi, NRL_OFFSET(T, f, double), NRL_TYPE_F64}
#define NRL_OPT_INT(T, f, ini, lo, hi, h) {#f, ini, NULL, h, lo, hi, NRL_OFFSET(T, f, int64_t), NRL_TYPE_INT}
#define NRL_OPT_BOOL(T, f, ini, h) {#f, ini, NULL, h, 0, 0, NRL_OFFSET(T, f, bool), NRL_TYPE_BOOL}
#define NRL_OPT_ENUM(T, f, ini, ch, h) {#f, ini, ch, h, 0, 0, NRL_OFFSET(T, f, int64_t), NRL_TYPE_ENUM}
#define NRL_OPT_STR(T, f, ini, h) {#f, ini, NULL, h, 0, 0, NRL_OFFSET(T, f, const char *), NRL_TYPE_STR}
#define NRL_OPT_PATH(T, f, ini, h) {#f, ini, NULL, h, 0, 0, NRL_OFFSET(T, f, const char *), NRL_TYPE_PATH}
#define NRL_OPT_NODE(T, f, ini, h) {#f, ini, NULL, h, 0, 0, NRL_OFFSET(T, f, const nrl_node *), NRL_TYPE_NODE}

/* ---- the header: frozen for ever, so it carries its own spare room ---- */

typedef struct {
    uint32_t abi;          /* NRL_ABI */
    uint32_t build;        /* NRL_BUILD */
    uint32_t kind;         /* nrl_kind; checked before size, which means something only in a kind */
    uint32_t size;         /* of the whole kind struct */
    uint32_t n_options;    /* rows of options */
    uint32_t option_size;  /* stride of a row */
    uint32_t options_size; /* of the plugin's options struct */
    int32_t priority;      /* where a config leaves open which plugin of a kind is used, the highest above 0 is, see
                              the kind's header; 0: only by its name */
    const char *name;      /* equal to the file's name without .so */
    const char *version;
    const char *summary; /* one line for `nrl plugins` */
    const nrl_option *options;
    nrl_status (*check)(const void *options); /* [main] optional: rules between options */
    const void *reserved[4];
} nrl_plugin;
NRL_STATIC_ASSERT(sizeof(nrl_plugin) == 104, "nrl_plugin is frozen: use a reserved slot");

/* First initialiser of a kind's table: kind, table type, options struct and rows, three texts. */
#define NRL_PLUGIN(K, T, O, rows, nm, ver, sum)                                                    \
    .plugin = {.abi = NRL_ABI,                                                                     \
               .build = NRL_BUILD,                                                                 \
               .kind = (K),                                                                        \
               .size = sizeof(T),                                                                  \
               .n_options = sizeof(rows) / sizeof(*(rows)),                                        \
               .option_size = sizeof(nrl_option),                                                  \
               .options_size = sizeof(O),                                                          \
               .name = (nm),                                                                       \
               .version = (ver),                                                                   \
               .summary = (sum),                                                                   \
               .options = (rows)}

/* The same for a plugin without options. */
#define NRL_PLUGIN_PLAIN(K, T, nm, ver, sum)                                                       \
    .plugin = {.abi = NRL_ABI,                                                                     \
               .build = NRL_BUILD,                                                                 \
               .kind = (K),                                                                        \
               .size = sizeof(T),                                                                  \
               .option_size = sizeof(nrl_option),                                                  \
               .name = (nm),                                                                       \
               .version = (ver),                                                                   \
               .summary = (sum)}

#define NRL_EXPORT(table)                                                                          \
    NRL_API const nrl_plugin *nrl_plugin_entry(void);                                              \
    const nrl_plugin *nrl_plugin_entry(void)                                                       \
    {                                                                                              \
        return &(table).plugin;                                                                    \
    }

#ifdef __cplusplus
}
#endif
#endif
