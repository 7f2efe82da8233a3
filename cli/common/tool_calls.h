/*
 * tool_calls.h - finds the calls of tools in the text of an answer, while it is generated: for `nrl serve` and `nrl
 * chat`. The form is recognized by the text itself:
 *
 *     <tool_call>{"name": "f", "arguments": {...}}</tool_call>           Hermes, Qwen
 *     {"name": "f", "parameters": {...}}; ...                            Llama 3, also behind <|python_tag|>
 *     [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]               Mistral
 *     [TOOL_CALLS]f[ARGS]{...}                                           Mistral, newer models
 *
 * What looks like a call and is none stays text.
 */
#ifndef CLI_TOOL_CALLS_H
#define CLI_TOOL_CALLS_H
#include <nrl/inference.h>

enum { TOOL_CALL_ID = 9, TOOL_N_MARKERS = 3 };

typedef struct {
    const char *name, *arguments; /* a JSON map as text */
    char id[TOOL_CALL_ID + 1];    /* 9 letters and digits, as templates of Mistral demand */
} tool_call;

/* What is found, in the order of the answer. */
typedef struct {
    void (*text)(void *user, const char *text, size_t size);
    void (*call)(void *user, const tool_call *call);
    void *user;
} tool_sink;

typedef struct tool_parser tool_parser;

/* `tools` is the list that the template received: JSON without a marker is a call only of one of these. It must outlive
 * the parser. `most` calls are passed on, later ones are dropped. Different seeds give different ids. */
tool_parser *tool_parser_create(const nrl_node *tools, size_t most, uint64_t seed);
void tool_parser_destroy(tool_parser *p); /* may be NULL */
void tool_parser_text(tool_parser *p, const char *text, size_t size, const tool_sink *sink);
void tool_parser_end(tool_parser *p, const tool_sink *sink); /* the answer is complete */

/* Markers that are special tokens: decoding skips them. */
typedef struct {
    int32_t ids[TOOL_N_MARKERS]; /* NRL_TOKEN_NONE = text of the vocabulary */
} tool_markers;
void tool_markers_find(const nrl_open_tokenizer *t, tool_markers *out);
/* A sampled token: its marker, if it is one, and its text. */
void tool_parser_token(tool_parser *p, const tool_markers *m, const nrl_sampled_token *t, const tool_sink *sink);

/* Arguments of calls in messages may be JSON text, as in OpenAI's API; templates expect maps. Replaces the text. */
void tool_calls_read_arguments(nrl_arena *a, nrl_node *messages);

#endif
