/*
 * constant_with_warmup.c - a warm-up, then the same rate in every step.
 */
#include "../common/curve.h"

static const nrl_option warmup_rows[] = {WARMUP_ROWS(warmup_options)};

static nrl_status warmup_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    const curve_span s = curve_span_of(options, setup);
    return curve_new(&s, sizeof s, self);
}

static double warmup_factor(const void *self, int64_t step)
{
    const curve_span *s = self;
    return step < s->warmup ? curve_share(step, s->warmup) : 1;
}

static const nrl_schedule table = {
    NRL_PLUGIN(NRL_KIND_SCHEDULE, nrl_schedule, warmup_options, warmup_rows, "constant_with_warmup", "0.1",
               "a warm-up, then the same rate in every step"),
    .plugin.check = warmup_check,
    .create = warmup_create,
    .destroy = free,
    .factor = warmup_factor,
};
NRL_EXPORT(table)
