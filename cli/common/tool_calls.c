/*
 * tool_calls.c - see tool_calls.h.
 */
#include "cli/common/tool_calls.h"
#include "base/arena.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

static const char *const markers[TOOL_N_MARKERS] = {"<tool_call>", "[TOOL_CALLS]", "<|python_tag|>"};
static const char hermes_end[] = "</tool_call>", args_marker[] = "[ARGS]", id_marker[] = "[CALL_ID]";

typedef enum { IN_TEXT, IN_HERMES, IN_MISTRAL, IN_LLAMA } parser_state;

struct tool_parser {
    const nrl_node *tools;
    size_t most, n_calls;
    uint64_t seed;
    parser_state state;
    bool has_text; /* something other than white space was passed on */
    bool is_bare;  /* IN_LLAMA without a marker */
    buffer pending;
    buffer gap; /* white space in front of a marker: dropped if a call follows */
};

tool_parser *tool_parser_create(const nrl_node *tools, size_t most, uint64_t seed)
{
    tool_parser *p = mem_alloc(sizeof *p);
    *p = (tool_parser){.tools = tools, .most = most, .seed = seed, .pending = {.what = "an answer"}};
    return p;
}

void tool_parser_destroy(tool_parser *p)
{
    if (!p) return;
    buffer_free(&p->pending);
    buffer_free(&p->gap);
    free(p);
}

/* ---- calls ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t skip_space(const char *text, size_t size, size_t at)
{
    while (at < size && is_space(text[at]))
        at++;
    return at;
}

/* The end of the JSON map or list that begins at text[at]; 0: it does not end. */
static size_t value_end(const char *text, size_t size, size_t at)
{
    bool in_string = false;
    int64_t depth = 0;
    for (; at < size; at++) {
        const char c = text[at];
        if (in_string) {
            if (c == '\\') at++;
            in_string = c != '"';
            continue;
        }
        if (c == '"') in_string = true;
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        if (depth <= 0) return at + 1;
    }
    return 0;
}

static bool is_tool(const tool_parser *p, const char *name)
{
    for (size_t i = 0; i < nrl_node_size(p->tools); i++) {
        const nrl_node *tool = nrl_node_at(p->tools, i), *function = nrl_node_find(tool, "function");
        if (!strcmp(nrl_node_string(nrl_node_find(function ? function : tool, "name"), ""), name)) return true;
    }
    return false;
}

