/*
 * samples.c - eval.samples: at each evaluation of a run the model continues the same prompts, with the same seed, so
 * that texts can be compared over the course of a run. Rows with an expected answer are scored; hooks of the program
 * may score texts in their own way. Every rank generates every text, as nrl_run_sample does.
 */
#include "inference/samples.h"
#include "base/file.h"
#include "base/hub.h"
#include "base/json.h"
#include "base/paths.h"
#include "config/options.h"
#include "run/internal.h"
#include <ctype.h>
#include <math.h>
#include <nrl/inference.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 30, MATCH_EXACT = 0, MATCH_CONTAINS, MATCH_NUMBER };

typedef struct {
    const nrl_node *prompts;
    int64_t limit, n, max_tokens, top_k, seed;
    double temperature, top_p;
    bool chat;
    int64_t match;
} samples_options;

static const nrl_option samples_rows[] = {
    NRL_OPT_NODE(
        samples_options, prompts, NULL,
        "a file (.jsonl, .json, or .txt with one prompt per line), or a list of texts and rows; a row has prompt or "
        "question, or messages, and optionally answer or completion; without them the last answer of the messages is "
        "the expected one"),
    NRL_OPT_INT(samples_options, limit, "0", 0, 1e15, "number of rows of the file; 0: all"),
    NRL_OPT_INT(samples_options, n, "1", 1, 1024, "number of texts per prompt"),
    NRL_OPT_INT(samples_options, max_tokens, "64", 1, 1e9, "maximum number of new tokens of a text"),
    NRL_OPT_F64(samples_options, temperature, "0", 0, 1e6, "0: the most likely token"),
    NRL_OPT_F64(samples_options, top_p, "1", 1e-6, 1, "sample from the smallest set of tokens with this probability"),
    NRL_OPT_INT(samples_options, top_k, "0", 0, 1e9, "sample from this many most likely tokens; 0: all"),
    NRL_OPT_INT(samples_options, seed, "0", 0, 9e15, "seed, the same at each evaluation"),
    NRL_OPT_BOOL(samples_options, chat, "false", "prompts are user messages, rendered with data.template"),
    NRL_OPT_ENUM(samples_options, match, "exact", "exact|contains|number",
                 "how eval_exact_match compares a text with the answer: equal, contains it, or the last numbers are "
                 "equal; surrounding spaces are ignored"),
};

