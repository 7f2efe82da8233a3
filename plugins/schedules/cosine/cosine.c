/*
 * cosine.c - a warm-up, then half a wave of a cosine down to 0, or as many waves as asked for.
 */
#include "../common/curve.h"

typedef struct {
    WARMUP_OPTIONS
    double num_cycles;
} cosine_options;

typedef struct {
    curve_span span;
    double cycles;
} cosine;

static const nrl_option cosine_rows[] = {
    WARMUP_ROWS(cosine_options),
    NRL_OPT_F64(cosine_options, num_cycles, "0.5", 0, 1e16,
                "number of cosine waves; with 0.5 the rate decreases to 0 once, with 0 it is constant"),
};

static nrl_status cosine_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    const cosine c = {curve_span_of(options, setup), ((const cosine_options *)options)->num_cycles};
    return curve_new(&c, sizeof c, self);
}

static double cosine_factor(const void *self, int64_t step)
{
    const cosine *c = self;
    if (step < c->span.warmup) return curve_share(step, c->span.warmup);
    return curve_cosine(c->cycles, curve_progress(&c->span, step));
}

static const nrl_schedule table = {
    NRL_PLUGIN(NRL_KIND_SCHEDULE, nrl_schedule, cosine_options, cosine_rows, "cosine", "0.1",
               "a warm-up, then half a cosine wave down to 0"),
    .plugin.check = warmup_check,
    .create = cosine_create,
    .destroy = free,
    .factor = cosine_factor,
};
NRL_EXPORT(table)
