/*
 * control.h - the thread that watches over the ranks: it beats in the store every second, reads the
 * beats of the next ranks and the word (word.h), and knows first when somebody is lost.
 *
 * A rank is lost when its connection broke and nothing explains it within a moment, or when five
 * beats in a row are missing. The store that is gone or silent is a lost rank too: the one that holds
 * it. Time is counted in this process's own beats, so a run that is suspended whole goes on. A store
 * in a folder has no beats: there only words are passed.
 */
#ifndef MESH_CONTROL_H
#define MESH_CONTROL_H
#include "base/buffer.h"
#include "mesh/word.h"

typedef struct control control;

typedef struct {
    nrl_store *store; /* borrowed; control_announce was called with it */
    int32_t rank, world;
    int32_t holder; /* the rank that holds the store, -1 = none of them */
    void (*record)(void *user, buffer *text); /* this rank's last calls, for WORD_LATE. [any] */
    void (*unheard)(void *user); /* the verdict has stood for 2 s and nobody asked: say it. [any] */
    void *user;
} control_setup;

/* Before a rank is seen by others: its beats begin at zero. [main] */
nrl_status control_announce(nrl_store *store, int32_t rank);
nrl_status control_open(const control_setup *setup, control **out); /* all have announced. [main] */
/* Ends the thread; without a verdict it says goodbye first. [main] */
void control_close(control *c);

bool control_failed(const control *c);       /* a verdict stands. [any] */
void control_verdict(control *c, word *w);   /* it; kind WORD_NONE without one. [any] */
/* Why this rank leaves. A verdict stands afterwards. [step] */
void control_tell(control *c, nrl_status code, const char *text);
/* The connection to a rank (-1: to one that is not known) broke. Looks for the true cause for a
 * moment, then blames the rank; -1 is never blamed, so there may be no verdict afterwards. [step] */
void control_suspect(control *c, int32_t rank);
/* A call took too long; `what` says which and where. A verdict stands afterwards. The first rank that
 * says so gets everybody's records in `records` [world] (NULL where one did not come). [step] */
void control_late(control *c, const char *what, char **records);
/* The verdict stands: until all who live have read it, or a few seconds are over. [main] */
void control_linger(control *c);

#endif
