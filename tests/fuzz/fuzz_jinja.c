/*
 * fuzz_jinja.c - any bytes as a chat template: it is refused, or it renders within its limits, and
 * the marks of generation blocks are in order inside the text.
 */
#include "base/json.h"
#include "jinja.h"
#include "base/utf8.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char conversation[] =
    "[{\"role\":\"system\",\"content\":\"Be good.\"},{\"role\":\"user\",\"content\":\"Hi  \\u4f60\\n there\"},"
    "{\"role\":\"assistant\",\"content\":\" \\ud83d\\ude01 \",\"tool_calls\":[{\"name\":\"f\",\"arguments\":"
    "{\"x\":1,\"y\":[1.5,null,true,-9223372036854775808]}}]}]";

static void check(const jinja_output *out, const jinja_limits *limits)
{
    NRL_ASSERT(out->text.size, <=, 2 * limits->output);
    if (out->text.size && !utf8_valid(out->text.text, out->text.size)) abort();
    for (size_t i = 0; i < out->n_marks; i++) {
        if (out->marks[i].end > out->text.size || out->marks[i].begin >= out->marks[i].end) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const jinja_limits limits = {.steps = 20000, .memory = 8 << 20, .output = 1 << 18, .depth = 300};
    arena a = {0};
    nrl_node *talk;
    jinja *t;
    jinja_output out = {0};
    if (jinja_compile("fuzz", (const char *)data, size, &t) != NRL_OK) return 0;
    NRL_ASSERT(json_parse(&a, "talk", conversation, sizeof conversation - 1, &talk), ==, NRL_OK);
    const jinja_variable variables[] = {{"messages", jinja_from_node(&a, talk)},
                                        {"bos_token", jinja_string("<s>", 3)},
                                        {"add_generation_prompt", jinja_bool(size & 1)},
                                        {"n", jinja_int(7)},
                                        {"tools", jinja_none()}};
    const jinja_input in = {.variables = variables, .n = 5, .limits = &limits};
    nrl_status st = jinja_render(t, &in, &out);
    if (st == NRL_OK) check(&out, &limits);
    NRL_ASSERT(st, !=, NRL_ERR_BUG);
    jinja_output_free(&out);
    jinja_free(t);
    arena_free(&a);
    return 0;
}
