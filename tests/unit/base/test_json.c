/*
 * test_json.c - JSON input is strict and keeps 64-bit integers; JSON output reads back as the same
 * tree.
 */
#include "base/json.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static nrl_status parse(arena *a, const char *text, nrl_node **out)
{
    return json_parse(a, "x.json", text, strlen(text), out);
}

static void values_keep_type_and_order(void **state)
{
    (void)state;
    arena a = {0};
    nrl_node *n;
    const char *text = "{\"b\": 9223372036854775807, \"a\": [1.5, true, null, \"\\u00e9\\u0000\"]}";
    assert_int_equal(parse(&a, text, &n), NRL_OK);
    assert_string_equal(nrl_node_key(n, 0), "b");
    assert_int_equal(nrl_node_int(nrl_node_at(n, 0), 0), INT64_MAX);
    const nrl_node *list = nrl_node_find(n, "a");
    assert_true(nrl_node_f64(nrl_node_at(list, 0), 0) == 1.5);
    assert_true(nrl_node_bool(nrl_node_at(list, 1), false));
    assert_int_equal(nrl_node_kind(nrl_node_at(list, 2)), NRL_NODE_NULL);
    assert_int_equal(nrl_node_string_size(nrl_node_at(list, 3)), 3);
    assert_string_equal(nrl_node_place(list), "x.json");
    arena_free(&a);
}

static void bad_text_is_refused_with_its_place(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",       "{",   "{\"a\": 1,}", "[1] x",  "{\"a\": 1, \"a\": 2}", "\"\xff\"", "[1e999]",
        "[0x10]", "nul", "[\"\n\"]",    "{1: 2}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        arena a = {0};
        nrl_node *n;
        assert_int_equal(parse(&a, bad[i], &n), NRL_ERR_DATA);
        assert_int_equal(strncmp(nrl_error_text(), "x.json:", 7), 0);
        arena_free(&a);
    }
}

static void errors_say_what_was_expected_and_found(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"{\"a\": 1", "x.json:1:7: expected ',' or '}', found the end"},
        {"{\"a\": \"b\"\n\"c\": 1}", "x.json:2:3: expected ',' or '}', found '\"c\"'"},
        {"{\"a\": 1,}", "x.json:1:9: expected a key in double quotes, or '}', found '}'"},
        {"{\"a\" 1}", "x.json:1:6: expected ':' after a key, found '1'"},
        {"[1 2]", "x.json:1:4: expected ',' or ']', found '2'"},
        {"[True]",
         "x.json:1:5: expected a value: text in double quotes, a number, true, false, null, '[' or '{', found 'True'"},
        {"[1] x", "x.json:1:5: expected nothing after the value, found 'x'"},
        {"[\"a\nb\"]", "x.json:1:3: expected '\"' at the end of a text; write a line break inside it as \\n"},
        {"[\"a", "x.json:1:3: expected '\"' at the end of a text, found '\"a'"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        arena a = {0};
        nrl_node *n;
        assert_int_equal(parse(&a, texts[i][0], &n), NRL_ERR_DATA);
        assert_int_equal(strncmp(nrl_error_text(), texts[i][1], strlen(texts[i][1])), 0);
        arena_free(&a);
    }
}

static void depth_is_bounded(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    char *text = malloc(DEPTH + 1);
    memset(text, '[', DEPTH);
    text[DEPTH] = 0;
    arena a = {0};
    nrl_node *n;
    assert_int_equal(parse(&a, text, &n), NRL_ERR_DATA);
    arena_free(&a);
    free(text);
}

static void written_text_reads_back(void **state)
{
    (void)state;
    arena a = {0};
    nrl_node *n, *again;
    const char *text = "{\"a\": [1, 0.1, 1e-300, 5.0, -7, \"q\\\"\\\\\\n\\u0001\"], \"e\": {}, "
                       "\"l\": [], \"n\": null}";
    assert_int_equal(parse(&a, text, &n), NRL_OK);
    for (int indent = 0; indent < 3; indent++) {
        char *once = json_write(n, indent);
        assert_int_equal(parse(&a, once, &again), NRL_OK);
        char *twice = json_write(again, indent);
        assert_string_equal(once, twice);
        assert_int_equal(nrl_node_kind(nrl_node_at(nrl_node_find(again, "a"), 3)), NRL_NODE_FLOAT);
        free(once);
        free(twice);
    }
    arena_free(&a);
}

