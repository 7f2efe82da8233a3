/*
 * cosine_with_min_lr.c - a warm-up, then half a wave of a cosine down to a rate above 0.
 */
#include "../common/curve.h"

typedef struct {
    WARMUP_OPTIONS
    double num_cycles;
    double min_lr, min_lr_rate;
} floor_options;

typedef struct {
    curve_span span;
    double cycles, floor_rate;
} floored;

static const nrl_option floor_rows[] = {
    WARMUP_ROWS(floor_options),
    NRL_OPT_F64(floor_options, num_cycles, "0.5", 0, 1e16,
                "number of cosine waves; with 0.5 the rate decreases to the last rate once"),
    NRL_OPT_F64(floor_options, min_lr, "0", 0, (double)INFINITY, "the last rate"),
    NRL_OPT_F64(floor_options, min_lr_rate, "0", 0, 1,
                "the last rate as a share of lr; exactly one of min_lr and min_lr_rate is required"),
};

static nrl_status floor_check(const void *options)
{
    const floor_options *o = options;
    NRL_TRY(warmup_check(options));
    if (o->min_lr > 0 && o->min_lr_rate > 0)
        return nrl_fail(NRL_ERR_CONFIG, "min_lr is %g and min_lr_rate is %g, expected one of them", o->min_lr,
                        o->min_lr_rate);
    if (o->min_lr <= 0 && o->min_lr_rate <= 0)
        return nrl_fail(NRL_ERR_CONFIG, "schedule 'cosine_with_min_lr' needs min_lr or min_lr_rate");
    return NRL_OK;
}

static nrl_status floor_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    const floor_options *o = options;
    if (o->min_lr > setup->lr)
        return nrl_fail(NRL_ERR_CONFIG, "min_lr is %g, expected at most lr, which is %g", o->min_lr, setup->lr);
    const floored f = {curve_span_of(options, setup), o->num_cycles,
                       o->min_lr > 0 ? o->min_lr / setup->lr : o->min_lr_rate};
    return curve_new(&f, sizeof f, self);
}

static double floor_factor(const void *self, int64_t step)
{
    const floored *f = self;
    if (step < f->span.warmup) return curve_share(step, f->span.warmup);
    return curve_with_floor(curve_cosine(f->cycles, curve_progress(&f->span, step)), f->floor_rate);
}

static const nrl_schedule table = {
    NRL_PLUGIN(NRL_KIND_SCHEDULE, nrl_schedule, floor_options, floor_rows, "cosine_with_min_lr", "0.1",
               "a warm-up, then half a cosine wave down to a rate above 0"),
    .plugin.check = floor_check,
    .create = floor_create,
    .destroy = free,
    .factor = floor_factor,
};
NRL_EXPORT(table)
