/*
 * task.c - the rows of public tasks as questions. The prompts are those of lm-evaluation-harness 0.4, so that scores
 * can be compared.
 */
#include "task.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/hub.h"
#include "base/json.h"
#include "cli/common/cli.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 30 };

typedef nrl_status (*task_reader)(arena *a, const char *place, const nrl_node *row, task *t, task_question *q);

/* ---- members of rows ---- */

static const char *text_of(const nrl_node *row, const char *key)
{
    return nrl_node_string(nrl_node_find(row, key), NULL);
}

static nrl_status lacks(const char *place, const task *t, const char *keys)
{
    return nrl_fail(NRL_ERR_DATA, "%s: a row of %s needs %s", place, t->name, keys);
}

/* A number, or a text of one. */
static int64_t index_of(const nrl_node *value)
{
    const char *text = nrl_node_string(value, NULL);
    char *end;
    if (!text) return nrl_node_int(value, -1);
    long i = strtol(text, &end, 10);
    return *text && !*end ? i : -1;
}

static nrl_status set_choices(arena *a, const char *place, const nrl_node *list, int64_t gold, task_question *q)
{
    size_t n = nrl_node_kind(list) == NRL_NODE_LIST ? nrl_node_size(list) : 0;
    if (n < 2 || n > TASK_MAX_CHOICES)
        return nrl_fail(NRL_ERR_DATA, "%s: %zu choices; expected a list of 2 to %d texts", place, n,
                        (int)TASK_MAX_CHOICES);
    if (gold < 0 || gold >= (int64_t)n)
        return nrl_fail(NRL_ERR_DATA, "%s: the right answer is not one of the %zu choices", place, n);
    q->n_choices = (int32_t)n;
    q->gold = (int32_t)gold;
    q->choices = arena_alloc(a, n * sizeof *q->choices);
    for (size_t i = 0; i < n; i++) {
        q->choices[i] = nrl_node_string(nrl_node_at(list, i), NULL);
        if (!q->choices[i]) return nrl_fail(NRL_ERR_DATA, "%s: choice %zu is not a text", place, i + 1);
    }
    return NRL_OK;
}

/* ---- formats ---- */

/* Removes what the WikiHow rows of hellaswag contain: [title], other brackets, double spaces. */
static const char *hellaswag_clean(arena *a, const char *text)
{
    buffer b = {0};
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    char *end, *copy = arena_strndup(a, text, n), *out;
    static const char title[] = " [title]";
    for (const char *p = copy; *p;) {
        bool is_title = !strncmp(p, title, sizeof title - 1);
        buffer_puts(&b, is_title ? ". " : (char[]){*p, 0});
        p += is_title ? sizeof title - 1 : 1;
    }
    copy = arena_strdup(a, b.text ? b.text : "");
    b.size = 0;
    for (char *p = copy; *p;) {
        end = *p == '[' ? p + 1 + strcspn(p + 1, "]\n") : NULL;
        if (!end || *end != ']') buffer_add(&b, p, 1);
        p = end && *end == ']' ? end + 1 : p + 1;
    }
    copy = arena_strndup(a, b.text ? b.text : "", b.size);
    b.size = 0;
    for (const char *p = copy; *p; p++) {
        buffer_add(&b, p, 1);
        if (p[0] == ' ' && p[1] == ' ') p++;
    }
    out = arena_strndup(a, b.text ? b.text : "", b.size);
    buffer_free(&b);
    return out;
}

static nrl_status read_hellaswag(arena *a, const char *place, const nrl_node *row, task *t, task_question *q)
{
    const char *activity = text_of(row, "activity_label"), *first = text_of(row, "ctx_a"),
               *second = text_of(row, "ctx_b");
    const nrl_node *label = nrl_node_find(row, "label");
    if (!activity || !first || !second || !label)
        return lacks(place, t, "activity_label, ctx_a, ctx_b, endings and label");
    char *rest = arena_strdup(a, second); /* as Python's capitalize, in ASCII */
    for (char *p = rest; *p; p++)
        *p = (char)(p == rest ? toupper((unsigned char)*p) : tolower((unsigned char)*p));
    q->prompt = hellaswag_clean(a, arena_printf(a, "%s: %s %s", activity, first, rest));
    NRL_TRY(set_choices(a, place, nrl_node_find(row, "endings"), index_of(label), q));
    for (int32_t i = 0; i < q->n_choices; i++)
        q->choices[i] = hellaswag_clean(a, q->choices[i]);
    return NRL_OK;
}

