/*
 * compute.c - opening a backend for a suite.
 */
#include "compute.h"
#include <stdlib.h>
#include <string.h>

bool compute_open(compute *c, const nrl_backend *backend, conformance_report *r)
{
    conformance_report plain = {0}; /* settings are the plugin's under test */
    *c = (compute){.options = plugin_options(&plain, &backend->plugin)};
    nrl_status st = device_open(backend, c->options, 0, &c->device);
    if (st == NRL_OK) {
        st = ctx_create(&c->device, &c->ctx);
        if (st != NRL_OK) device_close(&c->device);
    }
    if (st != NRL_OK) free(c->options);
    return compute_ok(r, st, "the backend opens");
}

void compute_close(compute *c)
{
    ctx_destroy(c->ctx);
    device_close(&c->device);
    free(c->options);
}

double compute_uniform(uint64_t *state, double low, double high)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(*state >> 40) / 16777216.0;
}

bool compute_ok(conformance_report *r, nrl_status st, const char *rule)
{
    return report_check(r, st == NRL_OK, rule, "status %d: %s", (int)st, nrl_error_text());
}
