/*
 * logger.h - where records go. A logger never reduces, never blocks the step, never kills the run:
 * the core warns once when one fails and goes on without it.
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

typedef enum { NRL_RECORD_NONE = 0, NRL_RECORD_TRAIN, NRL_RECORD_EVAL } nrl_record_kind;

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
} nrl_logger_run;

typedef struct {
    nrl_plugin plugin;
    nrl_status (*open)(const void *options, const nrl_logger_run *run, void **self); /* [main] */
    nrl_status (*write)(void *self, const nrl_record *record);                       /* [step] */
    void (*close)(void *self);                                                       /* [main] */
} nrl_logger;

#ifdef __cplusplus
}
#endif
#endif
