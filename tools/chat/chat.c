/*
 * chat.c - `nrl chat SRC`: a conversation with a model from disk. Each line of the standard input is a message; the
 * answer is printed as it is generated. Lines that begin with a slash are commands.
 */
#include "base/json.h"
#include "cli/common/experiment.h"
#include "cli/common/sample_flags.h"
#include "cli/common/tool_calls.h"
#include <errno.h>
#include <nrl/inference.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TOOLS = 16 << 20 };

static const char help[] = "/reset         forgets the conversation\n"
                           "/system TEXT   replaces the system prompt and forgets the conversation\n"
                           "/seed N        sets the seed of the next answer\n"
                           "/result TEXT   gives the result of the oldest open tool call\n"
                           "/save FILE     appends the conversation to FILE, as a row of training data\n"
                           "/quit          ends the program\n";

typedef struct {
    nrl_inference *m;
    nrl_sample_options options;
    arena memory; /* of the messages; reset with them */
    nrl_node *messages;
    char *system;          /* NULL = none */
    const nrl_node *tools; /* of --tools; NULL = none */
    tool_markers markers;
    size_t n_results; /* calls of the last answer that have a result */
    bool is_terminal;
} chat;

/* SIGINT ends the answer that is being generated, or the program if there is none. */
static volatile sig_atomic_t interrupted, answering;

static void on_interrupt(int number)
{
    if (!answering) _exit(128 + number);
    interrupted = 1;
}

static void add_message(chat *c, const char *role, const char *content)
{
    nrl_node *message = node_new(&c->memory, NRL_NODE_MAP);
    node_append_text(&c->memory, message, "role", role);
    node_append_text(&c->memory, message, "content", content);
    node_append(&c->memory, c->messages, NULL, message);
}

static void forget(chat *c)
{
    arena_reset(&c->memory);
    c->messages = node_new(&c->memory, NRL_NODE_LIST);
    if (c->system) add_message(c, "system", c->system);
}

/* An answer on its way. */
typedef struct {
    chat *chat;
    buffer text;
    tool_parser *parser; /* NULL without tools */
    nrl_node *calls;     /* a list, in the chat's memory */
} chat_answer;

static void take_text(void *user, const char *text, size_t size)
{
    chat_answer *a = user;
    const size_t before = a->text.size;
    buffer_add(&a->text, text, size);
    if (size) cli_print(a->text.text + before);
}

/* A call is printed on a line of its own. */
static void take_call(void *user, const tool_call *call)
{
    chat_answer *a = user;
    arena *m = &a->chat->memory;
    nrl_node *node = node_new(m, NRL_NODE_MAP), *function = node_new(m, NRL_NODE_MAP);
    node_append_text(m, node, "id", call->id);
    node_append_text(m, node, "type", "function");
    node_append_text(m, function, "name", call->name);
    node_append_text(m, function, "arguments", call->arguments);
    node_append(m, node, "function", function);
    node_append(m, a->calls, NULL, node);
    cli_print(arena_printf(m, "%s[call %s(%s)]", a->text.size || nrl_node_size(a->calls) > 1 ? "\n" : "", call->name,
                           call->arguments));
}

static nrl_status print_token(void *user, const nrl_sampled_token *t)
{
    chat_answer *a = user;
    const tool_sink sink = {take_text, take_call, a};
    if (a->parser)
        tool_parser_token(a->parser, &a->chat->markers, t, &sink);
    else
        take_text(a, t->piece, t->piece_size);
    if (a->parser && t->finish) tool_parser_end(a->parser, &sink);
    fflush(stdout);
    return interrupted ? NRL_ERR_STOPPED : NRL_OK;
}

/* Adds what was answered to the conversation; arguments as a map, as templates expect them. */
static void add_answer(chat *c, const chat_answer *a)
{
    add_message(c, "assistant", a->text.text ? a->text.text : "");
    c->n_results = 0;
    if (!nrl_node_size(a->calls)) return;
    const nrl_node *message = nrl_node_at(c->messages, nrl_node_size(c->messages) - 1);
    node_append(&c->memory, (nrl_node *)(uintptr_t)message, "tool_calls", a->calls);
    tool_calls_read_arguments(&c->memory, c->messages);
}

