/*
 * conformance.h - suites that any plugin of a kind must pass, whoever wrote it.
 *
 * A suite calls a plugin's table and compares with plain reference code of its own. It is used by
 * the tests and by `nrl plugins test FILE`. Each failed check names a rule, a short sentence that
 * says what every plugin of the kind promises.
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H
#include <nrl/nrl.h>

typedef struct {
    int checked, failed;
    /* Called for each failed check, and for each rule that was skipped (failed = false). */
    void (*say)(void *user, bool failed, const char *rule, const char *text);
    void *user;
    /* Options to open with instead of their defaults, as "name=value"; NULL = none. */
    const char *const *settings;
    int n_settings;
} conformance_report;

/* Opens the backend with its default options (and again with `threads` 1, 2 and 3 where it has that
 * option) and runs every operation it has. Returns report->failed. */
NRL_API int conformance_backend(const nrl_backend *table, conformance_report *report);

/* Opens it in `folder`, which exists and may be written in. Standard output is silenced meanwhile. */
NRL_API int conformance_logger(const nrl_logger *table, const char *folder, conformance_report *report);

#endif
