/*
 * test_jinja_shared.c - templates of real models on recorded conversations: text and errors as in
 * Python's jinja2. Skipped without the directory of shared data.
 */
#include "base/file.h"
#include "base/json.h"
#include "jinja.h"
#include "text/shared.h"
#include <time.h>

enum { MAX_FILE_SIZE = 64 << 20 };

static jinja_value text_of(const nrl_node *map, const char *key)
{
    const nrl_node *n = nrl_node_find(map, key);
    return jinja_string(nrl_node_string(n, ""), nrl_node_string_size(n));
}

/* 26 July 2024, the day of the recordings, wherever this machine stands. */
static int64_t recorded_day(void)
{
    struct tm day = {.tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_hour = 12};
    return mktime(&day);
}

static nrl_status render(const nrl_node *all, const nrl_node *c, jinja_output *out)
{
    const char *name = nrl_node_string(nrl_node_find(c, "template"), "");
    const nrl_node *t = nrl_node_find(nrl_node_find(all, "templates"), name);
    const nrl_node *talk =
        nrl_node_find(nrl_node_find(all, "conversations"), nrl_node_string(nrl_node_find(c, "conversation"), ""));
    jinja_value source = text_of(t, "template");
    arena a = {0};
    jinja *compiled;
    const jinja_variable variables[] = {
        {"messages", jinja_from_node(&a, talk)},
        {"bos_token", text_of(t, "bos_token")},
        {"eos_token", text_of(t, "eos_token")},
        {"add_generation_prompt", jinja_bool(nrl_node_bool(nrl_node_find(c, "add_generation_prompt"), false))}};
    const jinja_input in = {.variables = variables, .n = sizeof variables / sizeof *variables, .now = recorded_day()};
    nrl_status st = jinja_compile(name, source.text, source.size, &compiled);
    if (st == NRL_OK) {
        st = jinja_render(compiled, &in, out);
        jinja_free(compiled);
    }
    arena_free(&a);
    return st;
}

static bool agrees(const nrl_node *all, const nrl_node *c)
{
    jinja_output out = {0};
    const nrl_node *expected = nrl_node_find(c, "expected");
    nrl_status st = render(all, c, &out);
    bool same = expected ? st == NRL_OK && out.text.size == nrl_node_string_size(expected) &&
                               !memcmp(out.text.text ? out.text.text : "", nrl_node_string(expected, ""), out.text.size)
                         : st == NRL_ERR_DATA;
    if (!same)
        printf("%s / %s: %s\n", nrl_node_string(nrl_node_find(c, "template"), ""),
               nrl_node_string(nrl_node_find(c, "conversation"), ""), st == NRL_OK ? out.text.text : nrl_error_text());
    jinja_output_free(&out);
    return same;
}

static void recorded_renderings_come_out_byte_for_byte(void **state)
{
    (void)state;
    char *path = shared_path("data/templates/golden_rendered.json");
    arena a = {0};
    nrl_node *all;
    size_t n = 0;
    if (!path) skip();
    assert_int_equal(json_read_file(&a, path, MAX_FILE_SIZE, &all), NRL_OK);
    const nrl_node *cases = nrl_node_find(all, "cases");
    for (size_t i = 0; i < nrl_node_size(cases); i++)
        n += agrees(all, nrl_node_at(cases, i));
    printf("%zu of %zu renderings agree\n", n, nrl_node_size(cases));
    assert_int_equal(n, nrl_node_size(cases));
    arena_free(&a);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(recorded_renderings_come_out_byte_for_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
