/*
 * suites.h - one function a kind. Tables are the host's copies: members that a plugin lacks are
 * NULL. Private to core/conformance.
 */
#ifndef CONFORMANCE_SUITES_H
#define CONFORMANCE_SUITES_H
#include "conformance/report.h"

void conformance_algorithm(const nrl_algorithm *table, const conformance_setup *setup,
                           conformance_report *report);
void conformance_optimizer(const nrl_optimizer *table, const conformance_setup *setup,
                           conformance_report *report);
void conformance_model(const nrl_model *table, const conformance_setup *setup,
                       conformance_report *report);
/* Opens it as configured, and again with `threads` 1, 2 and 3 where it has that option. */
void conformance_backend(const nrl_backend *table, const conformance_setup *setup,
                         conformance_report *report);
void conformance_logger(const nrl_logger *table, const conformance_setup *setup,
                        conformance_report *report);
/* Several ranks as threads of this process, joined through a store on loopback. */
void conformance_collective(const nrl_collective *table, const conformance_setup *setup,
                            conformance_report *report);
/* 1 to 4 ranks as threads, over setup->collective. */
void conformance_parallel(const nrl_parallel *table, const conformance_setup *setup,
                          conformance_report *report);

#endif
