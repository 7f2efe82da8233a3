/*
 * schedule.c - learning-rate schedules, with the formulas of the optimization module of transformers, so that equal
 * options give equal rates. Step t is the update after t finished updates, so steps count from 0.
 */
#include "optim/schedule.h"
#include "base/buffer.h"
#include "base/suggest.h"
#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846
#define STEPS_MAX 2e15 /* a sum of three such numbers fits in an int64_t */

const char *const schedule_names[SCHEDULE_COUNT] = {
    "constant",     "constant_with_warmup", "linear",
    "cosine",       "cosine_with_min_lr",   "cosine_with_restarts",
    "inverse_sqrt", "polynomial",           "warmup_stable_decay",
};

const nrl_option schedule_rows[] = {
    NRL_OPT_F64(schedule_options, warmup_ratio, "0", 0, 1,
                "warm-up as a share of all steps, rounded up; not together with warmup_steps"),
    NRL_OPT_INT(schedule_options, warmup_steps, "0", 0, STEPS_MAX,
                "steps over which the rate rises from 0; the first one has rate 0"),
    NRL_OPT_F64(schedule_options, num_cycles, "0", 0, 1e16,
                "waves of a cosine; 0 = half a wave, and one restart period for cosine_with_restarts"),
    NRL_OPT_F64(schedule_options, min_lr, "0", 0, (double)INFINITY, "cosine_with_min_lr: the last rate"),
    NRL_OPT_F64(schedule_options, min_lr_rate, "0", 0, 1,
                "cosine_with_min_lr: the last rate as a share of lr; not together with min_lr"),
    NRL_OPT_F64(schedule_options, lr_end, "1e-7", 0, (double)INFINITY, "polynomial: the last rate"),
    NRL_OPT_F64(schedule_options, power, "1", 0, (double)INFINITY, "polynomial: the exponent"),
    NRL_OPT_INT(schedule_options, timescale, "0", 0, STEPS_MAX,
                "inverse_sqrt: steps after which the rate is lr; 0 = the warm-up, or 10000 without one"),
    NRL_OPT_INT(schedule_options, num_decay_steps, "0", 0, STEPS_MAX,
                "warmup_stable_decay: steps of the decay; 0 = a tenth of the run"),
    NRL_OPT_INT(schedule_options, num_stable_steps, "0", 0, STEPS_MAX,
                "warmup_stable_decay: steps at the full rate; 0 = what warm-up and decay leave"),
    NRL_OPT_F64(schedule_options, min_lr_ratio, "0", 0, 1,
                "warmup_stable_decay: the first and last rate as a share of lr"),
    NRL_OPT_ENUM(schedule_options, warmup_type, "linear", "linear|cosine|1-sqrt",
                 "warmup_stable_decay: shape of the warm-up"),
    NRL_OPT_ENUM(schedule_options, decay_type, "cosine", "linear|cosine|1-sqrt",
                 "warmup_stable_decay: shape of the decay"),
};
const size_t schedule_n_rows = sizeof schedule_rows / sizeof *schedule_rows;

nrl_status schedule_find(const char *name, schedule_options *options)
{
    suggestion near = {.word = name};
    buffer all = {0};
    for (int64_t i = 0; i < SCHEDULE_COUNT; i++) {
        if (!strcmp(schedule_names[i], name)) {
            options->name = i;
            buffer_free(&all);
            return NRL_OK;
        }
        suggest_offer(&near, schedule_names[i]);
        buffer_print(&all, " %s", schedule_names[i]);
    }
    nrl_status st =
        nrl_fail(NRL_ERR_CONFIG, "no schedule '%.100s'%s%s%s\navailable:%s", name, near.best ? "; did you mean '" : "",
                 near.best ? near.best : "", near.best ? "'?" : "", all.text);
    buffer_free(&all);
    return st;
}

/* ---- which schedule reads which option ---- */

#define ONLY(schedule_name) (1u << (schedule_name))
enum {
    WITH_WARMUP = (1u << SCHEDULE_COUNT) - 1 - ONLY(SCHEDULE_CONSTANT),
    WITH_CYCLES = ONLY(SCHEDULE_COSINE) | ONLY(SCHEDULE_COSINE_WITH_MIN_LR) | ONLY(SCHEDULE_COSINE_WITH_RESTARTS) |
                  ONLY(SCHEDULE_WARMUP_STABLE_DECAY)
};

typedef struct {
    const char *option;
    bool set; /* differs from its default */
    unsigned readers;
} use;

