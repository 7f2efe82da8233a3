/*
 * row.c - the formats of rows: names of keys, the table, and detection.
 */
#include "base/json.h"
#include "rows/formats.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char *const key_names[DATA_KEY_COUNT] = {
    [DATA_KEY_MESSAGES] = "messages",
    [DATA_KEY_CONVERSATIONS] = "conversations",
    [DATA_KEY_SYSTEM] = "system",
    [DATA_KEY_PROMPT] = "prompt",
    [DATA_KEY_COMPLETION] = "completion",
    [DATA_KEY_CHOSEN] = "chosen",
    [DATA_KEY_REJECTED] = "rejected",
    [DATA_KEY_INSTRUCTION] = "instruction",
    [DATA_KEY_INPUT] = "input",
    [DATA_KEY_OUTPUT] = "output",
    [DATA_KEY_HISTORY] = "history",
    [DATA_KEY_TEXT] = "text",
    [DATA_KEY_INPUT_IDS] = "input_ids",
    [DATA_KEY_LABELS] = "labels",
    [DATA_KEY_ATTENTION_MASK] = "attention_mask",
    [DATA_KEY_PROMPT_INPUT_IDS] = "prompt_input_ids",
    [DATA_KEY_CHOSEN_INPUT_IDS] = "chosen_input_ids",
    [DATA_KEY_REJECTED_INPUT_IDS] = "rejected_input_ids",
    [DATA_KEY_LABEL] = DATA_LABEL,
    [DATA_KEY_KTO_TAG] = "kto_tag",
    [DATA_KEY_PREFERRED] = "preferred_output",
    [DATA_KEY_NON_PREFERRED] = "non_preferred_output",
    [DATA_KEY_TOOLS] = "tools",
    [DATA_KEY_TEMPLATE_KWARGS] = "chat_template_kwargs",
};

/* Other names of keys, used by a file whose first row has them in place of the key's own. */
static const struct {
    data_key key;
    const char *name;
} aliases[] = {
    {DATA_KEY_PROMPT, "prompt_messages"},      {DATA_KEY_COMPLETION, "completion_messages"},
    {DATA_KEY_CHOSEN, "chosen_messages"},      {DATA_KEY_REJECTED, "rejected_messages"},
    {DATA_KEY_CHOSEN, "chosen_conversations"}, {DATA_KEY_REJECTED, "rejected_conversations"},
    {DATA_KEY_CONVERSATIONS, "conversation"},
};

/* Names that probably mean a key, for hints: too many data sets use them otherwise. */
static const struct {
    data_key key;
    const char *names;
} likely[] = {
    {DATA_KEY_CHOSEN, "|chosen_response|response_chosen|response_j|preferred|winner|better|accepted|positive|"},
    {DATA_KEY_REJECTED, "|rejected_response|response_rejected|response_k|dispreferred|loser|worse|negative|"},
    {DATA_KEY_COMPLETION, "|answer|response|output|solution|target|summary|reply|assistant|label_text|generation|"},
    {DATA_KEY_PROMPT, "|question|query|problem|instruction|input|user|human|source|dialogue|document|article|request|"},
    {DATA_KEY_TEXT, "|content|document|body|code|story|markdown|"},
};

/* Shapes of other programs that have no key for each text: the keys that identify them, and a filter of jq. */
static const struct {
    const char *what, *keys[3], *filter;
} conversions[] = {
    {"stepwise supervision",
     {"prompt", "completions", "labels"},
     "{prompt, completion: (.completions | add), label: (.labels | all)}"},
    {"a translation",
     {"translation"},
     "{prompt: (.translation | to_entries[0].value), completion: (.translation | to_entries[1].value)}"},
    {"questions with a context",
     {"context", "question", "answers"},
     "{prompt: (.context + \"\\n\" + .question), completion: .answers.text[0]}"},
    {"a dialogue",
     {"dialog"},
     "{messages: [.dialog | to_entries[] | {role: [\"user\", \"assistant\"][.key % 2], content: .value}]}"},
    {"ranked responses",
     {"prompt", "responses", "scores"},
     "{prompt, chosen: ([.responses, .scores] | transpose | max_by(.[1])[0]), rejected: ([.responses, .scores] | "
     "transpose | min_by(.[1])[0])}"},
    {"prompts without answers", {"prompt"}, "{prompt, completion: .ANSWER}"},
};

