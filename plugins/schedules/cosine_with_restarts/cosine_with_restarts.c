/*
 * cosine_with_restarts.c - a warm-up, then halves of a cosine that begin again at the full rate (Loshchilov and Hutter
 * 2017).
 */
#include "../common/curve.h"

typedef struct {
    WARMUP_OPTIONS
    double num_cycles;
} restarts_options;

typedef struct {
    curve_span span;
    double cycles;
} restarts;

static const nrl_option restarts_rows[] = {
    WARMUP_ROWS(restarts_options),
    NRL_OPT_F64(restarts_options, num_cycles, "1", 0, 1e16, "how often the rate decreases from lr to 0"),
};

static nrl_status restarts_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    const restarts r = {curve_span_of(options, setup), ((const restarts_options *)options)->num_cycles};
    return curve_new(&r, sizeof r, self);
}

static double restarts_factor(const void *self, int64_t step)
{
    const restarts *r = self;
    if (step < r->span.warmup) return curve_share(step, r->span.warmup);
    double progress = curve_progress(&r->span, step);
    return progress < 1 ? curve_cosine(0.5, fmod(r->cycles * progress, 1.0)) : 0;
}

static const nrl_schedule table = {
    NRL_PLUGIN(NRL_KIND_SCHEDULE, nrl_schedule, restarts_options, restarts_rows, "cosine_with_restarts", "0.1",
               "a warm-up, then half cosine waves that restart at the full rate"),
    .plugin.check = warmup_check,
    .create = restarts_create,
    .destroy = free,
    .factor = restarts_factor,
};
NRL_EXPORT(table)
