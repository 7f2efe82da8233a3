/*
 * saver.h - when a run is saved, what becomes of a save, and which checkpoint a run goes on from.
 */
#ifndef RUN_SAVER_H
#define RUN_SAVER_H
#include "checkpoint/checkpoint.h"
#include "run/open/session.h"
#include "run/step/trainer.h"

/* Seconds of saves. */
typedef struct {
    /* of the current one */
    double start; /* the run waited: for the snapshot, or without checkpoint.async for all of it */
    double late;  /* the run waited later: for what was not written yet */
    /* of the last complete one */
    double whole;           /* until it was durable */
    double snapshot, stall; /* its `start`; with its `late` */
    bool is_unreported;     /* no record has told it yet */
} save_times;

typedef struct {
    session *session;
    trainer *trainer;          /* whose state is saved and restored */
    checkpoint_writer *writer; /* NULL until the first save, or the trial before it */
    int64_t last_saved;        /* step of the newest save, perhaps still being written; -1 = none */
    int64_t last_save_step;    /* of last_save */
    const char *last_save;     /* folder of the newest complete one */
    double last_save_time;     /* monotonic */
    save_times times;
    bool hook_due; /* the script has not heard of last_save yet */
} saver;

void saver_open(saver *sv, session *se, trainer *tr);
void saver_close(saver *sv);

nrl_status saver_resume(saver *sv);         /* by `resume` of the config */
nrl_status saver_resume_weights(saver *sv); /* what env.weights names */

/* Room for a whole save is asked for and given back: a full disk shows before hours of work. */
nrl_status saver_prepare(saver *sv);
nrl_status saver_save(saver *sv, const char **path); /* complete when it returns */
nrl_status saver_save_due(saver *sv);                /* after a step */
nrl_status saver_save_last(saver *sv); /* at the end: until it is there; a failure by checkpoint.on_error, as any */
nrl_status saver_wait(saver *sv);      /* until what is being written is complete */
/* Before a step: the clock's next save, and what the last one took, once, for the step's record. */
void saver_begin_step(saver *sv);

#endif
