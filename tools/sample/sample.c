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

enum { PROMPT_FILE_MAX = 64 << 20, MAX_COPIES = 10000, MAX_LOGPROBS = 1000 };

typedef struct {
    const char *prompt, *file, *system, *template, *public_key;
    bool json, stream;
} sample_flags;

/* One prompt. */
typedef struct {
    const char *prompt;           /* what is printed: the prompt, or the last message */
    const nrl_node *conversation; /* NULL: the prompt is continued as plain text */
} request;

typedef struct {
    request *items;
    size_t n, room;
} requests;

static nrl_status take_flags(arena *a, int *argc, char **argv, sample_flags *f, nrl_sample_options *o,
                             nrl_inference_options *model)
{
    const char *copies, *logprobs;
    char *end;
    NRL_TRY(cli_take_value(argc, argv, "--prompt", &f->prompt));
    NRL_TRY(cli_take_value(argc, argv, "--file", &f->file));
    NRL_TRY(cli_take_value(argc, argv, "--system", &f->system));
    NRL_TRY(cli_take_value(argc, argv, "--template", &f->template));
    NRL_TRY(cli_take_value(argc, argv, "--public-key", &f->public_key));
    NRL_TRY(cli_take_value(argc, argv, "--n", &copies));
    NRL_TRY(cli_take_value(argc, argv, "--logprobs", &logprobs));
    NRL_TRY(sample_take_flags(a, argc, argv, &(sample_defaults){.max_tokens = 64}, o));
    NRL_TRY(sample_take_model(argc, argv, model));
    f->json = cli_take_flag(argc, argv, "--json");
    f->stream = cli_take_flag(argc, argv, "--stream");
    o->chat = cli_take_flag(argc, argv, "--chat") || f->template || f->system;
    if (cli_take_flag(argc, argv, "-")) {
        if (f->file) return nrl_fail(NRL_ERR_CONFIG, "expected only one of --file FILE and - (standard input)");
        f->file = "-";
    }
    NRL_TRY(cli_expect(*argc, argv, 1, 1));
    if (!f->prompt == !f->file)
        return nrl_fail(NRL_ERR_CONFIG, "expected one of --prompt TEXT and --file FILE (one prompt per line, or JSON "
                                        "lines)");
    o->n = copies ? strtol(copies, &end, 10) : 1;
    if (copies && (end == copies || *end || o->n < 1 || o->n > MAX_COPIES))
        return nrl_fail(NRL_ERR_CONFIG, "--n: '%s': expected a number from 1 to %d", copies, (int)MAX_COPIES);
    o->logprobs = logprobs != NULL;
    o->top_logprobs = logprobs ? strtol(logprobs, &end, 10) : 0;
    if (logprobs && (end == logprobs || *end || o->top_logprobs < 0 || o->top_logprobs > MAX_LOGPROBS))
        return nrl_fail(NRL_ERR_CONFIG, "--logprobs: '%s': expected a number from 0 to %d", logprobs,
                        (int)MAX_LOGPROBS);
    if (f->stream && !f->json)
        return nrl_fail(NRL_ERR_CONFIG, "--stream requires --json; without it, a single text is printed while it is "
                                        "generated");
    if (logprobs && !f->json) return nrl_fail(NRL_ERR_CONFIG, "--logprobs needs --json");
    return NRL_OK;
}

/* ---- requests ---- */

static void add_request(arena *a, requests *r, const char *prompt, const nrl_node *conversation)
{
    if (r->n == r->room) {
        request *old = r->items;
        r->room = 2 * r->room + 16;
        r->items = arena_alloc(a, r->room * sizeof *r->items);
        if (r->n) memcpy(r->items, old, r->n * sizeof *old);
    }
    r->items[r->n++] = (request){prompt, conversation};
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
    add_request(a, r, prompt, list);
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
        add_request(a, r, nrl_node_string(nrl_node_find(nrl_node_at(asked, n - 1), "content"), ""), row);
    } else if (prompt) {
        add_prompt(a, r, f, is_chat, prompt);
    } else {
        return nrl_fail(NRL_ERR_DATA, "%s: expected \"messages\", a list of messages, or \"prompt\", a text", place);
    }
    return NRL_OK;
}

