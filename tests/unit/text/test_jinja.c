/*
 * test_jinja.c - the template interpreter: results of small templates compared with those of
 * Python's jinja2 (tests/data/jinja.json, checked against transformers by peers.jinja); messages;
 * limits.
 */
#include "base/json.h"
#include "jinja.h"
#include "text/shared.h"
#include <time.h>

enum { MAX_FILE_SIZE = 1 << 20, MAX_VARIABLES = 32 };

/* 26 July 2024, wherever this machine stands. */
static int64_t recorded_day(void)
{
    struct tm day = {.tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_hour = 12};
    return mktime(&day);
}

static size_t fill_variables(arena *a, const nrl_node *map, jinja_variable *out)
{
    size_t n = nrl_node_size(map);
    assert_true(n <= MAX_VARIABLES);
    for (size_t i = 0; i < n; i++)
        out[i] = (jinja_variable){nrl_node_key(map, i), jinja_from_node(a, nrl_node_at(map, i))};
    return n;
}

static nrl_status render(const char *text, size_t size, const jinja_input *in, jinja_output *out)
{
    jinja *t;
    NRL_TRY(jinja_compile("test.jinja", text, size, &t));
    nrl_status st = jinja_render(t, in, out);
    jinja_free(t);
    return st;
}

static bool agrees(const nrl_node *c, const jinja_input *in)
{
    jinja_output out = {0};
    const nrl_node *source = nrl_node_find(c, "template"), *expected = nrl_node_find(c, "expected");
    nrl_status st = render(nrl_node_string(source, ""), nrl_node_string_size(source), in, &out);
    bool same = expected ? st == NRL_OK && out.text.size == nrl_node_string_size(expected) &&
                               !memcmp(out.text.text ? out.text.text : "", nrl_node_string(expected, ""), out.text.size)
                         : st == NRL_ERR_DATA || st == NRL_ERR_CONFIG;
    if (!same)
        printf("%s\n  gives    %s\n  expected %s\n", nrl_node_string(source, ""),
               st == NRL_OK ? out.text.text : nrl_error_text(),
               expected ? nrl_node_string(expected, "") : nrl_node_string(nrl_node_find(c, "error"), ""));
    jinja_output_free(&out);
    return same;
}

static void templates_give_what_jinja2_gives(void **state)
{
    (void)state;
    arena a = {0};
    nrl_node *all;
    jinja_variable variables[MAX_VARIABLES];
    char *path = mem_printf("%s/tests/data/jinja.json", getenv("NRL_TEST_SOURCE"));
    if (json_read_file(&a, path, MAX_FILE_SIZE, &all) != NRL_OK) fail_msg("%s", nrl_error_text());
    jinja_input in = {.variables = variables, .now = recorded_day()};
    in.n = fill_variables(&a, nrl_node_find(all, "variables"), variables);
    const nrl_node *cases = nrl_node_find(all, "cases");
    size_t n = 0;
    for (size_t i = 0; i < nrl_node_size(cases); i++)
        n += agrees(nrl_node_at(cases, i), &in);
    assert_int_equal(n, nrl_node_size(cases));
    arena_free(&a);
    free(path);
}

static void assert_fails(const char *text, const jinja_limits *limits, nrl_status status, const char *message)
{
    jinja_output out = {0};
    const jinja_input in = {.limits = limits};
    assert_int_equal(render(text, strlen(text), &in, &out), status);
    if (!strstr(nrl_error_text(), message)) fail_msg("'%s' is not in: %s", message, nrl_error_text());
    jinja_output_free(&out);
}

