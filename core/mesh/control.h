/*
 * control.h - the thread that watches over the ranks: it heartbeats in the store every second, reads the
 * heartbeats of the next ranks and the abort record (abort_record.h), and knows first when somebody is lost.
 *
 * A rank is lost when its connection broke and nothing explains it within a moment, or when five
 * heartbeats in a row are missing. The store that is gone or silent is a lost rank too: the one that holds
 * it. Time is counted in this process's own heartbeats, so a run that is suspended whole goes on. A store
 * that cannot count has no heartbeats: there only words are passed.
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

/* Before a rank is seen by others: its heartbeats begin at zero. [main] */
nrl_status control_announce(nrl_store *store, int32_t rank);
nrl_status control_open(const control_setup *setup, control **out); /* all have announced. [main] */
/* Ends the thread; without a failure, this rank sends its leave message first. [main] */
void control_close(control *c);

bool control_failed(const control *c);                   /* whether a failure cause is known. [any] */
void control_failure_cause(control *c, abort_record *w); /* kind is ABORT_NONE if there is none. [any] */
/* Reports why this rank ends the job. A failure cause is known afterwards. [step] */
void control_tell(control *c, nrl_status code, const char *text);
/* The connection to a rank broke (-1: to an unknown rank). Waits a moment for the actual cause, else reports the rank
 * as lost; -1 is never reported, so there may be no failure cause afterwards. [step] */
void control_suspect(control *c, int32_t rank);
/* A call timed out; `what` describes it. A failure cause is known afterwards. The first rank that reports a time-out
 * gets the records of all ranks in `records` [world] (NULL if one is missing). [step] */
void control_late(control *c, const char *what, char **records);
/* After a failure: waits until all live ranks have read its cause, at most a few seconds. [main] */
void control_linger(control *c);

#endif