#define KEY(k) (1u << DATA_KEY_##k)
#define LABELS (KEY(LABEL) | KEY(KTO_TAG))
#define ANSWERS (KEY(CHOSEN) | KEY(REJECTED))
#define CHAT_OPTIONS (KEY(TOOLS) | KEY(TEMPLATE_KWARGS))
#define ALPACA_OPTIONS (KEY(INPUT) | KEY(HISTORY) | KEY(SYSTEM) | CHAT_OPTIONS)

/* The format of a row is the first one whose required keys it has. */
static const data_format formats[] = {
    {"pre-tokenized pairs", true, false, KEY(PROMPT_INPUT_IDS) | KEY(CHOSEN_INPUT_IDS) | KEY(REJECTED_INPUT_IDS), 0,
     data_read_ids},
    {"conversations/chosen/rejected", true, false, KEY(CONVERSATIONS) | ANSWERS, KEY(SYSTEM) | CHAT_OPTIONS,
     data_read_prompted},
    {"instruction/chosen/rejected", true, false, KEY(INSTRUCTION) | ANSWERS, ALPACA_OPTIONS, data_read_prompted},
    {"prompt/chosen/rejected", true, false, KEY(PROMPT) | ANSWERS, CHAT_OPTIONS, data_read_prompted},
    {"chosen/rejected", true, false, ANSWERS, CHAT_OPTIONS, data_read_prompted},
    {"OpenAI preferences", true, false, KEY(INPUT) | KEY(PREFERRED) | KEY(NON_PREFERRED), 0, data_read_preferred},
    {"pre-tokenized", false, false, KEY(INPUT_IDS), KEY(LABELS) | KEY(ATTENTION_MASK), data_read_ids},
    {"messages", false, false, KEY(MESSAGES), CHAT_OPTIONS, data_read_chat},
    {"ShareGPT", false, false, KEY(CONVERSATIONS), KEY(SYSTEM) | CHAT_OPTIONS, data_read_chat},
    {"prompt/completion", false, false, KEY(PROMPT) | KEY(COMPLETION), CHAT_OPTIONS, data_read_prompted},
    {"Alpaca", false, false, KEY(INSTRUCTION) | KEY(OUTPUT), ALPACA_OPTIONS, data_read_alpaca},
    {"text", false, true, KEY(TEXT), 0, data_read_plain},
    {"prompt", false, true, KEY(PROMPT), CHAT_OPTIONS, data_read_prompted},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static const char expected_single[] =
    "expected messages, or prompt and completion, or text, or instruction and output (Alpaca), or "
    "conversations (ShareGPT), or input_ids and labels";
static const char expected_prompts[] =
    "expected prompt, or prompt and completion, or messages, or instruction and output (Alpaca), or conversations "
    "(ShareGPT), or input_ids and labels";
static const char expected_labelled[] =
    "expected messages, or prompt and completion, or instruction and output (Alpaca), or "
    "conversations (ShareGPT), or input_ids and labels; and label or kto_tag";
static const char expected_pairs[] =
    "expected prompt, chosen and rejected, or chosen and rejected, or conversations, chosen and "
    "rejected, or prompt_input_ids, chosen_input_ids and rejected_input_ids, or input, preferred_output and "
    "non_preferred_output (OpenAI)";

const char *data_format_name(const data_format *f)
{
    return f->name;
}

/* ---- the schema ---- */

static nrl_status rename_key(data_schema *s, const char *key, const nrl_node *value)
{
    const char *name = nrl_node_string(value, NULL);
    int k = 0;
    while (k < DATA_KEY_COUNT && strcmp(key_names[k], key))
        k++;
    if (k == DATA_KEY_COUNT)
        return nrl_fail(NRL_ERR_CONFIG,
                        "data.columns: '%s' is not a key of a row format; expected {KEY OF THE FORMAT: KEY OF THE "
                        "ROWS}, such as {prompt: question, completion: answer}",
                        key);
    if (!name || !*name) return nrl_fail(NRL_ERR_CONFIG, "data.columns.%s: expected the name of a key", key);
    s->name[k] = name;
    return NRL_OK;
}

static nrl_status add_extra(data_schema *s, const char *name)
{
    for (int i = 0; i < s->n_extra; i++)
        if (!strcmp(s->extra[i], name)) return nrl_fail(NRL_ERR_CONFIG, "data.extra: '%s' is listed twice", name);
    s->extra[s->n_extra++] = name;
    return NRL_OK;
}

nrl_status data_schema_set(data_schema *s, const nrl_node *columns, const nrl_node *extra, bool pairs, bool labels,
                           bool prompts)
{
    *s = (data_schema){.pairs = pairs, .labels = labels, .prompts = prompts};
    for (int k = 0; k < DATA_KEY_COUNT; k++)
        s->name[k] = key_names[k];
    for (size_t i = 0; i < nrl_node_size(columns); i++)
        NRL_TRY(rename_key(s, nrl_node_key(columns, i), nrl_node_at(columns, i)));
    for (int i = 0; i < DATA_KEY_COUNT; i++)
        for (int j = 0; j < i; j++)
            if (!strcmp(s->name[i], s->name[j]) && s->name[i] != key_names[i] && s->name[j] != key_names[j])
                return nrl_fail(NRL_ERR_CONFIG, "data.columns: '%s' cannot be both %s and %s", s->name[i], key_names[j],
                                key_names[i]);
    /* A key loses its own meaning if another key is renamed to it, as in {completion: text}. */
    for (int i = 0; i < DATA_KEY_COUNT; i++)
        for (int j = 0; j < DATA_KEY_COUNT; j++)
            if (i != j && s->name[j] != key_names[j] && !strcmp(s->name[j], key_names[i]) && s->name[i] == key_names[i])
                s->name[i] = "";
    const size_t most = DATA_MAX_EXTRA - s->labels;
    for (size_t i = 0; i < nrl_node_size(extra); i++) {
        const char *name = nrl_node_string(nrl_node_at(extra, i), NULL);
        if (!name || !*name) return nrl_fail(NRL_ERR_CONFIG, "data.extra: expected a list of names of keys");
        if (i == most)
            return nrl_fail(NRL_ERR_CONFIG, "data.extra: %zu keys, expected at most %zu", nrl_node_size(extra), most);
        if (s->labels && !strcmp(name, DATA_LABEL))
            return nrl_fail(NRL_ERR_CONFIG, "data.extra: the algorithm already reads '%s'", name);
        NRL_TRY(add_extra(s, name));
    }
    return s->labels ? add_extra(s, DATA_LABEL) : NRL_OK;
}

/* ---- detecting formats ---- */

const nrl_node *data_row_find(const data_schema *s, const nrl_node *row, data_key key)
{
    const nrl_node *value = nrl_node_find(row, s->name[key]);
    return nrl_node_kind(value) == NRL_NODE_NULL ? NULL : value;
}

static bool has_all(const data_schema *s, const nrl_node *row, uint32_t keys)
{
    for (int k = 0; k < DATA_KEY_COUNT; k++)
        if ((keys >> k & 1) && !nrl_node_find(row, s->name[k])) return false;
    return true;
}

static bool is_extra(const data_schema *s, const char *key)
{
    for (int i = 0; i < s->n_extra; i++)
        if (!strcmp(s->extra[i], key)) return true;
    return false;
}

/* Returns the keys as "id, question, answer", truncated if it is long. */
static const char *found_keys(const nrl_node *row, char *out, size_t room)
{
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < nrl_node_size(row) && at < room - 1; i++) {
        int n = snprintf(out + at, room - at, "%s%.60s", i ? ", " : "", nrl_node_key(row, i));
        at += n > 0 ? (size_t)n : 0;
    }
    return out[0] ? out : "none";
}

