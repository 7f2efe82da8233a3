/*
 * test_logger.c - the logger suite passes the tree's loggers and finds each wrong one.
 */
#include "expect.h"
#include "wrong/loggers.h"

static char folder[] = "/tmp/nrl-conformance-XXXXXX";

static bool run(const nrl_logger *l, const char *rule)
{
    expectation e = {.rule = rule};
    conformance_report r = {.say = expect_say, .user = &e};
    conformance_logger(l, folder, &r);
    return expect_met(&e, &r, l->plugin.name);
}

int main(void)
{
    static const char *const names[] = {"console", "jsonl"};
    char command[64];
    nrl_logger l;
    bool good = true;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (expect_open("loggers", names[i], &l, sizeof l)) good = run(&l, NULL) && good;
    for (int i = 0; i < N_WRONG_LOGGERS; i++)
        good = run(&wrong_loggers[i].table, wrong_loggers[i].rule) && good;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) || !good;
}