static void mistakes_name_template_line_and_what_was_expected(void **state)
{
    (void)state;
    assert_fails("a\n{% if 1 %}\n{{ 1 + }}", NULL, NRL_ERR_CONFIG,
                 "test.jinja: line 3: expected an expression, found }}");
    assert_fails("{% include 'x' %}", NULL, NRL_ERR_CONFIG,
                 "line 1: 'include' is not a known statement, expected if, for");
    assert_fails("{% if 1 %}\nx", NULL, NRL_ERR_CONFIG, "the template ends, expected {% endif %}");
    assert_fails("\n{{ x|wobble }}", NULL, NRL_ERR_CONFIG, "line 2: unknown filter 'wobble'");
    assert_fails("\n\n{{ x.y }}", NULL, NRL_ERR_DATA, "test.jinja: line 3: 'x' is undefined");
    assert_fails("\n{% for a in [1] %}\n{{ a +\n 'b' }}{% endfor %}", NULL, NRL_ERR_DATA,
                 "line 3: + is not supported between int and str");
    assert_fails("{{ raise_exception('Roles must alternate') }}", NULL, NRL_ERR_DATA, "line 1: Roles must alternate");
    assert_fails("{{ [].append(1) }}", NULL, NRL_ERR_DATA, "'append' changes a list");
    assert_fails("{{ {}|dictsort(false, 'neither') }}", NULL, NRL_ERR_DATA, "dictsort: by: expected key or value");
    assert_fails("{{ 'a", NULL, NRL_ERR_CONFIG, "line 1: a string has no end");
}

static void hostile_templates_end_with_an_error(void **state)
{
    (void)state;
    const jinja_limits small = {.steps = 100000, .memory = 16 << 20, .output = 1 << 16, .depth = 200};
    const jinja_limits few = {.steps = 1000, .memory = 16 << 20, .output = 1 << 16, .depth = 200};
    assert_fails("{% for a in range(99) %}{% for b in range(99) %}{% endfor %}{% endfor %}", &few, NRL_ERR_CONFIG,
                 "takes more than");
    assert_fails("{{ 'a' * 99999999999 }}", &small, NRL_ERR_CONFIG, "of memory");
    assert_fails("{{ [0] * 9223372036854775807 }}", &small, NRL_ERR_CONFIG, "of memory");
    assert_fails("{% for a in range(999) %}{{ 'a' * 999 }}{% endfor %}", &small, NRL_ERR_CONFIG, "writes more than");
    assert_fails("{% macro f() %}{{ [[f()]] | map('upper') | list }}{% endmacro %}{{ f() }}", NULL, NRL_ERR_CONFIG,
                 "nested ");
    assert_fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", &small, NRL_ERR_CONFIG, "nested ");
    assert_fails("{% set ns = namespace(a='a') %}{% for a in range(99) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
                 &small, NRL_ERR_CONFIG, "of memory");
    assert_fails("{% set ns = namespace(a=[]) %}{% for a in range(999) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
                 &small, NRL_ERR_CONFIG, "nested ");
    assert_fails("{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(80) %}{% set ns.a = [ns.a, ns.a] %}"
                 "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
                 &small, NRL_ERR_CONFIG, "takes more than");
    assert_fails("{{ ('a' * 3000000).rfind('b' + 'a' * 1000000) }}", &small, NRL_ERR_CONFIG, "takes more than");
    buffer names = {0};
    for (int i = 0; i < 5000; i++)
        buffer_print(&names, "{{ n%d }}", i);
    assert_fails(names.text, &small, NRL_ERR_CONFIG, "more than 4096 different names");
    buffer_free(&names);
    char deep[2001];
    memset(deep, '(', sizeof deep - 1);
    memcpy(deep, "{{", 2);
    deep[2000] = 0;
    assert_fails(deep, &small, NRL_ERR_CONFIG, "nested too deeply");
}

/* What is done to long values over and over: no operation is cheaper in steps than in time. A step is at most some
 * hundred nanoseconds of work then, and 2,000,000 of them a second or two on a slow machine with sanitizers. */