static nrl_status read_arc(arena *a, const char *place, const nrl_node *row, task *t, task_question *q)
{
    const char *question = text_of(row, "question"), *key = text_of(row, "answerKey");
    const nrl_node *choices = nrl_node_find(row, "choices"), *labels = nrl_node_find(choices, "label");
    int64_t gold = -1;
    if (!question || !key || !labels) return lacks(place, t, "question, choices: {text, label} and answerKey");
    for (size_t i = 0; i < nrl_node_size(labels) && gold < 0; i++)
        if (!strcmp(nrl_node_string(nrl_node_at(labels, i), ""), key)) gold = (int64_t)i;
    q->prompt = arena_printf(a, "Question: %s\nAnswer:", question);
    return set_choices(a, place, nrl_node_find(choices, "text"), gold, q);
}

static nrl_status read_piqa(arena *a, const char *place, const nrl_node *row, task *t, task_question *q)
{
    const char *goal = text_of(row, "goal"), *one = text_of(row, "sol1"), *two = text_of(row, "sol2");
    int64_t gold = index_of(nrl_node_find(row, "label"));
    if (!goal || !one || !two) return lacks(place, t, "goal, sol1, sol2 and label");
    nrl_node *both = node_new(a, NRL_NODE_LIST);
    node_append(a, both, NULL, node_text(a, one));
    node_append(a, both, NULL, node_text(a, two));
    q->prompt = arena_printf(a, "Question: %s\nAnswer:", goal);
    return set_choices(a, place, both, gold, q);
}

/* The choices are letters; their texts are in the question. */
static nrl_status read_mmlu(arena *a, const char *place, const nrl_node *row, task *t, task_question *q)
{
    const char *question = text_of(row, "question"), *subject = text_of(row, "subject");
    const nrl_node *list = nrl_node_find(row, "choices"), *answer = nrl_node_find(row, "answer");
    const char *letter = nrl_node_string(answer, "");
    if (!question || !answer) return lacks(place, t, "question, choices and answer");
    int64_t gold = *letter >= 'A' && *letter <= 'Z' && !letter[1] ? *letter - 'A' : index_of(answer);
    NRL_TRY(set_choices(a, place, list, gold, q));
    if (q->n_choices > 26) return nrl_fail(NRL_ERR_DATA, "%s: more than 26 choices", place);
    while (isspace((unsigned char)*question))
        question++;
    size_t n = strlen(question);
    while (n && isspace((unsigned char)question[n - 1]))
        n--;
    const char *prompt = arena_strndup(a, question, n);
    for (int32_t i = 0; i < q->n_choices; i++) {
        prompt = arena_printf(a, "%s\n%c. %s", prompt, 'A' + i, q->choices[i]);
        q->choices[i] = arena_printf(a, "%c", 'A' + i);
    }
    q->prompt = arena_printf(a, "%s\nAnswer:", prompt);
    if (subject) {
        char *words = arena_strdup(a, subject);
        for (char *p = words; *p; p++)
            if (*p == '_') *p = ' ';
        q->description =
            arena_printf(a, "The following are multiple choice questions (with answers) about %s.\n\n", words);
    }
    return NRL_OK;
}

static nrl_status read_gsm8k(arena *a, const char *place, const nrl_node *row, task *t, task_question *q)
{
    const char *question = text_of(row, "question");
    q->answer = text_of(row, "answer");
    if (!question || !q->answer) return lacks(place, t, "question and answer");
    q->prompt = arena_printf(a, "Question: %s\nAnswer:", question);
    return NRL_OK;
}

static nrl_status read_choices(arena *a, const char *place, const nrl_node *row, task *t, task_question *q)
{
    q->prompt = text_of(row, "prompt");
    if (!q->prompt) return lacks(place, t, "prompt, choices (a list of texts) and gold (the index of the right one)");
    return set_choices(a, place, nrl_node_find(row, "choices"), index_of(nrl_node_find(row, "gold")), q);
}

static nrl_status read_match(arena *a, const char *place, const nrl_node *row, task *t, task_question *q)
{
    (void)a;
    q->prompt = text_of(row, "prompt");
    q->answer = text_of(row, "answer");
    return q->prompt && q->answer ? NRL_OK : lacks(place, t, "prompt and answer, two texts");
}

