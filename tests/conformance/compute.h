/*
 * compute.h - what suites of kinds that compute share: a backend with its context, and tensors with
 * known values.
 */
#ifndef CONFORMANCE_COMPUTE_H
#define CONFORMANCE_COMPUTE_H
#include "report.h"
#include "tensor/ctx.h"

typedef struct {
    device device;
    void *options;
    nrl_ctx *ctx;
} compute;

/* A failed check named "the backend opens" where it does not. */
bool compute_open(compute *c, const nrl_backend *backend, conformance_report *r);
void compute_close(compute *c);

/* The same values each run, in [low, high). */
double compute_uniform(uint64_t *state, double low, double high);

/* A call that must succeed; the error text goes to the report. */
bool compute_ok(conformance_report *r, nrl_status st, const char *rule);

static inline bool is_near(double a, double b, double relative, double absolute)
{
    double d = a - b, size = b < 0 ? -b : b;
    return (d < 0 ? -d : d) <= relative * size + absolute;
}

#endif
