/*
 * logger.h - loggers receive records and events. A logger does not reduce values over ranks, must not block the step,
 * and cannot stop the run: when a logger fails, the core warns, still passes it the next record, and reports at the end
 * how many records are missing. A logger that has failed should try again: the disk may have room by then, and a file
 * that was removed can be created again.
 *
 * During a run the core itself prints nothing but emits events. The logger `console` prints them, and so can any other
 * logger or the program that opened the run.
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
NRL_STATIC_ASSERT(sizeof(nrl_value) == 24, "nrl_value is frozen: records contain an array");

typedef enum {
    NRL_RECORD_NONE = 0,
    NRL_RECORD_TRAIN = 1, /* a step */
    /* an evaluation: eval_loss (nats), eval_tokens, eval_seconds, and eval_NAME for each metric NAME of the algorithm
     */
    NRL_RECORD_EVAL = 2,
    NRL_RECORD_END = 3,     /* the end of a run: its last step and the exported one; the event has the text */
    NRL_RECORD_SAMPLES = 4, /* texts of eval.samples, without values */
    NRL_RECORD_REPORT = 5   /* values that the program or its script reports (nrl_run_report) */
} nrl_record_kind;

/* A text that the model generated in an evaluation. Texts of a model may contain anything. */
typedef struct {
    const char *prompt; /* as given; of a conversation the last message of the user */
    const char *text;
    const char *answer; /* the expected text; NULL = unknown */
    int64_t tokens;     /* of text */
    int32_t index;      /* of the prompt, from 0 */
    bool is_cut;        /* after max_tokens */
    double *score;      /* NaN, or what a callback of NRL_EVENT_SAMPLES wrote: 0 to 1, the share that is right */
} nrl_sample_text;
NRL_STATIC_ASSERT(sizeof(nrl_sample_text) == 48, "nrl_sample_text is frozen: records contain an array");

typedef struct {
    uint32_t size;
    uint32_t kind;       /* nrl_record_kind */
    int64_t step;        /* finished optimizer steps, from 1 */
    int64_t total_steps; /* 0 = unknown */
    double time;         /* Unix seconds */
    double eta_seconds;  /* < 0 = unknown */
    const nrl_value *values;
    size_t n_values;
    const nrl_sample_text *samples; /* of NRL_RECORD_SAMPLES */
    size_t n_samples;
} nrl_record;

typedef enum {
    NRL_EVENT_NONE = 0,
    NRL_EVENT_PLAN = 1,        /* plan: the plan of the run; before the first step, and in `nrl check` */
    NRL_EVENT_STEP = 2,        /* a finished optimizer step: the numbers below, values */
    NRL_EVENT_EVAL = 3,        /* a finished evaluation that was due: step, loss, values */
    NRL_EVENT_BEFORE_SAVE = 4, /* a checkpoint of `step` is about to be written */
    NRL_EVENT_SAVE = 5,        /* a checkpoint is complete: step, path; text: the duration */
    NRL_EVENT_INFO = 6,        /* text: information; nothing is wrong */
    NRL_EVENT_WARNING = 7,     /* text: a problem that does not stop the run, without the word "warning" */
    NRL_EVENT_END =
        8, /* the run is finished, only warnings follow: path of the exported model with its text, or neither */
    /* samples: the texts of an evaluation, before they are scored; the callback may set their scores */
    NRL_EVENT_SAMPLES = 9,
    NRL_EVENT_COUNT = 10
} nrl_run_event_kind;

/* One event. Members that its kind does not list are zero. Borrowed until the call returns. Texts may contain control
 * characters from untrusted input: escape them before printing to a terminal. */
typedef struct {
    uint32_t size;
    uint32_t kind;               /* nrl_run_event_kind */
    int64_t step;                /* finished optimizer steps */
    double loss;                 /* of the step's batch before its update: loss sum / loss weight */
    double grad_norm, lr, epoch; /* epoch: passes over the data so far, with fraction */
    double tokens, tokens_per_s; /* since the run began; of this step; over all ranks */
    double seconds;              /* duration of the step */
    bool skipped;                /* the update was discarded: by the NaN policy, or because fp16 overflowed */
    const nrl_value *values;     /* all values of the record, including metrics of the algorithm */
    size_t n_values;
    const char *text; /* lines, without the last line end */
    const char *path; /* directory of a checkpoint or of a model */
    /* A map: model, data, steps, ranks, memory (bytes of this rank), backend. docs/records.md lists the keys; later
     * versions may add more. Lives as long as the run. */
    const nrl_node *plan;
    const nrl_sample_text *samples;
    size_t n_samples;
} nrl_run_event;

/* The lines that `console` prints for a plan, without the last line end; allocated, for nrl_free. [any] */
NRL_API char *nrl_plan_text(const nrl_node *plan);

typedef struct {
    uint32_t size;
    const char *out;        /* the run's directory */
    const char *name;       /* run name */
    const nrl_node *config; /* resolved */
    int64_t resumed_step;   /* remove older records after this step first; 0 = a new run */
    int64_t total_steps;
    bool terminal; /* stdout is a terminal */
    bool color;    /* colours are welcome (terminal and no NO_COLOR) */
    /* Call it before creating, opening or reopening a file or directory `name` in `out`, and do not touch the file
     * after an error. NRL_ERR_CONFIG: the run reads the file, or no run has written it; NRL_ERR_IO: `out` was removed
     * or replaced. NULL: every file may be written. Valid until close. [step] */
    nrl_status (*claim)(void *claim_user, const char *name);
    void *claim_user;
} nrl_logger_run;

typedef struct {
    nrl_plugin plugin;
    nrl_status (*open)(const void *options, const nrl_logger_run *run, void **self); /* [main] */
    nrl_status (*write)(void *self, const nrl_record *record);                       /* [step] */
    void (*close)(void *self);                                                       /* [main] */
    /* Receives events of the kinds PLAN (once), SAVE, INFO, WARNING and END; steps and evaluations come as records.
     * Calls to event and write of all loggers of the process never overlap. NULL: this logger receives no events. [any]
     */
    void (*event)(void *self, const nrl_run_event *event);
    bool on_terminal; /* the logger writes to the terminal: it is not opened in a quiet run */
} nrl_logger;

#ifdef __cplusplus
}
#endif
#endif
