/*
 * fuzz_tool_calls.c - any text as an answer, in two ways of cutting it into pieces: the same text and calls are found
 * in both, each call has a name and a map of arguments, and an answer without calls keeps its text.
 */
#include "base/json.h"
#include "cli/common/tool_calls.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools_text[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]";

static void take_text(void *user, const char *text, size_t size)
{
    buffer_add(user, text, size);
}

static void take_call(void *user, const tool_call *c)
{
    if (!*c->name || strlen(c->id) != TOOL_CALL_ID) abort();
    buffer_add(user, "\001", 1);
    buffer_puts(user, c->name);
    buffer_puts(user, c->arguments);
}

static void parse(const nrl_node *tools, const uint8_t *data, size_t size, size_t piece, buffer *found)
{
    tool_parser *p = tool_parser_create(tools, 8, 1);
    const tool_sink sink = {take_text, take_call, found};
    for (size_t at = 0; at < size; at += piece)
        tool_parser_text(p, (const char *)data + at, size - at < piece ? size - at : piece, &sink);
    tool_parser_end(p, &sink);
    tool_parser_destroy(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena a = {0};
    nrl_node *tools;
    buffer whole = {0}, pieces = {0};
    if (memchr(data, 0, size) || memchr(data, 1, size)) return 0; /* pieces of a text are terminated */
    NRL_ASSERT(json_parse(&a, "tools", tools_text, sizeof tools_text - 1, &tools), ==, NRL_OK);
    parse(tools, data, size, size + 1, &whole);
    parse(tools, data, size, 3, &pieces);
    if (whole.size != pieces.size || (whole.size && memcmp(whole.text, pieces.text, whole.size) != 0)) abort();
    const bool has_calls = whole.size && memchr(whole.text, 1, whole.size);
    if (!has_calls && size && whole.size > size + 64) abort();
    buffer_free(&whole);
    buffer_free(&pieces);
    arena_free(&a);
    return 0;
}
