/* test_tool_calls.c - the calls of tools that models write, whole and in pieces of any size: tests/data/tool_calls.json
 * has recorded answers in the forms of the known templates. */
#include "base/arena.h"
#include "base/json.h"
#include "cli/common/tool_calls.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct {
    buffer text, calls;
    char last_id[TOOL_CALL_ID + 1];
} found;

static void take_text(void *user, const char *text, size_t size)
{
    buffer_add(&((found *)user)->text, text, size);
}

static void take_call(void *user, const tool_call *c)
{
    found *f = user;
    buffer_print(&f->calls, "%s(%s)", c->name, c->arguments);
    assert_int_equal(strlen(c->id), TOOL_CALL_ID);
    assert_int_equal(strspn(c->id, "0123456789abcdefghijklmnopqrstuvwxyz"), TOOL_CALL_ID);
    assert_string_not_equal(c->id, f->last_id);
    memcpy(f->last_id, c->id, sizeof c->id);
}

static void parse(const nrl_node *tools, size_t most, const char *answer, size_t piece, found *f)
{
    tool_parser *p = tool_parser_create(tools, most, 7);
    const tool_sink sink = {take_text, take_call, f};
    *f = (found){0};
    for (size_t at = 0, n = strlen(answer); at < n; at += piece)
        tool_parser_text(p, answer + at, n - at < piece ? n - at : piece, &sink);
    tool_parser_end(p, &sink);
    tool_parser_destroy(p);
}

static const nrl_node *recorded(arena *a)
{
    nrl_node *root;
    const char *path = arena_printf(a, "%s/tests/data/tool_calls.json", getenv("NRL_TEST_SOURCE"));
    assert_int_equal(json_read_file(a, path, 1 << 20, &root), NRL_OK);
    return root;
}

static void calls_are_found_in_pieces_of_any_size(void **state)
{
    arena a = {0};
    const nrl_node *root = recorded(&a), *answers = nrl_node_find(root, "answers");
    (void)state;
    assert_true(nrl_node_size(answers) > 15);
    for (size_t i = 0; i < nrl_node_size(answers); i++)
        for (size_t piece = 1; piece < 40; piece += piece < 8 ? 1 : 31) {
            const nrl_node *row = nrl_node_at(answers, i);
            found f;
            parse(nrl_node_find(root, "tools"), SIZE_MAX, nrl_node_string(nrl_node_find(row, "answer"), ""), piece, &f);
            assert_string_equal(f.text.text ? f.text.text : "", nrl_node_string(nrl_node_find(row, "text"), ""));
            assert_string_equal(f.calls.text ? f.calls.text : "", nrl_node_string(nrl_node_find(row, "calls"), ""));
            buffer_free(&f.text);
            buffer_free(&f.calls);
        }
    arena_free(&a);
}

static void later_calls_are_dropped(void **state)
{
    arena a = {0};
    const nrl_node *tools = nrl_node_find(recorded(&a), "tools");
    found f;
    (void)state;
    parse(tools, 1, "{\"name\": \"add\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": {}}", 3, &f);
    assert_string_equal(f.calls.text, "add({})");
    assert_null(f.text.text);
    buffer_free(&f.calls);
    arena_free(&a);
}

static void arguments_as_text_become_maps(void **state)
{
    static const char given[] =
        "[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"x\\\": "
        "1}\"}}, "
        "{\"function\": {\"name\": \"f\", \"arguments\": \"no JSON\"}}]}, {\"role\": \"user\", \"content\": \"a\"}]";
    arena a = {0};
    nrl_node *messages;
    (void)state;
    assert_int_equal(json_parse(&a, "given", given, sizeof given - 1, &messages), NRL_OK);
    tool_calls_read_arguments(&a, messages);
    char *text = json_write(messages, 0);
    assert_non_null(strstr(text, "\"arguments\": {\"x\": 1}"));
    assert_non_null(strstr(text, "\"arguments\": \"no JSON\""));
    free(text);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_are_found_in_pieces_of_any_size),
                                       cmocka_unit_test(later_calls_are_dropped),
                                       cmocka_unit_test(arguments_as_text_become_maps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
