/*
 * @NAME@.c - a rate that is divided every so many steps: replace it by your own curve. nrl/schedule.h describes the
 * arguments and the contract of each member.
 */
#include <nrl/schedule.h>
#include <math.h>
#include <stdlib.h>

typedef struct {
    int64_t warmup_steps, stages;
    double gamma;
} @NAME@_options;

static const nrl_option @NAME@_rows[] = {
    NRL_OPT_INT(@NAME@_options, warmup_steps, "0", 0, 1e15, "steps over which the rate rises from 0"),
    NRL_OPT_INT(@NAME@_options, stages, "3", 1, 1e6, "stages of equal length; each one after the first has a lower rate"),
    NRL_OPT_F64(@NAME@_options, gamma, "0.1", 0, 1, "factor of the rate between two stages"),
};

typedef struct {
    @NAME@_options options; /* a copy: options and setup end with create */
    int64_t steps;
} @NAME@;

static nrl_status @NAME@_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    @NAME@ *s = malloc(sizeof *s);
    if (!s) return nrl_fail(NRL_ERR_MEMORY, "out of memory for schedule '@NAME@'");
    *s = (@NAME@){*(const @NAME@_options *)options, setup->steps};
    *self = s;
    return NRL_OK;
}

/* A multiple of optimizer.lr. Steps count from 0; a warm-up of n steps has the factors 0, 1/n, ... */
static double @NAME@_factor(const void *self, int64_t step)
{
    const @NAME@ *s = self;
    const @NAME@_options *o = &s->options;
    if (step < o->warmup_steps) return (double)step / (double)o->warmup_steps;
    double done = step < s->steps ? (double)step / (double)s->steps : 1;
    double stage = floor(done * (double)o->stages);
    if (stage > (double)(o->stages - 1)) stage = (double)(o->stages - 1);
    return pow(o->gamma, stage);
}

static const nrl_schedule table = {
    NRL_PLUGIN(NRL_KIND_SCHEDULE, nrl_schedule, @NAME@_options, @NAME@_rows, "@NAME@", "0.1",
               "one line for `nrl plugins`"),
    .create = @NAME@_create,
    .destroy = free,
    .factor = @NAME@_factor,
};
NRL_EXPORT(table)
