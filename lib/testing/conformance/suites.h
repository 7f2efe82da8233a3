/*
 * suites.h - one suite per kind: void conformance_NAME(const nrl_NAME *table, const
 * conformance_setup *setup, conformance_report *report). Tables are the host's copies: members that
 * a plugin lacks are NULL.
 */
#ifndef CONFORMANCE_SUITES_H
#define CONFORMANCE_SUITES_H
#include "report.h"

/* ROW(KIND, NAME, NEEDS): a new kind is a row here and a file with its suite. NEEDS lists what the
 * setup must provide: a backend, a collective, a store. */
#define SUITES(ROW)                                                                                                    \
    ROW(ALGORITHM, algorithm, SUITE_NEEDS_BACKEND)                                                                     \
    ROW(OPTIMIZER, optimizer, SUITE_NEEDS_BACKEND)                                                                     \
    ROW(MODEL, model, SUITE_NEEDS_BACKEND)                                                                             \
    ROW(ADAPTER, adapter, SUITE_NEEDS_BACKEND)                                                                         \
    /* opened as configured, and again with `threads` 1, 2 and 3 if the backend has that option */                     \
    ROW(BACKEND, backend, SUITE_NEEDS_NOTHING)                                                                         \
    ROW(SCHEDULE, schedule, SUITE_NEEDS_NOTHING)                                                                       \
    ROW(LOGGER, logger, SUITE_NEEDS_NOTHING)                                                                           \
    ROW(FRONTEND, frontend, SUITE_NEEDS_NOTHING)                                                                       \
    /* several ranks as threads of this process, joined through a store on loopback */                                 \
    ROW(COLLECTIVE, collective, SUITE_NEEDS_STORE)                                                                     \
    /* two clients, threads and processes */                                                                           \
    ROW(STORE, store_plugin, SUITE_NEEDS_NOTHING)                                                                      \
    /* 1 to 4 ranks as threads */                                                                                      \
    ROW(PARALLEL, parallel, SUITE_NEEDS_BACKEND | SUITE_NEEDS_COLLECTIVE | SUITE_NEEDS_STORE)                          \
    /* writes directories and reads them back */                                                                       \
    ROW(FORMAT, format, SUITE_NEEDS_NOTHING)                                                                           \
    ROW(TOKENIZER, tokenizer, SUITE_NEEDS_NOTHING)                                                                     \
    ROW(TEMPLATE, template, SUITE_NEEDS_NOTHING)                                                                       \
    /* writes files and reads them back, with several threads */                                                       \
    ROW(DATASET, dataset, SUITE_NEEDS_NOTHING)

#define SUITE_PROTOTYPE(kind, name, needs)                                                                             \
    void conformance_##name(const nrl_##name *table, const conformance_setup *setup, conformance_report *report);
SUITES(SUITE_PROTOTYPE)
#undef SUITE_PROTOTYPE

#endif
