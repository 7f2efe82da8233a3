/*
 * test_memory.c - an open run while allocations fail: steps, evaluations, saves and the export end with
 * NRL_ERR_MEMORY, and the next run works.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/memory.h"
#include "support/run.h"

static const char config[] =
    "model: {config: %s/configs/models/tiny.json, tokenizer: %s/configs/models/tiny-tokenizer}\n"
    "data: {train: %s/configs/data/chat.jsonl, eval: %s/configs/data/chat.jsonl, template: chatml, max_length: 128}\n"
    "train: {steps: 2, global_batch: 8}\n"
    "eval: {every: 1}\n"
    "checkpoint: {every: 1}\n"
    "optimizer: {name: adamw, lr: 3e-3}\n"
    "overwrite: true\n"
    "out: %s/run\n";

static nrl_status whole_run(void *user, int64_t n)
{
    test_place p;
    const char *source = getenv("NRL_TEST_SOURCE");
    run *r = NULL;
    (void)user;
    test_place_make(&p);
    const nrl_environment env = {.size = sizeof env,
                                 .exe_dir = arena_printf(&p.memory, "%s/bin", getenv("NRL_TEST_BUILD")),
                                 .plugin_path = getenv("NRL_PLUGIN_PATH"),
                                 .quiet = true};
    config_problems problems = {0};
    nrl_node *root;
    assert_int_equal(config_read(&p.memory,
                                 test_file(&p, "config.yaml",
                                           arena_printf(&p.memory, config, source, source, source, source, p.folder)),
                                 &root),
                     NRL_OK);
    test_run_cpu_options(&p, &problems, root);
    assert_int_equal(run_open(root, &problems, &env, &r), NRL_OK);
    mem_try_fail_after(n);
    nrl_status st = nrl_run_train(r);
    mem_try_fail_after(-1);
    if (st == NRL_OK) assert_int_equal(nrl_run_steps_done(r), 2);
    nrl_run_close(r);
    test_place_remove(&p);
    return st;
}

static void a_run_that_lacks_memory_ends_with_an_error_and_the_next_one_trains(void **state)
{
    (void)state;
    assert_true(test_out_of_memory(whole_run, NULL, 48) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_lacks_memory_ends_with_an_error_and_the_next_one_trains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
