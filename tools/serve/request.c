/*
 * request.c - the bodies of POST /v1/chat/completions and /v1/completions. A member that has no effect here is refused,
 * unless it cannot change the answer.
 */
#include "base/json.h"
#include "serve.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

typedef enum { FOR_BOTH, FOR_CHAT, FOR_COMPLETION } for_what;

typedef struct {
    const server *server;
    job *job;
    const nrl_node *body;
    const char **param;
} reader;

static nrl_status refuse(const reader *r, const char *param, const char *expected)
{
    *r->param = param;
    return nrl_fail(NRL_ERR_CONFIG, "%s: expected %s", param, expected);
}

static nrl_status read_number(const reader *r, const char *key, double or_value, double min, double max,
                              const char *expected, double *out)
{
    const nrl_node *n = nrl_node_find(r->body, key);
    const nrl_node_type kind = nrl_node_kind(n);
    *out = or_value;
    if (!n || kind == NRL_NODE_NULL) return NRL_OK;
    if (kind != NRL_NODE_INT && kind != NRL_NODE_FLOAT) return refuse(r, key, expected);
    *out = nrl_node_f64(n, or_value);
    return *out >= min && *out <= max ? NRL_OK : refuse(r, key, expected);
}

static nrl_status read_int(const reader *r, const char *key, int64_t or_value, int64_t min, int64_t max,
                           const char *expected, int64_t *out)
{
    double value;
    NRL_TRY(read_number(r, key, (double)or_value, (double)min, (double)max, expected, &value));
    *out = (int64_t)value;
    return (double)*out == value ? NRL_OK : refuse(r, key, expected);
}

/* A member of any object of the body; without it, false. */
static nrl_status to_bool(const reader *r, const nrl_node *n, const char *param, bool *out)
{
    *out = nrl_node_bool(n, false);
    if (!n || nrl_node_kind(n) == NRL_NODE_NULL || nrl_node_kind(n) == NRL_NODE_BOOL) return NRL_OK;
    return refuse(r, param, "true or false");
}

static nrl_status read_bool(const reader *r, const char *key, bool *out)
{
    return to_bool(r, nrl_node_find(r->body, key), key, out);
}

/* A member that is null is not set. */
static bool is_set(const reader *r, const char *key)
{
    const nrl_node_type kind = nrl_node_kind(nrl_node_find(r->body, key));
    return kind != NRL_NODE_NONE && kind != NRL_NODE_NULL;
}

/* ---- members ---- */

/* Integers are read as such, because a double has only 53 bits. A float that is not whole or out of range reads as
 * INT64_MIN; an integer just below INT64_MIN also is such a float. */
static nrl_status read_seed(const reader *r)
{
    nrl_sample_options *o = &r->job->options;
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) random = (uint64_t)r->job->created;
    r->job->call_seed = o->seed = random;
    if (!is_set(r, "seed")) return NRL_OK;
    const nrl_node *n = nrl_node_find(r->body, "seed");
    const int64_t seed = nrl_node_int(n, INT64_MIN);
    if (seed == INT64_MIN && nrl_node_kind(n) != NRL_NODE_INT)
        return refuse(r, "seed", "a whole number from -9223372036854775808 to 9223372036854775807");
    o->seed = (uint64_t)seed;
    return NRL_OK;
}

