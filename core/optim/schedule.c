/*
 * schedule.c - opens a schedule and checks the rates that it gives.
 */
#include "optim/schedule.h"
#include <math.h>

nrl_status schedule_open(schedule *s, const nrl_schedule *table, void *options, double lr, int64_t steps)
{
    const nrl_schedule_setup setup = {.size = sizeof setup, .lr = lr, .steps = steps};
    schedule made = {.table = table, .self = options, .options = options, .lr = lr, .steps = steps};
    NRL_ASSERT(steps, >, 0);
    if (table->create) NRL_TRY(table->create(options, &setup, &made.self));
    *s = made;
    return NRL_OK;
}

void schedule_close(schedule *s)
{
    if (s->table && s->table->create && s->table->destroy) s->table->destroy(s->self);
    *s = (schedule){0};
}

nrl_status schedule_rate(const schedule *s, int64_t step, double *rate)
{
    double factor = s->table->factor(s->self, step);
    *rate = s->lr * factor;
    if (factor >= 0 && isfinite(factor)) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "schedule '%s' has the factor %g at step %lld, expected a number of at least 0",
                    s->table->plugin.name, factor, (long long)step);
}
