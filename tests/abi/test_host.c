/*
 * test_host.c - the plugin host with plugins that have one defect each (cases/bad.c): each gives an
 * error that describes the defect, and none a crash.
 */
#include "plugin/host.h"
#include <nrl/nrl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static plugin_host *open_host(void)
{
    char folder[4096], later[4096];
    const char *root = getenv("NRL_TEST_CASES");
    snprintf(folder, sizeof folder, "%s/cases", root ? root : ".");
    snprintf(later, sizeof later, "%s/later", root ? root : ".");
    const char *const folders[] = {later};
    return plugin_host_create(folder, folders, 1, NULL);
}

typedef struct {
    const char *name;
    const char *message;
} wrong;

static void every_wrong_plugin_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const wrong cases[] = {
        {"abi", "has ABI 77, expected 3; rebuild the plugin"},
        {"build", "has build parameters 99, expected 4; rebuild the plugin"},
        {"kind", "has kind logger, expected kind algorithm"},
        {"kind_unknown", "has an unknown kind, expected kind algorithm"},
        {"tiny", "its table has 8 bytes, which is not the size of a"},
        {"larger_used", "needs a newer nrl (its table has "},
        {"stride", "its option table is invalid (1 options of 8 bytes"},
        {"null_rows", "its option table is invalid"},
        {"name", "has the name 'somebody_else' in its table; expected 'name'"},
        {"no_texts", "lacks its name, version or summary"},
        {"no_weight", "lacks weight: required members of its table are NULL"},
        {"no_entry", "has no nrl_plugin_entry: it is not an nrl plugin"},
        {"no_table", "nrl_plugin_entry returned no table"},
        {"row_no_name", "option 0 (?): has no name"},
        {"row_type", "option 0 (beta): has an unknown type"},
        {"row_outside", "option 0 (beta): is outside the options struct"},
        {"row_unaligned", "option 0 (beta): is outside the options struct"},
        {"row_default", "option 0: the default is invalid: default: row_default.beta: 7 is out"},
        {"row_enum", "option 0 (mode): is an enum without choices"},
        {"row_reserved", "option 0 (name): the key 'name' is reserved for the plugin's name"},
        {"row_range", "option 0 (beta): min is greater than max"},
        {"row_twice", "option 1 (beta): is declared twice"},
        {"row_shared", "option 1 (gamma): uses the same field of the options struct as an earlier option"},
        {"newer_symbol", "version `NRL_0.9' not found"},
    };
    plugin_host *h = open_host();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const plugin *p = NULL;
        nrl_status st = plugin_open(h, NRL_KIND_ALGORITHM, cases[i].name, &p);
        if (st != NRL_ERR_PLUGIN || !strstr(nrl_error_text(), cases[i].message))
            fail_msg("%s: status %d: %s", cases[i].name, (int)st, nrl_error_text());
        assert_non_null(strstr(nrl_error_text(), ".so)")); /* the error gives the path */
        assert_null(p);
    }
    plugin_host_destroy(h);
}

static void a_newer_plugin_is_told_what_to_do(void **state)
{
    (void)state;
    const plugin *p;
    plugin_host *h = open_host();
    assert_int_equal(plugin_open(h, NRL_KIND_ALGORITHM, "newer_symbol", &p), NRL_ERR_PLUGIN);
    assert_non_null(strstr(nrl_error_text(), "built for a newer nrl"));
    plugin_host_destroy(h);
}

static void members_a_plugin_lacks_are_null(void **state)
{
    (void)state;
    const plugin *p;
    plugin_host *h = open_host();
    assert_int_equal(plugin_open(h, NRL_KIND_ALGORITHM, "smaller", &p), NRL_OK);
    const nrl_algorithm *t = (const void *)p->table;
    assert_int_equal(t->n_terms, 1);
    assert_non_null(t->loss);
    assert_null(t->step_end); /* lies beyond its size */
    plugin_host_destroy(h);
}

static void a_larger_table_with_nothing_in_it_is_fine(void **state)
{
    (void)state;
    const plugin *p, *again;
    plugin_host *h = open_host();
    assert_int_equal(plugin_open(h, NRL_KIND_ALGORITHM, "larger_zero", &p), NRL_OK);
    assert_int_equal(plugin_open(h, NRL_KIND_ALGORITHM, "larger_zero", &again), NRL_OK);
    assert_ptr_equal(p, again);
    plugin_host_destroy(h);
}

static void an_unknown_name_suggests_and_lists(void **state)
{
    (void)state;
    const plugin *p;
    plugin_host *h = open_host();
    assert_int_equal(plugin_open(h, NRL_KIND_ALGORITHM, "goood", &p), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "no algorithm 'goood'; did you mean 'good'?"));
    assert_non_null(strstr(nrl_error_text(), "available: abi, build, good,"));
    static const char *const odd[] = {"", ".", "../algorithms/good", "/etc/passwd", "good.so"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        assert_int_equal(plugin_open(h, NRL_KIND_ALGORITHM, odd[i], &p), NRL_ERR_CONFIG);
    assert_int_equal(plugin_open(h, NRL_KIND_MODEL, "good", &p), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "available: none"));
    plugin_host_destroy(h);
}