static void work_on_long_values_is_counted(void **state)
{
    (void)state;
    enum { TIMES_OF_CPU = 20 };
    static const char *const work[] = {"s.strip()",
                                       "s.strip(many)",
                                       "s.lstrip(many)",
                                       "s.rstrip('b')",
                                       "s|trim",
                                       "s|trim(many)",
                                       "blank|trim",
                                       "blank.split()",
                                       "s.startswith(t)",
                                       "s.endswith(t)",
                                       "s.startswith((t, t, t, t))",
                                       "s.removeprefix(t)",
                                       "s < t",
                                       "s >= t",
                                       "s == t",
                                       "'zq' in s",
                                       "t in s",
                                       "t in [s]",
                                       "s in {t: 1}",
                                       "{t: 1}[s]",
                                       "{t: 1}.get(s)",
                                       "s[500]",
                                       "s[-1]",
                                       "s[9:12]",
                                       "s|first",
                                       "s|length",
                                       "s.find('zq')",
                                       "s.rfind('zq')",
                                       "s.count('zq')",
                                       "s.isdigit()",
                                       "s is upper",
                                       "s is lower",
                                       "s|int",
                                       "s.split('zq')",
                                       "s.replace('zq', '')",
                                       "s.partition('zq')",
                                       "[s, t]|sort",
                                       "[s, t]|min",
                                       "[s, t]|unique|list",
                                       "[s, t]|select('eq', t)|list",
                                       "[s, t]|map('upper')|list",
                                       "[{'k': s}]|selectattr('k', 'eq', t)|list",
                                       "range(9999)|list",
                                       "1 in l",
                                       "l == l[1:]",
                                       "l|sum",
                                       "s|tojson(indent=t)",
                                       "s|indent",
                                       "s|wordcount",
                                       "s ~ t",
                                       "{s: 1}",
                                       "dict(a=s)",
                                       "[]",
                                       "{}"};
    const jinja_limits small = {.steps = 2000000, .memory = 64 << 20, .output = 1 << 16, .depth = 200};
    for (size_t i = 0; i < sizeof work / sizeof *work; i++) {
        char *text = mem_printf(
            "{%% set s = 'a' * 200000 %%}{%% set t = 'a' * 199999 ~ 'b' %%}{%% set many = 'bcdefghij' * 500 %%}"
            "{%% set blank = ' ' * 200000 %%}{%% set l = range(5000)|list %%}"
            "{%% for i in range(90000) %%}{%% for j in range(90) %%}{%% set x = %s %%}{%% endfor %%}{%% endfor %%}",
            work[i]);
        clock_t begin = clock();
        assert_fails(text, &small, NRL_ERR_CONFIG, "the template ");
        if (clock() - begin > (clock_t)TIMES_OF_CPU * CLOCKS_PER_SEC) fail_msg("%s: too long", work[i]);
        free(text);
    }
}

static void renderings_of_a_row_share_their_steps(void **state)
{
    (void)state;
    static const char text[] = "{% for a in range(100) %}{% endfor %}";
    const jinja_limits small = {.steps = 1000, .memory = 16 << 20, .output = 1 << 16, .depth = 200};
    int64_t steps = 0;
    int n = 0;
    jinja_output out = {0};
    const jinja_input in = {.limits = &small, .steps = &steps};
    while (n < 100 && render(text, sizeof text - 1, &in, &out) == NRL_OK)
        n++;
    assert_in_range(n, 2, 10);
    assert_non_null(strstr(nrl_error_text(), "takes more than 1000 steps, the limit of a row"));
    jinja_output_free(&out);
}

static void generation_blocks_are_marked_where_they_stand(void **state)
{
    (void)state;
    static const char text[] = "é{% for a in ['x', 'yz'] %}-{% generation %}{{ a }}!{% endgeneration %}{% endfor %}.";
    jinja_output out = {0};
    const jinja_input in = {0};
    assert_int_equal(render(text, sizeof text - 1, &in, &out), NRL_OK);
    assert_string_equal(out.text.text, "é-x!-yz!.");
    assert_int_equal(out.n_marks, 2);
    assert_int_equal(out.marks[0].begin, 3);
    assert_int_equal(out.marks[0].end, 5);
    assert_int_equal(out.marks[1].begin, 6);
    assert_int_equal(out.marks[1].end, 9);
    assert_false(out.lost_marks);
    jinja_output_free(&out);
}

static void a_template_tells_what_it_mentions(void **state)
{
    (void)state;
    static const char text[] = "{{ a.b['c'] }}";
    jinja *t;
    assert_int_equal(jinja_compile("t", text, sizeof text - 1, &t), NRL_OK);
    assert_true(jinja_mentions(t, "a") && jinja_mentions(t, "b") && jinja_mentions(t, "c"));
    assert_false(jinja_mentions(t, "d") || jinja_has_marks(t));
    jinja_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_give_what_jinja2_gives),
        cmocka_unit_test(mistakes_name_template_line_and_what_was_expected),
        cmocka_unit_test(hostile_templates_end_with_an_error),
        cmocka_unit_test(work_on_long_values_is_counted),
        cmocka_unit_test(renderings_of_a_row_share_their_steps),
        cmocka_unit_test(generation_blocks_are_marked_where_they_stand),
        cmocka_unit_test(a_template_tells_what_it_mentions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
