/*
 * test_options.c - the validator of options: values into a struct, and all mistakes in one report.
 */
#include "config/options.h"
#include "base/suggest.h"
#include "base/yaml.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    double beta;
    int64_t steps;
    bool fast;
    int64_t loss;
    const char *title, *file;
    const nrl_node *betas;
} example;

static const nrl_option rows[] = {
    NRL_OPT_F64(example, beta, "0.1", 0, (double)INFINITY, "strength"),
    NRL_OPT_INT(example, steps, NULL, 1, 1000, "number of steps"),
    NRL_OPT_BOOL(example, fast, "false", "quick"),
    NRL_OPT_ENUM(example, loss, "sigmoid", "sigmoid|hinge|ipo", "which"),
    NRL_OPT_STR(example, title, "", "name"),
    NRL_OPT_PATH(example, file, "", "where"),
    NRL_OPT_NODE(example, betas, "[0.9, 0.999]", "two numbers"),
};

static nrl_status fill(arena *a, const char *source, const char *text, example *out)
{
    nrl_node *node;
    config_problems problems = {0};
    const option_part part = OPTION_PART(rows, out);
    *out = (example){0};
    assert_int_equal(yaml_parse(a, source, text, strlen(text), &node), NRL_OK);
    options_fill(a, &problems, "x", node, &part, 1);
    return problems_report(&problems);
}

static void defaults_are_read_like_values(void **state)
{
    (void)state;
    arena a = {0};
    example e;
    assert_int_equal(fill(&a, "c.yaml", "steps: 5", &e), NRL_OK);
    assert_true(e.beta == 0.1 && e.steps == 5 && !e.fast && e.loss == 0);
    assert_string_equal(e.title, "");
    assert_string_equal(e.file, "");
    assert_true(nrl_node_f64(nrl_node_at(e.betas, 1), 0) == 0.999);
    arena_free(&a);
}

static void every_type_is_filled(void **state)
{
    (void)state;
    arena a = {0};
    example e;
    const char *text = "{beta: 2, steps: 1e2, fast: yes, loss: ipo, title: 123, file: d/f, betas: [1]}";
    assert_int_equal(fill(&a, "configs/c.yaml", text, &e), NRL_OK);
    assert_true(e.beta == 2 && e.steps == 100 && e.fast && e.loss == 2);
    assert_string_equal(e.title, "123");
    assert_string_equal(e.file, "configs/d/f");
    assert_int_equal(nrl_node_size(e.betas), 1);
    arena_free(&a);
}

static void null_means_the_default(void **state)
{
    (void)state;
    arena a = {0};
    example e;
    assert_int_equal(fill(&a, "c.yaml", "{steps: 5, beta: null, title: ~}", &e), NRL_OK);
    assert_true(e.beta == 0.1);
    assert_int_equal(fill(&a, "c.yaml", "{steps: }", &e), NRL_ERR_CONFIG);
    assert_string_equal(nrl_error_text(), "c.yaml:1:2: x.steps: required, but not given: number of steps");
    arena_free(&a);
}

typedef struct {
    const char *text, *message;
} mistake;

