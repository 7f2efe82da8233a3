/*
 * report.h - how suites count checks.
 */
#ifndef CONFORMANCE_REPORT_H
#define CONFORMANCE_REPORT_H
#include "suite.h"

/* Counts a check of `rule`; if it fails, keeps the text. Returns `holds`. */
bool report_check(conformance_report *r, bool holds, const char *rule, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* A call that must succeed; the text is the error's. Returns whether it did. */
bool report_ok(conformance_report *r, nrl_status st, const char *rule);
#ifdef __clang_analyzer__ /* which does not see what the two return */
#define report_check(r, holds, ...) ((holds) && ((report_check)(r, true, __VA_ARGS__), true))
#define report_ok(r, st, rule) ((st) == NRL_OK && ((report_ok)(r, NRL_OK, rule), true))
#endif
/* Adds the checks of `from`, which another thread counted separately. */
void report_merge(conformance_report *into, const conformance_report *from);
/* Runs a case in a process of its own, which the report's memory must be shared with. A plugin that ends the process
 * fails `rule`, and the cases behind it go on. Returns whether the process ended by itself. */
bool report_case(conformance_report *r, const char *rule, void (*run)(void *user), void *user);
/* The body behind it is a case of the suite: it runs unless an earlier process has completed it or crashed in it, see
 * conformance.c. A plugin that ends the process fails `rule`. Cases depend on nothing that an earlier case has left.
 *     REPORT_CASE(r, "equal calls give equal sums") check_repeats(s, &whole); */
#define REPORT_CASE(r, rule) for (bool goes_on = report_begin(r, rule); goes_on; goes_on = report_end(r, CASE_DONE))
/* The same for what later cases build on: it runs in every process. Whether it may run; then report_end(r, CASE_NEW).
 */
bool report_begin(conformance_report *r, const char *rule);
bool report_end(conformance_report *r, conformance_case as); /* false */
void report_skip(conformance_report *r, const char *rule, const char *why);

#endif