/* Returns the name of a key of the row that probably means the key of entry `k`, or NULL. */
static const char *likely_name(const nrl_node *row, size_t k)
{
    char name[70];
    for (size_t i = 0; i < nrl_node_size(row); i++) {
        snprintf(name, sizeof name, "|%.64s|", nrl_node_key(row, i));
        if (strstr(likely[k].names, name)) return nrl_node_key(row, i);
    }
    return NULL;
}

/* "; in place of `prompt`: question" as the option that renames keys; false if the names tell nothing. */
static bool suggest_columns(const data_schema *s, const nrl_node *row, char *out, size_t room)
{
    const nrl_node *instruction = nrl_node_find(row, key_names[DATA_KEY_INSTRUCTION]);
    if (!s->pairs && instruction && nrl_node_find(row, "context") && nrl_node_find(row, "response")) {
        snprintf(out, room, "{input: context, output: response}");
        return true;
    }
    uint32_t found = 0;
    size_t at = 0;
    for (size_t k = 0; k < sizeof likely / sizeof *likely; k++) {
        const data_key key = likely[k].key;
        const bool of_pair = key == DATA_KEY_CHOSEN || key == DATA_KEY_REJECTED;
        if (key == DATA_KEY_PROMPT ? !s->pairs && !s->prompts && !(found & KEY(COMPLETION)) : s->pairs != of_pair)
            continue;
        if (key == DATA_KEY_TEXT && (found || s->labels)) continue;
        if (nrl_node_find(row, key_names[key])) found |= 1u << key;
        const char *name = found >> key & 1 ? NULL : likely_name(row, k);
        if (!name) continue;
        int n = snprintf(out + at, room - at, "%s%s: %.64s", at ? ", " : "{", key_names[key], name);
        at += n > 0 && (size_t)n < room - at ? (size_t)n : 0;
        found |= 1u << key;
    }
    if (at && at + 1 < room) strcpy(out + at, "}");
    return at && (s->pairs ? !(ANSWERS & ~found)
                           : (found & KEY(TEXT)) || found == (KEY(PROMPT) | KEY(COMPLETION)) ||
                                 (s->prompts && found == KEY(PROMPT)));
}

