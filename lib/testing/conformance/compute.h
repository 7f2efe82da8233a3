/*
 * compute.h - what the suites of algorithms, optimizers and models share: a context to compute on.
 */
#ifndef CONFORMANCE_COMPUTE_H
#define CONFORMANCE_COMPUTE_H
#include "suites.h"
#include <nrl/harness.h>

typedef struct {
    nrl_harness *harness;
    nrl_ctx *ctx; /* borrowed from the harness */
} compute;

/* If the backend does not open, the report gets a failed check "the backend opens". */
bool compute_open(compute *c, const conformance_setup *setup, conformance_report *r);
void compute_close(compute *c);

/* The same values in each run, in [low, high). */
double compute_uniform(uint64_t *state, double low, double high);

static inline bool is_near(double a, double b, double relative, double absolute)
{
    double d = a - b, size = b < 0 ? -b : b;
    return (d < 0 ? -d : d) <= relative * size + absolute;
}

#endif
