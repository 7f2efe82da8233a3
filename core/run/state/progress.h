/*
 * progress.h - how far a run has come, as a checkpoint keeps it; every field is checked before it is believed. A hash
 * says that nothing was damaged by accident, not that the values make sense together.
 */
#ifndef RUN_PROGRESS_H
#define RUN_PROGRESS_H
#include "checkpoint/checkpoint.h"
#include "run/step/trainer.h"

nrl_node *progress_node(arena *a, const run_progress *p, double lr_override);
/* NRL_ERR_CORRUPT names the field that is missing, has no such range, or contradicts the manifest. */
nrl_status progress_read(const checkpoint *c, run_progress *p, double *lr_override);

/* Whether the nodes of a checkpoint have their types, and its progress, where it has any, makes sense.
 * NRL_ERR_CORRUPT. */
nrl_status progress_check_nodes(const checkpoint *c);

#endif