/* A command that converts the file, or the option that renames its keys. */
static nrl_status fail_with_hint(const data_schema *s, const nrl_node *row)
{
    char columns[300], *error = mem_strdup(nrl_error_text());
    const char *text = NULL, *filter = NULL, *what = NULL, *nested = NULL;
    for (size_t i = 0; i < nrl_node_size(row); i++) {
        const nrl_node *value = nrl_node_at(row, i);
        if (!text && nrl_node_kind(value) == NRL_NODE_STRING) text = nrl_node_key(row, i);
        if (nrl_node_kind(nrl_node_at(nrl_node_kind(value) == NRL_NODE_LIST ? value : NULL, 0)) == NRL_NODE_MAP)
            nested = nrl_node_key(row, i);
    }
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions && !filter; i++) {
        bool all = true;
        for (size_t k = 0; k < 3 && conversions[i].keys[k]; k++)
            all = all && nrl_node_find(row, conversions[i].keys[k]);
        if (!all) continue;
        filter = conversions[i].filter;
        what = conversions[i].what;
    }
    nrl_status st;
    if (suggest_columns(s, row, columns, sizeof columns))
        st = nrl_fail(NRL_ERR_DATA, "%s\nhint: data.columns: %s", error, columns);
    else if (filter)
        st = nrl_fail(NRL_ERR_DATA, "%s\nhint: %s: jq -c '%s' FILE >rows.jsonl", error, what, filter);
    else if (nested && nrl_node_size(row) == 1)
        st = nrl_fail(NRL_ERR_DATA, "%s\nhint: the rows are inside '%s': jq -c '.%s[]' FILE >rows.jsonl", error, nested,
                      nested);
    else
        st = nrl_fail(NRL_ERR_DATA, "%s\nhint: jq -c '{%s: .%s, %s: .NAME}' FILE >rows.jsonl, or data.columns", error,
                      s->pairs ? "chosen" : "prompt", text ? text : "NAME", s->pairs ? "rejected" : "completion");
    free(error);
    return st;
}

/* How to train on the chosen answers of pairs. */
static nrl_status fail_pairs(const data_schema *s, const nrl_node *row, const data_format *f)
{
    const char *chosen = s->name[DATA_KEY_CHOSEN];
    char columns[200];
    const char *how = columns;
    if (f->required & KEY(PREFERRED))
        how = "jq -c '{messages: (.input.messages + .preferred_output)}' FILE >rows.jsonl";
    else if (f->required & KEY(PROMPT_INPUT_IDS))
        how = "jq -c '{input_ids: (.prompt_input_ids + .chosen_input_ids), labels: ((.prompt_input_ids | map(-100)) + "
              ".chosen_input_ids)}' FILE >rows.jsonl";
    else if (f->required & (KEY(PROMPT) | KEY(INSTRUCTION)))
        snprintf(columns, sizeof columns, "data.columns: {%s: %.64s}",
                 f->required & KEY(PROMPT) ? "completion" : "output", chosen);
    else
        snprintf(columns, sizeof columns, "data.columns: {%s: %.64s}",
                 nrl_node_kind(nrl_node_find(row, chosen)) == NRL_NODE_LIST ? "messages" : "text", chosen);
    return nrl_fail(NRL_ERR_DATA,
                    "a row of a pair (%s), but the algorithm learns from single samples\n"
                    "hint: to train on the chosen answers: %s",
                    f->name, how);
}

