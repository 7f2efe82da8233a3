/*
 * test_node.c - trees: maps of any size find their keys, numbers convert, nodes have their
 * positions.
 */
#include "base/node.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void large_maps_find_every_key_and_no_other(void **state)
{
    (void)state;
    arena a = {0};
    nrl_node *map = node_new(&a, NRL_NODE_MAP);
    char key[32];
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "key%d", i);
        node_append(&a, map, key, node_int(&a, i));
        if (i < 40) assert_int_equal(nrl_node_int(nrl_node_find(map, key), -1), i);
    }
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "key%d", i);
        assert_int_equal(nrl_node_int(nrl_node_find(map, key), -1), i);
    }
    assert_null(nrl_node_find(map, "key20000"));
    assert_null(nrl_node_find(map, ""));
    assert_int_equal(nrl_node_size(map), 20000);
    assert_string_equal(nrl_node_key(map, 19999), "key19999");
    assert_null(nrl_node_at(map, 20000));
    arena_free(&a);
}

static void set_replaces_in_place_and_keeps_order(void **state)
{
    (void)state;
    arena a = {0};
    nrl_node *map = node_new(&a, NRL_NODE_MAP);
    node_set(&a, map, "a", node_int(&a, 1));
    node_set(&a, map, "b", node_int(&a, 2));
    node_set(&a, map, "a", node_int(&a, 3));
    assert_int_equal(nrl_node_size(map), 2);
    assert_string_equal(nrl_node_key(map, 0), "a");
    assert_int_equal(nrl_node_int(nrl_node_at(map, 0), 0), 3);
    arena_free(&a);
}

static void numbers_convert_only_without_loss(void **state)
{
    (void)state;
    arena a = {0};
    assert_int_equal(nrl_node_int(node_f64(&a, 1e3), -1), 1000);
    assert_int_equal(nrl_node_int(node_f64(&a, 1.5), -1), -1);
    assert_int_equal(nrl_node_int(node_f64(&a, 0x1p63), -1), -1);
    assert_int_equal(nrl_node_int(node_f64(&a, -0x1p63), -1), INT64_MIN);
    assert_true(nrl_node_f64(node_int(&a, 7), 0) == 7.0);
    assert_true(nrl_node_f64(node_bool(&a, true), 2) == 2.0);
    assert_int_equal(nrl_node_int(NULL, 9), 9);
    assert_string_equal(nrl_node_string(node_int(&a, 1), "or"), "or");
    arena_free(&a);
}

static void getters_accept_what_is_absent(void **state)
{
    (void)state;
    assert_int_equal(nrl_node_kind(NULL), NRL_NODE_NONE);
    assert_null(nrl_node_find(NULL, "x"));
    assert_int_equal(nrl_node_size(NULL), 0);
    assert_null(nrl_node_at(NULL, 0));
    assert_string_equal(nrl_node_place(NULL), "?");
}

static void places_name_file_line_and_column(void **state)
{
    (void)state;
    const nrl_node n = {.source = "a.yaml", .line = 3, .column = 5}, m = {.source = "command line"};
    assert_string_equal(nrl_node_place(&n), "a.yaml:3:5");
    assert_string_equal(nrl_node_place(&m), "command line");
    char both[64];
    snprintf(both, sizeof both, "%s %s", nrl_node_place(&n), nrl_node_place(&n));
    assert_string_equal(both, "a.yaml:3:5 a.yaml:3:5");
}

static void copies_are_deep(void **state)
{
    (void)state;
    arena a = {0}, b = {0};
    nrl_node *map = node_new(&a, NRL_NODE_MAP), *list = node_new(&a, NRL_NODE_LIST);
    node_append(&a, map, "list", list);
    node_append(&a, list, NULL, node_string(&a, "x\0y", 3));
    nrl_node *copy = node_copy(&b, map);
    arena_free(&a);
    const nrl_node *text = nrl_node_at(nrl_node_find(copy, "list"), 0);
    assert_int_equal(nrl_node_string_size(text), 3);
    assert_memory_equal(nrl_node_string(text, ""), "x\0y", 4);
    arena_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_maps_find_every_key_and_no_other),
        cmocka_unit_test(set_replaces_in_place_and_keeps_order),
        cmocka_unit_test(numbers_convert_only_without_loss),
        cmocka_unit_test(getters_accept_what_is_absent),
        cmocka_unit_test(places_name_file_line_and_column),
        cmocka_unit_test(copies_are_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
