/*
 * task_score.c - answers questions as lm-evaluation-harness does: of several choices the one whose tokens are the most
 * likely after the prompt (acc), or the most likely per character (acc_norm); of free answers the generated text.
 */
#include "task.h"
#include "base/buffer.h"
#include "base/json.h"
#include "text_score.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH_TOKENS = 2048, BATCH_ANSWERS = 16 };

/* The question as the model sees it, after the first `n` questions of `examples` with their answers. */
static const char *task_prompt(arena *a, const task *examples, int64_t n, const task_question *q)
{
    const char *prompt = q->description ? q->description : "";
    for (int64_t i = 0; i < n; i++) {
        const task_question *e = &examples->questions[i];
        prompt = arena_printf(a, "%s%s %s\n\n", prompt, e->prompt, e->n_choices ? e->choices[e->gold] : e->answer);
    }
    return arena_printf(a, "%s%s", prompt, q->prompt);
}

/* ---- log-likelihood of choices ---- */

typedef struct {
    int32_t *ids;
    int64_t *lengths, *scored; /* [n] tokens of each sequence, and how many at its end are the choice's */
    int64_t n, n_ids, room, ids_room;
    double *where[BATCH_TOKENS]; /* [n] where the sum goes */
} batch;

static void batch_free(batch *b)
{
    free(b->ids);
    free(b->lengths);
    free(b->scored);
}

static nrl_status batch_run(nrl_inference *m, batch *b)
{
    if (!b->n) return NRL_OK;
    float *logps = mem_try((size_t)b->n_ids * sizeof *logps, "log-probs of the choices");
    if (!logps) return NRL_ERR_MEMORY;
    nrl_status st = nrl_inference_logps(m, b->ids, b->lengths, (size_t)b->n, logps);
    int64_t end = 0;
    for (int64_t i = 0; i < b->n && st == NRL_OK; i++) {
        end += b->lengths[i];
        *b->where[i] = 0;
        for (int64_t k = end - b->scored[i]; k < end; k++)
            *b->where[i] += logps[k];
    }
    free(logps);
    b->n = b->n_ids = 0;
    return st;
}

/* Adds a sequence of `n` tokens, of which `scored` at its end are the choice's: `first`, unless it is NRL_TOKEN_NONE,
 * and `ids`. */
static void batch_append(batch *b, int32_t first, const int32_t *ids, int64_t n, int64_t scored, double *where)
{
    const int64_t head = first != NRL_TOKEN_NONE;
    if (b->n == b->room) {
        b->room = 2 * b->room + 16;
        b->lengths = mem_realloc(b->lengths, (size_t)b->room * sizeof *b->lengths);
        b->scored = mem_realloc(b->scored, (size_t)b->room * sizeof *b->scored);
    }
    if (!b->ids || b->n_ids + n > b->ids_room) {
        b->ids_room = b->n_ids + n + BATCH_TOKENS;
        b->ids = mem_realloc(b->ids, (size_t)b->ids_room * sizeof *b->ids);
    }
    if (head) b->ids[b->n_ids] = first;
    memcpy(b->ids + b->n_ids + head, ids, (size_t)(n - head) * sizeof *ids);
    b->n_ids += b->lengths[b->n] = n;
    b->scored[b->n] = scored;
    b->where[b->n++] = where;
}

/* The tokens of `prompt` and `choice` as one text; spaces at the end of the prompt belong to the choice. A prompt
 * without tokens is BOS or EOS, as in lm-evaluation-harness; one that is too long loses its start. */
