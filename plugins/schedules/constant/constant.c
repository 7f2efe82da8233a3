/*
 * constant.c - the same rate in every step.
 */
#include <nrl/schedule.h>

static double constant_factor(const void *self, int64_t step)
{
    (void)self, (void)step;
    return 1;
}

static const nrl_schedule table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_SCHEDULE, nrl_schedule, "constant", "0.1", "the same rate in every step"),
    .plugin.priority = 100, /* the schedule where a config names none */
    .factor = constant_factor,
};
NRL_EXPORT(table)
