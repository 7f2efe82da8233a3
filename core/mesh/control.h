/*
 * control.h - the thread that watches the ranks. It sends a heartbeat to the store every second, reads the heartbeats
 * of the next ranks and the abort record (abort_record.h), and detects lost ranks.
 *
 * A rank is lost if its connection broke and no other cause is reported within a moment, or if five heartbeats in a row
 * are missing. If the store is lost or does not answer, the rank that holds it is lost. Time is counted in heartbeats
 * of this process, so a run that is suspended as a whole continues. With a store that cannot count there are no
 * heartbeats, only abort records.
 */
#ifndef MESH_CONTROL_H
#define MESH_CONTROL_H
#include "base/buffer.h"
#include "mesh/abort_record.h"

typedef struct control control;

typedef struct {
    nrl_store *store; /* borrowed; control_announce was called with it */
    int32_t rank, world;
    int32_t holder;                           /* the rank that holds the store, -1 = none of them */
    void (*record)(void *user, buffer *text); /* this rank's last calls, for ABORT_LATE. [any] */
    void (*unheard)(void *user);              /* reports a failure that no call has returned for 2 s. [any] */
    void *user;
} control_setup;

/* Sets the heartbeats of this rank to zero, before other ranks can see it. [main] */
nrl_status control_announce(nrl_store *store, int32_t rank);
nrl_status control_open(const control_setup *setup, control **out); /* all have announced. [main] */
/* Ends the thread; without a failure, this rank sends its leave message first. [main] */
void control_close(control *c);

bool control_failed(const control *c);                   /* whether a failure cause is known. [any] */
void control_failure_cause(control *c, abort_record *w); /* kind is ABORT_NONE if there is none. [any] */
/* Reports why this rank ends the job. A failure cause is known afterwards. [step] */
void control_report(control *c, nrl_status code, const char *text);
/* The connection to a rank broke (-1: to an unknown rank). Waits a moment for the actual cause, else reports the rank
 * as lost; -1 is never reported, so there may be no failure cause afterwards. [step] */
void control_suspect(control *c, int32_t rank);
/* A call timed out; `what` describes it. A failure cause is known afterwards. The first rank that reports a time-out
 * gets the records of all ranks in `records` [world] (NULL if one is missing). [step] */
void control_late(control *c, const char *what, char **records);
/* After a failure: waits until all live ranks have read its cause, at most a few seconds. [main] */
void control_linger(control *c);

#endif
