/*
 * actions.h - the schedule of a step as data: which unit of which micro-batch is run when, and what is
 * final after it. Everything follows from the array, so another schedule changes nothing in the walk.
 */
#ifndef RUN_ACTIONS_H
#define RUN_ACTIONS_H
#include "run/walk/stage.h"

/* What a step's actions are made of. */
typedef struct {
    const model *m;
    const bool *recompute;         /* [n_units] whether a RECOMPUTE action of the unit precedes its BACKWARD */
    const stage_link *stage;       /* units of this rank; those below its first_trained have no backward */
    const nrl_parallel *scheduler; /* NULL: one micro-batch after another through all units */
    void *scheduler_self;
} actions_source;

typedef struct {
    nrl_action *list;
    int64_t n;
    int32_t n_micro_batches; /* for which it was made; 0 = for none yet */
    int64_t *last;           /* [n_micro_batches] index of each one's last action */
    arena memory;
} action_list;

/* The actions of a step of n micro-batches; kept until n changes. NRL_ERR_PLUGIN if the order of the scheduler cannot
 * be walked. [step] */
nrl_status actions_make(action_list *v, const actions_source *from, int32_t n_micro_batches);
void actions_free(action_list *v);

#endif
