/*
 * trainer.h - optimizer steps: the progress of training, its measurements, and one step, which step.c computes from top
 * to bottom. A trainer needs only the given parts, not an open run.
 */
#ifndef RUN_TRAINER_H
#define RUN_TRAINER_H
#include "base/exact_sum.h"
#include "optim/fp8_scaling.h"
#include "optim/loss_scale.h"
#include "optim/schedule.h"
#include "optim/updates.h"
#include "config/schema.h"
#include "data/data.h"
#include "run/output/hooks.h"
#include "run/output/telemetry.h"
#include "run/walk/metrics.h"
#include "run/walk/work.h"
#include "run/weights/reference.h"

/* The numbers that a checkpoint stores in addition to tensors, see state/progress.c. */
typedef struct {
    int64_t step;             /* finished steps, including those skipped by the NaN policy */
    int64_t updates;          /* of the optimizer: what its bias correction counts */
    int64_t tokens;           /* trained on so far */
    int64_t skipped_in_a_row; /* NaN policy */
    int64_t evals_without_best;
    double first_loss; /* of the first step that updated; NaN = not known */
    int64_t far_steps; /* in a row, with a loss above train.diverge_factor times that */
    double best;       /* of checkpoint.metric */
    int64_t best_step; /* 0 = none yet */
    /* checkpoint.metric of the last evaluation, negated if the largest is best, and its step; saved as the metric of
     * the checkpoint of that step */
    double judged;
    int64_t judged_step;
} run_progress;

enum { TRAINER_MAX_NOTES = 4 };
/* Sums and weights of a step: the terms of the algorithm, then, from NRL_MAX_TERMS on, those of the model, whose
 * weights are tokens. */
enum { STEP_TERMS = NRL_MAX_TERMS + NRL_MAX_MODEL_TERMS };
typedef double step_weights[STEP_TERMS];

/* What a rank knows about a shard after its backward; values of the rank as a whole are in its first shard. */
typedef struct {
    double sums[STEP_TERMS];
    double tokens, flops;
    double square_sum; /* of the gradients that this rank counts; */
    exact_sum squares; /* the rest of it, where shards are fixed */
    double finite;     /* 1, or 0 */
    double norm;       /* local steps: the largest of the ranks */
    double signal;     /* number, 0 = none */
    double save_now;   /* 1: rank 0's clock says so */
    double lacks;      /* 1: memory */
} ranks_result;

/* Adds the weights of the model's terms in a micro-batch; their part of the loss; and their values, to a record. */
void terms_weigh(const model *m, const nrl_batch *batch, double *weights);
double terms_loss(const model *m, const double *sums, const double *weights);
void terms_record(const model *m, const double *sums, const double *weights, const char *prefix, value_list *v,
                  arena *names);

/* debug: true, by nrl_run_services. Collective; one rank compares nothing. [step] */
typedef struct trainer trainer;
struct nrl_rank_checks {
    nrl_status (*group)(trainer *tr);                       /* rank 0 reports who the ranks are */
    nrl_status (*data)(trainer *tr, const data_step *data); /* rank 0 reports what each rank computes in the step */
    /* Compare reduced gradients, or weights (MASTER, and whole copies in WEIGHT). A parameter whose bytes differ from
     * those of the lowest rank that holds the same elements is an error that names it and the rank. */
    nrl_status (*gradients)(trainer *tr);
    nrl_status (*weights)(trainer *tr);
};

/* What a trainer uses; owned by the caller, outlives the trainer. */
typedef struct {
    work *work;           /* the walk of the policy; open before trainer_ready, with a strategy */
    update_plan *updates; /* of the optimizer; bound before trainer_ready */
    nrl_mesh *mesh;
    const data_shards *shards;     /* of the global batch */
    const nrl_device_info *device; /* filled before the first step */
    const config_train *config;
    const reference_options *reference_options;
    const metric_rows *metrics; /* metrics that a step may report */
    nrl_dtype compute;
    double clip_norm;
    const struct nrl_rank_checks *checks; /* NULL = none */
    int64_t debug_every;                  /* steps between them */
    const volatile int *signal;           /* as nrl_environment.signal */
    hooks *hooks;
    telemetry *telemetry;
} trainer_parts;

struct trainer {
    trainer_parts parts;
    const reference *reference;     /* NULL: the algorithm needs none */
    run_progress progress, resumed; /* now; at the start of this process */
    double started;                 /* monotonic */
    schedule schedule;
    double lr_override; /* < 0 = the schedule's */
    loss_scale loss_scale;
    fp8_scaling fp8;
    arena memory;
    nrl_slice *slices;
    bool *slice_counts; /* [n_slices] no lower rank holds it too: its norm counts here */
    int64_t n_slices;
    step_weights *weights;              /* [shards] of the current step */
    ranks_result *results;              /* [2, shards]: of the step; of a second pass */
    metric_set metrics, unrecorded;     /* of the step; of a second pass over its batches */
    value_list values;                  /* of the current record */
    bool measures_update;               /* the next update fills `moved` */
    double moved;                       /* of this rank: the sum of squares of an update; NaN = not measured */
    double flops;                       /* that this rank computed in the current step */
    char *script_state;                 /* JSON; NULL = none */
    nrl_collective_info sent;           /* until the last record; size 0: there is none */
    const char *stop_reason;            /* NULL: no stop was requested */
    bool lacked;                        /* a rank ran out of memory in the last step, which was discarded */
    const char *problem;                /* the error, if it was this rank; NULL = another one */
    int signal;                         /* received by any rank, known at the end of a step; 0 = none */
    double save_at;                     /* monotonic: when rank 0's clock asks for a save; INFINITY = never */
    bool save_by_clock;                 /* it did; known at the end of a step */
    nrl_value notes[TRAINER_MAX_NOTES]; /* values of the next record in addition to the step's own */
    size_t n_notes;
};

/* Opens a zero-initialised trainer. The caller opens the schedule, which needs the number of steps. */
void trainer_open(trainer *tr, const trainer_parts *parts);
/* Call it once weights and optimizer states exist: builds the slices that a step updates. `second` may be NULL. */
nrl_status trainer_ready(trainer *tr, const reference *second);
void trainer_begin(trainer *tr); /* call it after a resume: the counts of this process begin here */
void trainer_close(trainer *tr);

/* The batches of a step, and the time that it took to get them. */
typedef struct {
    const data_step *data;
    double began;        /* clock_seconds() */
    double data_seconds; /* spent waiting for the data */
} step_input;
/* Takes one step and fills `values` with its record. *done: rank 0's script stopped the run, and no step was taken.
 * tr->lacked: no step was taken, because a rank ran out of memory; repeat it with smaller micro-batches. [step] */
nrl_status trainer_step(trainer *tr, const step_input *in, nrl_run_event *e, bool *done);
/* Stops the run after the current step. The first reason stays; NULL: "asked to". */
void trainer_stop(trainer *tr, const char *reason);
void trainer_set_script_state(trainer *tr, const char *json);

#endif
