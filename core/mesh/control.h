/*
 * control.h - the thread that watches over the ranks: it heartbeats in the store every second, reads the
 * heartbeats of the next ranks and the abort record (abort_record.h), and knows first when somebody is lost.
 *
 * A rank is lost when its connection broke and nothing explains it within a moment, or when five
 * heartbeats in a row are missing. The store that is gone or silent is a lost rank too: the one that holds
 * it. Time is counted in this process's own heartbeats, so a run that is suspended whole goes on. A store
 * in a folder has no heartbeats: there only words are passed.
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
    void (*unheard)(void *user);              /* the failure_cause has stood for 2 s and nobody asked: say it. [any] */
    void *user;
} control_setup;

/* Before a rank is seen by others: its heartbeats begin at zero. [main] */
nrl_status control_announce(nrl_store *store, int32_t rank);
nrl_status control_open(const control_setup *setup, control **out); /* all have announced. [main] */
/* Ends the thread; without a failure_cause it leaves in order first. [main] */
void control_close(control *c);

bool control_failed(const control *c);                   /* a failure_cause stands. [any] */
void control_failure_cause(control *c, abort_record *w); /* it; kind ABORT_NONE without one. [any] */
/* Why this rank leaves. A failure_cause stands afterwards. [step] */
void control_tell(control *c, nrl_status code, const char *text);
/* The connection to a rank (-1: to one that is not known) broke. Looks for the true cause for a
 * moment, then blames the rank; -1 is never blamed, so there may be no failure_cause afterwards. [step] */
void control_suspect(control *c, int32_t rank);
/* A call took too long; `what` says which and where. A failure_cause stands afterwards. The first rank that
 * says so gets everybody's records in `records` [world] (NULL where one did not come). [step] */
void control_late(control *c, const char *what, char **records);
/* The failure_cause stands: until all who live have read it, or a few seconds are over. [main] */
void control_linger(control *c);

#endif