static nrl_status read_limits(const reader *r)
{
    nrl_sample_options *o = &r->job->options;
    const char *limit = is_set(r, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
    NRL_TRY(read_int(r, limit, r->server->max_tokens, 1, 1000000, "a number of tokens, 1 or more", &o->max_tokens));
    o->fits_context = !is_set(r, limit);
    NRL_TRY(read_number(r, "temperature", 1, 0, 100, "a number from 0 to 100", &o->temperature));
    NRL_TRY(read_number(r, "top_p", 1, 1e-9, 1, "a number above 0, up to 1", &o->top_p));
    NRL_TRY(read_int(r, "top_k", 0, -1, INT32_MAX, "a number of tokens", &o->top_k));
    NRL_TRY(read_number(r, "min_p", 0, 0, 1, "a number from 0 to 1", &o->min_p));
    NRL_TRY(read_number(r, "repetition_penalty", 1, 1e-3, 1e3, "a number above 0", &o->repetition_penalty));
    NRL_TRY(read_int(r, "n", 1, 1, SERVE_MAX_CHOICES, "a number from 1 to 128", &o->n));
    if (o->top_k < 0) o->top_k = 0; /* -1 means all, as in vLLM */
    return read_seed(r);
}

static nrl_status read_stop(const reader *r)
{
    static const char expected[] = "a text that is not empty, or a list of up to 64";
    const nrl_node *n = nrl_node_find(r->body, "stop");
    nrl_sample_options *o = &r->job->options;
    const bool is_list = nrl_node_kind(n) == NRL_NODE_LIST;
    if (!n || nrl_node_kind(n) == NRL_NODE_NULL) return NRL_OK;
    const size_t size = is_list ? nrl_node_size(n) : 1;
    if (size > SERVE_MAX_STOPS) return refuse(r, "stop", expected);
    for (size_t i = 0; i < size; i++) {
        const nrl_node *text = is_list ? nrl_node_at(n, i) : n;
        r->job->stop[i] = nrl_node_string(text, "");
        if (!*r->job->stop[i] || strlen(r->job->stop[i]) != nrl_node_string_size(text))
            return refuse(r, "stop", expected);
    }
    o->stop = r->job->stop;
    o->n_stop = size;
    return NRL_OK;
}

static nrl_status read_logprobs(const reader *r)
{
    job *j = r->job;
    const nrl_node *n = nrl_node_find(r->body, "logprobs");
    if (!j->is_chat) {
        int64_t top;
        NRL_TRY(read_int(r, "logprobs", -1, 0, SERVE_MAX_TOP, "a number from 0 to 20", &top));
        j->wants_logprobs = n && nrl_node_kind(n) != NRL_NODE_NULL;
        j->options.top_logprobs = j->wants_logprobs ? top : 0;
    } else {
        NRL_TRY(read_bool(r, "logprobs", &j->wants_logprobs));
        NRL_TRY(read_int(r, "top_logprobs", 0, 0, SERVE_MAX_TOP, "a number from 0 to 20", &j->options.top_logprobs));
        if (j->options.top_logprobs && !j->wants_logprobs) return refuse(r, "top_logprobs", "logprobs to be true");
    }
    j->options.logprobs = j->wants_logprobs;
    return NRL_OK;
}

static nrl_status read_stream(const reader *r)
{
    const nrl_node *n = nrl_node_find(r->body, "stream_options");
    NRL_TRY(read_bool(r, "stream", &r->job->is_stream));
    if (!n || nrl_node_kind(n) == NRL_NODE_NULL) return NRL_OK;
    if (nrl_node_kind(n) != NRL_NODE_MAP) return refuse(r, "stream_options", "an object");
    if (!r->job->is_stream) return refuse(r, "stream_options", "stream to be true");
    return to_bool(r, nrl_node_find(n, "include_usage"), "stream_options.include_usage", &r->job->wants_usage);
}

/* tool_choice "none" hides the tools from the template. Answers are not constrained, so no call can be forced. */
static nrl_status read_tools(const reader *r)
{
    job *j = r->job;
    const nrl_node *tools = nrl_node_find(r->body, "tools"), *tool_choice = nrl_node_find(r->body, "tool_choice");
    const nrl_node *parallel = nrl_node_find(r->body, "parallel_tool_calls");
    const char *word = is_set(r, "tool_choice") ? nrl_node_string(tool_choice, "") : "auto";
    if (tools && nrl_node_kind(tools) != NRL_NODE_NULL && nrl_node_kind(tools) != NRL_NODE_LIST)
        return refuse(r, "tools", "a list");
    for (size_t i = 0; i < nrl_node_size(tools); i++) {
        const nrl_node *function = nrl_node_find(nrl_node_at(tools, i), "function");
        if (strcmp(nrl_node_string(nrl_node_find(nrl_node_at(tools, i), "type"), "function"), "function") ||
            !*nrl_node_string(nrl_node_find(function, "name"), ""))
            return refuse(r, "tools", "a list of {\"type\": \"function\", \"function\": {\"name\": ..., ...}}");
    }
    if (strcmp(word, "auto") && strcmp(word, "none"))
        return refuse(r, "tool_choice", "auto or none, because decoding is not constrained");
    bool several;
    NRL_TRY(read_bool(r, "parallel_tool_calls", &several));
    j->most_calls = nrl_node_kind(parallel) == NRL_NODE_BOOL && !several ? 1 : SIZE_MAX;
    if (nrl_node_size(tools) && !strcmp(word, "auto")) j->tools = node_copy(&j->memory, tools);
    return NRL_OK;
}

/* The messages with what the template may read beside them. */
static nrl_status read_messages(const reader *r)
{
    job *j = r->job;
    const nrl_node *messages = nrl_node_find(r->body, "messages");
    const nrl_node *variables = nrl_node_find(r->body, "chat_template_kwargs");
    if (nrl_node_kind(messages) != NRL_NODE_LIST || !nrl_node_size(messages))
        return refuse(r, "messages", "a list of messages");
    nrl_node *conversation = node_new(&j->memory, NRL_NODE_MAP);
    nrl_node *copy = node_copy(&j->memory, messages);
    tool_calls_read_arguments(&j->memory, copy);
    node_append(&j->memory, conversation, "messages", copy);
    NRL_TRY(read_tools(r));
    if (j->tools) node_append(&j->memory, conversation, "tools", node_copy(&j->memory, j->tools));
    if (nrl_node_kind(variables) == NRL_NODE_MAP)
        node_append(&j->memory, conversation, "chat_template_kwargs", node_copy(&j->memory, variables));
    else if (variables && nrl_node_kind(variables) != NRL_NODE_NULL)
        return refuse(r, "chat_template_kwargs", "an object");
    j->n_prompts = 1;
    j->prompts = arena_alloc(&j->memory, sizeof *j->prompts);
    j->prompts[0] = (nrl_prompt){.size = sizeof(nrl_prompt), .conversation = conversation};
    return NRL_OK;
}

static const char prompt_forms[] = "a text, a list of texts, a list of token ids or a list of such lists";

static nrl_status read_prompt(const reader *r, const nrl_node *n, nrl_prompt *out)
{
    *out = (nrl_prompt){.size = sizeof *out};
    if (nrl_node_kind(n) == NRL_NODE_STRING) {
        out->text = nrl_node_string(n, "");
        if (strlen(out->text) != nrl_node_string_size(n)) return refuse(r, "prompt", "a text without NUL characters");
        return NRL_OK;
    }
    const size_t size = nrl_node_size(n);
    if (nrl_node_kind(n) != NRL_NODE_LIST || !size) return refuse(r, "prompt", prompt_forms);
    int32_t *ids = arena_alloc(&r->job->memory, size * sizeof *ids);
    for (size_t i = 0; i < size; i++) {
        const int64_t id = nrl_node_int(nrl_node_at(n, i), -1);
        if (nrl_node_kind(nrl_node_at(n, i)) != NRL_NODE_INT || id < 0 || id > INT32_MAX)
            return refuse(r, "prompt", prompt_forms);
        ids[i] = (int32_t)id;
    }
    out->ids = ids;
    out->n_ids = size;
    return NRL_OK;
}

static nrl_status read_prompts(const reader *r)
{
    job *j = r->job;
    const nrl_node *n = nrl_node_find(r->body, "prompt");
    const bool several = nrl_node_kind(n) == NRL_NODE_LIST && nrl_node_kind(nrl_node_at(n, 0)) != NRL_NODE_INT;
    j->n_prompts = several ? nrl_node_size(n) : 1;
    if (!j->n_prompts || j->n_prompts * (size_t)j->options.n > SERVE_MAX_CHOICES)
        return refuse(r, "prompt", "at most 128 texts, prompts times n");
    j->prompts = arena_alloc(&j->memory, j->n_prompts * sizeof *j->prompts);
    for (size_t i = 0; i < j->n_prompts; i++)
        NRL_TRY(read_prompt(r, several ? nrl_node_at(n, i) : n, &j->prompts[i]));
    return NRL_OK;
}

/* ---- members without an effect ---- */

static const struct {
    const char *key;
    for_what what;
    const char
        *only; /* the one value that is accepted, as JSON; NULL = any: it changes no answer; "" = it has an effect */
} members[] = {
    {"model", FOR_BOTH, ""},
    {"messages", FOR_CHAT, ""},
    {"tools", FOR_CHAT, ""},
    {"chat_template_kwargs", FOR_CHAT, ""},
    {"prompt", FOR_COMPLETION, ""},
    {"max_tokens", FOR_BOTH, ""},
    {"max_completion_tokens", FOR_CHAT, ""},
    {"temperature", FOR_BOTH, ""},
    {"top_p", FOR_BOTH, ""},
    {"top_k", FOR_BOTH, ""},
    {"min_p", FOR_BOTH, ""},
    {"repetition_penalty", FOR_BOTH, ""},
    {"n", FOR_BOTH, ""},
    {"seed", FOR_BOTH, ""},
    {"stop", FOR_BOTH, ""},
    {"logprobs", FOR_BOTH, ""},
    {"top_logprobs", FOR_CHAT, ""},
    {"stream", FOR_BOTH, ""},
    {"stream_options", FOR_BOTH, ""},
    {"user", FOR_BOTH, NULL},
    {"metadata", FOR_BOTH, NULL},
    {"store", FOR_BOTH, NULL},
    {"service_tier", FOR_BOTH, NULL},
    {"safety_identifier", FOR_BOTH, NULL},
    {"prompt_cache_key", FOR_BOTH, NULL},
    {"frequency_penalty", FOR_BOTH, "0"},
    {"presence_penalty", FOR_BOTH, "0"},
    {"logit_bias", FOR_BOTH, "{}"},
    {"best_of", FOR_COMPLETION, "1"},
    {"echo", FOR_COMPLETION, "false"},
    {"suffix", FOR_COMPLETION, "null"},
    {"response_format", FOR_CHAT, "{\"type\": \"text\"}"},
    {"tool_choice", FOR_CHAT, ""},
    {"parallel_tool_calls", FOR_CHAT, ""},
};

static nrl_status check_members(const reader *r)
{
    const for_what here = r->job->is_chat ? FOR_CHAT : FOR_COMPLETION;
    for (size_t i = 0; i < nrl_node_size(r->body); i++) {
        const char *key = nrl_node_key(r->body, i);
        const nrl_node *value = nrl_node_at(r->body, i);
        size_t k = 0;
        while (k < sizeof members / sizeof *members &&
               (strcmp(members[k].key, key) || (members[k].what != FOR_BOTH && members[k].what != here)))
            k++;
        *r->param = key;
        if (k == sizeof members / sizeof *members) return nrl_fail(NRL_ERR_CONFIG, "unknown member '%.100s'", key);
        const char *only = members[k].only;
        if (!only || !*only || nrl_node_kind(value) == NRL_NODE_NULL) continue;
        char *text = json_write(value, 0);
        const double zero = nrl_node_f64(value, 1);
        const bool same = !strcmp(text, only) || (!strcmp(only, "0") && zero == 0);
        free(text);
        if (!same) return nrl_fail(NRL_ERR_CONFIG, "%s: only %s is supported", key, only);
    }
    *r->param = NULL;
    return NRL_OK;
}

nrl_status request_read(const server *s, job *j, const char *body, size_t size, const char **param)
{
    nrl_node *root;
    *param = NULL;
    NRL_TRY(json_parse(&j->memory, "request", body, size, &root));
    const reader r = {s, j, root, param};
    if (nrl_node_kind(root) != NRL_NODE_MAP) return nrl_fail(NRL_ERR_DATA, "request: expected a JSON object");
    NRL_TRY(check_members(&r));
    j->options.size = sizeof j->options;
    NRL_TRY(read_limits(&r));
    NRL_TRY(read_stop(&r));
    NRL_TRY(read_logprobs(&r));
    NRL_TRY(read_stream(&r));
    NRL_TRY(j->is_chat ? read_messages(&r) : read_prompts(&r));
    j->n_choices = j->n_prompts * (size_t)j->options.n;
    const nrl_node *model = nrl_node_find(root, "model");
    if (!is_set(&r, "model") || !strcmp(nrl_node_string(model, ""), s->name)) return NRL_OK;
    *param = "model";
    return nrl_fail(NRL_ERR_CONFIG, "the model '%.200s' does not exist, expected '%s'", nrl_node_string(model, ""),
                    s->name);
}
