/*
 * collective.c - rules for every collective: the parts of the suite in order, and joining.
 */
#include "collective.h"
#include <stdlib.h>
#include <string.h>

/* Rank 0 of two joins alone. */
static void check_missing(const nrl_collective *table, const conformance_setup *setup, conformance_report *report)
{
    const char *rule = "joining fails in time and names the missing rank";
    nrl_harness_store *store;
    void *self = NULL;
    nrl_status st =
        nrl_harness_store_open(setup->store, setup->store_options, SUITE_STORE_ADDRESS, JOIN_SECONDS, &store);
    if (report_ok(report, st, "ranks join through the store")) {
        double start = clock_seconds();
        st = table->open(setup->options, nrl_harness_store_client(store), 0, 2, 0.3, &self);
        double took = clock_seconds() - start;
        report_check(report, st == NRL_ERR_PEER, rule, "status %d, expected %d", st, NRL_ERR_PEER);
        report_check(report, took < 5, rule, "%.1f s, where 0.3 were given", took);
        if (st != NRL_OK)
            report_check(report, strchr(nrl_error_text(), '1') != NULL, rule,
                         "rank 1 is missing, and the error is '%s'", nrl_error_text());
        else
            table->close(self);
    }
    nrl_harness_store_close(store);
}

static void skip_absent(const nrl_collective *t, conformance_report *report)
{
    const char *why = "the table has none";
    if (!t->reduce) report_skip(report, "reduce gives the root the sum", why);
    if (!t->gather) report_skip(report, "gather brings the shares to the root", why);
    if (!t->scatter) report_skip(report, "scatter gives each rank its share", why);
    if (!t->all_to_all) report_skip(report, "all_to_all brings each block to its rank", why);
    if (!t->send || !t->recv) report_skip(report, "messages match by peer and tag", why);
}

static const struct {
    const char *name;
    void (*part)(member *m);
    int32_t least, most; /* ranks */
} parts[] = {
    {"moves", collective_moves, 2, 4},       {"uneven", collective_uneven, 2, 4},
    {"sums", collective_sums, 2, 4},         {"bits", collective_bits, 2, 4},
    {"shares", collective_shares, 2, 4},     {"messages", collective_messages, 2, 3},
    {"requests", collective_requests, 2, 3}, {"timing", collective_timing, 2, 3},
    {"groups", collective_groups, 4, 4},     {"abort", collective_abort, 2, 3},
    {"loss", collective_loss, 2, 2},
};

void conformance_collective(const nrl_collective *table, const conformance_setup *setup, conformance_report *report)
{
    if (!table->host_only) {
        report_check(report, table->fence, "a collective of device memory has fence", "it is NULL");
        report_skip(report, RULE_DONE, "it uses device memory: nothing was run");
        return;
    }
    skip_absent(table, report);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        collective_end end = COLLECTIVE_WENT_THROUGH;
        for (int32_t world = parts[i].least; world <= parts[i].most && !end; world++)
            REPORT_CASE(report, "a call that all ranks make completes")
        end = collective_run(table, setup, world, report, parts[i].name, parts[i].part);
        if (end == COLLECTIVE_HANGS) return;
    }
    REPORT_CASE(report, "joining fails in time and names the missing rank") check_missing(table, setup, report);
}
