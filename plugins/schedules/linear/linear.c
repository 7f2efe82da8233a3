/*
 * linear.c - a warm-up, then a straight line to 0.
 */
#include "../common/curve.h"

static const nrl_option linear_rows[] = {WARMUP_ROWS(warmup_options)};

static nrl_status linear_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    const curve_span s = curve_span_of(options, setup);
    return curve_new(&s, sizeof s, self);
}

static double linear_factor(const void *self, int64_t step)
{
    const curve_span *s = self;
    if (step < s->warmup) return curve_share(step, s->warmup);
    double progress = curve_progress(s, step);
    return progress < 1 ? 1 - progress : 0;
}

static const nrl_schedule table = {
    NRL_PLUGIN(NRL_KIND_SCHEDULE, nrl_schedule, warmup_options, linear_rows, "linear", "0.1",
               "a warm-up, then a straight line to 0"),
    .plugin.check = warmup_check,
    .create = linear_create,
    .destroy = free,
    .factor = linear_factor,
};
NRL_EXPORT(table)
