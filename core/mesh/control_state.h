/*
 * control_state.h - the state that control.c (the thread and its heartbeats) and failure_cause.c (the cause of a
 * failure, and reports of the step thread) share.
 */
#ifndef MESH_CONTROL_STATE_H
#define MESH_CONTROL_STATE_H
#include "mesh/control.h"
#include <pthread.h>
#include <stdatomic.h>

/* Each rank watches the next CONTROL_WATCHED ranks in a ring. Of any ranks that die together, at least one is watched
 * by a rank that lives, which informs the others with the abort record. */
enum { CONTROL_WATCHED = 16 };

typedef enum { SUSPICION_NONE = 0, SUSPICION_NEW, SUSPICION_DONE } suspicion;

struct control {
    control_setup setup;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool failed, asked;
    bool stop;                  /* under lock */
    abort_record failure_cause; /* under lock */
    double failed_at;
    suspicion suspicion; /* under lock: set by the step thread, checked by the watching thread */
    int32_t suspect;
    /* used only by the watching thread */
    int32_t n_watched, watched[CONTROL_WATCHED + 1]; /* the store's holder too, for its leave message */
    char *keys[CONTROL_WATCHED + 1], *last[CONTROL_WATCHED + 1];
    int missed[CONTROL_WATCHED + 1];
    bool holder_left, acknowledged, unheard;
};

/* ---- failure_cause.c ---- */
void control_decide(control *c, const abort_record *w); /* keeps the first cause; ignores ABORT_NONE */
void control_decide_store(control *c);                  /* the store is lost, for the reason in the error record */
void control_say(control *c, abort_record *w); /* reports w to the others; the first record in the store is the cause */
void control_look(control *c);                 /* looks for a record of another rank */
void control_add_known(control *c);            /* this rank has read the cause, for which the store's holder waits */

#endif
