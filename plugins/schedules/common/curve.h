/*
 * curve.h - what the schedules share: the linear warm-up and the shapes of their curves, with the formulas and names of
 * the optimization module of transformers, so that equal options give equal rates. Step t is the update after t
 * finished updates, so steps count from 0.
 */
#ifndef SCHEDULES_CURVE_H
#define SCHEDULES_CURVE_H
#include <nrl/schedule.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CURVE_PI 3.14159265358979323846
#define CURVE_STEPS_MAX 2e15 /* a sum of three such numbers fits in an int64_t */

/* The options of a warm-up, as the first members of a schedule's options and as its first rows. */
#define WARMUP_OPTIONS                                                                                                 \
    double warmup_ratio;                                                                                               \
    int64_t warmup_steps;
#define WARMUP_ROWS(T)                                                                                                 \
    NRL_OPT_F64(T, warmup_ratio, "0", 0, 1, "warm-up as a share of all steps, rounded up; excludes warmup_steps"),     \
        NRL_OPT_INT(T, warmup_steps, "0", 0, CURVE_STEPS_MAX,                                                          \
                    "number of warm-up steps, in which the rate increases from 0; the first step has rate 0")

typedef struct {
    WARMUP_OPTIONS
} warmup_options;

/* A run with its warm-up resolved to steps. */
typedef struct {
    int64_t warmup, steps;
} curve_span;

/* For options that begin with WARMUP_OPTIONS. */
static inline nrl_status warmup_check(const void *options)
{
    const warmup_options *o = options;
    if (o->warmup_ratio <= 0 || o->warmup_steps <= 0) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "warmup_ratio is %g and warmup_steps is %lld, expected one of them",
                    o->warmup_ratio, (long long)o->warmup_steps);
}

static inline curve_span curve_span_of(const void *options, const nrl_schedule_setup *setup)
{
    const warmup_options *o = options;
    curve_span s = {o->warmup_steps, setup->steps};
    if (o->warmup_ratio > 0) s.warmup = (int64_t)ceil(o->warmup_ratio * (double)setup->steps);
    if (s.warmup > s.steps)
        nrl_warn("the warm-up of %lld steps is longer than the run of %lld steps: the rate never reaches lr",
                 (long long)s.warmup, (long long)s.steps);
    return s;
}

/* The instance of a schedule: a copy of `size` bytes, to be freed. */
static inline nrl_status curve_new(const void *instance, size_t size, void **self)
{
    *self = malloc(size);
    if (!*self) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a schedule");
    memcpy(*self, instance, size);
    return NRL_OK;
}

static inline double curve_share(int64_t part, int64_t whole)
{
    return (double)part / (double)(whole > 1 ? whole : 1);
}

/* How much of what follows the warm-up is done; may exceed 1. */
static inline double curve_progress(const curve_span *s, int64_t step)
{
    return curve_share(step - s->warmup, s->steps - s->warmup);
}

/* max(0, (1 + cos(2 pi cycles progress)) / 2) */
static inline double curve_cosine(double cycles, double progress)
{
    double y = 0.5 * (1.0 + cos(CURVE_PI * cycles * 2.0 * progress));
    return y > 0 ? y : 0;
}

static inline double curve_with_floor(double y, double floor_rate)
{
    return y * (1.0 - floor_rate) + floor_rate;
}

#endif
