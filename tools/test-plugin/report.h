/*
 * report.h - how suites count checks.
 */
#ifndef CONFORMANCE_REPORT_H
#define CONFORMANCE_REPORT_H
#include "conformance.h"

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
void report_skip(conformance_report *r, const char *rule, const char *why);

#endif
