/*
 * test_algorithm.c - the algorithm suite passes the tree's algorithms and finds each wrong one.
 */
#include "compute.h"
#include "expect.h"
#include "wrong/algorithms.h"

static bool run(const nrl_algorithm *a, const nrl_backend *backend, const char *rule)
{
    expectation e = {.rule = rule};
    conformance_report r = {.say = expect_say, .user = &e};
    conformance_algorithm(a, backend, &r);
    return expect_met(&e, &r, a->plugin.name);
}

int main(void)
{
    static const char *const names[] = {"sft", "dpo"};
    nrl_backend backend;
    nrl_algorithm a;
    bool good = true;
    if (!expect_open("backends", "cpu", &backend, sizeof backend)) return 77;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (expect_open("algorithms", names[i], &a, sizeof a))
            good = run(&a, &backend, NULL) && good;
    for (int i = 0; i < N_WRONG_ALGORITHMS; i++)
        good = run(&wrong_algorithms[i].table, &backend, wrong_algorithms[i].rule) && good;
    return good ? 0 : 1;
}