/* Lines that begin with { are rows of JSON if the name ends in .jsonl, or if the input is the standard input. */
static nrl_status read_file(arena *a, requests *r, const sample_flags *f, bool is_chat)
{
    bool is_input = !strcmp(f->file, "-");
    size_t size, n = strlen(f->file);
    char *text;
    if (is_input) {
        if (cli_read_input(a, PROMPT_FILE_MAX, &text, &size) != NRL_OK)
            return nrl_fail(NRL_ERR_CONFIG, "--file: %s", nrl_error_text());
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
    return r->n ? NRL_OK : nrl_fail(NRL_ERR_DATA, "%s: it contains no prompt", name);
}

/* ---- output ---- */

/* A text as it is generated. */
typedef struct {
    buffer text, tokens; /* tokens: members of a JSON list */
    int64_t n;
    uint32_t finish; /* NRL_FINISH_NONE: it continues */
} answer;

typedef struct {
    const sample_flags *flags;
    const nrl_sample_options *options;
    const nrl_open_tokenizer *tokenizer;
    const requests *requests;
    answer *answers;     /* [requests.n * options.n] */
    const size_t *owner; /* requests of the current batch */
    size_t n_printed;    /* answers that have ended are printed in the order of the prompts */
    bool is_live;        /* a single text is printed as it is generated */
} output;

static const char *const finish_names[] = {"", "stop", "length"};

/* The answer to a conversation starts on a new line; the continuation of plain text directly follows the prompt. */
static void print_prompt(const request *r)
{
    cli_print(r->prompt);
    if (r->conversation) putchar('\n');
}

static void add_token(const output *out, buffer *b, int32_t id, float logp)
{
    char *text = NULL;
    size_t size = 0;
    if (nrl_tokenizer_decode(out->tokenizer, &id, 1, false, &text, &size) != NRL_OK) size = 0;
    buffer_print(b, "{\"id\": %d, \"text\": ", id);
    json_add_string(b, text ? text : "", size);
    buffer_print(b, ", \"logprob\": %.9g", (double)logp);
    nrl_free(text);
}

static void add_token_with_top(const output *out, buffer *b, const nrl_sampled_token *t)
{
    add_token(out, b, t->id, t->logp);
    for (size_t i = 0; i < t->n_top; i++) {
        buffer_puts(b, i ? ", " : ", \"top\": [");
        add_token(out, b, t->top_ids[i], t->top_logps[i]);
        buffer_puts(b, "}");
    }
    buffer_puts(b, t->n_top ? "]}" : "}");
}

static void print_answer(const output *out, size_t i)
{
    const answer *a = &out->answers[i];
    const request *r = &out->requests->items[i / (size_t)out->options->n];
    const char *text = a->text.text ? a->text.text : "";
    if (!out->flags->json) {
        print_prompt(r);
        cli_print(text);
        putchar('\n');
        return;
    }
    buffer b = {0};
    buffer_puts(&b, "{\"prompt\":");
    json_add_string(&b, r->prompt, strlen(r->prompt));
    buffer_puts(&b, ",\"text\":");
    json_add_string(&b, text, strlen(text));
    buffer_print(&b, ",\"tokens\":%lld,\"finish\":\"%s\",\"%s\":[%s]}", (long long)a->n, finish_names[a->finish],
                 out->options->logprobs ? "logprobs" : "ids", a->tokens.text ? a->tokens.text : "");
    puts(b.text);
    buffer_free(&b);
}

/* --stream --json: a line for each token. */
static void print_event(const output *out, size_t i, const nrl_sampled_token *t)
{
    buffer b = {0};
    buffer_print(&b, "{\"index\":%zu,\"text\":", i);
    json_add_string(&b, t->piece, t->piece_size);
    buffer_puts(&b, ",\"token\":");
    if (out->options->logprobs)
        add_token_with_top(out, &b, t);
    else
        buffer_print(&b, "%d", t->id);
    if (t->finish) buffer_print(&b, ",\"finish\":\"%s\"", finish_names[t->finish]);
    buffer_puts(&b, "}");
    puts(b.text);
    buffer_free(&b);
}

static nrl_status take_token(void *user, const nrl_sampled_token *t)
{
    output *out = user;
    const size_t n = (size_t)out->options->n, i = out->owner[t->text / n] * n + t->text % n;
    answer *a = &out->answers[i];
    a->n++;
    a->finish = t->finish;
    if (out->is_live) {
        if (t->piece_size) cli_print(t->piece);
        if (t->finish) putchar('\n');
    } else if (out->flags->stream) {
        print_event(out, i, t);
    } else {
        buffer_add(&a->text, t->piece, t->piece_size);
        if (a->n > 1) buffer_puts(&a->tokens, ",");
        if (out->options->logprobs)
            add_token_with_top(out, &a->tokens, t);
        else
            buffer_print(&a->tokens, "%d", t->id);
        for (; out->n_printed < out->requests->n * n && out->answers[out->n_printed].finish; out->n_printed++)
            print_answer(out, out->n_printed);
    }
    fflush(stdout);
    return NRL_OK;
}

/* Plain prompts and conversations are two batches. */
static nrl_status generate_some(arena *a, nrl_inference *m, output *out, bool conversations)
{
    const requests *r = out->requests;
    nrl_sample_options o = *out->options;
    const char **prompts = arena_alloc(a, r->n * sizeof *prompts);
    const nrl_node **nodes = arena_alloc(a, r->n * sizeof *nodes);
    size_t *owner = arena_alloc(a, r->n * sizeof *owner), n = 0;
    char **texts = arena_alloc(a, r->n * (size_t)o.n * sizeof *texts);
    for (size_t i = 0; i < r->n; i++)
        if (!r->items[i].conversation != conversations) {
            prompts[n] = r->items[i].prompt;
            nodes[n] = r->items[i].conversation;
            owner[n++] = i;
        }
    if (!n) return NRL_OK;
    out->owner = owner;
    o.chat = false;
    o.conversations = conversations ? nodes : NULL;
    o.token = take_token;
    o.token_user = out;
    NRL_TRY(nrl_inference_sample(m, prompts, n, &o, texts, NULL));
    for (size_t i = 0; i < n * (size_t)o.n; i++)
        nrl_free(texts[i]);
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
    const size_t n = r.n * (size_t)o->n;
    output out = {.flags = f,
                  .options = o,
                  .tokenizer = nrl_inference_tokenizer(m),
                  .requests = &r,
                  .answers = arena_alloc(a, n * sizeof *out.answers),
                  .is_live = n == 1 && !f->json};
    if (out.is_live && out.tokenizer) {
        print_prompt(&r.items[0]);
        fflush(stdout);
    }
    nrl_status st = generate_some(a, m, &out, false);
    if (st == NRL_OK) st = generate_some(a, m, &out, true);
    for (size_t i = 0; i < n; i++) {
        buffer_free(&out.answers[i].text);
        buffer_free(&out.answers[i].tokens);
    }
    return st;
}

static nrl_status sample_verb(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    sample_flags flags = {0};
    nrl_sample_options o = {.size = sizeof o};
    nrl_inference_options model;
    nrl_inference *m = NULL;
    nrl_status st = take_flags(&a, &argc, argv, &flags, &o, &model);
    if (st == NRL_OK) {
        experiment_environment(&a, &env);
        env.public_key = flags.public_key;
        st = nrl_inference_open_with(argv[1], &env, &model, &m);
    }
    if (st == NRL_OK) sample_print_model(m);
    if (st == NRL_OK) st = sample(&a, m, &flags, &o);
    nrl_inference_close(m);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "sample", sample_verb);
}