/* An option that the schedule would ignore is an error. */
static nrl_status check_uses(const schedule_options *o)
{
    const use uses[] = {
        {"warmup_ratio", o->warmup_ratio > 0, WITH_WARMUP},
        {"warmup_steps", o->warmup_steps > 0, WITH_WARMUP},
        {"num_cycles", o->num_cycles > 0, WITH_CYCLES},
        {"min_lr", o->min_lr > 0, ONLY(SCHEDULE_COSINE_WITH_MIN_LR)},
        {"min_lr_rate", o->min_lr_rate > 0, ONLY(SCHEDULE_COSINE_WITH_MIN_LR)},
        {"lr_end", o->lr_end != 1e-7, ONLY(SCHEDULE_POLYNOMIAL)},
        {"power", o->power != 1, ONLY(SCHEDULE_POLYNOMIAL)},
        {"timescale", o->timescale > 0, ONLY(SCHEDULE_INVERSE_SQRT)},
        {"num_decay_steps", o->num_decay_steps > 0, ONLY(SCHEDULE_WARMUP_STABLE_DECAY)},
        {"num_stable_steps", o->num_stable_steps > 0, ONLY(SCHEDULE_WARMUP_STABLE_DECAY)},
        {"min_lr_ratio", o->min_lr_ratio > 0, ONLY(SCHEDULE_WARMUP_STABLE_DECAY)},
        {"warmup_type", o->warmup_type != SCHEDULE_RAMP_LINEAR, ONLY(SCHEDULE_WARMUP_STABLE_DECAY)},
        {"decay_type", o->decay_type != SCHEDULE_RAMP_COSINE, ONLY(SCHEDULE_WARMUP_STABLE_DECAY)},
    };
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        if (uses[i].set && !(uses[i].readers & ONLY(o->name)))
            return nrl_fail(
                NRL_ERR_CONFIG, "schedule '%s' does not use %s%s", schedule_names[o->name], uses[i].option,
                o->name == SCHEDULE_CONSTANT && uses[i].readers == WITH_WARMUP ? "; constant_with_warmup does" : "");
    return NRL_OK;
}

nrl_status schedule_check(const schedule_options *o)
{
    NRL_TRY(check_uses(o));
    if (o->warmup_ratio > 0 && o->warmup_steps > 0)
        return nrl_fail(NRL_ERR_CONFIG, "warmup_ratio is %g and warmup_steps is %lld, expected one of them",
                        o->warmup_ratio, (long long)o->warmup_steps);
    if (o->min_lr > 0 && o->min_lr_rate > 0)
        return nrl_fail(NRL_ERR_CONFIG, "min_lr is %g and min_lr_rate is %g, expected one of them", o->min_lr,
                        o->min_lr_rate);
    if (o->name == SCHEDULE_COSINE_WITH_MIN_LR && o->min_lr <= 0 && o->min_lr_rate <= 0)
        return nrl_fail(NRL_ERR_CONFIG, "schedule 'cosine_with_min_lr' needs min_lr or min_lr_rate");
    return NRL_OK;
}

/* ---- options to numbers ---- */

static nrl_status resolve_rates(schedule_options *o, double lr)
{
    if (o->min_lr > lr)
        return nrl_fail(NRL_ERR_CONFIG, "min_lr is %g, expected at most lr, which is %g", o->min_lr, lr);
    if (o->min_lr > 0) o->min_lr_rate = o->min_lr / lr;
    if (o->name == SCHEDULE_POLYNOMIAL && o->lr_end >= lr)
        return nrl_fail(NRL_ERR_CONFIG, "lr_end is %g, expected less than lr, which is %g", o->lr_end, lr);
    return NRL_OK;
}

static nrl_status resolve_stages(schedule_options *o, int64_t total)
{
    if (o->name != SCHEDULE_WARMUP_STABLE_DECAY) return NRL_OK;
    if (!o->num_decay_steps) o->num_decay_steps = total / 10 ? total / 10 : 1;
    int64_t left = total - o->warmup_steps - o->num_decay_steps;
    if (o->num_stable_steps > left && o->num_stable_steps > 0)
        return nrl_fail(NRL_ERR_CONFIG,
                        "warm-up (%lld), stable (%lld) and decay (%lld) steps exceed the %lld steps of the run",
                        (long long)o->warmup_steps, (long long)o->num_stable_steps, (long long)o->num_decay_steps,
                        (long long)total);
    if (!o->num_stable_steps) o->num_stable_steps = left > 0 ? left : 0;
    return NRL_OK;
}

