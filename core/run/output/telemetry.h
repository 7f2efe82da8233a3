/*
 * telemetry.h - a run's loggers, records and events: records go to loggers, events to the loggers that receive them and
 * to the program that opened the run. While a run is open the core prints nothing else.
 *
 * Events of all runs of the process are sent one at a time: runs share a terminal, and warnings may come from any
 * thread.
 */
#ifndef RUN_TELEMETRY_H
#define RUN_TELEMETRY_H
#include "base/claims.h"
#include <nrl/logger.h>

/* One logger; a failing one is tried again at each record. */
typedef struct {
    const nrl_logger *table;
    const char *name;
    void *options, *self;
    claims *claims;
    bool opened, failing;
    bool refused;      /* it asked for a file that the run may not write */
    int64_t n_missing; /* records that it failed to write */
    int n_reported;    /* warnings about its failures */
} run_logger;

typedef struct telemetry_event telemetry_event;

/* Zero-initialise; it must not be moved. */
typedef struct telemetry telemetry;
struct telemetry {
    run_logger *loggers; /* on rank 0; a quiet run has no console */
    size_t n_loggers;
    nrl_logger_run about;                                  /* the argument of nrl_logger.open */
    void (*event)(void *user, const nrl_run_event *event); /* of the program; NULL = only loggers */
    void *event_user;
    bool takes_warnings; /* `event` does */
    bool quiet;          /* only warnings are sent */
    const int64_t *step; /* finished steps, of the trainer's; NULL = none yet */
    bool holds;          /* loggers open later: events until then are kept for them */
    telemetry_event *held, **held_end;
    bool is_open;     /* receives warnings of the process */
    telemetry *older; /* of the open ones */
};

/* Starts to send events, and warnings of the process if there is a receiver. The members event, event_user and quiet
 * are set. `loggers_open`: telemetry_open follows. */
void telemetry_begin(telemetry *t, bool loggers_open);
/* NRL_ERR_CONFIG: a logger asked for a file that the run may not write. The run survives any other failure of a
 * logger. */
nrl_status telemetry_open(telemetry *t, const nrl_logger_run *about, claims *own);
/* Sends warnings to this run, until another one is used. [step] */
void telemetry_use(telemetry *t);
/* Writes a record to the loggers; hooks report steps and evaluations to the program. [step] */
void telemetry_record(telemetry *t, nrl_record_kind kind, int64_t step, double eta, const nrl_value *values, size_t n,
                      const nrl_sample_text *samples, size_t n_samples);
/* Emits an event, whose size and step this function sets. Its texts are copied; its plan must live as long as the
 * telemetry. [step] */
void telemetry_emit(telemetry *t, nrl_run_event event);
/* The same with a formatted text; telemetry_log emits the kind INFO. */
void telemetry_report(telemetry *t, nrl_run_event_kind kind, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define telemetry_log(t, ...) telemetry_report(t, NRL_EVENT_INFO, NULL, __VA_ARGS__)
void telemetry_warn_missing(telemetry *t); /* once, at the end */
void telemetry_close(telemetry *t);

#endif
