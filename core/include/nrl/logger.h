/*
 * logger.h - where records and events go. A logger never reduces, never blocks the step, never kills the run:
 * the core warns when one fails, gives it the next record all the same, and reports at the end how many
 * records are missing. A logger that failed tries again what it can: a disk may have room by then, and a
 * file that someone removed can be begun anew.
 *
 * During a run the core itself prints nothing. What it has to say is an event; the logger `console` prints
 * events, and so can any other logger or the program that opened the run.
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
    NRL_RECORD_END    /* the end of a run: which step was exported; the event of the same name has the text */
} nrl_record_kind;

typedef struct {
    uint32_t size;
    uint32_t kind;       /* nrl_record_kind */
    int64_t step;        /* finished optimizer steps, from 1 */
    int64_t total_steps; /* 0 = unknown */
    double time;         /* Unix seconds */
    double eta_seconds;  /* < 0 = unknown */
    const nrl_value *values;
    size_t n_values;
} nrl_record;

typedef enum {
    NRL_EVENT_NONE = 0,
    NRL_EVENT_PLAN,        /* text: a line of what is about to happen, in order */
    NRL_EVENT_STEP,        /* a finished optimizer step: the numbers, values */
    NRL_EVENT_EVAL,        /* a finished evaluation that was due: step, loss, values */
    NRL_EVENT_BEFORE_SAVE, /* a checkpoint of `step` is about to be written */
    NRL_EVENT_SAVE,        /* a checkpoint is complete: step, path; text: how long that took */
    NRL_EVENT_NEWS,        /* text: something a reader wants to know; nothing is wrong */
    NRL_EVENT_WARNING,     /* text: something is wrong, the run goes on; without the word "warning" */
    NRL_EVENT_END, /* the run is finished, only warnings follow: path of the exported model with its text, or neither */
    NRL_EVENT_COUNT
} nrl_run_event_kind;

/* One event. Members that its kind does not name are zero. Borrowed until the call returns. Texts may hold control
 * characters of others' text: escape them for a terminal. */
typedef struct {
    uint32_t size;
    uint32_t kind;               /* nrl_run_event_kind */
    int64_t step;                /* finished optimizer steps */
    double loss;                 /* of the step's batch before its update, over its whole weight */
    double grad_norm, lr, epoch; /* epoch: passes over the data so far, with fraction */
    double tokens, tokens_per_s; /* since the run began; of this step; over all ranks */
    double seconds;              /* that the step took */
    bool skipped;                /* the update was discarded: the NaN policy, or fp16 that overflowed */
    const nrl_value *values;     /* everything the record holds, metrics of the algorithm included */
    size_t n_values;
    const char *text; /* lines without the last line end */
    const char *path; /* folder of a checkpoint or of a model */
} nrl_run_event;

typedef struct {
    uint32_t size;
    const char *out;        /* the run's directory */
    const char *name;       /* run name */
    const nrl_node *config; /* resolved */
    int64_t resumed_step;   /* records after it are cut first; 0 = a new run */
    int64_t total_steps;
    bool terminal; /* stdout is a terminal */
    bool color;    /* colours are welcome (terminal and no NO_COLOR) */
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
    /* Events of the kinds PLAN, SAVE, NEWS, WARNING and END; steps and evaluations are records. Calls never overlap
     * with each other, nor with write, of any logger of the process. NULL: this logger takes no events. [any] */
    void (*event)(void *self, const nrl_run_event *event);
    bool on_terminal; /* it writes to the terminal: not opened in a quiet run */
} nrl_logger;

#ifdef __cplusplus
}
#endif
#endif