const nrl_metric samples_metrics[] = {
    {"exact_match", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    {"score", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    {"pass_at_1", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    {"pass_at_n", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    {"sample_tokens", "tokens", NRL_REDUCE_MEAN, NRL_BETTER_NONE},
    {NULL, NULL, 0, 0},
};
enum { EXACT_MATCH = 0, SCORE, PASS_AT_1, PASS_AT_N, SAMPLE_TOKENS, N_METRICS };

/* One prompt. */
typedef struct {
    const char *prompt, *answer;  /* answer: NULL = unknown */
    const nrl_node *conversation; /* NULL: the prompt is a text */
} samples_row;

typedef struct {
    arena memory;
    samples_options options;
    samples_row *rows;
    size_t n_rows;
    /* of the last evaluation: [n_rows * options.n], the texts of a prompt one after another */
    nrl_sample_text *list;
    char **texts;
    int64_t *n_tokens;
    double *scores;
} samples;

/* ---- prompts ---- */

static const char *text_of(const nrl_node *row, const char *key, const char *other)
{
    const nrl_node *value = nrl_node_find(row, key);
    return nrl_node_string(value ? value : nrl_node_find(row, other), NULL);
}

static bool is_assistant(const nrl_node *message)
{
    const char *role = text_of(message, "role", "from");
    return role && (!strcmp(role, "assistant") || !strcmp(role, "gpt"));
}

/* Messages up to the last answer, which is the expected one. */
static nrl_status read_messages(samples *s, const nrl_node *row, const nrl_node *list, samples_row *out)
{
    arena *a = &s->memory;
    size_t n = nrl_node_size(list);
    if (n && is_assistant(nrl_node_at(list, n - 1))) out->answer = text_of(nrl_node_at(list, --n), "content", "value");
    nrl_node *messages = node_new(a, NRL_NODE_LIST), *map = node_new(a, NRL_NODE_MAP);
    for (size_t i = 0; i < n; i++)
        node_append(a, messages, NULL, node_copy(a, nrl_node_at(list, i)));
    node_append(a, map, "messages", messages);
    const char *const others[] = {"tools", "chat_template_kwargs"};
    for (size_t i = 0; i < 2; i++)
        if (nrl_node_find(row, others[i])) node_append(a, map, others[i], node_copy(a, nrl_node_find(row, others[i])));
    out->conversation = map;
    out->prompt = n ? text_of(nrl_node_at(list, n - 1), "content", "value") : NULL;
    return out->prompt ? NRL_OK : nrl_fail(NRL_ERR_DATA, "%s: no message of a user in `messages`", nrl_node_place(row));
}

/* The expected text, which may be a number. */
static nrl_status read_answer(samples *s, const nrl_node *row, samples_row *out)
{
    const nrl_node *answer = nrl_node_find(row, "answer");
    if (!answer) answer = nrl_node_find(row, "completion");
    const nrl_node_type kind = nrl_node_kind(answer);
    if (!answer || kind == NRL_NODE_NULL) return NRL_OK;
    out->answer = nrl_node_string(answer, NULL);
    if (out->answer) return NRL_OK;
    if (kind != NRL_NODE_INT && kind != NRL_NODE_FLOAT)
        return nrl_fail(NRL_ERR_DATA, "%s: expected a text or a number as the answer", nrl_node_place(row));
    char *text = json_write(answer, 0);
    out->answer = arena_strdup(&s->memory, text);
    free(text);
    return NRL_OK;
}

static nrl_status read_row(samples *s, const nrl_node *row, samples_row *out)
{
    const nrl_node *messages = nrl_node_find(row, "messages");
    *out = (samples_row){.prompt = nrl_node_string(row, NULL)};
    if (messages) NRL_TRY(read_messages(s, row, messages, out));
    if (!out->prompt) out->prompt = text_of(row, "prompt", "question");
    NRL_TRY(read_answer(s, row, out));
    if (!out->prompt)
        return nrl_fail(NRL_ERR_DATA, "%s: expected a text, or a row with prompt, question or messages",
                        nrl_node_place(row));
    if (!out->conversation && s->options.chat) {
        nrl_node *list = node_new(&s->memory, NRL_NODE_LIST), *message = node_new(&s->memory, NRL_NODE_MAP);
        node_append_text(&s->memory, message, "role", "user");
        node_append_text(&s->memory, message, "content", out->prompt);
        node_append(&s->memory, list, NULL, message);
        out->conversation = list;
    }
    return NRL_OK;
}

/* The rows of a file: an array, JSON lines, or lines of text. */
static nrl_status read_file(samples *s, const char *path, nrl_node *rows)
{
    arena *a = &s->memory;
    const char *dot = strrchr(path, '.');
    bool is_text = dot && !strcmp(dot, ".txt");
    char *text;
    size_t size;
    nrl_node *all;
    if (file_read(path, MAX_FILE_BYTES, &text, &size) != NRL_OK)
        return nrl_fail(NRL_ERR_CONFIG, "prompts: %s", nrl_error_text());
    nrl_status st = NRL_OK;
    int64_t number = 1;
    if (!is_text && text[strspn(text, " \t\r\n")] == '[') {
        st = json_parse(a, path, text, size, &all);
        for (size_t i = 0; st == NRL_OK && i < nrl_node_size(all); i++)
            node_append(a, rows, NULL, node_copy(a, nrl_node_at(all, i)));
    } else
        for (char *line = text, *next; st == NRL_OK && line < text + size; line = next, number++) {
            next = memchr(line, '\n', (size_t)(text + size - line));
            next = next ? next + 1 : text + size;
            size_t n = (size_t)(next - line);
            while (n && strchr("\r\n", line[n - 1]))
                n--;
            if (strspn(line, " \t\r\n") >= n) continue;
            if (is_text)
                all = node_string(a, line, n);
            else
                st = json_parse_at(a, path, number, 1, line, n, &all);
            if (st != NRL_OK) break;
            nrl_node_set_place(all, path, (uint32_t)number, 1);
            node_append(a, rows, NULL, all);
        }
    free(text);
    return st;
}

static nrl_status read_prompts(samples *s, session *se)
{
    const nrl_node *given = s->options.prompts;
    const char *path = nrl_node_string(given, NULL);
    nrl_node *rows = node_new(&s->memory, NRL_NODE_LIST);
    if (path) {
        path = node_path(&s->memory, given, path);
        if (!strncmp(path, HUB_SCHEME, strlen(HUB_SCHEME)))
            NRL_TRY(hub_data(&s->memory, path, se->env.variable, &path));
        NRL_TRY(read_file(s, path, rows));
        /* OUT/config.yaml is read from another directory */
        nrl_node *resolved = (nrl_node *)nrl_node_find(nrl_node_find(se->config.resolved, "eval"), "samples");
        path = paths_absolute(&se->memory, path);
        if (resolved) node_set(&se->memory, resolved, "prompts", node_text(&se->memory, path));
    } else if (nrl_node_kind(given) == NRL_NODE_LIST) {
        for (size_t i = 0; i < nrl_node_size(given); i++)
            node_append(&s->memory, rows, NULL, node_copy(&s->memory, nrl_node_at(given, i)));
    } else
        return nrl_fail(NRL_ERR_CONFIG, "prompts: expected a file or a list");
    size_t n = nrl_node_size(rows);
    if (s->options.limit && (int64_t)n > s->options.limit) n = (size_t)s->options.limit;
    if (!n) return nrl_fail(NRL_ERR_DATA, "prompts: %s contains no prompt", path ? path : "the list");
    s->rows = arena_alloc(&s->memory, n * sizeof *s->rows);
    for (; s->n_rows < n; s->n_rows++)
        NRL_TRY(read_row(s, nrl_node_at(rows, s->n_rows), &s->rows[s->n_rows]));
    return NRL_OK;
}

static nrl_status check_rows(const samples *s, const session *se)
{
    if (!se->tokenizer) return nrl_fail(NRL_ERR_CONFIG, "texts require a tokenizer: set model.tokenizer");
    for (size_t i = 0; i < s->n_rows && !se->chat; i++)
        if (s->rows[i].conversation)
            return nrl_fail(NRL_ERR_CONFIG, "messages require data.template: %s",
                            se->chat_problem ? se->chat_problem : "there is none");
    return NRL_OK;
}

nrl_status samples_open(nrl_run *r, void **out)
{
    session *se = &r->session;
    samples *s = mem_alloc(sizeof *s);
    *s = (samples){.n_rows = 0};
    *out = s;
    const option_part part = OPTION_PART(samples_rows, &s->options);
    config_problems problems = {0};
    options_fill(&s->memory, &problems, "eval.samples", se->config.eval.samples, &part, 1);
    NRL_TRY(problems_report(&problems));
    nrl_status st = read_prompts(s, se);
    if (st == NRL_OK) st = check_rows(s, se);
    if (st != NRL_OK) {
        nrl_add_context("eval.samples");
        return st;
    }
    size_t n = s->n_rows * (size_t)s->options.n;
    s->list = arena_alloc(&s->memory, n * sizeof *s->list);
    s->texts = arena_alloc(&s->memory, n * sizeof *s->texts);
    s->n_tokens = arena_alloc(&s->memory, n * sizeof *s->n_tokens);
    s->scores = arena_alloc(&s->memory, n * sizeof *s->scores);
    memset(s->texts, 0, n * sizeof *s->texts);
    return NRL_OK;
}

static void free_texts(samples *s)
{
    for (size_t i = 0; s->texts && i < s->n_rows * (size_t)s->options.n; i++) {
        free(s->texts[i]);
        s->texts[i] = NULL;
    }
}

void samples_close(void *samples_)
{
    samples *s = samples_;
    free_texts(s);
    arena_free(&s->memory);
    free(s);
}

/* ---- scores ---- */

static size_t trimmed(const char **text)
{
    *text += strspn(*text, " \t\r\n");
    size_t n = strlen(*text);
    while (n && strchr(" \t\r\n", (*text)[n - 1]))
        n--;
    return n;
}

/* The last number of a text without the commas between its digits; false: there is none. */
static bool last_number(const char *text, double *out)
{
    bool found = false;
    for (const char *at = text; *at;) {
        char digits[64];
        size_t n = 0;
        bool negative = *at == '-' && isdigit((unsigned char)at[1]) && (at == text || !isalnum((unsigned char)at[-1]));
        if (!isdigit((unsigned char)*at) && !negative) {
            at++;
            continue;
        }
        if (negative) digits[n++] = *at++;
        for (; isdigit((unsigned char)*at) || ((*at == ',' || *at == '.') && isdigit((unsigned char)at[1])); at++)
            if (*at != ',' && n + 1 < sizeof digits) digits[n++] = *at;
        digits[n] = 0;
        *out = strtod(digits, NULL);
        found = true;
    }
    return found;
}

static bool matches(const char *text, const char *answer, int64_t match)
{
    double a, b;
    if (match == MATCH_NUMBER) return last_number(text, &a) && last_number(answer, &b) && a == b;
    size_t n = trimmed(&text), m = trimmed(&answer);
    if (match == MATCH_EXACT) return n == m && !memcmp(text, answer, n);
    for (size_t i = 0; i + m <= n; i++)
        if (!memcmp(text + i, answer, m)) return true;
    return false;
}

/* Means over all texts that are scored; of pass_at_n over the prompts. NaN = not known. */
static void measure(const samples *s, const bool *matched, bool has_scores, double *metrics)
{
    const size_t per = (size_t)s->options.n;
    double tokens = 0, score = 0, pass = 0, exact = 0;
    size_t n_scored = 0, n_passes = 0, n_answers = 0;
    for (size_t i = 0; i < s->n_rows; i++) {
        double best = NAN;
        for (size_t k = i * per; k < (i + 1) * per; k++) {
            tokens += (double)s->n_tokens[k];
            exact += s->rows[i].answer && matched[k];
            n_answers += s->rows[i].answer != NULL;
            if (isnan(s->scores[k])) continue;
            score += s->scores[k];
            best = fmax(best, s->scores[k]);
            n_scored++;
        }
        if (isnan(best)) continue;
        pass += best;
        n_passes++;
    }
    metrics[SAMPLE_TOKENS] = tokens / (double)(s->n_rows * per);
    metrics[EXACT_MATCH] = n_answers ? exact / (double)n_answers : NAN;
    metrics[SCORE] = has_scores && n_scored ? score / (double)n_scored : NAN;
    metrics[PASS_AT_1] = per > 1 && n_scored ? score / (double)n_scored : NAN;
    metrics[PASS_AT_N] = per > 1 && n_passes ? pass / (double)n_passes : NAN;
}

/* ---- an evaluation ---- */

typedef struct {
    samples *s;
    const size_t *at; /* of each prompt of a call its row */
} finish_to;

static nrl_status take_token(void *user, const nrl_sampled_token *t)
{
    const finish_to *f = user;
    const size_t per = (size_t)f->s->options.n;
    f->s->list[f->at[t->text / per] * per + t->text % per].is_cut = t->finish == NRL_FINISH_LENGTH;
    return NRL_OK;
}

/* All rows that are conversations, or all others. */
static nrl_status generate(samples *s, nrl_run *r, bool chats)
{
    const samples_options *o = &s->options;
    const size_t per = (size_t)o->n;
    size_t n = 0, *at = mem_alloc((s->n_rows + 1) * sizeof *at);
    const nrl_node **conversations = mem_alloc((s->n_rows + 1) * sizeof *conversations);
    const char **prompts = mem_alloc((s->n_rows + 1) * sizeof *prompts);
    char **texts = mem_alloc((s->n_rows * per + 1) * sizeof *texts);
    int64_t *n_tokens = mem_alloc((s->n_rows * per + 1) * sizeof *n_tokens);
    for (size_t i = 0; i < s->n_rows; i++) {
        if ((s->rows[i].conversation != NULL) != chats) continue;
        conversations[n] = s->rows[i].conversation;
        prompts[n] = s->rows[i].prompt;
        at[n++] = i;
    }
    finish_to to = {s, at};
    const nrl_sample_options options = {.size = sizeof options,
                                        .max_tokens = o->max_tokens,
                                        .temperature = o->temperature,
                                        .top_p = o->top_p,
                                        .top_k = o->top_k,
                                        .seed = (uint64_t)o->seed,
                                        .n = o->n,
                                        .conversations = chats ? conversations : NULL,
                                        .token = take_token,
                                        .token_user = &to};
    nrl_status st = n ? nrl_run_sample(r, prompts, n, &options, texts, n_tokens) : NRL_OK;
    for (size_t i = 0; st == NRL_OK && i < n * per; i++) {
        size_t k = at[i / per] * per + i % per;
        s->texts[k] = texts[i];
        s->n_tokens[k] = n_tokens[i];
    }
    free(n_tokens);
    free(texts);
    free(prompts);
    free(conversations);
    free(at);
    return st;
}

nrl_status samples_make(void *samples_, nrl_run *r)
{
    samples *s = samples_;
    const size_t per = (size_t)s->options.n, n = s->n_rows * per;
    double metrics[N_METRICS];
    free_texts(s);
    nrl_status st = generate(s, r, false);
    if (st == NRL_OK) st = generate(s, r, true);
    if (st != NRL_OK) {
        nrl_add_context("eval.samples");
        return st;
    }
    bool *matched = mem_alloc(n * sizeof *matched), has_scores = false;
    for (size_t k = 0; k < n; k++) {
        const samples_row *row = &s->rows[k / per];
        s->list[k] = (nrl_sample_text){.prompt = row->prompt,
                                       .text = s->texts[k],
                                       .answer = row->answer,
                                       .tokens = s->n_tokens[k],
                                       .index = (int32_t)(k / per),
                                       .is_cut = s->list[k].is_cut,
                                       .score = &s->scores[k]};
        matched[k] = row->answer && matches(s->texts[k], row->answer, s->options.match);
        s->scores[k] = NAN;
    }
    const int64_t step = r->trainer.progress.step;
    nrl_run_event e = {.kind = NRL_EVENT_SAMPLES, .step = step, .samples = s->list, .n_samples = n};
    st = hooks_emit(&r->hooks, INSIDE_SAMPLES_HOOK, &e);
    for (size_t k = 0; k < n; k++) {
        has_scores |= !isnan(s->scores[k]);
        if (isnan(s->scores[k]) && s->rows[k / per].answer) s->scores[k] = matched[k];
    }
    measure(s, matched, has_scores, metrics);
    free(matched);
    /* Ranks on other processors may round differently and so choose other tokens; all must agree on which step was the
     * best. */
    if (st == NRL_OK) st = mesh_broadcast(r->session.mesh, "metrics of samples", 0, metrics, sizeof metrics);
    evaluator *ev = &r->evaluator;
    for (int i = 0; st == NRL_OK && i < N_METRICS; i++)
        if (!isnan(metrics[i]))
            values_add(&ev->values, arena_printf(&ev->names, "eval_%s", samples_metrics[i].name),
                       samples_metrics[i].unit, metrics[i]);
    if (st == NRL_OK) telemetry_record(&r->telemetry, NRL_RECORD_SAMPLES, step, -1, NULL, 0, s->list, n);
    return st;
}
