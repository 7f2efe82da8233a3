/*
 * test_yaml.c - the meaning of YAML values, and the position of every node.
 */
#include "base/yaml.h"
#include <langinfo.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const nrl_node *value(arena *a, const char *text)
{
    nrl_node *n;
    char *document = arena_printf(a, "v: %s\n", text);
    assert_int_equal(yaml_parse(a, "x.yaml", document, strlen(document), &n), NRL_OK);
    return nrl_node_find(n, "v");
}

static void numbers_are_numbers_in_every_common_spelling(void **state)
{
    (void)state;
    arena a = {0};
    assert_true(nrl_node_f64(value(&a, "5e-6"), 0) == 5e-6);
    assert_true(nrl_node_f64(value(&a, "1E3"), 0) == 1000);
    assert_true(nrl_node_f64(value(&a, ".5"), 0) == 0.5);
    assert_true(nrl_node_f64(value(&a, "-2."), 0) == -2);
    assert_true(isinf(nrl_node_f64(value(&a, ".inf"), 0)));
    assert_true(isnan(nrl_node_f64(value(&a, ".nan"), 0)));
    assert_int_equal(nrl_node_int(value(&a, "-12"), 0), -12);
    assert_int_equal(nrl_node_int(value(&a, "0x1F"), 0), 31);
    assert_int_equal(nrl_node_int(value(&a, "007"), 0), 7);
    assert_int_equal(nrl_node_kind(value(&a, "99999999999999999999")), NRL_NODE_FLOAT);
    arena_free(&a);
}

static void other_words_are_text(void **state)
{
    (void)state;
    static const char *const words[] = {"yes",  "no",  "on",       "off",        "1_000", "1e",  "e5",
                                        "1:30", "0x",  "0xZZ",     "1.2.3",      "inf",   "nan", "5e-6x",
                                        "+-1",  "'5'", "\"true\"", "2026-01-01", "~x",    "."};
    arena a = {0};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_int_equal(nrl_node_kind(value(&a, words[i])), NRL_NODE_STRING);
    arena_free(&a);
}

static void booleans_and_null_are_few(void **state)
{
    (void)state;
    arena a = {0};
    assert_true(nrl_node_bool(value(&a, "true"), false));
    assert_false(nrl_node_bool(value(&a, "False"), true));
    assert_int_equal(nrl_node_kind(value(&a, "~")), NRL_NODE_NULL);
    assert_int_equal(nrl_node_kind(value(&a, "")), NRL_NODE_NULL);
    arena_free(&a);
}

static void every_node_knows_its_place(void **state)
{
    (void)state;
    arena a = {0};
    nrl_node *n;
    const char *text = "train:\n  steps: 5\n  list: [1, x]\n";
    assert_int_equal(yaml_parse(&a, "c.yaml", text, strlen(text), &n), NRL_OK);
    const nrl_node *train = nrl_node_find(n, "train"), *list = nrl_node_find(train, "list");
    assert_string_equal(nrl_node_place(train), "c.yaml:1:1");
    assert_string_equal(nrl_node_place(nrl_node_find(train, "steps")), "c.yaml:2:3");
    assert_string_equal(nrl_node_place(nrl_node_at(list, 1)), "c.yaml:3:13");
    arena_free(&a);
}

static void an_alias_has_the_place_where_it_is_used(void **state)
{
    (void)state;
    arena a = {0};
    nrl_node *n;
    const char *text = "a: &x {lr: 1}\nb: *x\n";
    assert_int_equal(yaml_parse(&a, "c.yaml", text, strlen(text), &n), NRL_OK);
    assert_int_equal(nrl_node_int(nrl_node_find(nrl_node_find(n, "b"), "lr"), 0), 1);
    assert_string_equal(nrl_node_place(nrl_node_find(n, "b")), "c.yaml:2:1");
    arena_free(&a);
}

static void command_line_values_are_yaml_only_where_they_look_like_it(void **state)
{
    (void)state;
    arena a = {0};
    nrl_node *n;
    assert_int_equal(yaml_parse_value(&a, "command line", "run #3: a", &n), NRL_OK);
    assert_string_equal(nrl_node_string(n, ""), "run #3: a");
    assert_int_equal(yaml_parse_value(&a, "command line", "[0.9, 0.95]", &n), NRL_OK);
    assert_int_equal(nrl_node_size(n), 2);
    assert_string_equal(nrl_node_place(nrl_node_at(n, 1)), "command line");
    assert_int_equal(yaml_parse_value(&a, "command line", "5e-6", &n), NRL_OK);
    assert_int_equal(nrl_node_kind(n), NRL_NODE_FLOAT);
    assert_int_equal(yaml_parse_value(&a, "command line", "\"5\"", &n), NRL_OK);
    assert_int_equal(nrl_node_kind(n), NRL_NODE_STRING);
    assert_int_equal(yaml_parse_value(&a, "command line", "{a", &n), NRL_ERR_CONFIG);
    arena_free(&a);
}

/* Replaces libc's function, so that the test needs no locale of this machine. */
static char decimal_point[] = ".";
char *nl_langinfo(nl_item item)
{
    static char empty[] = "";
    return item == RADIXCHAR ? decimal_point : empty;
}

static void another_decimal_point_is_refused(void **state)
{
    (void)state;
    arena a = {0};
    nrl_node *n;
    *decimal_point = ',';
    nrl_status st = yaml_parse(&a, "c.yaml", "lr: 0.5\n", 8, &n);
    *decimal_point = '.';
    assert_int_equal(st, NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "decimal point of the program's locale is ','"));
    assert_int_equal(yaml_parse(&a, "c.yaml", "lr: 0.5\n", 8, &n), NRL_OK);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_numbers_in_every_common_spelling),
        cmocka_unit_test(other_words_are_text),
        cmocka_unit_test(booleans_and_null_are_few),
        cmocka_unit_test(every_node_knows_its_place),
        cmocka_unit_test(an_alias_has_the_place_where_it_is_used),
        cmocka_unit_test(command_line_values_are_yaml_only_where_they_look_like_it),
        cmocka_unit_test(another_decimal_point_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
