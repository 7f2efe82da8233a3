/*
 * sample.c - `nrl sample SRC --prompt TEXT`: continues prompts, or answers conversations, with a model from disk.
 */
#include "base/file.h"
#include "base/json.h"
#include "cli/common/experiment.h"
#include "cli/common/sample_flags.h"
#include <nrl/inference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT_FILE_MAX = 64 << 20, MAX_COPIES = 10000 };

typedef struct {
    const char *prompt, *file, *system, *template, *public_key;
    int64_t copies; /* of each prompt */
    bool json;
} sample_flags;

/* One text to generate. */
typedef struct {
    const char *prompt;           /* what is printed: the prompt, or the last message */
    const nrl_node *conversation; /* NULL: the prompt is continued as plain text */
} request;

typedef struct {
    request *items;
    size_t n, room;
} requests;

static nrl_status take_flags(arena *a, int *argc, char **argv, sample_flags *f, nrl_sample_options *o)
{
    const char *copies;
    char *end;
    NRL_TRY(cli_take_value(argc, argv, "--prompt", &f->prompt));
    NRL_TRY(cli_take_value(argc, argv, "--file", &f->file));
    NRL_TRY(cli_take_value(argc, argv, "--system", &f->system));
    NRL_TRY(cli_take_value(argc, argv, "--template", &f->template));
    NRL_TRY(cli_take_value(argc, argv, "--public-key", &f->public_key));
    NRL_TRY(cli_take_value(argc, argv, "--n", &copies));
    NRL_TRY(sample_take_flags(a, argc, argv, &(sample_defaults){.max_tokens = 64}, o));
    f->json = cli_take_flag(argc, argv, "--json");
    o->chat = cli_take_flag(argc, argv, "--chat") || f->template || f->system;
    NRL_TRY(cli_expect(*argc, argv, 1, 1));
    if (!f->prompt == !f->file)
        return nrl_fail(NRL_ERR_CONFIG, "give one of --prompt TEXT and --file FILE (a prompt a line, or JSON lines)");
    f->copies = copies ? strtol(copies, &end, 10) : 1;
    if (copies && (end == copies || *end || f->copies < 1 || f->copies > MAX_COPIES))
        return nrl_fail(NRL_ERR_CONFIG, "--n: '%s': expected a number from 1 to %d", copies, (int)MAX_COPIES);
    return NRL_OK;
}

/* ---- requests ---- */

static void add_request(arena *a, requests *r, const sample_flags *f, const char *prompt, const nrl_node *conversation)
{
    for (int64_t i = 0; i < f->copies; i++) {
        if (r->n == r->room) {
            request *old = r->items;
            r->room = 2 * r->room + 16;
            r->items = arena_alloc(a, r->room * sizeof *r->items);
            if (r->n) memcpy(r->items, old, r->n * sizeof *old);
        }
        r->items[r->n++] = (request){prompt, conversation};
    }
}

static void add_message(arena *a, nrl_node *list, const char *role, const char *content)
{
    nrl_node *message = node_new(a, NRL_NODE_MAP);
    node_append_text(a, message, "role", role);
    node_append_text(a, message, "content", content);
    node_append(a, list, NULL, message);
}

/* A prompt of the command line or of a line of text. */
static void add_prompt(arena *a, requests *r, const sample_flags *f, bool is_chat, const char *prompt)
{
    nrl_node *list = is_chat ? node_new(a, NRL_NODE_LIST) : NULL;
    if (is_chat && f->system) add_message(a, list, "system", f->system);
    if (is_chat) add_message(a, list, "user", prompt);
    add_request(a, r, f, prompt, list);
}

/* A line of JSON: {"prompt": TEXT} or {"messages": [...]}, of which a final answer is left out: it is asked for again.
 */
static nrl_status add_row(arena *a, requests *r, const sample_flags *f, bool is_chat, const char *place,
                          const char *line)
{
    nrl_node *row;
    NRL_TRY(json_parse(a, place, line, strlen(line), &row));
    const nrl_node *messages = nrl_node_find(row, "messages");
    const char *prompt = nrl_node_string(nrl_node_find(row, "prompt"), NULL);
    size_t n = nrl_node_size(messages);
    bool answered =
        n > 1 && !strcmp(nrl_node_string(nrl_node_find(nrl_node_at(messages, n - 1), "role"), ""), "assistant");
    if (nrl_node_kind(messages) == NRL_NODE_LIST && n) {
        if (f->system) return nrl_fail(NRL_ERR_CONFIG, "--system: %s has its own messages", place);
        nrl_node *asked = node_new(a, NRL_NODE_LIST);
        n -= answered;
        for (size_t i = 0; i < n; i++)
            node_append(a, asked, NULL, node_copy(a, nrl_node_at(messages, i)));
        node_set(a, row, "messages", asked);
        add_request(a, r, f, nrl_node_string(nrl_node_find(nrl_node_at(asked, n - 1), "content"), ""), row);
    } else if (prompt) {
        add_prompt(a, r, f, is_chat, prompt);
    } else {
        return nrl_fail(NRL_ERR_DATA, "%s: expected \"messages\", a list of messages, or \"prompt\", a text", place);
    }
    return NRL_OK;
}

static nrl_status read_stream(FILE *in, arena *a, char **out)
{
    char *text = NULL;
    size_t size = 0, room = 0;
    while (!feof(in) && !ferror(in) && size < PROMPT_FILE_MAX) {
        if (size + 4096 > room) {
            room = 2 * room + 8192;
            text = mem_realloc(text, room);
        }
        size += fread(text + size, 1, room - size - 1, in);
    }
    bool whole = feof(in) && !ferror(in);
    *out = arena_strndup(a, text ? text : "", size);
    free(text);
    return whole ? NRL_OK : nrl_fail(NRL_ERR_CONFIG, "--file: cannot read the standard input to its end");
}