static nrl_status batch_add(nrl_inference *m, batch *b, const char *prompt, const char *choice, int64_t most,
                            bool *truncated, double *where)
{
    const nrl_open_tokenizer *t = nrl_inference_tokenizer(m);
    nrl_token_ids whole = {0}, context = {0};
    size_t size = strlen(prompt);
    char *text = mem_printf("%s%s", prompt, choice);
    while (size && isspace((unsigned char)prompt[size - 1]))
        size--;
    nrl_status st = nrl_tokenizer_encode(t, NULL, text, strlen(text), NRL_ENCODE_ADD_SPECIAL, &whole);
    if (st == NRL_OK) st = nrl_tokenizer_encode(t, NULL, text, size, NRL_ENCODE_ADD_SPECIAL, &context);
    const int32_t first = st == NRL_OK && !context.n ? text_score_prefix(t) : NRL_TOKEN_NONE;
    int64_t n = (int64_t)whole.n + (first != NRL_TOKEN_NONE), scored = (int64_t)whole.n - (int64_t)context.n;
    if (st == NRL_OK && scored < 1) st = nrl_fail(NRL_ERR_DATA, "a choice without tokens: '%s'", choice);
    if (st == NRL_OK && !context.n && first == NRL_TOKEN_NONE)
        st = nrl_fail(NRL_ERR_DATA, "a prompt without tokens, for a tokenizer without BOS and EOS: '%s'", prompt);
    int64_t skip = most > 0 && n > most ? n - most : 0;
    if (st == NRL_OK && scored >= n - skip)
        st = nrl_fail(NRL_ERR_DATA, "a choice of %lld tokens does not fit into the %lld positions of the model",
                      (long long)scored, (long long)most);
    if (st == NRL_OK && b->n && b->n_ids + n - skip > BATCH_TOKENS) st = batch_run(m, b);
    if (st == NRL_OK) batch_append(b, first, whole.ids + skip, n - skip, scored, where);
    *truncated |= skip > 0;
    nrl_token_ids_free(&whole);
    nrl_token_ids_free(&context);
    free(text);
    return st;
}

/* Characters, not bytes, as in Python. */
static double length_of(const char *text)
{
    double n = 0;
    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n;
}

static int32_t best_of(const task_question *q, const double *lls, bool norm)
{
    int32_t best = 0;
    double most = -INFINITY;
    for (int32_t i = 0; i < q->n_choices; i++) {
        double value = norm ? lls[i] / length_of(q->choices[i]) : lls[i];
        if (value > most) best = i, most = value;
    }
    return best;
}

/* ---- free answers ---- */

/* strict: the first match of #### (\-?[0-9\.\,]+); else the last of (-?[$0-9.,]{2,})|(-?[0-9]+). */
const char *task_number(arena *a, const char *text, bool strict)
{
    const char *found = "[invalid]";
    for (const char *p = text; *p;) {
        const char *begin = p;
        if (strict) {
            p = strstr(p, "#### ");
            if (!p) break;
            begin = p += strlen("#### ");
        }
        size_t sign = *begin == '-', n = strspn(begin + sign, strict ? "0123456789.," : "$0123456789.,");
        if (n >= 2 || (n == 1 && (strict || isdigit((unsigned char)begin[sign])))) {
            found = arena_strndup(a, begin, sign + n);
            if (strict) break;
            p = begin + sign + n;
        } else if (!strict)
            p++;
    }
    return found;
}

const char *task_normalized(arena *a, const char *text)
{
    const char *mark = NULL;
    for (const char *p = text; (p = strstr(p, "#### ")); p++)
        mark = p;
    const char *from = mark ? mark + strlen("#### ") : text;
    char *out = arena_strdup(a, from);
    size_t n = 0;
    for (; *from; from++)
        if (*from != ',' && *from != '$') out[n++] = (char)tolower((unsigned char)*from);
    if (n && out[n - 1] == '.') n--;
    out[n] = 0;
    return out;
}

static const char *trimmed(arena *a, const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    return arena_strndup(a, text, n);
}

/* ---- a task ---- */

typedef struct {
    double sum, squares;
    int64_t n;
} mean;

static void mean_add(mean *m, bool hit)
{
    m->sum += hit;
    m->squares += hit;
    m->n++;
}

static void add_metric(task_scores *s, const char *name, const mean *m)
{
    double n = (double)m->n, value = m->sum / n;
    double variance = m->n > 1 ? (m->squares - n * value * value) / (n - 1) : NAN;
    s->metrics[s->n_metrics++] = (task_metric){name, value, sqrt(fmax(variance, 0) / n)};
    if (isnan(variance)) s->metrics[s->n_metrics - 1].stderr_ = NAN;
}

static void write_row(FILE *rows, const nrl_node *row)
{
    char *text = json_write(row, 0);
    fprintf(rows, "%s\n", text);
    free(text);
}

