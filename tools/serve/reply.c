/*
 * reply.c - answers as JSON, in the forms of OpenAI's API, and as the events of a stream.
 */
#include "base/json.h"
#include "serve.h"
#include <stdlib.h>
#include <string.h>

static const char *finish_reason(const choice *c)
{
    if (c->finish == NRL_FINISH_STOP && c->n_calls) return "\"tool_calls\"";
    return c->finish == NRL_FINISH_STOP ? "\"stop\"" : c->finish == NRL_FINISH_LENGTH ? "\"length\"" : "null";
}

void reply_error(buffer *b, unsigned http_status, const char *message, const char *param, const char *code)
{
    const char *type = http_status == 401   ? "authentication_error"
                       : http_status == 429 ? "rate_limit_error"
                       : http_status >= 500 ? "server_error"
                                            : "invalid_request_error";
    const char *hint = strstr(message, "\nhint:"); /* for users of nrl, not for clients */
    buffer_puts(b, "{\"error\":{\"message\":");
    json_add_string(b, message, hint ? (size_t)(hint - message) : strlen(message));
    buffer_print(b, ",\"type\":\"%s\",\"param\":", type);
    if (param)
        json_add_string(b, param, strlen(param));
    else
        buffer_puts(b, "null");
    buffer_puts(b, ",\"code\":");
    if (code)
        json_add_string(b, code, strlen(code));
    else
        buffer_puts(b, "null");
    buffer_puts(b, "}}\n");
}

void reply_models(const server *s, buffer *b, int64_t created, bool as_list)
{
    if (as_list) buffer_puts(b, "{\"object\":\"list\",\"data\":[");
    buffer_puts(b, "{\"id\":");
    json_add_string(b, s->name, strlen(s->name));
    buffer_print(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"nrl\"}%s\n", (long long)created,
                 as_list ? "]}" : "");
}

/* ---- log-probs ---- */

/* The text of a token alone; freed by the caller. */
static char *token_text(const job *j, int32_t id, size_t *size)
{
    char *text = NULL;
    *size = 0;
    if (nrl_tokenizer_decode(j->server->tokenizer, &id, 1, false, &text, size) == NRL_OK) return text;
    return mem_strdup("");
}

/* "token": "a", "logprob": -1, "bytes": [97]; a token with a part of a character has no bytes of its own. */
static void add_chat_logprob(const job *j, buffer *b, int32_t id, float logp)
{
    size_t size;
    char *text = token_text(j, id, &size);
    buffer_puts(b, "\"token\":");
    json_add_string(b, text, size);
    buffer_print(b, ",\"logprob\":%.9g,\"bytes\":", (double)logp);
    if (memmem(text, size, "\xef\xbf\xbd", 3)) {
        buffer_puts(b, "null");
    } else {
        for (size_t i = 0; i < size; i++)
            buffer_print(b, "%s%d", i ? "," : "[", (unsigned char)text[i]);
        buffer_puts(b, size ? "]" : "[]");
    }
    nrl_free(text);
}

static void add_chat_logprobs(const job *j, buffer *b, const nrl_sampled_token *t)
{
    buffer_puts(b, "{");
    add_chat_logprob(j, b, t->id, t->logp);
    buffer_puts(b, ",\"top_logprobs\":[");
    for (size_t i = 0; i < t->n_top; i++) {
        buffer_puts(b, i ? ",{" : "{");
        add_chat_logprob(j, b, t->top_ids[i], t->top_logps[i]);
        buffer_puts(b, "}");
    }
    buffer_puts(b, "]}");
}

/* The members of an object of log-probs so far. */
typedef struct {
    char *texts[SERVE_MAX_TOP + 1]; /* the likeliest tokens and the sampled one */
    size_t n;
} top_members;