/* Lines that begin with { are rows of JSON if the name ends in .jsonl, or if the input is the standard input. */
static nrl_status read_file(arena *a, requests *r, const sample_flags *f, bool is_chat)
{
    bool is_input = !strcmp(f->file, "-");
    size_t size, n = strlen(f->file);
    char *text;
    if (is_input) {
        NRL_TRY(read_stream(stdin, a, &text));
    } else {
        char *read;
        if (file_read(f->file, PROMPT_FILE_MAX, &read, &size) != NRL_OK)
            return nrl_fail(NRL_ERR_CONFIG, "--file: %s", nrl_error_text());
        text = arena_strndup(a, read, size);
        free(read);
    }
    bool is_rows = is_input || (n > 6 && !strcmp(f->file + n - 6, ".jsonl"));
    const char *name = is_input ? "standard input" : f->file;
    int64_t number = 0;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        size = strlen(line);
        number++;
        if (size && line[size - 1] == '\r') line[--size] = 0;
        if (!size) continue;
        if (is_rows && *line == '{')
            NRL_TRY(add_row(a, r, f, is_chat, arena_printf(a, "%s:%lld", name, (long long)number), line));
        else
            add_prompt(a, r, f, is_chat, line);
    }
    return r->n ? NRL_OK : nrl_fail(NRL_ERR_DATA, "%s: no prompt in it", name);
}

/* ---- output ---- */

/* The answer to a conversation starts on a new line; the continuation of plain text directly follows the prompt. */
static void print_prompt(const request *r)
{
    cli_print(r->prompt);
    if (r->conversation) putchar('\n');
}

static void print_json(const request *r, const char *text, int64_t n)
{
    char *p = json_quote(r->prompt, strlen(r->prompt)), *t = json_quote(text, strlen(text));
    printf("{\"prompt\":%s,\"text\":%s,\"tokens\":%lld}\n", p, t, (long long)n);
    free(p);
    free(t);
}

static nrl_status print_token(void *user, size_t prompt, int32_t id, const char *text, size_t size)
{
    (void)user;
    (void)prompt;
    (void)id;
    if (size) cli_print(text);
    fflush(stdout);
    return NRL_OK;
}

/* One text is printed as it is generated. Plain prompts and conversations are two batches. */
static nrl_status generate_some(arena *a, nrl_inference *m, const requests *r, bool conversations, bool json,
                                const nrl_sample_options *options, char **texts, int64_t *counts)
{
    nrl_sample_options o = *options;
    const char **prompts = arena_alloc(a, r->n * sizeof *prompts);
    const nrl_node **nodes = arena_alloc(a, r->n * sizeof *nodes);
    size_t *owner = arena_alloc(a, r->n * sizeof *owner), n = 0;
    char **some = arena_alloc(a, r->n * sizeof *some);
    int64_t *some_counts = arena_alloc(a, r->n * sizeof *some_counts);
    for (size_t i = 0; i < r->n; i++)
        if (!r->items[i].conversation != conversations) {
            prompts[n] = r->items[i].prompt;
            nodes[n] = r->items[i].conversation;
            owner[n++] = i;
        }
    if (!n) return NRL_OK;
    o.chat = false;
    o.conversations = conversations ? nodes : NULL;
    if (r->n == 1 && !json) {
        print_prompt(&r->items[0]);
        fflush(stdout);
        o.token = print_token;
    }
    NRL_TRY(nrl_inference_sample(m, prompts, n, &o, some, some_counts));
    for (size_t i = 0; i < n; i++) {
        texts[owner[i]] = some[i];
        counts[owner[i]] = some_counts[i];
    }
    return NRL_OK;
}

/* --template names the template; --chat uses the template of the run, or that of the tokenizer if there is no run. */
static nrl_status sample(arena *a, nrl_inference *m, const sample_flags *f, const nrl_sample_options *o)
{
    requests r = {0};
    if (f->prompt)
        add_prompt(a, &r, f, o->chat, f->prompt);
    else
        NRL_TRY(read_file(a, &r, f, o->chat));
    if (o->chat) NRL_TRY(nrl_inference_set_template(m, f->template));
    char **texts = arena_alloc(a, r.n * sizeof *texts);
    int64_t *counts = arena_alloc(a, r.n * sizeof *counts);
    nrl_status st = generate_some(a, m, &r, false, f->json, o, texts, counts);
    if (st == NRL_OK) st = generate_some(a, m, &r, true, f->json, o, texts, counts);
    for (size_t i = 0; i < r.n && st == NRL_OK; i++) {
        if (f->json) {
            print_json(&r.items[i], texts[i], counts[i]);
            continue;
        }
        if (r.n > 1) {
            print_prompt(&r.items[i]);
            cli_print(texts[i]);
        }
        putchar('\n');
    }
    for (size_t i = 0; i < r.n; i++)
        nrl_free(texts[i]);
    return st;
}

static nrl_status sample_verb(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    sample_flags flags = {0};
    nrl_sample_options o = {.size = sizeof o};
    nrl_inference *m = NULL;
    nrl_status st = take_flags(&a, &argc, argv, &flags, &o);
    if (st == NRL_OK) {
        experiment_environment(&a, &env);
        env.public_key = flags.public_key;
        st = nrl_inference_open(argv[1], &env, &m);
    }
    if (st == NRL_OK) st = sample(&a, m, &flags, &o);
    nrl_inference_close(m);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "sample", sample_verb);
}
