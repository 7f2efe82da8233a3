/*
 * sample.c - `nrl sample SRC --prompt TEXT`: continues prompts with a model from disk.
 */
#include "cli/common/experiment.h"
#include "base/file.h"
#include "base/json.h"
#include <nrl/inference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT_FILE_MAX = 64 << 20 };

typedef struct {
    const char *prompt, *file, *max_tokens, *temperature, *top_p, *seed, *template, *public_key;
    bool json, chat;
} sample_flags;

static nrl_status take_flags(int *argc, char **argv, sample_flags *f)
{
    NRL_TRY(cli_take_value(argc, argv, "--prompt", &f->prompt));
    NRL_TRY(cli_take_value(argc, argv, "--file", &f->file));
    NRL_TRY(cli_take_value(argc, argv, "--max-tokens", &f->max_tokens));
    NRL_TRY(cli_take_value(argc, argv, "--temperature", &f->temperature));
    NRL_TRY(cli_take_value(argc, argv, "--top-p", &f->top_p));
    NRL_TRY(cli_take_value(argc, argv, "--seed", &f->seed));
    NRL_TRY(cli_take_value(argc, argv, "--template", &f->template));
    NRL_TRY(cli_take_value(argc, argv, "--public-key", &f->public_key));
    f->json = cli_take_flag(argc, argv, "--json");
    f->chat = cli_take_flag(argc, argv, "--chat");
    NRL_TRY(cli_expect(*argc, argv, 1, 1));
    if (!f->prompt == !f->file)
        return nrl_fail(NRL_ERR_CONFIG, "give one of --prompt TEXT and --file FILE (a prompt a line)");
    return NRL_OK;
}

static nrl_status number(const char *flag, const char *text, double or_value, double min, double max, double *out)
{
    char *end;
    *out = or_value;
    if (!text) return NRL_OK;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= min && *out <= max))
        return nrl_fail(NRL_ERR_CONFIG, "%s: '%s': expected a number from %.10g to %.10g", flag, text, min, max);
    return NRL_OK;
}

static nrl_status read_options(const sample_flags *f, nrl_sample_options *o)
{
    double tokens, seed;
    NRL_TRY(number("--max-tokens", f->max_tokens, 64, 1, 1e6, &tokens));
    NRL_TRY(number("--temperature", f->temperature, 0, 0, 100, &o->temperature));
    NRL_TRY(number("--top-p", f->top_p, 1, 1e-6, 1, &o->top_p));
    NRL_TRY(number("--seed", f->seed, 0, 0, 9e15, &seed));
    o->max_tokens = (int64_t)tokens;
    o->seed = (uint64_t)seed;
    o->chat = f->chat || f->template;
    return NRL_OK;
}

/* Splits text into its lines, in place; empty lines are skipped. */
static size_t split_lines(arena *a, char *text, const char ***lines)
{
    size_t n = 0, room = 1;
    for (const char *p = text; *p; p++)
        room += *p == '\n';
    *lines = arena_alloc(a, room * sizeof **lines);
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        size_t size = strlen(line);
        if (size && line[size - 1] == '\r') line[size - 1] = 0;
        (*lines)[n++] = line;
    }
    return n;
}

static nrl_status read_prompts(arena *a, const sample_flags *f, const char ***prompts, size_t *n)
{
    char *text;
    size_t size;
    if (f->prompt) {
        *prompts = arena_alloc(a, sizeof **prompts);
        (*prompts)[0] = f->prompt;
        *n = 1;
        return NRL_OK;
    }
    if (file_read(f->file, PROMPT_FILE_MAX, &text, &size) != NRL_OK)
        return nrl_fail(NRL_ERR_CONFIG, "--file: %s", nrl_error_text());
    *n = split_lines(a, arena_strndup(a, text, size), prompts);
    free(text);
    return *n ? NRL_OK : nrl_fail(NRL_ERR_DATA, "%s: no prompt in it", f->file);
}

/* The continuation of a chat starts on a new line; that of plain text directly follows the prompt. */
static void print_one(const char *prompt, const char *text, int64_t n, bool json, bool is_chat)
{
    if (!json) {
        cli_print(prompt);
        if (is_chat) putchar('\n');
        cli_print(text);
        putchar('\n');
        return;
    }
    char *p = json_quote(prompt, strlen(prompt)), *t = json_quote(text, strlen(text));
    printf("{\"prompt\":%s,\"text\":%s,\"tokens\":%lld}\n", p, t, (long long)n);
    free(p);
    free(t);
}

/* --template names the template; --chat uses the template of the run, or that of the tokenizer if
 * there is no run. */
static nrl_status sample(arena *a, nrl_inference *m, const sample_flags *f, const nrl_sample_options *o)
{
    const char **prompts;
    size_t n;
    if (o->chat) NRL_TRY(nrl_inference_set_template(m, f->template));
    NRL_TRY(read_prompts(a, f, &prompts, &n));
    char **texts = arena_alloc(a, n * sizeof *texts);
    int64_t *counts = arena_alloc(a, n * sizeof *counts);
    NRL_TRY(nrl_inference_sample(m, prompts, n, o, texts, counts));
    for (size_t i = 0; i < n; i++) {
        print_one(prompts[i], texts[i], counts[i], f->json, o->chat);
        nrl_free(texts[i]);
    }
    return NRL_OK;
}

static nrl_status sample_verb(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    sample_flags flags = {0};
    nrl_sample_options o = {.size = sizeof o};
    nrl_inference *m;
    NRL_TRY(take_flags(&argc, argv, &flags));
    NRL_TRY(read_options(&flags, &o));
    experiment_environment(&a, &env);
    env.public_key = flags.public_key;
    nrl_status st = nrl_inference_open(argv[1], &env, &m);
    if (st == NRL_OK) st = sample(&a, m, &flags, &o);
    nrl_inference_close(m);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "sample", sample_verb);
}