/* Answers the last message, which leaves the conversation if this fails. An answer that was interrupted stays in it as
 * far as it was printed. */
static nrl_status answer(chat *c)
{
    chat_answer a = {.chat = c, .calls = node_new(&c->memory, NRL_NODE_LIST)};
    char *whole = NULL;
    nrl_node *map = node_new(&c->memory, NRL_NODE_MAP);
    node_append(&c->memory, map, "messages", node_copy(&c->memory, c->messages));
    if (c->tools) {
        node_append(&c->memory, map, "tools", node_copy(&c->memory, c->tools));
        const uint64_t turn = nrl_node_size(c->messages); /* ids of calls differ although /seed repeats a seed */
        a.parser = tool_parser_create(c->tools, SIZE_MAX, c->options.seed + (turn << 32));
    }
    const nrl_node *conversation = map;
    c->options.conversations = &conversation;
    c->options.token = print_token;
    c->options.token_user = &a;
    interrupted = 0;
    answering = 1;
    nrl_status st = nrl_inference_sample(c->m, NULL, 1, &c->options, &whole, NULL);
    answering = 0;
    putchar('\n');
    fflush(stdout);
    if (st == NRL_ERR_STOPPED && interrupted) st = NRL_OK;
    if (st == NRL_OK)
        add_answer(c, &a);
    else
        c->messages->size--;
    c->options.seed++;
    nrl_free(whole);
    tool_parser_destroy(a.parser);
    buffer_free(&a.text);
    return st;
}

/* The result of the next call of the last answer; with the last result the model goes on. */
static nrl_status add_result(chat *c, const char *text)
{
    size_t n = nrl_node_size(c->messages);
    if (n < c->n_results + 1) return nrl_fail(NRL_ERR_CONFIG, "/result: no tool call waits for a result");
    const nrl_node *calls = nrl_node_find(nrl_node_at(c->messages, n - 1 - c->n_results), "tool_calls");
    if (c->n_results >= nrl_node_size(calls))
        return nrl_fail(NRL_ERR_CONFIG, "/result: no tool call waits for a result");
    const nrl_node *call = nrl_node_at(calls, c->n_results++);
    add_message(c, "tool", text);
    nrl_node *message = (nrl_node *)(uintptr_t)nrl_node_at(c->messages, n);
    node_append_text(&c->memory, message, "name",
                     nrl_node_string(nrl_node_find(nrl_node_find(call, "function"), "name"), ""));
    node_append_text(&c->memory, message, "tool_call_id", nrl_node_string(nrl_node_find(call, "id"), ""));
    if (c->n_results < nrl_node_size(calls)) return NRL_OK;
    nrl_status st = answer(c);
    if (st != NRL_OK) c->n_results--;
    return st;
}

static nrl_status save(const chat *c, const char *path)
{
    arena a = {0};
    nrl_node *row = node_new(&a, NRL_NODE_MAP);
    node_append(&a, row, "messages", node_copy(&a, c->messages));
    if (c->tools) node_append(&a, row, "tools", node_copy(&a, c->tools));
    char *text = json_write(row, 0);
    FILE *f = fopen(path, "ae");
    bool good = f && fprintf(f, "%s\n", text) > 0;
    if (f) good &= fclose(f) == 0;
    const int error = errno;
    const size_t n = nrl_node_size(c->messages);
    free(text);
    arena_free(&a);
    if (!good) return nrl_fail(NRL_ERR_IO, "cannot write '%s': %s", path, strerror(error));
    fprintf(stderr, "saved %zu message%s to '%s'\n", n, n == 1 ? "" : "s", path);
    return NRL_OK;
}

