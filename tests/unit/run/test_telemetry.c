/*
 * test_telemetry.c - records and events without a run: their recipients and order, a logger that
 * fails, and a warning during another event.
 */
#include "base/arena.h"
#include "run/output/telemetry.h"
#include <nrl/status.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static char heard[1024]; /* a word for each call, in order */
static int failures;     /* records that the logger will refuse */

static void hear(const char *who, const char *what)
{
    size_t n = strlen(heard);
    snprintf(heard + n, sizeof heard - n, "%s:%s ", who, what);
}

static nrl_status log_open(const void *options, const nrl_logger_run *about, void **self)
{
    (void)options;
    *self = heard;
    hear("open", about->name);
    return NRL_OK;
}

static nrl_status log_write(void *self, const nrl_record *record)
{
    char step[32];
    (void)self;
    snprintf(step, sizeof step, "%lld/%lld", (long long)record->step, (long long)record->total_steps);
    if (failures) {
        failures--;
        return nrl_fail(NRL_ERR_FULL, "no room");
    }
    hear("write", step);
    if (record->step == 7) nrl_warn("seven"); /* while it speaks: told afterwards, not inside of it */
    hear("wrote", step);
    return NRL_OK;
}

static void log_event(void *self, const nrl_run_event *e)
{
    (void)self;
    hear("logger", e->text ? e->text : "-");
}

static void log_close(void *self)
{
    (void)self;
    hear("close", "-");
}

static const nrl_logger table = {.plugin = {.size = sizeof table, .name = "ear"},
                                 .open = log_open,
                                 .write = log_write,
                                 .close = log_close,
                                 .event = log_event};

static void program_event(void *user, const nrl_run_event *e)
{
    char line[128];
    snprintf(line, sizeof line, "%s@%lld", e->text, (long long)e->step);
    hear(user, line);
}

static const nrl_logger_run about = {.size = sizeof about, .name = "r", .total_steps = 9};

/* A run with the logger; `program`: and a program that listens. */
static void open_telemetry(telemetry *t, run_logger *l, claims *own, const int64_t *step, bool program)
{
    *heard = 0;
    *l = (run_logger){.table = &table, .name = "ear"};
    *t = (telemetry){.loggers = l, .n_loggers = 1, .step = step};
    if (program) {
        t->event = program_event;
        t->event_user = "program";
        t->takes_warnings = true;
    }
    telemetry_begin(t, true);
    telemetry_log(t, "plan %d", 1); /* before the logger is open: it is kept for it */
    assert_int_equal(telemetry_open(t, &about, own), NRL_OK);
}

static void events_reach_the_program_at_once_and_loggers_when_they_open(void **state)
{
    telemetry t;
    run_logger l;
    claims own = {0};
    int64_t step = 0;
    (void)state;
    open_telemetry(&t, &l, &own, &step, true);
    assert_string_equal(heard, "program:plan 1@0 open:r logger:plan 1 ");
    *heard = 0;
    step = 3;
    telemetry_log(&t, "news");
    telemetry_report(&t, NRL_EVENT_SAVE, "dir", "saved %s", "dir"); /* the program learns of it by its hook */
    assert_string_equal(heard, "program:news@3 logger:news logger:saved dir ");
    telemetry_close(&t);
}

static void a_quiet_run_says_nothing_but_keeps_records(void **state)
{
    telemetry t;
    run_logger l;
    claims own = {0};
    (void)state;
    open_telemetry(&t, &l, &own, NULL, true);
    *heard = 0;
    t.quiet = true;
    telemetry_log(&t, "news");
    telemetry_record(&t, NRL_RECORD_TRAIN, 4, -1, NULL, 0, NULL, 0);
    assert_string_equal(heard, "write:4/9 wrote:4/9 ");
    telemetry_close(&t);
}

static void a_logger_that_fails_is_tried_again(void **state)
{
    telemetry t;
    run_logger l;
    claims own = {0};
    (void)state;
    open_telemetry(&t, &l, &own, NULL, true);
    *heard = 0;
    failures = 2;
    for (int64_t s = 1; s <= 3; s++)
        telemetry_record(&t, NRL_RECORD_TRAIN, s, -1, NULL, 0, NULL, 0);
    assert_non_null(strstr(heard, "logger 'ear' failed")); /* once, not at each record */
    assert_null(strstr(strstr(heard, "logger 'ear' failed") + 1, "program:logger 'ear' failed"));
    assert_non_null(strstr(heard, "write:3/9 wrote:3/9 "));
    assert_non_null(strstr(heard, "works again; 2 records are missing"));
    assert_int_equal(l.n_missing, 2);
    telemetry_close(&t);
    assert_non_null(strstr(heard, "2 records of this run are missing"));
}

static void a_warning_waits_until_a_logger_has_written(void **state)
{
    telemetry t;
    run_logger l;
    claims own = {0};
    (void)state;
    open_telemetry(&t, &l, &own, NULL, true);
    *heard = 0;
    telemetry_record(&t, NRL_RECORD_TRAIN, 7, -1, NULL, 0, NULL, 0);
    assert_string_equal(heard, "write:7/9 wrote:7/9 program:seven@0 logger:seven ");
    telemetry_close(&t);
}

static void warnings_go_to_the_run_that_was_used_last(void **state)
{
    telemetry one, two;
    run_logger a, b;
    claims own = {0};
    (void)state;
    open_telemetry(&one, &a, &own, NULL, true);
    open_telemetry(&two, &b, &own, NULL, true);
    two.event_user = "second";
    *heard = 0;
    nrl_warn("w");
    assert_string_equal(heard, "second:w@0 logger:w ");
    *heard = 0;
    telemetry_use(&one);
    nrl_warn("w");
    assert_string_equal(heard, "program:w@0 logger:w ");
    telemetry_close(&one);
    *heard = 0;
    nrl_warn("w");
    assert_string_equal(heard, "second:w@0 logger:w ");
    telemetry_close(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_reach_the_program_at_once_and_loggers_when_they_open),
        cmocka_unit_test(a_quiet_run_says_nothing_but_keeps_records),
        cmocka_unit_test(a_logger_that_fails_is_tried_again),
        cmocka_unit_test(a_warning_waits_until_a_logger_has_written),
        cmocka_unit_test(warnings_go_to_the_run_that_was_used_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
