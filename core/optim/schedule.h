/*
 * schedule.h - the learning rate of each step: the schedules of Hugging Face with their names and options. The rate
 * depends on the step alone, so a resumed run needs no state.
 */
#ifndef OPTIM_SCHEDULE_H
#define OPTIM_SCHEDULE_H
#include <nrl/plugin.h>

/* In the order of schedule_names. */
typedef enum {
    SCHEDULE_CONSTANT = 0,
    SCHEDULE_CONSTANT_WITH_WARMUP,
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_COSINE_WITH_MIN_LR,
    SCHEDULE_COSINE_WITH_RESTARTS,
    SCHEDULE_INVERSE_SQRT,
    SCHEDULE_POLYNOMIAL,
    SCHEDULE_WARMUP_STABLE_DECAY,
    SCHEDULE_COUNT
} schedule_name;

typedef enum { SCHEDULE_RAMP_LINEAR = 0, SCHEDULE_RAMP_COSINE, SCHEDULE_RAMP_1_SQRT } schedule_ramp;

/* `schedule:` of a config: the name (schedule_find) and the options (schedule_rows), which say whether 0 means unset.
 */
typedef struct {
    int64_t name; /* schedule_name; no row */
    double warmup_ratio;
    int64_t warmup_steps;
    double num_cycles;
    double min_lr, min_lr_rate;
    double lr_end, power;
    int64_t timescale;
    int64_t num_decay_steps, num_stable_steps;
    double min_lr_ratio;
    int64_t warmup_type, decay_type; /* schedule_ramp */
} schedule_options;

extern const char *const schedule_names[SCHEDULE_COUNT];
extern const nrl_option schedule_rows[];
extern const size_t schedule_n_rows;

/* Sets options->name. NRL_ERR_CONFIG suggests the nearest name and lists all. [main] */
nrl_status schedule_find(const char *name, schedule_options *options);

/* Checks options against each other: the warm-up is given at most once, and the schedule reads every option that is
 * set. NRL_ERR_CONFIG. [main] */
nrl_status schedule_check(const schedule_options *options);

typedef struct {
    schedule_options options; /* with warm-up, cycles and stages resolved to numbers */
    double lr;
    int64_t total_steps;
} schedule;

/* Resolves the options for a peak rate and a number of steps (> 0). NRL_ERR_CONFIG if the options do not fit the rate
 * or the steps. A warm-up longer than the run is a warning. [main] */
nrl_status schedule_init(schedule *s, const schedule_options *options, double lr, int64_t total_steps);

/* The rate of the update after `step` finished updates; step 0 of a warm-up has rate 0. [any] */
double schedule_rate(const schedule *s, int64_t step);

#endif
