/*
 * logger.h - where records go. A logger never reduces, never blocks the step, never kills the run:
 * the core warns when one fails, gives it the next record all the same, and tells at the end how many
 * records are missing. A logger that failed tries again what it can: a disk may have room by then, and a
 * file that someone removed can be begun anew.
 */
#ifndef NRL_LOGGER_H
#define NRL_LOGGER_H
#include <nrl/plugin.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *name; /* "loss", "rewards/chosen" */
    const char *unit; /* "nats", "tok/s", "bytes", "1" or "" */
    double value;     /* may be NaN or infinite */
} nrl_value;

typedef enum {
    NRL_RECORD_NONE = 0,
    NRL_RECORD_TRAIN, /* a step */
    NRL_RECORD_EVAL,  /* an evaluation */
    NRL_RECORD_END    /* the end of a run: which step was exported; the core prints that itself */
} nrl_record_kind;

typedef struct {
    uint32_t size;
    uint32_t kind;        /* nrl_record_kind */
    int64_t step;         /* finished optimizer steps, from 1 */
    int64_t total_steps;  /* 0 = unknown */
    double time;          /* Unix seconds */
    double eta_seconds;   /* < 0 = unknown */
    const nrl_value *values;
    size_t n_values;
} nrl_record;

typedef struct {
    uint32_t size;
    const char *out;           /* the run's directory */
    const char *name;          /* run name */
    const nrl_node *config;    /* resolved */
    int64_t resumed_step;      /* records after it are cut first; 0 = a fresh run */
    int64_t total_steps;
    bool terminal;             /* stdout is a terminal */
    bool color;                /* colours are welcome (terminal and no NO_COLOR) */
    /* Asked before a file or folder `name` in `out` is made, opened or opened again. NRL_ERR_CONFIG where
     * the run reads it or no run made it, NRL_ERR_IO where `out` was removed or replaced meanwhile: it may
     * not be touched then. NULL: there is no such rule. Valid until close. [step] */
    nrl_status (*claim)(void *claim_user, const char *name);
    void *claim_user;
} nrl_logger_run;

typedef struct {
    nrl_plugin plugin;
    nrl_status (*open)(const void *options, const nrl_logger_run *run, void **self); /* [main] */
    nrl_status (*write)(void *self, const nrl_record *record);                       /* [step] */
    void (*close)(void *self);                                                       /* [main] */
    bool on_terminal; /* it writes to the terminal: not opened in a quiet run */
} nrl_logger;

#ifdef __cplusplus
}
#endif
#endif
