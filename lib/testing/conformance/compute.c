/*
 * compute.c - opening a backend for a suite.
 */
#include "compute.h"

bool compute_open(compute *c, const conformance_setup *setup, conformance_report *r)
{
    *c = (compute){0};
    nrl_status st = nrl_harness_open(setup->backend, setup->backend_options, &c->harness);
    if (st == NRL_OK) c->ctx = nrl_harness_ctx(c->harness);
    return report_ok(r, st, "the backend opens");
}

void compute_close(compute *c)
{
    nrl_harness_close(c->harness);
}

double compute_uniform(uint64_t *state, double low, double high)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(*state >> 40) / 16777216.0;
}
