/*
 * test_services.c - a program that sets no nrl_environment.services: options that need one are refused when a run is
 * opened.
 */
#include "support/run.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const char config[] = "model: {path: %s/tests/data/models/llama}\n"
                             "data: {train: %s, eval: %s, max_length: 64}\n"
                             "train: {steps: 2, global_batch: 2}\n"
                             "optimizer: {name: adamw, lr: 1e-3}\n"
                             "eval: {every: 1}\n"
                             "out: %s/run\n";

static void options_that_need_a_service_are_refused_without_it(void **state)
{
    static const char *const cases[][2] = {
        {"debug=true", "debug: this program does not compare ranks"},
        {"eval.samples={prompts: [a]}", "eval.samples: this program does not generate text"},
        {"data.streaming=true", "data.streaming: this program does not support streaming"},
    };
    test_place place;
    run *r;
    (void)state;
    test_place_make(&place);
    const char *rows = test_rows(&place, "train.jsonl", 8, 4, 60, 96, 1);
    const char *yaml = arena_printf(&place.memory, config, getenv("NRL_TEST_SOURCE"), rows, rows, place.folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *overrides[] = {cases[i][0], NULL};
        nrl_status st = test_run_open(&place, yaml, overrides, &r);
        if (st != NRL_ERR_CONFIG || !strstr(nrl_error_text(), cases[i][1]))
            fail_msg("%s: status %d: %s", cases[i][0], st, nrl_error_text());
    }
    test_place_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_need_a_service_are_refused_without_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
