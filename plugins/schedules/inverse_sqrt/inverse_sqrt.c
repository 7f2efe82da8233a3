/*
 * inverse_sqrt.c - a warm-up, then a rate that falls with the square root of the step (Vaswani et al. 2017). It does
 * not depend on the number of steps unless the warm-up is a share of it.
 */
#include "../common/curve.h"

typedef struct {
    WARMUP_OPTIONS
    int64_t timescale;
} root_options;

typedef struct {
    curve_span span;
    int64_t timescale;
} root;

static const nrl_option root_rows[] = {
    WARMUP_ROWS(root_options),
    NRL_OPT_INT(root_options, timescale, "0", 0, CURVE_STEPS_MAX,
                "step at which the rate is lr; 0: the end of the warm-up, or 10000 without a warm-up"),
};

static nrl_status root_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    root r = {curve_span_of(options, setup), ((const root_options *)options)->timescale};
    if (!r.timescale) r.timescale = r.span.warmup ? r.span.warmup : 10000;
    return curve_new(&r, sizeof r, self);
}

static double root_factor(const void *self, int64_t step)
{
    const root *r = self;
    if (step < r->span.warmup) return curve_share(step, r->span.warmup);
    return 1.0 / sqrt((double)(step + r->timescale - r->span.warmup) / (double)r->timescale);
}

static const nrl_schedule table = {
    NRL_PLUGIN(NRL_KIND_SCHEDULE, nrl_schedule, root_options, root_rows, "inverse_sqrt", "0.1",
               "a warm-up, then a rate proportional to 1 / the square root of the step"),
    .plugin.check = warmup_check,
    .create = root_create,
    .destroy = free,
    .factor = root_factor,
};
NRL_EXPORT(table)
