/*
 * schedule.h - learning rates over the steps of a run. The rate of an update depends only on the options, the peak
 * rate, the number of steps and the index of the update, so a resumed run has the rates of an uninterrupted one without
 * a state in its checkpoint.
 *
 * If a config names no schedule, the plugin with the highest priority is used.
 */
#ifndef NRL_SCHEDULE_H
#define NRL_SCHEDULE_H
#include <nrl/plugin.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The arguments of create, borrowed until it returns. */
typedef struct {
    uint32_t size, reserved;
    double lr;     /* optimizer.lr, the peak, at least 0 */
    int64_t steps; /* of the run, at least 1; a resume with another number creates one instance for each number */
} nrl_schedule_setup;

typedef struct {
    nrl_plugin plugin;
    /* [main] optional: NRL_ERR_CONFIG if the options do not fit the rate or the steps. NULL: the instance is the
     * options */
    nrl_status (*create)(const void *options, const nrl_schedule_setup *setup, void **self);
    void (*destroy)(void *self); /* [main] only with create */
    /* [any] The rate of the update after `step` finished ones as a multiple of lr: finite, at least 0, and always the
     * same for one step. Steps count from 0 and may lie beyond the end of the run */
    double (*factor)(const void *self, int64_t step);
} nrl_schedule;

#ifdef __cplusplus
}
#endif
#endif
