/*
 * suites.c - the suite of each kind.
 */
#include "lives.h"
#include "suites.h"

#define SUITE_CALL(kind, name, needs)                                                                                  \
    static void call_##name(const void *table, const conformance_setup *setup, conformance_report *report)             \
    {                                                                                                                  \
        conformance_##name(table, setup, report);                                                                      \
    }
SUITES(SUITE_CALL)

#define SUITE_ROW(kind, name, needs) [NRL_KIND_##kind] = {call_##name, needs},
static const struct {
    void (*run)(const void *table, const conformance_setup *setup, conformance_report *report);
    unsigned needs;
} suites[] = {SUITES(SUITE_ROW)};

bool conformance_has_suite(uint32_t kind)
{
    return kind < sizeof suites / sizeof *suites && suites[kind].run;
}

unsigned conformance_needs(uint32_t kind)
{
    return conformance_has_suite(kind) ? suites[kind].needs : SUITE_NEEDS_NOTHING;
}

void conformance_run(const nrl_plugin *table, const conformance_setup *setup, conformance_report *r)
{
    NRL_ASSERT(conformance_has_suite(table->kind), ==, true);
    if (table->kind == NRL_KIND_ALGORITHM) {
        const nrl_algorithm *t = (const nrl_algorithm *)table;
        lives_check_created(r, t->create, t->destroy, setup->options);
    } else if (table->kind == NRL_KIND_OPTIMIZER) {
        const nrl_optimizer *t = (const nrl_optimizer *)table;
        lives_check_created(r, t->create, t->destroy, setup->options);
    }
    suites[table->kind].run(table, setup, r);
}
