/*
 * backend_measure.c - what a backend reports about time and about itself: seconds between timed
 * events compared with the host's clock, and the stats of a watch. Both are optional.
 */
#include "backend.h"
#include "base/clock.h"
#include <math.h>
#include <string.h>
#include <time.h>

/* Two different clocks are compared. */
#define CLOCK_TOLERANCE 1e-3
enum { WEIGHT_BYTES = 4 << 20, ROOM = 64 };

/* Work that takes some time, and at least this long on the host. */
static void some_work(suite *s, void *device, const void *host)
{
    const struct timespec pause = {0, 20000000};
    suite_ok(s, s->table->copy(s->self, NULL, device, host, WEIGHT_BYTES, NRL_COPY_TO_DEVICE), "copy runs");
    nanosleep(&pause, NULL);
}

static bool record(suite *s, nrl_event **out)
{
    return suite_ok(s, s->table->event_record_timed(s->self, NULL, out), "a timed event is recorded");
}

static double between(suite *s, nrl_event *from, nrl_event *to)
{
    double seconds = NAN;
    suite_ok(s, s->table->event_seconds(s->self, from, to, &seconds), "event_seconds succeeds");
    return seconds;
}

static void compare_times(suite *s, nrl_event *const *e, double host)
{
    double first = between(s, e[0], e[1]), second = between(s, e[1], e[2]), both = between(s, e[0], e[2]);
    report_check(s->report, first >= 0 && second >= 0, "time between events is not negative", "%g and %g s", first,
                 second);
    report_check(s->report, both <= host + CLOCK_TOLERANCE, "time between events is at most the host's",
                 "%g s, on the host %g", both, host);
    report_check(s->report, both >= 0.02 - CLOCK_TOLERANCE, "time between events is in seconds",
                 "%g s of at least 0.02", both);
    report_check(s->report, fabs(first + second - both) <= CLOCK_TOLERANCE, "times between events add up",
                 "%g + %g is not %g", first, second, both);
}

static void check_times(suite *s)
{
    static const char rule[] = "timed events come with their times";
    const nrl_backend *t = s->table;
    nrl_event *e[3] = {0};
    int n = 0;
    suite_case(s, "timed events");
    if (!t->event_record_timed && !t->event_seconds) {
        report_skip(s->report, rule, "the backend has none");
        return;
    }
    bool whole = t->event_record_timed && t->event_seconds && t->event_wait && t->event_destroy;
    if (!report_check(s->report, whole, rule,
                      "event_record_timed, event_seconds, event_wait and event_destroy go together"))
        return;
    static unsigned char host[WEIGHT_BYTES]; /* not const, so that the file of the program does not contain these
                                              * zeros */
    void *device = suite_array(s, host, sizeof host);
    double began = clock_seconds();
    while (n < 3 && record(s, &e[n])) {
        n++;
        if (n < 3) some_work(s, device, host);
    }
    if (n == 3 && suite_ok(s, t->event_wait(s->self, e[2]), "an event can be waited for"))
        compare_times(s, e, clock_seconds() - began);
    while (n > 0)
        t->event_destroy(s->self, e[--n]);
    suite_clear(s);
}

/* ---- stats ---- */

static void check_value(suite *s, const nrl_value *values, size_t i)
{
    const nrl_value *v = &values[i];
    bool named = v->name && *v->name && v->unit;
    if (!report_check(s->report, named, "stats have names and units", "figure %zu has none", i)) return;
    report_check(s->report, isfinite(v->value) && v->value >= 0, "stats are finite and not negative", "'%s' is %g",
                 v->name, v->value);
    for (size_t k = 0; k < i; k++)
        report_check(s->report, !values[k].name || strcmp(values[k].name, v->name) != 0, "stats have different names",
                     "'%s' comes twice", v->name);
}

static void check_watch(suite *s)
{
    static const char rule[] = "a watch begins and ends";
    const nrl_backend *t = s->table;
    nrl_value values[ROOM + 1];
    size_t n;
    suite_case(s, "watch");
    if (!t->watch_begin && !t->watch_end) {
        report_skip(s->report, rule, "the backend has no stats");
        return;
    }
    if (!report_check(s->report, t->watch_begin && t->watch_end, rule, "only one of watch_begin and watch_end is set"))
        return;
    static const size_t rooms[] = {ROOM, 1, 0};
    for (int k = 0; k < COUNT(rooms); k++) {
        size_t room = rooms[k];
        n = 0;
        memset(values, 0, sizeof values);
        if (!suite_ok(s, t->watch_begin(s->self), rule)) return;
        if (!suite_ok(s, t->watch_end(s->self, values, room, &n), rule)) return;
        if (!report_check(s->report, n <= room && !values[room].name, "no more stats than there is room",
                          "%zu, with room for %zu", n, room))
            return;
        for (size_t i = 0; i < n; i++)
            check_value(s, values, i);
    }
}

void suite_measure(suite *s)
{
    check_times(s);
    check_watch(s);
}
