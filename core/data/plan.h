/*
 * plan.h - what the loader needs of a plan beyond data.h.
 */
#ifndef DATA_PLAN_H
#define DATA_PLAN_H
#include "data/data.h"

data_plan *data_plan_copy(const data_plan *p);
/* Epochs finished when step `step` is done. */
double data_plan_epoch_after(const data_plan *p, int64_t step);

#endif
