/*
 * warmup_stable_decay.c - three stages: a rise, the full rate, a fall (Hu et al. 2024).
 */
#include "../common/curve.h"

typedef enum { RAMP_LINEAR = 0, RAMP_COSINE, RAMP_1_SQRT } ramp;

typedef struct {
    WARMUP_OPTIONS
    int64_t num_stable_steps, num_decay_steps;
    double num_cycles, min_lr_ratio;
    int64_t warmup_type, decay_type; /* ramp */
} stages_options;

typedef struct {
    int64_t warmup, decay_at, decay; /* steps */
    double cycles, floor_rate;
    ramp rise, fall;
} stages;

static const nrl_option stages_rows[] = {
    WARMUP_ROWS(stages_options),
    NRL_OPT_INT(stages_options, num_stable_steps, "0", 0, CURVE_STEPS_MAX,
                "steps at the full rate; 0: the steps that warm-up and decay leave"),
    NRL_OPT_INT(stages_options, num_decay_steps, "0", 0, CURVE_STEPS_MAX, "steps of the decay; 0 = a tenth of the run"),
    NRL_OPT_F64(stages_options, num_cycles, "0.5", 0, 1e16, "number of cosine waves of a cosine decay"),
    NRL_OPT_F64(stages_options, min_lr_ratio, "0", 0, 1, "the first and last rate as a share of lr"),
    NRL_OPT_ENUM(stages_options, warmup_type, "linear", "linear|cosine|1-sqrt", "shape of the warm-up"),
    NRL_OPT_ENUM(stages_options, decay_type, "cosine", "linear|cosine|1-sqrt", "shape of the decay"),
};

static nrl_status stages_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    const stages_options *o = options;
    const curve_span span = curve_span_of(options, setup);
    const int64_t tenth = span.steps / 10 ? span.steps / 10 : 1;
    const int64_t decay = o->num_decay_steps ? o->num_decay_steps : tenth, left = span.steps - span.warmup - decay;
    int64_t stable = o->num_stable_steps;
    if (stable > left && stable > 0)
        return nrl_fail(NRL_ERR_CONFIG,
                        "warm-up (%lld), stable (%lld) and decay (%lld) steps exceed the %lld steps of the run",
                        (long long)span.warmup, (long long)stable, (long long)decay, (long long)span.steps);
    if (!stable) stable = left > 0 ? left : 0;
    const stages s = {
        .warmup = span.warmup,
        .decay_at = span.warmup + stable,
        .decay = decay,
        .cycles = o->num_cycles,
        .floor_rate = o->min_lr_ratio,
        .rise = (ramp)o->warmup_type,
        .fall = (ramp)o->decay_type,
    };
    return curve_new(&s, sizeof s, self);
}

static double stages_rise(const stages *s, double progress)
{
    double y = progress;
    if (s->rise == RAMP_COSINE) y = 0.5 * (1.0 - cos(CURVE_PI * progress));
    if (s->rise == RAMP_1_SQRT) y = 1.0 - sqrt(1.0 - progress);
    return curve_with_floor(y, s->floor_rate);
}

static double stages_fall(const stages *s, double progress)
{
    double y = 1.0 - progress;
    if (s->fall == RAMP_COSINE) y = curve_cosine(s->cycles, progress);
    if (s->fall == RAMP_1_SQRT) y = 1.0 - sqrt(progress);
    return curve_with_floor(y, s->floor_rate);
}

static double stages_factor(const void *self, int64_t step)
{
    const stages *s = self;
    if (step < s->warmup) return stages_rise(s, curve_share(step, s->warmup));
    if (step < s->decay_at) return 1;
    if (step < s->decay_at + s->decay) return stages_fall(s, curve_share(step - s->decay_at, s->decay));
    return s->floor_rate;
}

static const nrl_schedule table = {
    NRL_PLUGIN(NRL_KIND_SCHEDULE, nrl_schedule, stages_options, stages_rows, "warmup_stable_decay", "0.1",
               "three stages: warm-up, full rate, decay"),
    .plugin.check = warmup_check,
    .create = stages_create,
    .destroy = free,
    .factor = stages_factor,
};
NRL_EXPORT(table)
