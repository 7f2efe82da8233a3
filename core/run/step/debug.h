/*
 * debug.h - `debug: true`: who the ranks are and what each gets to do, and every few steps whether what must
 * be equal on several ranks is: gradients before the update, weights after it. One rank compares nothing.
 */
#ifndef RUN_DEBUG_H
#define RUN_DEBUG_H
#include "run/step/trainer.h"

/* Process group info, printed by rank 0. Collective. */
nrl_status debug_group(trainer *tr);
/* Tokens, samples and micro-batches of the step on each rank, printed by rank 0. Collective. */
nrl_status debug_data(trainer *tr, const data_step *data);
/* A parameter whose bytes differ from those of the lowest rank that holds the same elements stops the run
 * and is named with the rank: reduced gradients, or weights (MASTER, and whole copies in WEIGHT).
 * Collective. */
nrl_status debug_gradients(trainer *tr);
nrl_status debug_weights(trainer *tr);
/* Whether the current step is one of those that are looked at. */
bool debug_is_due(const trainer *tr);

#endif