static const struct {
    task like; /* what all tasks of this format share */
    task_reader read;
    const char *key, *other; /* a row that has both is of this format; `other` NULL: one is enough */
} formats[] = {
    {{.name = "hellaswag", .scores_norm = true}, read_hellaswag, "endings", NULL},
    {{.name = "piqa", .scores_norm = true}, read_piqa, "sol1", NULL},
    {{.name = "arc", .scores_norm = true}, read_arc, "answerKey", NULL},
    {{.name = "choices", .scores_norm = true}, read_choices, "choices", "gold"},
    {{.name = "mmlu"}, read_mmlu, "choices", "answer"},
    {{.name = "match", .stop = {"\n"}}, read_match, "prompt", "answer"},
    {{.name = "gsm8k", .finds_number = true, .stop = {"Question:", "</s>", "<|im_end|>"}},
     read_gsm8k,
     "question",
     "answer"},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static nrl_status find_format(arena *a, const char *word, const char *file, const nrl_node *row, size_t *format)
{
    const char *names = "";
    for (size_t i = 0; i < N_FORMATS; i++) {
        *format = i;
        bool has = nrl_node_find(row, formats[i].key) && (!formats[i].other || nrl_node_find(row, formats[i].other));
        if (word ? !strcmp(word, formats[i].like.name) : has) return NRL_OK;
        names = arena_printf(a, "%s%s%s", names, *names ? ", " : "", formats[i].like.name);
    }
    if (word) return nrl_fail(NRL_ERR_CONFIG, "--task: no format '%s'; expected one of %s", word, names);
    return nrl_fail(NRL_ERR_DATA,
                    "%s: the keys of its rows do not match a task format\n"
                    "hint: `nrl eval --help` lists the formats (%s); FORMAT=FILE selects one",
                    file, names);
}

/* ---- files ---- */

/* The rows of a JSON array, or of JSON lines. */
static nrl_status read_rows(arena *a, const char *file, int64_t limit, nrl_node *rows)
{
    char *text;
    size_t size;
    if (file_read(file, MAX_FILE_BYTES, &text, &size) != NRL_OK) return NRL_ERR_CONFIG;
    nrl_status st = NRL_OK;
    nrl_node *all;
    int64_t number = 1;
    if (text[strspn(text, " \t\r\n")] == '[') {
        st = json_parse(a, file, text, size, &all);
        for (size_t i = 0; st == NRL_OK && i < nrl_node_size(all) && (!limit || (int64_t)i < limit); i++)
            node_append(a, rows, NULL, node_copy(a, nrl_node_at(all, i)));
    } else {
        for (char *line = text, *next; st == NRL_OK && line < text + size; line = next, number++) {
            next = memchr(line, '\n', (size_t)(text + size - line));
            next = next ? next + 1 : text + size;
            size_t n = (size_t)(next - line);
            if (strspn(line, " \t\r\n") >= n || (limit && (int64_t)nrl_node_size(rows) >= limit)) continue;
            st = json_parse_at(a, file, number, 1, line, n, &all);
            if (st != NRL_OK) break;
            nrl_node_set_place(all, file, (uint32_t)number, 1);
            node_append(a, rows, NULL, all);
        }
    }
    free(text);
    return st;
}

nrl_status task_read(arena *a, const char *word, int64_t limit, task *out)
{
    const char *equal = strchr(word, '='), *file = word, *name = NULL;
    nrl_node *rows = node_new(a, NRL_NODE_LIST);
    size_t format;
    if (equal && !memchr(word, '/', (size_t)(equal - word))) {
        name = arena_strndup(a, word, (size_t)(equal - word));
        file = equal + 1;
        NRL_TRY(find_format(a, name, file, NULL, &format));
    }
    if (!strncmp(file, HUB_SCHEME, strlen(HUB_SCHEME))) NRL_TRY(hub_data(a, file, cli_variable, &file));
    NRL_TRY(read_rows(a, file, limit, rows));
    int64_t n = (int64_t)nrl_node_size(rows);
    if (!n) return nrl_fail(NRL_ERR_DATA, "%s: it contains no rows", file);
    if (!name) NRL_TRY(find_format(a, NULL, file, nrl_node_at(rows, 0), &format));
    *out = formats[format].like;
    out->file = file;
    out->n = n;
    out->questions = arena_alloc(a, (size_t)n * sizeof *out->questions);
    for (int64_t i = 0; i < n; i++) {
        const nrl_node *row = nrl_node_at(rows, (size_t)i);
        if (nrl_node_kind(row) != NRL_NODE_MAP)
            return nrl_fail(NRL_ERR_DATA, "%s: row %lld is not a map", file, (long long)i + 1);
        NRL_TRY(formats[format].read(a, nrl_node_place(row), row, out, &out->questions[i]));
    }
    return NRL_OK;
}