static nrl_status fail_unknown(const data_schema *s, const nrl_node *row)
{
    char keys[400];
    found_keys(row, keys, sizeof keys);
    for (int i = 0; i < N_FORMATS; i++) {
        if (formats[i].pairs == s->pairs || formats[i].required == KEY(PROMPT) || !has_all(s, row, formats[i].required))
            continue;
        if (s->pairs)
            return nrl_fail(NRL_ERR_DATA,
                            "a row of single samples (%s), but the algorithm learns from "
                            "pairs; %s",
                            formats[i].name, expected_pairs);
        if (s->labels)
            return nrl_fail(NRL_ERR_DATA,
                            "a row of a pair (%s), but the algorithm learns from single answers "
                            "with a label; %s",
                            formats[i].name, expected_labelled);
        return fail_pairs(s, row, &formats[i]);
    }
    const char *expected = s->pairs     ? expected_pairs
                           : s->labels  ? expected_labelled
                           : s->prompts ? expected_prompts
                                        : expected_single;
    if (!*keys) return nrl_fail(NRL_ERR_DATA, "a row without keys; %s", expected);
    nrl_fail(NRL_ERR_DATA, "no row format has these keys: %s; %s", keys, expected);
    return fail_with_hint(s, row);
}

static bool has_label(const data_schema *s, const nrl_node *row, data_key key)
{
    return data_node_bool(nrl_node_find(row, s->name[key])) >= 0 && !is_extra(s, s->name[key]);
}

/* Whether the row is labelled but the algorithm does not read labels: it would train the undesirable answers, too. */
static bool is_kto(const data_schema *s, const nrl_node *row)
{
    return !s->labels && (has_label(s, row, DATA_KEY_LABEL) || has_label(s, row, DATA_KEY_KTO_TAG)) &&
           (has_all(s, row, KEY(MESSAGES)) || has_all(s, row, KEY(PROMPT) | KEY(COMPLETION)) ||
            has_all(s, row, KEY(INSTRUCTION) | KEY(OUTPUT)) || has_all(s, row, KEY(INPUT_IDS)) ||
            (!s->pairs && has_all(s, row, KEY(CONVERSATIONS))));
}

/* Rows of prompts alone have the format of the last entry only if the answers are generated, and if no other key looks
 * like an answer that rewards could read. */
static bool is_format(const data_schema *s, const nrl_node *row, const data_format *f)
{
    if (f->pairs != s->pairs || (s->labels && f->unlabelled) || !has_all(s, row, f->required)) return false;
    if (f->required != KEY(PROMPT)) return true;
    for (size_t k = 0; k < sizeof likely / sizeof *likely; k++)
        if (likely[k].key == DATA_KEY_COMPLETION && likely_name(row, k)) return false;
    return s->prompts;
}

nrl_status data_schema_detect(data_schema *s, const nrl_node *row)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        const char **name = &s->name[aliases[i].key];
        const bool is_own = *name == key_names[aliases[i].key] && !nrl_node_find(row, *name);
        if (is_own && nrl_node_find(row, aliases[i].name) && !is_extra(s, aliases[i].name)) *name = aliases[i].name;
    }
    if (is_kto(s, row))
        return nrl_fail(
            NRL_ERR_DATA,
            "a labelled row (an answer and a true/false 'label'), but the algorithm "
            "does not read labels\nhint: algorithm: kto reads labels; to train on every answer, remove the label");
    for (int i = 0; i < N_FORMATS; i++) {
        if (!is_format(s, row, &formats[i])) continue;
        s->format = &formats[i];
        return NRL_OK;
    }
    return fail_unknown(s, row);
}

