/*
 * report.h - how suites count checks, and the options that a plugin has when nobody sets any.
 */
#ifndef CONFORMANCE_REPORT_H
#define CONFORMANCE_REPORT_H
#include "conformance.h"

/* Counts a check; where it does not hold, says rule and text. Returns `holds`. */
bool report_check(conformance_report *r, bool holds, const char *rule, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void report_skip(conformance_report *r, const char *rule, const char *why);

/* The options struct: r's settings, everything else at its default; malloc'd. NULL (and a failed
 * check) where a required option is missing or a setting names none. */
void *plugin_options(conformance_report *r, const nrl_plugin *plugin);
/* Sets an option of type INT; false where the plugin has none of that name. */
bool set_int_option(const nrl_plugin *plugin, void *options, const char *name, int64_t value);

#endif
