/*
 * test_optimizer.c - the optimizer suite passes the tree's optimizers and finds each wrong one.
 */
#include "compute.h"
#include "expect.h"
#include "wrong/optimizers.h"

static bool run(const nrl_optimizer *o, const nrl_backend *backend, const char *rule)
{
    expectation e = {.rule = rule};
    conformance_report r = {.say = expect_say, .user = &e};
    conformance_optimizer(o, backend, &r);
    return expect_met(&e, &r, o->plugin.name);
}

int main(void)
{
    static const char *const names[] = {"adamw"};
    nrl_backend backend;
    nrl_optimizer o;
    bool good = true;
    if (!expect_open("backends", "cpu", &backend, sizeof backend)) return 77;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (expect_open("optimizers", names[i], &o, sizeof o))
            good = run(&o, &backend, NULL) && good;
    for (int i = 0; i < N_WRONG_OPTIMIZERS; i++)
        good = run(&wrong_optimizers[i].table, &backend, wrong_optimizers[i].rule) && good;
    return good ? 0 : 1;
}
