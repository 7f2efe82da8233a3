/*
 * test_conformance.c - nrl/conformance.h as the test of a plugin's author uses it. Arguments: the directory of nrl's
 * own plugins, and that of plugins that are wrong on purpose.
 */
#include <nrl/conformance.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *own_plugins, *wrong_plugins;
static nrl_arena *memory;

static nrl_status check(const char *folder, const char *name, nrl_conformance_request q, nrl_node **result)
{
    char path[4096];
    const nrl_environment env = {.size = sizeof env, .plugin_path = own_plugins};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    q.size = sizeof q;
    q.file = path;
    return nrl_conformance_test(memory, &env, &q, result);
}

/* The number of failed checks of a rule; -1: the suite has no such rule. */
static int64_t failed(const nrl_node *result, const char *rule)
{
    const nrl_node *rules = nrl_node_find(result, "rules");
    for (size_t i = 0; i < nrl_node_size(rules); i++)
        if (!strcmp(nrl_node_string(nrl_node_find(nrl_node_at(rules, i), "rule"), ""), rule))
            return nrl_node_int(nrl_node_find(nrl_node_at(rules, i), "failed"), -1);
    return -1;
}

static void a_plugin_passes(void **state)
{
    nrl_node *result;
    const char *const options[] = {"loss=dft", "prompt_weight=0.5"};
    (void)state;
    assert_int_equal(
        check(own_plugins, "algorithms/sft.so", (nrl_conformance_request){.options = options, .n_options = 2}, &result),
        NRL_OK);
    assert_true(nrl_node_bool(nrl_node_find(result, "passed"), false));
    assert_string_equal(nrl_node_string(nrl_node_find(result, "kind"), ""), "algorithms");
    assert_string_equal(nrl_node_string(nrl_node_find(result, "name"), ""), "sft");
    assert_int_equal(failed(result, "a loss is a sum, not a mean"), 0);
}

static void a_broken_rule_is_named(void **state)
{
    nrl_node *result;
    (void)state;
    assert_int_equal(check(wrong_plugins, "algorithms/mean.so", (nrl_conformance_request){0}, &result), NRL_OK);
    assert_false(nrl_node_bool(nrl_node_find(result, "passed"), true));
    assert_true(failed(result, "a loss is a sum, not a mean") > 0);
}

static void a_crash_of_the_plugin_does_not_end_the_caller(void **state)
{
    nrl_node *result;
    (void)state;
    assert_int_equal(check(wrong_plugins, "backends/crashing.so", (nrl_conformance_request){0}, &result), NRL_OK);
    assert_false(nrl_node_bool(nrl_node_find(result, "passed"), true));
}

static void a_wrong_request_is_an_error(void **state)
{
    nrl_node *result;
    const char *const options[] = {"prompt_wait=1"};
    (void)state;
    assert_int_equal(check(own_plugins, "algorithms/none.so", (nrl_conformance_request){0}, &result), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "cannot open"));
    assert_int_equal(
        check(own_plugins, "algorithms/sft.so", (nrl_conformance_request){.options = options, .n_options = 1}, &result),
        NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "did you mean 'prompt_weight'?"));
    assert_int_equal(
        check(own_plugins, "algorithms/sft.so", (nrl_conformance_request){.folder = "/dev/null/no"}, &result),
        NRL_ERR_IO);
    assert_int_equal(
        check(own_plugins, "algorithms/sft.so", (nrl_conformance_request){.path = "/dev/null/no"}, &result),
        NRL_ERR_CONFIG);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plugin_passes),
        cmocka_unit_test(a_broken_rule_is_named),
        cmocka_unit_test(a_crash_of_the_plugin_does_not_end_the_caller),
        cmocka_unit_test(a_wrong_request_is_an_error),
    };
    if (argc != 3) return 1;
    own_plugins = argv[1];
    wrong_plugins = argv[2];
    memory = nrl_arena_create();
    int n = cmocka_run_group_tests(tests, NULL, NULL);
    nrl_arena_destroy(memory);
    return n;
}