/* Tokens with the same text are one member, the first. */
static void add_top_member(const job *j, buffer *b, top_members *seen, int32_t id, float logp)
{
    size_t size, k = 0;
    char *text = token_text(j, id, &size);
    while (k < seen->n && strcmp(seen->texts[k], text))
        k++;
    if (k < seen->n) {
        nrl_free(text);
        return;
    }
    if (k) buffer_puts(b, ",");
    json_add_string(b, text, size);
    buffer_print(b, ":%.9g", (double)logp);
    seen->texts[seen->n++] = text;
}

/* {"a": -1, "b": -2}: the likeliest tokens, after the sampled one if it is not among them. */
static void add_completion_top(const job *j, buffer *b, const nrl_sampled_token *t)
{
    const size_t n = t->n_top < SERVE_MAX_TOP ? t->n_top : SERVE_MAX_TOP;
    top_members seen = {.n = 0};
    bool is_among = false;
    for (size_t i = 0; i < n; i++)
        is_among |= t->top_ids[i] == t->id;
    buffer_puts(b, "{");
    if (!is_among) add_top_member(j, b, &seen, t->id, t->logp);
    for (size_t i = 0; i < n; i++)
        add_top_member(j, b, &seen, t->top_ids[i], t->top_logps[i]);
    for (size_t i = 0; i < seen.n; i++)
        nrl_free(seen.texts[i]);
    buffer_puts(b, "}");
}

/* Adds a token to the lists of a choice. */
static void collect_logprobs(const job *j, choice *c, const nrl_sampled_token *t)
{
    const char *comma = c->logprobs.size ? "," : "";
    buffer_puts(&c->logprobs, comma);
    if (j->is_chat) {
        add_chat_logprobs(j, &c->logprobs, t);
        return;
    }
    /* "tokens", "token_logprobs", "top_logprobs", "text_offset" */
    size_t size;
    char *text = token_text(j, t->id, &size);
    json_add_string(&c->logprobs, text, size);
    nrl_free(text);
    buffer_print(&c->text_logps, "%s%.9g", comma, (double)t->logp);
    buffer_puts(&c->tops, comma);
    add_completion_top(j, &c->tops, t);
    buffer_print(&c->offsets, "%s%zu", comma, c->n_characters);
}

static void add_logprobs(const job *j, buffer *b, const choice *c)
{
    buffer_puts(b, ",\"logprobs\":");
    if (!j->wants_logprobs)
        buffer_puts(b, "null");
    else if (j->is_chat)
        buffer_print(b, "{\"content\":[%s],\"refusal\":null}", c->logprobs.text ? c->logprobs.text : "");
    else
        buffer_print(b, "{\"tokens\":[%s],\"token_logprobs\":[%s],\"top_logprobs\":[%s],\"text_offset\":[%s]}",
                     c->logprobs.text ? c->logprobs.text : "", c->text_logps.text ? c->text_logps.text : "",
                     c->tops.text ? c->tops.text : "", c->offsets.text ? c->offsets.text : "");
}

/* ---- answers ---- */

static void begin_object(const job *j, buffer *b, bool is_chunk)
{
    buffer_print(
        b, "{\"id\":\"%s-%llu\",\"object\":\"%s%s\",\"created\":%lld,\"model\":", j->is_chat ? "chatcmpl" : "cmpl",
        (unsigned long long)j->number, j->is_chat ? "chat.completion" : "text_completion",
        is_chunk && j->is_chat ? ".chunk" : "", (long long)j->created);
    json_add_string(b, j->server->name, strlen(j->server->name));
}

static void add_usage(const job *j, buffer *b)
{
    buffer_print(b, ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld}",
                 (long long)j->prompt_tokens, (long long)j->completion_tokens,
                 (long long)(j->prompt_tokens + j->completion_tokens));
}

