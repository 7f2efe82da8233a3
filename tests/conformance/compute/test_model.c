/*
 * test_model.c - the model suite passes the tree's models and finds each wrong one.
 */
#include "compute.h"
#include "expect.h"
#include "wrong/models.h"

static bool run(const nrl_model *m, const nrl_backend *backend, const char *rule)
{
    expectation e = {.rule = rule};
    conformance_report r = {.say = expect_say, .user = &e};
    conformance_model(m, NULL, backend, &r);
    return expect_met(&e, &r, m->plugin.name);
}

int main(void)
{
    static const char *const names[] = {"llama", "gpt2"};
    nrl_backend backend;
    nrl_model m;
    bool good = true;
    if (!expect_open("backends", "cpu", &backend, sizeof backend)) return 77;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (expect_open("models", names[i], &m, sizeof m)) good = run(&m, &backend, NULL) && good;
    for (int i = 0; i < N_WRONG_MODELS; i++)
        good = run(&wrong_models[i].table, &backend, wrong_models[i].rule) && good;
    return good ? 0 : 1;
}