nrl_status schedule_init(schedule *s, const schedule_options *options, double lr, int64_t total_steps)
{
    NRL_ASSERT(total_steps, >, 0);
    NRL_TRY(schedule_check(options));
    *s = (schedule){*options, lr, total_steps};
    schedule_options *o = &s->options;
    if (o->warmup_ratio > 0) o->warmup_steps = (int64_t)ceil(o->warmup_ratio * (double)total_steps);
    if (o->num_cycles <= 0) o->num_cycles = o->name == SCHEDULE_COSINE_WITH_RESTARTS ? 1 : 0.5;
    if (!o->timescale) o->timescale = o->warmup_steps ? o->warmup_steps : 10000;
    NRL_TRY(resolve_rates(o, lr));
    NRL_TRY(resolve_stages(o, total_steps));
    if (o->warmup_steps > total_steps)
        nrl_warn("the warm-up of %lld steps is longer than the run of %lld steps: the rate never reaches lr",
                 (long long)o->warmup_steps, (long long)total_steps);
    return NRL_OK;
}

/* ---- the rate as a multiple of lr ---- */

static double share(int64_t part, int64_t whole)
{
    return (double)part / (double)(whole > 1 ? whole : 1);
}

/* max(0, (1 + cos(2 pi cycles progress)) / 2) */
static double cosine(double cycles, double progress)
{
    double y = 0.5 * (1.0 + cos(PI * cycles * 2.0 * progress));
    return y > 0 ? y : 0;
}

static double with_floor(double y, double floor_rate)
{
    return y * (1.0 - floor_rate) + floor_rate;
}

static double restarts(double cycles, double progress)
{
    if (progress >= 1) return 0;
    return cosine(0.5, fmod(cycles * progress, 1.0));
}

/* lr_end + (lr - lr_end) (1 - progress)^power, as a multiple of lr */
static double polynomial(const schedule *s, double progress)
{
    const schedule_options *o = &s->options;
    if (progress > 1) return o->lr_end / s->lr;
    return ((s->lr - o->lr_end) * pow(1 - progress, o->power) + o->lr_end) / s->lr;
}

static double inverse_sqrt(const schedule_options *o, int64_t step)
{
    return 1.0 / sqrt((double)(step + o->timescale - o->warmup_steps) / (double)o->timescale);
}

static double stage_warmup(const schedule_options *o, double progress)
{
    double y = progress;
    if (o->warmup_type == SCHEDULE_RAMP_COSINE) y = 0.5 * (1.0 - cos(PI * progress));
    if (o->warmup_type == SCHEDULE_RAMP_1_SQRT) y = 1.0 - sqrt(1.0 - progress);
    return with_floor(y, o->min_lr_ratio);
}

static double stage_decay(const schedule_options *o, double progress)
{
    double y = 1.0 - progress;
    if (o->decay_type == SCHEDULE_RAMP_COSINE) y = cosine(o->num_cycles, progress);
    if (o->decay_type == SCHEDULE_RAMP_1_SQRT) y = 1.0 - sqrt(progress);
    return with_floor(y, o->min_lr_ratio);
}

static double stages(const schedule_options *o, int64_t step)
{
    int64_t decay_at = o->warmup_steps + o->num_stable_steps, end = decay_at + o->num_decay_steps;
    if (step < o->warmup_steps) return stage_warmup(o, share(step, o->warmup_steps));
    if (step < decay_at) return 1;
    if (step < end) return stage_decay(o, share(step - decay_at, o->num_decay_steps));
    return o->min_lr_ratio;
}

static double factor(const schedule *s, int64_t step)
{
    const schedule_options *o = &s->options;
    if (o->name == SCHEDULE_CONSTANT) return 1;
    if (o->name == SCHEDULE_WARMUP_STABLE_DECAY) return stages(o, step);
    if (step < o->warmup_steps) return share(step, o->warmup_steps);
    double progress = share(step - o->warmup_steps, s->total_steps - o->warmup_steps);
    switch ((schedule_name)o->name) {
    case SCHEDULE_LINEAR:
        return progress < 1 ? 1 - progress : 0;
    case SCHEDULE_COSINE:
        return cosine(o->num_cycles, progress);
    case SCHEDULE_COSINE_WITH_MIN_LR:
        return with_floor(cosine(o->num_cycles, progress), o->min_lr_rate);
    case SCHEDULE_COSINE_WITH_RESTARTS:
        return restarts(o->num_cycles, progress);
    case SCHEDULE_INVERSE_SQRT:
        return inverse_sqrt(o, step);
    case SCHEDULE_POLYNOMIAL:
        return polynomial(s, progress);
    default:
        return 1;
    }
}

double schedule_rate(const schedule *s, int64_t step)
{
    return s->lr * factor(s, step);
}