nrl_status data_row_read(arena *a, const data_schema *s, const nrl_node *row, data_sample *out)
{
    if (nrl_node_kind(row) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_DATA, "expected a row {...}, found %s", node_kind_name(nrl_node_kind(row)));
    *out = (data_sample){.n_sides = s->pairs ? 2 : 1};
    char keys[400];
    for (int k = 0; k < DATA_KEY_COUNT; k++)
        if ((s->format->required >> k & 1) && !nrl_node_find(row, s->name[k]))
            return nrl_fail(NRL_ERR_DATA,
                            "no key '%s', which every row of this file requires (%s, like the first row); found: %s",
                            s->name[k], s->format->name, found_keys(row, keys, sizeof keys));
    if (is_kto(s, row)) return nrl_fail(NRL_ERR_DATA, "a labelled row among rows of %s", s->format->name);
    static const char *const media[] = {"image", "images", "videos", "audios"};
    for (size_t i = 0; i < sizeof media / sizeof *media; i++)
        if (nrl_node_kind(nrl_node_find(row, media[i])) > NRL_NODE_NULL &&
            (nrl_node_kind(nrl_node_find(row, media[i])) != NRL_NODE_LIST ||
             nrl_node_size(nrl_node_find(row, media[i]))))
            return nrl_fail(NRL_ERR_DATA,
                            "key '%s': nrl trains only on text\n"
                            "hint: to train on the text without it: jq -c 'del(.%s)' FILE >rows.jsonl",
                            media[i], media[i]);
    NRL_TRY(s->format->read(a, s, row, out));
    if (out->shape == DATA_SHAPE_CHAT && (s->format->optional & CHAT_OPTIONS))
        NRL_TRY(data_read_chat_options(a, s, row, out));
    if (s->labels) NRL_TRY(data_read_label(s, row, out));
    for (int i = 0; i < s->n_extra - s->labels; i++) {
        const nrl_node *value = nrl_node_find(row, s->extra[i]);
        int boolean = data_node_bool(value);
        double number = boolean >= 0 ? boolean : data_node_number(value);
        if (!value) return nrl_fail(NRL_ERR_DATA, "no key '%s' (data.extra)", s->extra[i]);
        if (!isfinite((float)number))
            return nrl_fail(NRL_ERR_DATA, "key '%s' (data.extra): expected a number, found %s", s->extra[i],
                            isnan(number) ? node_kind_name(nrl_node_kind(value)) : "one too large");
        out->extra[i] = (float)number;
    }
    return NRL_OK;
}

uint64_t data_row_hash(const data_schema *s, const nrl_node *row, uint64_t seed)
{
    for (int k = 0; k < DATA_KEY_COUNT; k++) {
        const nrl_node *value = data_row_find(s, row, (data_key)k);
        if (!value) continue;
        char *text = json_write(value, 0);
        seed = XXH3_64bits_withSeed(text, strlen(text), seed + (uint64_t)k + 1);
        free(text);
    }
    return seed;
}

const char *data_row_unknown_key(const data_schema *s, const nrl_node *row, size_t *at)
{
    uint32_t known = s->format->required | s->format->optional | (s->labels ? LABELS : 0);
    while (*at < nrl_node_size(row)) {
        const char *key = nrl_node_key(row, (*at)++);
        bool used = is_extra(s, key);
        for (int k = 0; k < DATA_KEY_COUNT && !used; k++)
            used = (known >> k & 1) && !strcmp(s->name[k], key);
        if (!used) return key;
    }
    return NULL;
}

/* ---- samples ---- */

static bool same_text(data_text x, data_text y)
{
    return x.size == y.size && (!x.size || !memcmp(x.text, y.text, x.size));
}

static bool has_answer(const data_sample *s, int side)
{
    if (s->shape == DATA_SHAPE_IDS) return nrl_node_size(s->ids[side]) > 0;
    if (s->shape != DATA_SHAPE_CHAT) return s->answer[side].size > 0;
    for (size_t i = s->n_prompt; i < s->chat[side].n; i++)
        if (s->chat[side].items[i].content_size ||
            nrl_node_size(nrl_node_find(s->chat[side].items[i].node, "tool_calls")))
            return true;
    return false;
}

bool data_sample_is_empty(const data_sample *s)
{
    return !has_answer(s, 0) || (s->n_sides == 2 && !has_answer(s, 1));
}

bool data_sample_is_identical(const data_sample *s)
{
    if (s->n_sides < 2) return false;
    if (s->shape == DATA_SHAPE_PROMPTED) return same_text(s->answer[0], s->answer[1]);
    if (s->shape == DATA_SHAPE_CHAT)
        return s->chat[0].n == s->chat[1].n && data_common_messages(s->chat[0], s->chat[1]) == s->chat[0].n;
    size_t n = nrl_node_size(s->ids[0]);
    if (n != nrl_node_size(s->ids[1])) return false;
    for (size_t i = 0; i < n; i++)
        if (nrl_node_int(nrl_node_at(s->ids[0], i), -1) != nrl_node_int(nrl_node_at(s->ids[1], i), -1)) return false;
    return true;
}
