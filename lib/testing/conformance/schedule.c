/*
 * schedule.c - rules for every schedule: factors are numbers of at least 0 that depend on the options, the peak rate,
 * the number of steps and the step alone, within a run and beyond its end.
 */
#include "lives.h"
#include "suites.h"
#include <math.h>
#include <string.h>

typedef struct {
    const nrl_schedule *t;
    const void *options;
    conformance_report *r;
    nrl_schedule_setup setup;
} suite;

#define RUN_LR 1e-3
enum { RUN_STEPS = 100, BEYOND = 12 };

static nrl_status open_schedule(suite *s, double lr, int64_t steps, void **self)
{
    s->setup = (nrl_schedule_setup){.size = sizeof s->setup, .lr = lr, .steps = steps};
    *self = (void *)s->options;
    nrl_fail(NRL_OK, "%s", "");
    nrl_status st = s->t->create ? s->t->create(s->options, &s->setup, self) : NRL_OK;
    memset(&s->setup, 0xff, sizeof s->setup); /* it was lent until now */
    return st;
}

static void close_schedule(const suite *s, void *self)
{
    if (s->t->create && s->t->destroy) s->t->destroy(self);
}

static bool open_usual(suite *s, int64_t steps, void **self)
{
    return report_ok(s->r, open_schedule(s, RUN_LR, steps, self), "an instance opens");
}

static void check_numbers(suite *s)
{
    static const char rule[] = "a factor is a number of at least 0";
    static const int64_t far[] = {1000000, INT64_C(1000000000000)};
    double most = 0;
    void *self;
    if (!open_usual(s, RUN_STEPS, &self)) return;
    for (int64_t t = 0; t < RUN_STEPS; t++) {
        double y = s->t->factor(self, t);
        report_check(s->r, y >= 0 && isfinite(y), rule, "%g at step %lld of %d", y, (long long)t, RUN_STEPS);
        most = y > most ? y : most;
    }
    for (int64_t t = RUN_STEPS; t < RUN_STEPS + BEYOND + 2; t++) {
        int64_t at = t < RUN_STEPS + BEYOND ? t : far[t - RUN_STEPS - BEYOND];
        double y = s->t->factor(self, at);
        report_check(s->r, y >= 0 && isfinite(y), "a factor beyond the end is one too", "%g at step %lld of %d", y,
                     (long long)at, RUN_STEPS);
    }
    report_check(s->r, most > 0, "a run has rates above 0", "all factors of %d steps are 0", RUN_STEPS);
    close_schedule(s, self);
}

/* A resume asks for steps from the middle on, `checkpoint.mismatch` for those of another length. */
static void check_order(suite *s)
{
    double forward[RUN_STEPS];
    void *self, *other, *again;
    if (!open_usual(s, RUN_STEPS, &self)) return;
    for (int64_t t = 0; t < RUN_STEPS; t++)
        forward[t] = s->t->factor(self, t);
    for (int64_t t = RUN_STEPS; t-- > 0;) {
        double y = s->t->factor(self, t);
        report_check(s->r, y == forward[t], "a factor depends on the step alone", "step %lld: at first %g, then %g",
                     (long long)t, forward[t], y);
    }
    if (open_schedule(s, RUN_LR / 2, RUN_STEPS * 2, &other) == NRL_OK) {
        for (int64_t t = 0; t < RUN_STEPS; t++) {
            s->t->factor(other, t);
            double y = s->t->factor(self, t);
            report_check(s->r, y == forward[t], "two instances stay apart",
                         "step %lld: %g alone, %g beside one of another run", (long long)t, forward[t], y);
        }
        close_schedule(s, other);
    }
    if (open_usual(s, RUN_STEPS, &again)) {
        for (int64_t t = RUN_STEPS / 2; t < RUN_STEPS; t++) {
            double y = s->t->factor(again, t);
            report_check(s->r, y == forward[t], "a resumed run has the same rates", "step %lld: was %g, is %g",
                         (long long)t, forward[t], y);
        }
        close_schedule(s, again);
    }
    close_schedule(s, self);
}

/* Options may not fit a rate or a length; they then say so. */
static void check_refusals(suite *s)
{
    static const double rates[] = {0, 1e-12, 1, 1000};
    static const int64_t lengths[] = {1, 2, 3, INT64_C(1000000000000)};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            void *self;
            nrl_status st = open_schedule(s, rates[i], lengths[k], &self);
            report_check(s->r, st == NRL_OK || (st == NRL_ERR_CONFIG && *nrl_error_text()),
                         "a refusal is NRL_ERR_CONFIG with a text", "lr %g, %lld steps: status %d, '%s'", rates[i],
                         (long long)lengths[k], (int)st, nrl_error_text());
            if (st != NRL_OK) continue;
            double first = s->t->factor(self, 0), last = s->t->factor(self, lengths[k] - 1);
            report_check(s->r, first >= 0 && last >= 0 && isfinite(first) && isfinite(last),
                         "a run of any length has its rates", "lr %g, %lld steps: %g at first, %g in the end", rates[i],
                         (long long)lengths[k], first, last);
            close_schedule(s, self);
        }
}

static bool live_once(void *user)
{
    void *self;
    if (open_schedule(user, RUN_LR, RUN_STEPS, &self) != NRL_OK) return false;
    close_schedule(user, self);
    return true;
}

void conformance_schedule(const nrl_schedule *table, const conformance_setup *setup, conformance_report *r)
{
    suite s = {.t = table, .options = setup->options, .r = r};
    REPORT_CASE(r, "a factor is a number of at least 0") check_numbers(&s);
    REPORT_CASE(r, "a factor depends on the step alone") check_order(&s);
    REPORT_CASE(r, "a refusal is NRL_ERR_CONFIG with a text") check_refusals(&s);
    if (table->create) lives_check(r, live_once, &s);
}