static void show_progress(const task *t, int64_t done)
{
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r%s %lld/%lld%s", t->name, (long long)done, (long long)t->n, done == t->n ? "\r\033[K" : "");
    fflush(stderr);
}

static nrl_status score_choices(arena *a, nrl_inference *m, const task *t, const task *examples, int64_t n_examples,
                                FILE *rows, task_scores *out)
{
    nrl_inference_info info = {.size = sizeof info};
    batch b = {0};
    nrl_status st = NRL_OK;
    mean acc = {0}, norm = {0};
    nrl_inference_info_fill(m, &info);
    double *lls = arena_try(a, (size_t)t->n * TASK_MAX_CHOICES * sizeof *lls, "the scores of the choices");
    if (!lls) return NRL_ERR_MEMORY;
    for (int64_t i = 0; i < t->n && st == NRL_OK; i++) {
        const task_question *q = &t->questions[i];
        bool truncated = false;
        arena memory = {0};
        const char *prompt = task_prompt(&memory, examples, n_examples, q);
        for (int32_t k = 0; k < q->n_choices && st == NRL_OK; k++) {
            char *choice = mem_printf(" %s", q->choices[k]);
            st = batch_add(m, &b, prompt, choice, info.max_positions, &truncated, &lls[i * TASK_MAX_CHOICES + k]);
            free(choice);
        }
        if (st != NRL_OK) nrl_add_context("%s: question %lld", t->file, (long long)i + 1);
        out->n_truncated += truncated;
        arena_free(&memory);
        show_progress(t, i + 1);
    }
    if (st == NRL_OK) st = batch_run(m, &b);
    batch_free(&b);
    for (int64_t i = 0; i < t->n && st == NRL_OK; i++) {
        const task_question *q = &t->questions[i];
        const double *these = &lls[i * TASK_MAX_CHOICES];
        for (int32_t k = 0; k < q->n_choices; k++)
            if (isnan(these[k]))
                return nrl_fail(
                    NRL_ERR_DATA,
                    "%s: question %lld: the log-probability of choice %d is nan; are the model's weights finite?",
                    t->file, (long long)i + 1, k + 1);
        mean_add(&acc, best_of(q, these, false) == q->gold);
        mean_add(&norm, best_of(q, these, true) == q->gold);
        if (!rows) continue;
        arena memory = {0};
        nrl_node *row = node_new(&memory, NRL_NODE_MAP), *list = node_new(&memory, NRL_NODE_LIST);
        for (int32_t k = 0; k < q->n_choices; k++)
            node_append(&memory, list, NULL, node_f64(&memory, these[k]));
        node_append_text(&memory, row, "prompt", q->prompt);
        node_append_int(&memory, row, "gold", q->gold);
        node_append_int(&memory, row, "choice", best_of(q, these, false));
        node_append_int(&memory, row, "choice_norm", best_of(q, these, true));
        node_append(&memory, row, "loglikelihoods", list);
        write_row(rows, row);
        arena_free(&memory);
    }
    if (st != NRL_OK) return st;
    add_metric(out, "acc", &acc);
    if (t->scores_norm) add_metric(out, "acc_norm", &norm);
    return NRL_OK;
}

/* Adds the text of a token to that of its answer. */
static nrl_status take_token(void *user, const nrl_sampled_token *t)
{
    buffer *text = user;
    buffer_add(text, t->piece, t->piece_size);
    return buffer_check(text);
}

typedef struct {
    nrl_inference *model;
    nrl_generator *generator;
    nrl_sample_options options;
    int64_t max_prompt; /* tokens; 0 = no limit */
} answerer;

static nrl_status answerer_open(nrl_inference *m, const task *t, int64_t max_tokens, answerer *out)
{
    const nrl_generator_options generator = {.size = sizeof generator};
    nrl_inference_info info = {.size = sizeof info};
    nrl_sample_options *o = &out->options;
    *out = (answerer){.model = m};
    *o = (nrl_sample_options){
        .size = sizeof *o, .max_tokens = max_tokens, .top_p = 1, .stop = t->stop, .token = take_token};
    while (o->n_stop < sizeof t->stop / sizeof *t->stop && t->stop[o->n_stop])
        o->n_stop++;
    nrl_inference_info_fill(m, &info);
    if (info.max_positions > 0 && max_tokens >= info.max_positions)
        return nrl_fail(NRL_ERR_CONFIG, "--max-tokens %lld: expected fewer than the %lld positions of the model",
                        (long long)max_tokens, (long long)info.max_positions);
    if (info.max_positions > 0) out->max_prompt = info.max_positions - max_tokens;
    return nrl_generator_open(m, &generator, &out->generator);
}

/* Begins the answer to a prompt. A prompt that leaves too few positions for an answer loses its begin. */
static nrl_status answerer_add(answerer *w, const char *prompt, buffer *text, int64_t *n_truncated)
{
    const nrl_open_tokenizer *t = nrl_inference_tokenizer(w->model);
    nrl_token_ids ids = {0};
    uint64_t id;
    NRL_TRY(nrl_tokenizer_encode(t, NULL, prompt, strlen(prompt), NRL_ENCODE_ADD_SPECIAL, &ids));
    int64_t n = (int64_t)ids.n;
    if (t->info->adds_eos && n > 1 && ids.ids[n - 1] == t->info->eos) n--;
    const int64_t skip = w->max_prompt && n > w->max_prompt ? n - w->max_prompt : 0;
    const nrl_prompt p = {.size = sizeof p, .ids = ids.ids + skip, .n_ids = (size_t)(n - skip)};
    w->options.token_user = text;
    nrl_status st = n ? nrl_generator_add(w->generator, &p, &w->options, &id, NULL)
                      : nrl_fail(NRL_ERR_DATA, "the prompt has no tokens");
    *n_truncated += skip > 0;
    nrl_token_ids_free(&ids);
    return st;
}

static nrl_status score_answers(nrl_inference *m, const task *t, const task *examples, int64_t n_examples,
                                int64_t max_tokens, FILE *rows, task_scores *out)
{
    answerer w;
    mean strict = {0}, flexible = {0};
    nrl_status st = answerer_open(m, t, max_tokens, &w);
    for (int64_t i = 0; i < t->n && st == NRL_OK; i += BATCH_ANSWERS) {
        buffer texts[BATCH_ANSWERS] = {0};
        int64_t n = t->n - i < BATCH_ANSWERS ? t->n - i : BATCH_ANSWERS;
        arena memory = {0};
        for (int64_t k = 0; k < n && st == NRL_OK; k++) {
            const char *prompt = task_prompt(&memory, examples, n_examples, &t->questions[i + k]);
            st = answerer_add(&w, prompt, &texts[k], &out->n_truncated);
            if (st != NRL_OK) nrl_add_context("%s: question %lld", t->file, (long long)(i + k) + 1);
        }
        for (bool is_idle = false; st == NRL_OK && !is_idle;)
            st = nrl_generator_step(w.generator, &is_idle);
        for (int64_t k = 0; k < n && st == NRL_OK; k++) {
            const task_question *q = &t->questions[i + k];
            const char *text = texts[k].text ? texts[k].text : "";
            const char *first =
                t->finds_number ? task_normalized(&memory, task_number(&memory, text, true)) : trimmed(&memory, text);
            const char *last = t->finds_number ? task_normalized(&memory, task_number(&memory, text, false)) : first;
            const char *right = t->finds_number ? task_normalized(&memory, q->answer) : trimmed(&memory, q->answer);
            mean_add(&strict, !strcmp(first, right));
            mean_add(&flexible, !strcmp(last, right));
            if (rows) {
                nrl_node *row = node_new(&memory, NRL_NODE_MAP);
                node_append_text(&memory, row, "prompt", q->prompt);
                node_append_text(&memory, row, "expected", right);
                node_append_text(&memory, row, "found", last);
                node_append_text(&memory, row, "text", text);
                write_row(rows, row);
            }
        }
        for (int64_t k = 0; k < n; k++)
            buffer_free(&texts[k]);
        arena_free(&memory);
        show_progress(t, i + n);
    }
    nrl_generator_close(w.generator);
    if (st != NRL_OK) return st;
    add_metric(out, t->finds_number ? "exact_match_strict" : "exact_match", &strict);
    if (t->finds_number) add_metric(out, "exact_match_flexible", &flexible);
    return NRL_OK;
}

nrl_status task_score(arena *a, nrl_inference *m, const task *t, const task *examples, int64_t n_examples,
                      int64_t max_tokens, FILE *rows, task_scores *out)
{
    *out = (task_scores){0};
    if (!nrl_inference_tokenizer(m))
        return nrl_fail(NRL_ERR_CONFIG, "cannot evaluate a task: no tokenizer was found beside the model");
    if (t->questions[0].n_choices) return score_choices(a, m, t, examples, n_examples, rows, out);
    return score_answers(m, t, examples, n_examples, max_tokens, rows, out);
}
