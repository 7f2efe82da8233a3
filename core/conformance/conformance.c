/*
 * conformance.c - the suite of each kind.
 */
#include "conformance/suites.h"

bool conformance_has_suite(uint32_t kind)
{
    return kind == NRL_KIND_ALGORITHM || kind == NRL_KIND_OPTIMIZER || kind == NRL_KIND_MODEL ||
           kind == NRL_KIND_BACKEND || kind == NRL_KIND_LOGGER || kind == NRL_KIND_COLLECTIVE ||
           kind == NRL_KIND_PARALLEL;
}

void conformance_run(const nrl_plugin *table, const conformance_setup *setup, conformance_report *r)
{
    const void *t = table;
    NRL_ASSERT(conformance_has_suite(table->kind), ==, true);
    if (table->kind == NRL_KIND_ALGORITHM) conformance_algorithm(t, setup, r);
    if (table->kind == NRL_KIND_OPTIMIZER) conformance_optimizer(t, setup, r);
    if (table->kind == NRL_KIND_MODEL) conformance_model(t, setup, r);
    if (table->kind == NRL_KIND_BACKEND) conformance_backend(t, setup, r);
    if (table->kind == NRL_KIND_LOGGER) conformance_logger(t, setup, r);
    if (table->kind == NRL_KIND_COLLECTIVE) conformance_collective(t, setup, r);
    if (table->kind == NRL_KIND_PARALLEL) conformance_parallel(t, setup, r);
}
