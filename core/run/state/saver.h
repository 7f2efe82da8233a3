/*
 * saver.h - decides when a run is saved and follows each save. A saver needs only the given parts, not an open run.
 */
#ifndef RUN_SAVER_H
#define RUN_SAVER_H
#include "checkpoint/checkpoint.h"
#include "base/claims.h"
#include "run/step/trainer.h"

/* Seconds of saves. */
typedef struct {
    /* of the current save */
    double start; /* the run waited: for the snapshot, or without checkpoint.async for all of it */
    double late;  /* the run waited later: for what was not written yet */
    /* of the last complete save */
    double whole;           /* until it was durable */
    double snapshot, stall; /* its `start`; `start` + `late` */
    bool is_unreported;     /* no record contains it yet */
} save_times;

/* What a saver uses; owned by the caller, outlives the saver. */
typedef struct {
    trainer *trainer; /* open; its steps, notes and best evaluation decide when to save */
    const config_checkpoint *config;
    const char *out;                 /* the directory of the run */
    const claims *claims;            /* which tell whether it still belongs to the run; NULL = it does */
    const sign_secret_key *sign_key; /* rank 0's, with config->sign */
    double timeout_s;                /* the longest wait for another rank */
    bool awaits_best;                /* the run ends some evaluations after the best one, which is saved */
    /* The state: the bytes that this rank will save, and the calls of checkpoint_add_* of one save. */
    int64_t (*bytes)(void *user);
    nrl_status (*add)(void *user, arena *a, checkpoint_writer *w);
    void *user;
} saver_parts;

typedef struct {
    saver_parts parts;
    trainer *trainer;
    nrl_mesh *mesh; /* the trainer's */
    arena memory;
    checkpoint_writer *writer; /* NULL until the first save, or the trial before it */
    int64_t last_saved;        /* step of the newest save, perhaps still being written; -1 = none */
    bool last_is_judged;       /* it was saved after the evaluation of its step */
    int64_t last_save_step;    /* of last_save */
    const char *last_save;     /* folder of the newest complete one */
    double last_save_time;     /* monotonic */
    save_times times;
    bool hook_due; /* the save hook was not called for last_save yet */
} saver;

void saver_open(saver *sv, const saver_parts *parts);
void saver_close(saver *sv);
/* Call it after the trainer was restored from the checkpoint in `dir`. */
void saver_resumed(saver *sv, const char *dir);

/* Allocates the space of a whole save and frees it, so that a full disk is found before hours of work. */
nrl_status saver_prepare(saver *sv);
nrl_status saver_save(saver *sv, const char **path); /* complete when it returns */
nrl_status saver_save_due(saver *sv);                /* after a step */
/* At the end of the run: waits until the save is complete. checkpoint.on_error decides about a failure, as always. */
nrl_status saver_save_last(saver *sv);
nrl_status saver_wait(saver *sv); /* until what is being written is complete */
/* Before a step: plans the next save by time, and adds the duration of the last save, once, to the step's record. */
void saver_begin_step(saver *sv);

#endif