static void what_json_lacks_becomes_text(void **state)
{
    (void)state;
    arena a = {0};
    nrl_node *list = node_new(&a, NRL_NODE_LIST);
    node_append(&a, list, NULL, node_f64(&a, NAN));
    node_append(&a, list, NULL, node_f64(&a, -INFINITY));
    node_append(&a, list, NULL, node_string(&a, "\xff\xed\xa0\x80z", 5));
    char *text = json_write(list, 0);
    assert_string_equal(text, "[\"NaN\", \"-Infinity\", \"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz\"]");
    free(text);
    arena_free(&a);
}

static void files_over_the_limit_are_not_read(void **state)
{
    (void)state;
    arena a = {0};
    nrl_node *n;
    assert_int_equal(json_read_file(&a, "/dev/zero", 1 << 20, &n), NRL_ERR_DATA);
    assert_non_null(strstr(nrl_error_text(), "1048576"));
    assert_int_equal(json_read_file(&a, "/no/such/file", 100, &n), NRL_ERR_IO);
    assert_int_equal(json_read_file(&a, "/", 100, &n), NRL_ERR_IO);
    arena_free(&a);
}

/* A vocabulary as large as real ones; quadratic work anywhere would take minutes. */
static void large_maps_are_read_quickly(void **state)
{
    (void)state;
    enum { WORDS = 150000 };
    char *text = malloc(WORDS * 24 + 2), *at = text;
    *at++ = '{';
    for (int i = 0; i < WORDS; i++)
        at += sprintf(at, "%s\"word%d\":%d", i ? "," : "", i, i);
    *at++ = '}';
    arena a = {0};
    nrl_node *n;
    clock_t start = clock();
    assert_int_equal(json_parse(&a, "vocab", text, (size_t)(at - text), &n), NRL_OK);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 2);
    assert_int_equal(nrl_node_int(nrl_node_find(n, "word149999"), 0), 149999);
    arena_free(&a);
    free(text);
}

static void an_integer_beyond_64_bits_is_a_double(void **state)
{
    arena a = {0};
    nrl_node *map;
    (void)state;
    const char text[] = "{\"max\": 1000000000000000019884624838656, \"n\": 7, \"x\": 0.5, \"one\": 1.0, "
                        "\"large\": 9007199254740993, \"\\\"99999999999999999999\": -9223372036854775808, "
                        "\"least\": -9223372036854775809}";
    assert_int_equal(json_parse(&a, "it", text, strlen(text), &map), NRL_OK);
    assert_true(nrl_node_f64(nrl_node_find(map, "max"), 0) == 1e30);
    assert_int_equal(nrl_node_kind(nrl_node_find(map, "n")), NRL_NODE_INT);
    assert_int_equal(nrl_node_int(nrl_node_find(map, "n"), 0), 7);
    assert_true(nrl_node_f64(nrl_node_find(map, "x"), 0) == 0.5);
    assert_int_equal(nrl_node_kind(nrl_node_find(map, "one")), NRL_NODE_FLOAT);
    assert_true(nrl_node_int(nrl_node_find(map, "large"), 0) == 9007199254740993);
    assert_true(nrl_node_int(nrl_node_find(map, "\"99999999999999999999"), 0) == INT64_MIN);
    assert_true(nrl_node_f64(nrl_node_find(map, "least"), 0) == -0x1p63);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_integer_beyond_64_bits_is_a_double),
        cmocka_unit_test(values_keep_type_and_order),
        cmocka_unit_test(bad_text_is_refused_with_its_place),
        cmocka_unit_test(errors_say_what_was_expected_and_found),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(written_text_reads_back),
        cmocka_unit_test(what_json_lacks_becomes_text),
        cmocka_unit_test(files_over_the_limit_are_not_read),
        cmocka_unit_test(large_maps_are_read_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
