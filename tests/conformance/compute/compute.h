/*
 * compute.h - suites of the kinds that compute on a context: algorithms, optimizers, models. Only
 * the core makes contexts, so these are linked to the core whole (the tests' twin), not to its ABI.
 */
#ifndef CONFORMANCE_COMPUTE_H
#define CONFORMANCE_COMPUTE_H
#include "../report.h"
#include "tensor/ctx.h"

/* With the report's settings; `backend` computes. Each returns report->failed. */
int conformance_algorithm(const nrl_algorithm *table, const nrl_backend *backend,
                          conformance_report *report);
int conformance_optimizer(const nrl_optimizer *table, const nrl_backend *backend,
                          conformance_report *report);
/* `config`: a parsed config.json of a few thousand parameters; NULL = one made of the usual keys.
 */
int conformance_model(const nrl_model *table, const nrl_node *config, const nrl_backend *backend,
                      conformance_report *report);

/* ---- shared by the suites ---- */

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
