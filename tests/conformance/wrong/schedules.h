/*
 * schedules.h - schedules that break one rule each, with the rule that must detect it. All are a straight line to 0.
 */
#ifndef WRONG_SCHEDULES_H
#define WRONG_SCHEDULES_H
#include <nrl/nrl.h>
#include <math.h>
#include <stdlib.h>

typedef struct {
    int64_t steps, calls;
    const nrl_schedule_setup *setup;
} line;

static line shared_line;

static nrl_status line_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    (void)options;
    line *l = malloc(sizeof *l);
    if (!l) return nrl_fail(NRL_ERR_MEMORY, "out of memory");
    *l = (line){setup->steps, 0, setup};
    *self = l;
    return NRL_OK;
}

static double line_at(int64_t steps, int64_t step)
{
    return step < steps ? 1 - (double)step / (double)steps : 0;
}

static double line_factor(const void *self, int64_t step)
{
    return line_at(((const line *)self)->steps, step);
}

static nrl_status failing_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    (void)options, (void)setup, (void)self;
    return nrl_fail(NRL_ERR_CONFIG, "no");
}

static nrl_status blaming_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    return setup->lr > 0 ? line_create(options, setup, self) : nrl_fail(NRL_ERR_PLUGIN, "no rate");
}

static nrl_status mute_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    return setup->lr > 0 ? line_create(options, setup, self) : NRL_ERR_CONFIG;
}

static nrl_status static_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    (void)options;
    shared_line.steps = setup->steps;
    *self = &shared_line;
    return NRL_OK;
}

static nrl_status leaking_create(const void *options, const nrl_schedule_setup *setup, void **self)
{
    NRL_TRY(line_create(options, setup, self));
    return line_create(options, setup, self);
}

static void no_destroy(void *self)
{
    (void)self;
}

static double negative_factor(const void *self, int64_t step)
{
    return line_factor(self, step) - 0.1;
}

static double endless_factor(const void *self, int64_t step)
{
    return 1 - (double)step / (double)((const line *)self)->steps;
}

static double short_factor(const void *self, int64_t step)
{
    const line *l = self;
    return l->steps > 1 ? line_factor(self, step) : (double)NAN;
}

static double idle_factor(const void *self, int64_t step)
{
    (void)self, (void)step;
    return 0;
}

/* The n-th call is taken for step n. */
static double counting_factor(const void *self, int64_t step)
{
    line *l = (line *)self;
    (void)step;
    return line_at(l->steps, l->calls++);
}

/* The step in which an instance is first asked is taken for the first. */
static double restarting_factor(const void *self, int64_t step)
{
    line *l = (line *)self;
    if (!l->calls) l->calls = step + 1;
    return line_at(l->steps, step - (l->calls - 1));
}

static double borrowing_factor(const void *self, int64_t step)
{
    double lr = ((const line *)self)->setup->lr;
    return line_factor(self, step) + lr;
}

#pragma GCC diagnostic ignored "-Woverride-init"
#define WRONG(nm, rule, ...)                                                                                           \
    {                                                                                                                  \
        NRL_PLUGIN_PLAIN(NRL_KIND_SCHEDULE, nrl_schedule, #nm, "0", rule), .create = line_create, .destroy = free,     \
                                                                           .factor = line_factor, __VA_ARGS__          \
    }
static const nrl_schedule wrong[] = {
    WRONG(right, "nothing is wrong with it", .plugin.priority = 0),
    WRONG(shut, "an instance opens", .create = failing_create),
    WRONG(negative, "a factor is a number of at least 0", .factor = negative_factor),
    WRONG(endless, "a factor beyond the end is one too", .factor = endless_factor),
    WRONG(idle, "a run has rates above 0", .factor = idle_factor),
    WRONG(counting, "a factor depends on the step alone", .factor = counting_factor),
    WRONG(shared, "two instances stay apart", .create = static_create, .destroy = no_destroy),
    WRONG(restarting, "a resumed run has the same rates", .factor = restarting_factor),
    WRONG(blaming, "a refusal is NRL_ERR_CONFIG with a text", .create = blaming_create),
    WRONG(mute, "a refusal is NRL_ERR_CONFIG with a text", .create = mute_create),
    WRONG(curt, "a run of any length has its rates", .factor = short_factor),
    WRONG(borrowing, "a factor is a number of at least 0", .factor = borrowing_factor),
    WRONG(leaking, "close gives the memory back", .create = leaking_create),
    WRONG(lacks_factor, "factor is NULL", .factor = NULL),
};
#undef WRONG

#endif
