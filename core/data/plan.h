/*
 * plan.h - the part of a plan that only the loader uses.
 */
#ifndef DATA_PLAN_H
#define DATA_PLAN_H
#include "data/data.h"

nrl_status data_plan_copy(const data_plan *p, data_plan **out); /* NRL_ERR_MEMORY */
/* Returns the number of epochs that are finished after step `step`. */
double data_plan_epoch_after(const data_plan *p, int64_t step);

#endif
