/*
 * schedule.h - an open learning-rate schedule: a plugin (nrl/schedule.h) for a peak rate and a number of steps.
 */
#ifndef OPTIM_SCHEDULE_H
#define OPTIM_SCHEDULE_H
#include <nrl/schedule.h>

typedef struct {
    const nrl_schedule *table; /* NULL: not open */
    void *self, *options;
    double lr;
    int64_t steps;
} schedule;

/* NRL_ERR_CONFIG if the options do not fit the rate or the steps (> 0). [main] */
nrl_status schedule_open(schedule *s, const nrl_schedule *table, void *options, double lr, int64_t steps);
void schedule_close(schedule *s);
/* The rate of the update after `step` finished updates. NRL_ERR_PLUGIN: it is not a number of at least 0. [any] */
nrl_status schedule_rate(const schedule *s, int64_t step, double *rate);

#endif