static void end_event(const job *j, buffer *b)
{
    buffer_puts(b, j->wants_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

void reply_stream_begin(job *j)
{
    for (size_t i = 0; i < j->n_choices && j->is_chat; i++) {
        buffer_puts(&j->out, "data: ");
        begin_object(j, &j->out, true);
        buffer_print(
            &j->out,
            ",\"choices\":[{\"index\":%zu,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
            "\"finish_reason\":null}]",
            i);
        end_event(j, &j->out);
    }
}

static void take_text(void *user, const char *text, size_t size)
{
    buffer_add(&((choice *)user)->text, text, size);
}

static void take_call(void *user, const tool_call *call)
{
    choice *c = user;
    buffer *b = &c->calls;
    buffer_print(b, "%s{\"index\":%zu,\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", b->size ? "," : "",
                 c->n_calls++, call->id);
    json_add_string(b, call->name, strlen(call->name));
    buffer_puts(b, ",\"arguments\":");
    json_add_string(b, call->arguments, strlen(call->arguments));
    buffer_puts(b, "}}");
}

/* {"content": "...", "tool_calls": [...]}, without braces. */
static void add_content(const choice *c, buffer *b)
{
    buffer_puts(b, "\"content\":");
    if (c->calls.size && !c->text.size)
        buffer_puts(b, "null");
    else
        json_add_string(b, c->text.size ? c->text.text : "", c->text.size);
    if (c->calls.size) buffer_print(b, ",\"tool_calls\":[%s]", c->calls.text);
}

void reply_token(job *j, size_t i, const nrl_sampled_token *t)
{
    choice *c = &j->choices[i];
    buffer *b = &j->out;
    const tool_sink sink = {take_text, take_call, c};
    if (j->wants_logprobs) collect_logprobs(j, c, t);
    for (size_t k = 0; k < t->piece_size; k++)
        c->n_characters += (t->piece[k] & 0xc0) != 0x80;
    c->finish = t->finish;
    if (c->parser) {
        tool_parser_token(c->parser, &j->server->markers, t, &sink);
        if (t->finish) tool_parser_end(c->parser, &sink);
    } else {
        buffer_add(&c->text, t->piece, t->piece_size);
    }
    if (!j->is_stream || (!c->text.size && !c->calls.size && !t->finish && !j->wants_logprobs)) return;
    buffer_puts(b, "data: ");
    begin_object(j, b, true);
    buffer_print(b, ",\"choices\":[{\"index\":%zu,", i);
    if (j->is_chat) {
        buffer_puts(b, "\"delta\":{");
        add_content(c, b);
        buffer_puts(b, "}");
    } else {
        buffer_puts(b, "\"text\":");
        json_add_string(b, c->text.size ? c->text.text : "", c->text.size);
    }
    add_logprobs(j, b, c);
    buffer_print(b, ",\"finish_reason\":%s}]", finish_reason(c));
    end_event(j, b);
    buffer *lists[] = {&c->text, &c->calls, &c->logprobs, &c->text_logps, &c->tops, &c->offsets};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        buffer_free(lists[k]);
}

void reply_end(job *j)
{
    buffer *b = &j->out;
    if (j->is_stream && j->wants_usage) {
        buffer_puts(b, "data: ");
        begin_object(j, b, true);
        buffer_puts(b, ",\"choices\":[]");
        add_usage(j, b);
        buffer_puts(b, "}\n\n");
    }
    if (j->is_stream) {
        buffer_puts(b, "data: [DONE]\n\n");
        return;
    }
    begin_object(j, b, false);
    buffer_puts(b, ",\"choices\":[");
    for (size_t i = 0; i < j->n_choices; i++) {
        const choice *c = &j->choices[i];
        buffer_print(b, "%s{\"index\":%zu,", i ? "," : "", i);
        if (j->is_chat) {
            buffer_puts(b, "\"message\":{\"role\":\"assistant\",");
            add_content(c, b);
            buffer_puts(b, "}");
        } else {
            buffer_puts(b, "\"text\":");
            json_add_string(b, c->text.text ? c->text.text : "", c->text.size);
        }
        add_logprobs(j, b, c);
        buffer_print(b, ",\"finish_reason\":%s}", finish_reason(c));
    }
    buffer_puts(b, "]");
    add_usage(j, b);
    buffer_puts(b, "}\n");
}
