/*
 * polynomial.c - a warm-up, then lr_end + (lr - lr_end) (1 - progress)^power.
 */
#include "../common/curve.h"

typedef struct {
    WARMUP_OPTIONS
    double lr_end, power;
} polynomial_options;

typedef struct {
    curve_span span;
    double lr, lr_end, power;
} polynomial;

static const nrl_option polynomial_rows[] = {
    WARMUP_ROWS(polynomial_options),
    NRL_OPT_F64(polynomial_options, lr_end, "1e-7", 0, (double)INFINITY, "the last rate, less than lr"),
    NRL_OPT_F64(polynomial_options, power, "1", 0, (double)INFINITY, "the exponent; 1 is a straight line"),
};

static nrl_status polynomial_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    const polynomial_options *o = options;
    if (o->lr_end >= setup->lr)
        return nrl_fail(NRL_ERR_CONFIG, "lr_end is %g, expected less than lr, which is %g", o->lr_end, setup->lr);
    const polynomial p = {curve_span_of(options, setup), setup->lr, o->lr_end, o->power};
    return curve_new(&p, sizeof p, self);
}

static double polynomial_factor(const void *self, int64_t step)
{
    const polynomial *p = self;
    if (step < p->span.warmup) return curve_share(step, p->span.warmup);
    double progress = curve_progress(&p->span, step);
    if (progress > 1) return p->lr_end / p->lr;
    return ((p->lr - p->lr_end) * pow(1 - progress, p->power) + p->lr_end) / p->lr;
}

static const nrl_schedule table = {
    NRL_PLUGIN(NRL_KIND_SCHEDULE, nrl_schedule, polynomial_options, polynomial_rows, "polynomial", "0.1",
               "a warm-up, then a power of the remaining steps, down to lr_end"),
    .plugin.check = warmup_check,
    .create = polynomial_create,
    .destroy = free,
    .factor = polynomial_factor,
};
NRL_EXPORT(table)
