/*
 * test_compare.c - the options that a resume compares: those that change the numbers, however they
 * are written, and not those that a newer version of nrl added.
 */
#include "base/json.h"
#include "config/compare.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static arena memory;

static const nrl_node *tree(const char *text)
{
    nrl_node *n;
    assert_int_equal(json_parse(&memory, "test", text, strlen(text), &n), NRL_OK);
    return n;
}

static void gather(void *user, const char *key, const nrl_node *was, const nrl_node *is)
{
    char **text = user, *then = json_write(was, 0), *now = json_write(is, 0);
    *text = arena_strdup(&memory, arena_printf(&memory, "%s%s %s -> %s;", *text, key, then, now));
    free(then);
    free(now);
}

static const char *compare(const char *was, const char *is, const char *given)
{
    char *text = "";
    config_compare(tree(was), tree(is), tree(given), gather, &text);
    return text;
}

static void what_changes_numbers_is_compared(void **state)
{
    (void)state;
    assert_string_equal(
        compare("{\"train\": {\"seed\": 1, \"steps\": 5}}", "{\"train\": {\"seed\": 2, \"steps\": 9}}", "{}"),
        "train.seed 1 -> 2;");
    assert_string_equal(compare("{\"checkpoint\": {\"every\": 1, \"metric\": \"a\"}}",
                                "{\"checkpoint\": {\"every\": 2, \"metric\": \"b\"}}", "{}"),
                        "checkpoint.metric \"a\" -> \"b\";");
}

static void numbers_and_absent_values_are_compared_by_meaning(void **state)
{
    (void)state;
    assert_string_equal(compare("{\"optimizer\": {\"lr\": 1, \"eps\": null}}", "{\"optimizer\": {\"lr\": 1.0}}", "{}"),
                        "");
    assert_string_equal(compare("{\"optimizer\": {\"lr\": 1}}", "{\"optimizer\": {\"lr\": \"1\"}}", "{}"),
                        "optimizer.lr 1 -> \"1\";");
}

static void an_option_of_a_newer_version_differs_only_where_it_is_given(void **state)
{
    static const char was[] = "{\"optimizer\": {\"name\": \"adamw\"}}",
                      is[] = "{\"optimizer\": {\"name\": \"adamw\", \"new\": 3}}";
    (void)state;
    assert_string_equal(compare(was, is, "{\"optimizer\": \"adamw\"}"), "");
    assert_string_equal(compare(was, is, is), "optimizer.new null -> 3;");
    assert_string_equal(compare(is, was, was), "optimizer.new 3 -> null;");
}

static void options_of_another_component_are_not_told(void **state)
{
    (void)state;
    assert_string_equal(compare("{\"name\": \"a\", \"optimizer\": {\"name\": \"adamw\", \"eps\": 1}}",
                                "{\"name\": \"b\", \"optimizer\": {\"name\": \"sgd\", \"momentum\": 1}}", "{}"),
                        "optimizer.name \"adamw\" -> \"sgd\";");
}

static void paths_are_free_and_weights_of_sources_are_not(void **state)
{
    (void)state;
    assert_string_equal(
        compare("{\"data\": {\"train\": [{\"path\": \"/a\", \"weight\": 1}], \"template\": \"/a.jinja\"}}",
                "{\"data\": {\"train\": [{\"path\": \"/b\", \"weight\": 1}], \"template\": \"/b.jinja\"}}", "{}"),
        "");
    assert_string_equal(
        compare("{\"data\": {\"train\": [{\"path\": \"/a\", \"weight\": 1}], \"template\": \"auto\"}}",
                "{\"data\": {\"train\": [{\"path\": \"/a\", \"weight\": 2}], \"template\": \"/b.jinja\"}}", "{}"),
        "data.train.weight 1 -> 2;data.template \"auto\" -> \"/b.jinja\";");
}

static int forget(void **state)
{
    (void)state;
    arena_free(&memory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_changes_numbers_is_compared),
        cmocka_unit_test(numbers_and_absent_values_are_compared_by_meaning),
        cmocka_unit_test(an_option_of_a_newer_version_differs_only_where_it_is_given),
        cmocka_unit_test(options_of_another_component_are_not_told),
        cmocka_unit_test(paths_are_free_and_weights_of_sources_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, forget);
}
