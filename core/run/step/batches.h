/*
 * batches.h - the batches of a step or of an evaluation: the loader's, or those that an algorithm generates from them.
 */
#ifndef RUN_BATCHES_H
#define RUN_BATCHES_H
#include "run/open/session.h"
#include "run/step/evaluator.h"

/* The batches of a step or of an evaluation, which an algorithm may replace by sequences that it generates
 * (nrl_algorithm.rollout). The core passes them on and frees them; libnrl-inference generates the sequences. */
struct nrl_rollout {
    session *session;
    const session_data *source; /* whose batches they are */
    data_step *data;            /* the loader's; afterwards what the loss gets */
    int64_t step;               /* finished steps; in an evaluation the step of the set */
    int64_t update;             /* 0 .. nrl_algorithm.updates - 1 */
    bool trains;
    nrl_batch **batches; /* [data->n_micro_batches] that replace the loader's; NULL = none */
    void *made;          /* what the algorithm generated; NULL = nothing */
    arena memory;        /* of both */
};
/* Calls nrl_algorithm.rollout, if there is one. rollout_end follows in any case. [step] */
nrl_status rollout_begin(nrl_rollout *r);
void rollout_end(nrl_rollout *r);

/* Evaluates on the batches of open sets of data. As evaluator_run. [step] */
nrl_status batches_evaluate(session *se, evaluator *ev, const session_data *sets, size_t n_sets, int64_t step);

#endif