static void the_first_of_two_plugins_wins(void **state)
{
    (void)state;
    const plugin *p;
    plugin_host *h = open_host();
    assert_int_equal(plugin_open(h, NRL_KIND_ALGORITHM, "good", &p), NRL_OK);
    assert_non_null(strstr(p->path, "/cases/algorithms/good.so"));
    plugin_host_destroy(h);
}

static void listing_opens_all_and_tells_why_some_are_broken(void **state)
{
    (void)state;
    arena a = {0};
    plugin_entry *entries;
    plugin_host *h = open_host();
    size_t n = plugin_list(h, &a, NULL, &entries), broken = 0, hidden = 0, good = 0;
    for (size_t i = 0; i < n; i++) {
        broken += entries[i].problem != NULL;
        hidden += entries[i].hidden_by != NULL;
        good += !entries[i].problem && !strcmp(entries[i].name, "good") && !entries[i].hidden_by;
        if (i) assert_true(strcmp(entries[i - 1].name, entries[i].name) <= 0 || entries[i - 1].kind != entries[i].kind);
    }
    assert_int_equal(good, 1);
    assert_int_equal(hidden, 1);
    assert_true(broken >= 22);
    plugin_host_destroy(h);
    arena_free(&a);
}

static void a_folder_named_twice_hides_nothing(void **state)
{
    (void)state;
    arena a = {0};
    char twice[8192];
    const char *root = getenv("NRL_TEST_CASES");
    plugin_entry *entries;
    snprintf(twice, sizeof twice, "%s/cases:%s/cases/../cases/:/no/such/folder:", root, root);
    plugin_host *h = plugin_host_create(twice, NULL, 0, NULL);
    size_t n = plugin_list(h, &a, NULL, &entries);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++)
        assert_null(entries[i].hidden_by);
    plugin_host_destroy(h);
    arena_free(&a);
}

static void a_plugin_in_cpp_is_a_plugin(void **state)
{
    (void)state;
    const plugin *p;
    plugin_host *h = open_host();
    assert_int_equal(plugin_open(h, NRL_KIND_LOGGER, "in_cpp", &p), NRL_OK);
    const nrl_logger *t = (const void *)p->table;
    void *self;
    assert_int_equal(t->open(NULL, NULL, &self), NRL_OK);
    plugin_host_destroy(h);
}

typedef struct {
    double beta;
    int64_t mode;
} options;

/* Fills plugin `good` from a map {name: good, key: value}. */
static nrl_status instance(arena *a, const char *key, double value, options **out, char **resolved)
{
    const plugin *p;
    void *filled;
    config_problems problems = {0};
    config_component c;
    plugin_host *h = open_host();
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append(a, map, "name", node_string(a, "good", 4));
    node_append(a, map, key, node_f64(a, value));
    component_read(a, &problems, "algorithm", map, NULL, &c);
    plugin_instance(h, a, &problems, NRL_KIND_ALGORITHM, "algorithm", &c, NULL, &p, &filled);
    *out = filled;
    *resolved = arena_printf(a, "%g", nrl_node_f64(nrl_node_find(c.resolved, "beta"), -1));
    plugin_host_destroy(h);
    return problems_report(&problems);
}

static void options_are_filled_and_checked_by_the_plugin(void **state)
{
    (void)state;
    arena a = {0};
    options *o;
    char *resolved;
    assert_int_equal(instance(&a, "beta", 0.25, &o, &resolved), NRL_OK);
    assert_true(o->beta == 0.25);
    assert_string_equal(resolved, "0.25");
    assert_int_equal(instance(&a, "bata", 0.25, &o, &resolved), NRL_ERR_CONFIG);
    assert_string_equal(nrl_error_text(), "algorithm.bata: unknown key; did you mean 'beta'?");
    assert_int_equal(instance(&a, "beta", 0.5, &o, &resolved), NRL_ERR_CONFIG);
    assert_string_equal(nrl_error_text(), "algorithm 'good': beta 0.5 is not to my taste");
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wrong_plugin_is_refused_with_the_reason),
        cmocka_unit_test(a_newer_plugin_is_told_what_to_do),
        cmocka_unit_test(members_a_plugin_lacks_are_null),
        cmocka_unit_test(a_larger_table_with_nothing_in_it_is_fine),
        cmocka_unit_test(an_unknown_name_suggests_and_lists),
        cmocka_unit_test(the_first_of_two_plugins_wins),
        cmocka_unit_test(listing_opens_all_and_tells_why_some_are_broken),
        cmocka_unit_test(a_folder_named_twice_hides_nothing),
        cmocka_unit_test(a_plugin_in_cpp_is_a_plugin),
        cmocka_unit_test(options_are_filled_and_checked_by_the_plugin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