static void each_mistake_has_its_words(void **state)
{
    (void)state;
    static const mistake mistakes[] = {
        {"", "x.steps: required, but not given: number of steps"},
        {"steps: 0", "c.yaml:1:1: x.steps: 0 is out of range, expected 1 to 1000"},
        {"{steps: 1, beta: -0.5}", "c.yaml:1:12: x.beta: -0.5 is out of range, expected at least 0"},
        {"steps: 1.5", "c.yaml:1:1: x.steps: expected a whole number, found 1.5"},
        {"steps: 1e300", "c.yaml:1:1: x.steps: expected a whole number, found 1e+300"},
        {"steps: '5'", "c.yaml:1:1: x.steps: expected a whole number, found text '5'"},
        {"steps: [5]", "c.yaml:1:1: x.steps: expected a whole number, found a list"},
        {"steps: true", "c.yaml:1:1: x.steps: expected a whole number, found true"},
        {"{steps: 1, beta: .nan}", "c.yaml:1:12: x.beta: expected a number, found nan"},
        {"{steps: 1, beta: abc}", "c.yaml:1:12: x.beta: expected a number, found text 'abc'"},
        {"{steps: 1, fast: 1}", "c.yaml:1:12: x.fast: expected true or false, found 1"},
        {"{steps: 1, fast: 'yes'}", "c.yaml:1:12: x.fast: expected true or false, found text 'yes'"},
        {"{steps: 1, loss: hinj}",
         "c.yaml:1:12: x.loss: 'hinj' is not one of: sigmoid, hinge, ipo; did you mean 'hinge'?"},
        {"{steps: 1, loss: [a]}", "c.yaml:1:12: x.loss: expected one of: sigmoid, hinge, ipo, found a list"},
        {"{steps: 1, title: {a: b}}", "c.yaml:1:12: x.title: expected text, found a map"},
        {"{steps: 1, file: [a]}", "c.yaml:1:12: x.file: expected a path, found a list"},
        {"{steps: 1, bteas: [1]}", "c.yaml:1:12: x.bteas: unknown key; did you mean 'betas'?"},
        {"{steps: 1, qqqqq: 1}",
         "c.yaml:1:12: x.qqqqq: unknown key; expected one of: beta, steps, fast, loss, title, file, betas"},
        {"[1]", "c.yaml:1:1: x: expected a map of options, found a list"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        arena a = {0};
        example e;
        assert_int_equal(fill(&a, "c.yaml", mistakes[i].text, &e), NRL_ERR_CONFIG);
        const char *got = strstr(nrl_error_text(), mistakes[i].message);
        if (!got) print_error("%s\n", nrl_error_text());
        assert_non_null(got);
        assert_string_equal(got, mistakes[i].message);
        arena_free(&a);
    }
}

static void all_mistakes_come_together_sorted_by_place(void **state)
{
    (void)state;
    arena a = {0};
    example e;
    const char *text = "zzz: 1\nloss: x\nsteps: -1\nbeta: b\n";
    assert_int_equal(fill(&a, "c.yaml", text, &e), NRL_ERR_CONFIG);
    assert_string_equal(
        nrl_error_text(),
        "4 mistakes in the config\n"
        "  c.yaml:1:1: x.zzz: unknown key; expected one of: beta, steps, fast, loss, title, file, betas\n"
        "  c.yaml:2:1: x.loss: 'x' is not one of: sigmoid, hinge, ipo\n"
        "  c.yaml:3:1: x.steps: -1 is out of range, expected 1 to 1000\n"
        "  c.yaml:4:1: x.beta: expected a number, found text 'b'");
    arena_free(&a);
}

static void thousands_of_mistakes_are_cut(void **state)
{
    (void)state;
    config_problems p = {0};
    for (int i = 0; i < 5000; i++)
        problems_add(&p, NULL, "mistake %d", i);
    assert_int_equal(problems_report(&p), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "5000 mistakes"));
    assert_non_null(strstr(nrl_error_text(), "and 4950 more"));
    assert_int_equal(problems_report(&p), NRL_OK);
}

static const char *nearest(const char *word, const char *const *names)
{
    suggestion s = {.word = word};
    for (; *names; names++)
        suggest_offer(&s, *names);
    return s.best ? s.best : "";
}

static void suggestions_are_near_or_absent(void **state)
{
    (void)state;
    static const char *const names[] = {"learning_rate", "lr", "beta", "betas", "weight_decay", NULL};
    assert_string_equal(nearest("bteas", names), "betas");
    assert_string_equal(nearest("weight-Decay", names), "weight_decay");
    assert_string_equal(nearest("wieght_dceay", names), "weight_decay");
    assert_string_equal(nearest("l", names), "lr");
    assert_string_equal(nearest("xyz", names), "");
    assert_string_equal(nearest("", names), "");
    char long_word[500];
    memset(long_word, 'a', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = 0;
    assert_string_equal(nearest(long_word, names), "");
}

static void components_are_words_or_maps(void **state)
{
    (void)state;
    arena a = {0};
    config_problems p = {0};
    config_component c;
    nrl_node *n;
    const char *text = "{name: dpo, beta: 0.2}";
    assert_int_equal(yaml_parse(&a, "c.yaml", text, strlen(text), &n), NRL_OK);
    component_read(&a, &p, "algorithm", n, NULL, &c);
    assert_string_equal(c.name, "dpo");
    assert_int_equal(nrl_node_size(c.options), 1);
    component_read(&a, &p, "algorithm", node_string(&a, "sft", 3), NULL, &c);
    assert_string_equal(c.name, "sft");
    assert_null(c.options);
    component_read(&a, &p, "algorithm", NULL, "adamw", &c);
    assert_string_equal(c.name, "adamw");
    assert_int_equal(problems_report(&p), NRL_OK);
    component_read(&a, &p, "algorithm", node_int(&a, 5), NULL, &c);
    assert_int_equal(problems_report(&p), NRL_ERR_CONFIG);
    assert_string_equal(nrl_error_text(), "algorithm: expected a word or a map with `name`, found 5");
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_read_like_values),
        cmocka_unit_test(every_type_is_filled),
        cmocka_unit_test(null_means_the_default),
        cmocka_unit_test(each_mistake_has_its_words),
        cmocka_unit_test(all_mistakes_come_together_sorted_by_place),
        cmocka_unit_test(thousands_of_mistakes_are_cut),
        cmocka_unit_test(suggestions_are_near_or_absent),
        cmocka_unit_test(components_are_words_or_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
