/*
 * state.h - a run's whole state to a checkpoint and back; saver.c and resume.c say when and which.
 */
#ifndef RUN_STATE_H
#define RUN_STATE_H
#include "checkpoint/checkpoint.h"
#include "run/step/trainer.h"

int64_t state_bytes(const trainer *tr); /* of numbers that this rank saves */
/* Between checkpoint_begin and checkpoint_submit; `a` for what is passed on the way. [step] */
nrl_status state_add(trainer *tr, arena *a, checkpoint_writer *w);
/* NRL_ERR_CONFIG names everything in which the checkpoint belongs to another run. [step] */
nrl_status state_restore(trainer *tr, checkpoint *c);
/* What an evaluation needs of it: weights, step, the algorithm's state. The config may differ
 * otherwise. [step] */
nrl_status state_restore_weights(trainer *tr, checkpoint *c);

#endif
