/*
 * trainer.h - optimizer steps of a session: how far it has come, what it measures, and one step, which step.c has from
 * top to bottom.
 */
#ifndef RUN_TRAINER_H
#define RUN_TRAINER_H
#include "base/exact_sum.h"
#include "optim/loss_scale.h"
#include "optim/schedule.h"
#include "optim/slices.h"
#include "run/open/session.h"

/* What a checkpoint holds beside tensors; plain numbers, see state/progress.c. */
typedef struct {
    int64_t step;             /* finished steps, those omitted by the NaN policy included */
    int64_t updates;          /* of the optimizer: what its bias correction counts */
    int64_t tokens;           /* trained on so far */
    int64_t skipped_in_a_row; /* NaN policy */
    int64_t evals_without_best;
    double first_loss; /* of the first step that updated; NaN = not known */
    int64_t far_steps; /* in a row, whose loss was train.diverge_factor times that */
    double best;       /* of checkpoint.metric */
    int64_t best_step; /* 0 = none yet */
} run_progress;

enum { TRAINER_MAX_NOTES = 4 };
/* Sums and weights of a step: the terms of the algorithm, then, from NRL_MAX_TERMS on, those of the model, whose
 * weights are tokens. */
enum { STEP_TERMS = NRL_MAX_TERMS + NRL_MAX_MODEL_TERMS };
typedef double step_weights[STEP_TERMS];

/* What a rank knows of a shard after its backward; what is known of the rank alone is in its first shard. */
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

typedef struct {
    session *session;
    run_progress progress, resumed; /* now; at the start of this process */
    double started;                 /* monotonic */
    schedule schedule;
    double lr_override; /* < 0 = the schedule's */
    loss_scale loss_scale;
    arena slice_memory;
    nrl_slice *slices;
    bool *slice_counts; /* [n_slices] no lower rank holds it too: its norm counts here */
    int64_t n_slices;
    step_weights *weights;              /* [shards] of the current step */
    ranks_result *results;              /* [2, shards]: of the step; of a second pass */
    metric_set metrics, unrecorded;     /* of the step; of a second pass over its batches */
    value_list values;                  /* of the current record */
    double flops;                       /* that this rank computed in the current step */
    char *script_state;                 /* JSON; NULL = none */
    const char *stop_reason;            /* NULL: nobody asked to stop */
    int signal;                         /* that any rank got, told at a step's end; 0 = none */
    double save_at;                     /* monotonic: when rank 0's clock asks for a save; INFINITY = never */
    bool save_by_clock;                 /* it did: told at a step's end */
    nrl_value notes[TRAINER_MAX_NOTES]; /* what the next record has beside the step's own values */
    size_t n_notes;
} trainer;

/* The batches of a step or of an evaluation, which an algorithm may replace by sequences that it generates
 * (nrl_algorithm.rollout). The core hands them over and frees them; libnrl-inference generates. */
struct nrl_rollout {
    session *session;
    const session_data *source; /* whose batches they are */
    data_step *data;            /* the loader's; afterwards what the loss gets */
    int64_t step;               /* finished steps; in an evaluation the step of the set */
    bool trains;
    nrl_batch **batches; /* [data->n_micro_batches] that replace the loader's; NULL = none */
    void *made;          /* what the algorithm generated; NULL = nothing */
    arena memory;        /* of both */
};
/* Calls the algorithm, if it has a function for this. rollout_end follows in any case. [step] */
nrl_status rollout_begin(nrl_rollout *r);
void rollout_end(nrl_rollout *r);

/* `session` stays the caller's. Needs its plugins; the schedule and the slices are opened later, when the number of
 * steps is known and the weights are there. */
void trainer_open(trainer *tr, session *se);
nrl_status trainer_open_schedule(trainer *tr);
nrl_status trainer_open_slices(trainer *tr);
void trainer_begin(trainer *tr); /* after what is resumed: what this process does counts from here */
void trainer_close(trainer *tr);

/* One step: its record is in `values` then. *done: rank 0's script stopped the run; no step was taken. */
nrl_status trainer_step(trainer *tr, nrl_run_event *e, bool *done);
/* The same on given batches, begun at `start` (monotonic). */
nrl_status trainer_step_on(trainer *tr, const data_step *data, double start, nrl_run_event *e, bool *done);
/* After the current step. The first reason stays; NULL: "asked to". */
void trainer_stop(trainer *tr, const char *reason);
void trainer_set_script_state(trainer *tr, const char *json);

#endif