/* Runs a command; *quit says whether the program ends. */
static nrl_status command(chat *c, char *line, bool *quit)
{
    char *rest = line + strcspn(line, " "), *end;
    if (*rest) *rest++ = 0;
    if (!strcmp(line, "/quit") || !strcmp(line, "/exit")) {
        *quit = true;
    } else if (!strcmp(line, "/reset")) {
        forget(c);
    } else if (!strcmp(line, "/system")) {
        free(c->system);
        c->system = *rest ? mem_strdup(rest) : NULL;
        forget(c);
    } else if (!strcmp(line, "/seed")) {
        unsigned long long seed = strtoull(rest, &end, 10);
        if (end == rest || *end) return nrl_fail(NRL_ERR_CONFIG, "/seed: '%s': expected a whole number", rest);
        c->options.seed = seed;
    } else if (!strcmp(line, "/result")) {
        return add_result(c, rest);
    } else if (!strcmp(line, "/save")) {
        if (!*rest) return nrl_fail(NRL_ERR_CONFIG, "/save: expected the name of a file");
        return save(c, rest);
    } else if (!strcmp(line, "/help")) {
        fputs(help, stdout);
    } else {
        return nrl_fail(NRL_ERR_CONFIG, "unknown command '%s'; /help lists the commands", line);
    }
    return NRL_OK;
}

/* On a terminal an error ends the answer and not the program. */
static nrl_status converse(chat *c)
{
    char *line = NULL;
    size_t room = 0;
    bool quit = false;
    nrl_status st = NRL_OK;
    forget(c);
    while (st == NRL_OK && !quit) {
        if (c->is_terminal) fputs("> ", stdout);
        fflush(stdout);
        ssize_t n = getline(&line, &room, stdin);
        if (n < 0) break;
        line[strcspn(line, "\r\n")] = 0;
        if (!*line) continue;
        if (*line == '/') {
            st = command(c, line, &quit);
        } else {
            add_message(c, "user", line);
            st = answer(c);
        }
        if (st == NRL_OK || !c->is_terminal) continue;
        fprintf(stderr, "error: %s\n", nrl_error_text());
        st = NRL_OK;
    }
    if (c->is_terminal && !quit) putchar('\n');
    free(line);
    return st;
}

static nrl_status chat_verb(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    nrl_inference_options model;
    const char *template = NULL, *system = NULL, *public_key = NULL, *tools = NULL;
    nrl_node *list = NULL;
    chat c = {.options = {.size = sizeof c.options}, .is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    nrl_status st = cli_take_value(&argc, argv, "--system", &system);
    if (st == NRL_OK) st = cli_take_value(&argc, argv, "--template", &template);
    if (st == NRL_OK) st = cli_take_value(&argc, argv, "--public-key", &public_key);
    if (st == NRL_OK) st = cli_take_value(&argc, argv, "--tools", &tools);
    if (st == NRL_OK) st = sample_take_model(&argc, argv, &model);
    if (st == NRL_OK)
        st = sample_take_flags(&a, &argc, argv, &(sample_defaults){.max_tokens = 256, .temperature = 0.7}, &c.options);
    if (st == NRL_OK) st = cli_expect(argc, argv, 1, 1);
    if (st == NRL_OK && tools && json_read_file(&a, tools, MAX_TOOLS, &list) != NRL_OK)
        st = nrl_fail(NRL_ERR_CONFIG, "--tools: %s", nrl_error_text());
    if (st == NRL_OK && tools && nrl_node_kind(list) != NRL_NODE_LIST)
        st = nrl_fail(NRL_ERR_CONFIG,
                      "--tools: %s: expected a list of tools, [{\"type\": \"function\", \"function\": {...}}]", tools);
    if (st == NRL_OK) {
        experiment_environment(&a, &env);
        env.public_key = public_key;
        st = nrl_inference_open_with(argv[1], &env, &model, &c.m);
    }
    if (st == NRL_OK) sample_print_model(c.m);
    if (st == NRL_OK) st = nrl_inference_set_template(c.m, template);
    if (st == NRL_OK) {
        signal(SIGINT, on_interrupt);
        c.system = system ? mem_strdup(system) : NULL;
        c.tools = list;
        tool_markers_find(nrl_inference_tokenizer(c.m), &c.markers);
        if (c.is_terminal) puts("/help lists the commands; end with Ctrl-D");
        st = converse(&c);
    }
    free(c.system);
    nrl_inference_close(c.m);
    arena_free(&c.memory);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "chat", chat_verb);
}