/* 9 letters and digits of the seed and the number of the call. */
static void fill_id(const tool_parser *p, char *id)
{
    uint64_t x = (p->seed + p->n_calls * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 31;
    x *= 0x94d049bb133111ebu;
    for (int i = 0; i < TOOL_CALL_ID; i++, x /= 36)
        id[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[x % 36];
    id[TOOL_CALL_ID] = 0;
}

static void pass_call(tool_parser *p, const char *name, const nrl_node *arguments, const tool_sink *sink)
{
    tool_call c = {.name = name};
    char *text = nrl_node_kind(arguments) == NRL_NODE_STRING ? NULL : json_write(arguments, 0);
    c.arguments = text ? text : nrl_node_string(arguments, "{}");
    fill_id(p, c.id);
    if (p->n_calls++ < p->most) sink->call(sink->user, &c);
    free(text);
}

/* {"name": ..., "arguments" or "parameters": {...}}. */
static bool read_call(const tool_parser *p, const nrl_node *map, bool is_marked, const char **name,
                      const nrl_node **arguments)
{
    *name = nrl_node_string(nrl_node_find(map, "name"), NULL);
    *arguments = nrl_node_find(map, "arguments");
    if (!*arguments) *arguments = nrl_node_find(map, "parameters");
    const nrl_node_type kind = nrl_node_kind(*arguments);
    return *name && **name && (kind == NRL_NODE_MAP || kind == NRL_NODE_STRING) && (is_marked || is_tool(p, *name));
}

/* JSON values of text[0..size), one map each or lists of maps, between which `;` and `,` may stand. Passes nothing on
 * unless all of them are calls. */
static bool pass_values(tool_parser *p, const char *text, size_t size, bool is_marked, const tool_sink *sink)
{
    arena a = {0};
    nrl_node *all = node_new(&a, NRL_NODE_LIST);
    bool good = true;
    for (size_t at = 0, end; good && (at = skip_space(text, size, at)) < size; at = end) {
        nrl_node *value;
        end = text[at] == '{' || text[at] == '[' ? value_end(text, size, at) : 0;
        good = end && json_parse(&a, "call", text + at, end - at, &value) == NRL_OK;
        if (!good) break;
        const bool is_list = nrl_node_kind(value) == NRL_NODE_LIST;
        for (size_t i = 0; good && i < (is_list ? nrl_node_size(value) : 1); i++) {
            const nrl_node *map = is_list ? nrl_node_at(value, i) : value, *arguments;
            const char *name;
            good = read_call(p, map, is_marked, &name, &arguments);
            node_append(&a, all, NULL, node_copy(&a, map));
        }
        end = skip_space(text, size, end);
        if (end < size && (text[end] == ';' || text[end] == ',')) end++;
    }
    good &= nrl_node_size(all) > 0;
    for (size_t i = 0; good && i < nrl_node_size(all); i++) {
        const nrl_node *arguments;
        const char *name;
        read_call(p, nrl_node_at(all, i), is_marked, &name, &arguments);
        pass_call(p, name, arguments, sink);
    }
    arena_free(&a);
    return good;
}

/* NAME[ARGS]{...} or NAME{...}, and more of them behind further markers. */
static bool pass_named(tool_parser *p, const char *text, size_t size, const tool_sink *sink)
{
    const size_t before = p->n_calls;
    for (size_t at = 0, end; (at = skip_space(text, size, at)) < size; at = end) {
        arena a = {0};
        nrl_node *arguments;
        const size_t marker = strlen(markers[1]);
        if (size - at >= marker && !memcmp(text + at, markers[1], marker)) at += marker;
        const char *map = memchr(text + at, '{', size - at);
        end = map ? value_end(text, size, (size_t)(map - text)) : 0;
        if (!end) return p->n_calls > before;
        char *name = arena_strndup(&a, text + at, (size_t)(map - text) - at), *mark = strstr(name, args_marker);
        if (!mark) mark = name + strlen(name);
        *mark = 0;
        if ((mark = strstr(name, id_marker))) *mark = 0;
        for (size_t n = strlen(name); n && is_space(name[n - 1]); n--)
            name[n - 1] = 0;
        const bool good = *name && json_parse(&a, "call", map, end - (size_t)(map - text), &arguments) == NRL_OK;
        if (good) pass_call(p, name, arguments, sink);
        arena_free(&a);
        if (!good) return p->n_calls > before;
    }
    return p->n_calls > before;
}

/* ---- text ---- */

static void pass_text(tool_parser *p, const char *text, size_t size, const tool_sink *sink)
{
    if (size) sink->text(sink->user, text, size);
    p->has_text |= skip_space(text, size, 0) < size;
}

static void drop(tool_parser *p, size_t n)
{
    p->pending.size -= n;
    memmove(p->pending.text, p->pending.text + n, p->pending.size + 1);
}

/* What looked like a call is text: its marker, with the white space in front. */
static void pass_marker(tool_parser *p, const char *marker, const tool_sink *sink)
{
    pass_text(p, p->gap.size ? p->gap.text : "", p->gap.size, sink);
    pass_text(p, marker, strlen(marker), sink);
}

/* Bytes at the end that may become a marker, with the white space in front of them. */
static size_t held_back(const char *text, size_t size)
{
    size_t most = 0;
    for (size_t k = 0; k < TOOL_N_MARKERS; k++)
        for (size_t n = strlen(markers[k]); n-- > most + 1;)
            if (n <= size && !memcmp(text + size - n, markers[k], n)) most = n;
    while (most < size && is_space(text[size - most - 1]))
        most++;
    return most;
}

/* Passes text on up to the first marker; true: the state has changed. */
static bool step_text(tool_parser *p, const tool_sink *sink)
{
    buffer *b = &p->pending;
    const size_t start = skip_space(b->text, b->size, 0);
    if (!p->has_text && !p->n_calls && start < b->size && b->text[start] == '{') {
        p->state = IN_LLAMA;
        p->is_bare = true;
        return true;
    }
    const char *first = NULL;
    size_t which = 0;
    for (size_t k = 0; k < TOOL_N_MARKERS; k++) {
        const char *at = memmem(b->text, b->size, markers[k], strlen(markers[k]));
        if (at && (!first || at < first)) {
            first = at;
            which = k;
        }
    }
    size_t n = first ? (size_t)(first - b->text) : b->size - held_back(b->text, b->size);
    const size_t to_drop = first ? n + strlen(markers[which]) : n;
    const size_t whole = n;
    while (first && n && is_space(b->text[n - 1]))
        n--;
    pass_text(p, b->text, n, sink);
    if (first) buffer_add(&p->gap, b->text + n, whole - n);
    drop(p, to_drop);
    if (!first) return false;
    p->state = which == 0 ? IN_HERMES : which == 1 ? IN_MISTRAL : IN_LLAMA;
    p->is_bare = false;
    return true;
}

/* A call up to its end marker, or to the end of the answer. */
static bool step_hermes(tool_parser *p, bool at_end, const tool_sink *sink)
{
    buffer *b = &p->pending;
    const char *end = b->size ? memmem(b->text, b->size, hermes_end, strlen(hermes_end)) : NULL;
    if (!end && !at_end) return false;
    const size_t n = end ? (size_t)(end - b->text) : b->size;
    if (!n || !pass_values(p, b->text, n, true, sink)) {
        pass_marker(p, markers[0], sink);
        pass_text(p, b->text ? b->text : "", n, sink);
        if (end) pass_text(p, hermes_end, strlen(hermes_end), sink);
    }
    buffer_free(&p->gap);
    if (b->size) drop(p, end ? n + strlen(hermes_end) : n);
    p->state = IN_TEXT;
    return true;
}

static void advance(tool_parser *p, bool at_end, const tool_sink *sink)
{
    while (p->pending.size &&
           ((p->state == IN_TEXT && step_text(p, sink)) || (p->state == IN_HERMES && step_hermes(p, at_end, sink))))
        ;
}

void tool_parser_text(tool_parser *p, const char *text, size_t size, const tool_sink *sink)
{
    if (!size) return;
    buffer_add(&p->pending, text, size);
    advance(p, false, sink);
}

void tool_parser_end(tool_parser *p, const tool_sink *sink)
{
    buffer *b = &p->pending;
    if (b->size) advance(p, true, sink);
    const char *text = b->size ? b->text : "";
    const size_t n = b->size, start = skip_space(text, n, 0);
    bool found = false;
    if (p->state == IN_LLAMA) found = pass_values(p, text, n, !p->is_bare, sink);
    if (p->state == IN_MISTRAL)
        found = start < n && text[start] == '[' ? pass_values(p, text, n, true, sink) : pass_named(p, text, n, sink);
    if (!found && p->state == IN_HERMES) pass_marker(p, markers[0], sink);
    if (!found && p->state == IN_MISTRAL) pass_marker(p, markers[1], sink);
    if (!found && p->state == IN_LLAMA) pass_marker(p, "", sink);
    if (!found && (p->state != IN_TEXT || start < n || !p->n_calls)) pass_text(p, text, n, sink);
    buffer_free(b);
    p->state = IN_TEXT;
}

/* ---- tokens ---- */

void tool_markers_find(const nrl_open_tokenizer *t, tool_markers *out)
{
    for (size_t k = 0; k < TOOL_N_MARKERS; k++) {
        nrl_token_ids ids = {0};
        char *text = NULL;
        size_t size = 0;
        out->ids[k] = NRL_TOKEN_NONE;
        if (nrl_tokenizer_encode(t, NULL, markers[k], strlen(markers[k]), 0, &ids) == NRL_OK && ids.n == 1 &&
            nrl_tokenizer_decode(t, ids.ids, 1, true, &text, &size) == NRL_OK && !size)
            out->ids[k] = ids.ids[0];
        nrl_free(text);
        nrl_token_ids_free(&ids);
    }
}

void tool_parser_token(tool_parser *p, const tool_markers *m, const nrl_sampled_token *t, const tool_sink *sink)
{
    for (size_t k = 0; k < TOOL_N_MARKERS; k++)
        if (t->id == m->ids[k]) tool_parser_text(p, markers[k], strlen(markers[k]), sink);
    tool_parser_text(p, t->piece, t->piece_size, sink);
}

void tool_calls_read_arguments(nrl_arena *a, nrl_node *messages)
{
    for (size_t i = 0; i < nrl_node_size(messages); i++) {
        const nrl_node *calls = nrl_node_find(nrl_node_at(messages, i), "tool_calls");
        for (size_t k = 0; k < nrl_node_size(calls); k++) {
            const nrl_node *function = nrl_node_find(nrl_node_at(calls, k), "function");
            const nrl_node *arguments = nrl_node_find(function, "arguments");
            nrl_node *map;
            if (nrl_node_kind(arguments) != NRL_NODE_STRING ||
                json_parse(a, "arguments", nrl_node_string(arguments, ""), nrl_node_string_size(arguments), &map) !=
                    NRL_OK ||
                nrl_node_kind(map) != NRL_NODE_MAP)
                continue;
            node_set(a, (nrl_node *)(uintptr_t)function, "arguments", map); /* of a tree that the caller owns */
        }
    }
}
