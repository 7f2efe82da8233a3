/*
 * row_read.c - the readers in the table of formats: each turns the keys of a row into a sample.
 */
#include "rows/formats.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static nrl_status fail_kind(const char *name, const nrl_node *value, const char *expected)
{
    return nrl_fail(NRL_ERR_DATA, "key '%s': expected %s, found %s", name, expected,
                    node_kind_name(nrl_node_kind(value)));
}

double data_node_number(const nrl_node *value)
{
    const char *text = nrl_node_string(value, "");
    char *end;
    if (nrl_node_kind(value) != NRL_NODE_STRING) return nrl_node_f64(value, NAN);
    if (text[strspn(text, " +-.0123456789eE")]) return NAN; /* strtod reads "inf" and hexadecimal numbers, too */
    double number = strtod(text, &end);
    return end == text || end != text + nrl_node_string_size(value) ? NAN : number;
}

int data_node_bool(const nrl_node *value)
{
    static const char *const words[2][3] = {{"false", "False", "FALSE"}, {"true", "True", "TRUE"}};
    const char *text = nrl_node_string(value, "");
    if (nrl_node_kind(value) == NRL_NODE_BOOL) return nrl_node_bool(value, false);
    for (int i = 0; i < 6; i++)
        if (!strcmp(text, words[i / 3][i % 3])) return i / 3;
    return -1;
}

nrl_status data_read_text(const data_schema *s, const nrl_node *row, data_key key, data_text *out)
{
    const nrl_node *value = nrl_node_find(row, s->name[key]);
    if (nrl_node_kind(value) != NRL_NODE_STRING) return fail_kind(s->name[key], value, "text");
    *out = (data_text){nrl_node_string(value, ""), nrl_node_string_size(value)};
    return NRL_OK;
}

/* Reads an optional text: "" if it is absent or null. */
static nrl_status read_option(const data_schema *s, const nrl_node *row, data_key key, data_text *out)
{
    *out = (data_text){"", 0};
    return data_row_find(s, row, key) ? data_read_text(s, row, key, out) : NRL_OK;
}

static nrl_status read_content(arena *a, const data_schema *s, const nrl_node *row, data_key key, data_sample *notes,
                               data_content *out)
{
    const nrl_node *value = nrl_node_find(row, s->name[key]);
    nrl_node_type kind = nrl_node_kind(value);
    *out = (data_content){.is_text = kind == NRL_NODE_STRING};
    if (out->is_text) return data_read_text(s, row, key, &out->text);
    if (kind != NRL_NODE_LIST && kind != NRL_NODE_MAP) return fail_kind(s->name[key], value, "text or messages");
    return data_read_messages(a, s->name[key], value, notes, &out->chat);
}

static nrl_status add_content(arena *a, const data_content *c, const char *role, data_messages *list)
{
    return c->is_text ? data_text_add(a, list, role, c->text) : data_messages_add(a, list, c->chat);
}

/* ---- single samples ---- */

nrl_status data_read_plain(arena *a, const data_schema *s, const nrl_node *row, data_sample *out)
{
    (void)a;
    out->shape = DATA_SHAPE_TEXT;
    return data_read_text(s, row, DATA_KEY_TEXT, &out->answer[0]);
}

static nrl_status add_system(arena *a, const data_schema *s, const nrl_node *row, data_messages *list)
{
    data_text text;
    NRL_TRY(read_option(s, row, DATA_KEY_SYSTEM, &text));
    return text.size ? data_text_add(a, list, "system", text) : NRL_OK;
}

static nrl_status add_list(arena *a, const data_schema *s, const nrl_node *row, data_key key, data_sample *notes,
                           data_messages *list)
{
    data_messages more;
    const nrl_node *value = nrl_node_find(row, s->name[key]);
    if (nrl_node_kind(value) != NRL_NODE_LIST) return fail_kind(s->name[key], value, "a list of messages");
    NRL_TRY(data_read_messages(a, s->name[key], value, notes, &more));
    return data_messages_add(a, list, more);
}

nrl_status data_read_chat(arena *a, const data_schema *s, const nrl_node *row, data_sample *out)
{
    bool share = (s->format->required >> DATA_KEY_CONVERSATIONS & 1) != 0;
    out->shape = DATA_SHAPE_CHAT;
    if (share) NRL_TRY(add_system(a, s, row, &out->chat[0]));
    return add_list(a, s, row, share ? DATA_KEY_CONVERSATIONS : DATA_KEY_MESSAGES, out, &out->chat[0]);
}

static nrl_status add_history(arena *a, const data_schema *s, const nrl_node *row, data_messages *list)
{
    static const char *const roles[2] = {"user", "assistant"};
    const nrl_node *history = data_row_find(s, row, DATA_KEY_HISTORY);
    if (history && nrl_node_kind(history) != NRL_NODE_LIST)
        return fail_kind(s->name[DATA_KEY_HISTORY], history, "a list of [question, answer]");
    for (size_t i = 0; i < nrl_node_size(history); i++) {
        const nrl_node *turn = nrl_node_at(history, i);
        for (size_t j = 0; j < 2; j++) {
            const nrl_node *text = nrl_node_at(turn, j);
            if (nrl_node_size(turn) != 2 || nrl_node_kind(text) != NRL_NODE_STRING)
                return nrl_fail(NRL_ERR_DATA, "%s[%zu]: expected [question, answer]", s->name[DATA_KEY_HISTORY], i);
            data_text t = {nrl_node_string(text, ""), nrl_node_string_size(text)};
            NRL_TRY(data_text_add(a, list, roles[j], t));
        }
    }
    return NRL_OK;
}

/* Reads system and history, and then the instruction and its input as a message of the user: those that are not empty,
 * joined by a newline. */
static nrl_status add_instruction(arena *a, const data_schema *s, const nrl_node *row, data_messages *list)
{
    data_text instruction, input;
    NRL_TRY(add_system(a, s, row, list));
    NRL_TRY(add_history(a, s, row, list));
    NRL_TRY(read_option(s, row, DATA_KEY_INSTRUCTION, &instruction));
    NRL_TRY(read_option(s, row, DATA_KEY_INPUT, &input));
    if (!instruction.size) {
        instruction = input;
    } else if (input.size) {
        char *joined = arena_try(a, instruction.size + 1 + input.size + 1, "an instruction with its input");
        if (!joined) return NRL_ERR_MEMORY;
        memcpy(joined, instruction.text, instruction.size);
        joined[instruction.size] = '\n';
        memcpy(joined + instruction.size + 1, input.text, input.size);
        instruction = (data_text){joined, instruction.size + 1 + input.size};
    }
    return data_text_add(a, list, "user", instruction);
}

nrl_status data_read_alpaca(arena *a, const data_schema *s, const nrl_node *row, data_sample *out)
{
    data_text output;
    out->shape = DATA_SHAPE_CHAT;
    NRL_TRY(add_instruction(a, s, row, &out->chat[0]));
    NRL_TRY(data_read_text(s, row, DATA_KEY_OUTPUT, &output));
    if (output.size) return data_text_add(a, &out->chat[0], "assistant", output);
    out->n_prompt = out->chat[0].n; /* without an answer the row is empty */
    return NRL_OK;
}

/* ---- a prompt and one or two answers ---- */

static nrl_status read_prompt(arena *a, const data_schema *s, const nrl_node *row, data_sample *notes,
                              data_content *out)
{
    uint32_t keys = s->format->required;
    *out = (data_content){.is_text = true, .text = {"", 0}};
    if (keys >> DATA_KEY_PROMPT & 1) return read_content(a, s, row, DATA_KEY_PROMPT, notes, out);
    if (keys >> DATA_KEY_INSTRUCTION & 1) {
        out->is_text = false;
        return add_instruction(a, s, row, &out->chat);
    }
    if (!(keys >> DATA_KEY_CONVERSATIONS & 1)) return NRL_OK;
    out->is_text = false;
    NRL_TRY(add_system(a, s, row, &out->chat));
    return add_list(a, s, row, DATA_KEY_CONVERSATIONS, notes, &out->chat);
}

static void fill_text(data_sample *out, bool has_prompt, data_text prompt, const data_content *answer)
{
    out->shape = DATA_SHAPE_PROMPTED;
    out->prompt = prompt;
    for (int i = 0; i < out->n_sides; i++)
        out->answer[i] = answer[i].text;
    if (has_prompt || out->n_sides < 2) return;
    size_t n = data_common_prompt(out->answer[0], out->answer[1]);
    out->prompt = (data_text){out->answer[0].text, n};
    for (int i = 0; i < 2; i++)
        out->answer[i] = (data_text){out->answer[i].text + n, out->answer[i].size - n};
}

/* Many data sets have a prompt as text, and again in the messages of the answers, which then do not begin with the
 * assistant. TRL (maybe_extract_prompt) ignores the text then, too. */
static nrl_status answers_have_prompt(const data_schema *s, const data_messages *side, int n, bool *out)
{
    const char *before = NULL; /* the first role of the side before */
    *out = false;
    for (int i = 0; i < n; i++) {
        const char *role = side[i].n ? side[i].items[0].role : NULL;
        if (!role) continue;
        const bool has = strcmp(role, "assistant") != 0;
        if (before && has != *out)
            return nrl_fail(NRL_ERR_DATA,
                            "'%s' begins with a message of '%s' and '%s' with one of '%s'; expected both to begin with "
                            "the assistant, or both with the conversation before it",
                            s->name[DATA_KEY_CHOSEN], before, s->name[DATA_KEY_REJECTED], role);
        *out = has;
        before = role;
    }
    return NRL_OK;
}

nrl_status data_read_prompted(arena *a, const data_schema *s, const nrl_node *row, data_sample *out)
{
    data_content prompt, answer[2];
    bool pair = out->n_sides == 2;
    bool has_prompt = s->format->required != ((1u << DATA_KEY_CHOSEN) | (1u << DATA_KEY_REJECTED));
    NRL_TRY(read_prompt(a, s, row, out, &prompt));
    if (pair || s->format->required >> DATA_KEY_COMPLETION & 1)
        NRL_TRY(read_content(a, s, row, pair ? DATA_KEY_CHOSEN : DATA_KEY_COMPLETION, out, &answer[0]));
    else
        answer[0] = (data_content){.is_text = prompt.is_text, .text = {"", 0}};
    if (pair) NRL_TRY(read_content(a, s, row, DATA_KEY_REJECTED, out, &answer[1]));
    bool text = prompt.is_text;
    for (int i = 0; i < out->n_sides; i++)
        text = text && answer[i].is_text;
    if (!text) {
        data_messages head = {0}, side[2] = {{0}};
        bool repeats = false;
        out->shape = DATA_SHAPE_CHAT;
        for (int i = 0; i < out->n_sides; i++)
            NRL_TRY(add_content(a, &answer[i], "assistant", &side[i]));
        if (prompt.is_text) NRL_TRY(answers_have_prompt(s, side, out->n_sides, &repeats));
        has_prompt = has_prompt && !repeats;
        if (has_prompt) NRL_TRY(add_content(a, &prompt, "user", &head));
        for (int i = 0; i < out->n_sides; i++) {
            NRL_TRY(data_messages_add(a, &out->chat[i], head));
            NRL_TRY(data_messages_add(a, &out->chat[i], side[i]));
        }
        out->n_prompt = has_prompt || out->n_sides < 2 ? head.n : data_common_messages(side[0], side[1]);
        return NRL_OK;
    }
    fill_text(out, has_prompt, prompt.text, answer);
    return NRL_OK;
}

/* A row of OpenAI's preference fine-tuning: {"input": {"messages": [...], "tools": [...]}, "preferred_output": [...],
 * "non_preferred_output": [...]}, where the outputs are lists of messages. */
nrl_status data_read_preferred(arena *a, const data_schema *s, const nrl_node *row, data_sample *out)
{
    static const data_key outputs[] = {DATA_KEY_PREFERRED, DATA_KEY_NON_PREFERRED};
    const nrl_node *input = nrl_node_find(row, s->name[DATA_KEY_INPUT]);
    const nrl_node *messages = nrl_node_find(input, s->name[DATA_KEY_MESSAGES]);
    data_messages head;
    if (nrl_node_kind(messages) != NRL_NODE_LIST)
        return nrl_fail(NRL_ERR_DATA, "key '%s': expected a map with a list '%s'", s->name[DATA_KEY_INPUT],
                        s->name[DATA_KEY_MESSAGES]);
    out->shape = DATA_SHAPE_CHAT;
    NRL_TRY(data_read_messages(a, s->name[DATA_KEY_INPUT], messages, out, &head));
    NRL_TRY(data_read_chat_options(a, s, input, out));
    out->n_prompt = head.n;
    for (int i = 0; i < 2; i++) {
        const nrl_node *output = nrl_node_find(row, s->name[outputs[i]]);
        data_messages answer;
        if (nrl_node_kind(output) != NRL_NODE_LIST) return fail_kind(s->name[outputs[i]], output, "a list of messages");
        NRL_TRY(data_read_messages(a, s->name[outputs[i]], output, out, &answer));
        NRL_TRY(data_messages_add(a, &out->chat[i], head));
        NRL_TRY(data_messages_add(a, &out->chat[i], answer));
    }
    return NRL_OK;
}

/* ---- tokens ---- */

static nrl_status read_list(const data_schema *s, const nrl_node *row, data_key key, const nrl_node **out)
{
    *out = nrl_node_find(row, s->name[key]);
    if (nrl_node_kind(*out) != NRL_NODE_LIST) return fail_kind(s->name[key], *out, "a list of token ids");
    return NRL_OK;
}

static nrl_status same_size(const data_schema *s, data_key key, const nrl_node *list, const nrl_node *ids)
{
    if (nrl_node_size(list) == nrl_node_size(ids)) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "%s has %zu entries and %s has %zu; expected equal numbers", s->name[key],
                    nrl_node_size(list), s->name[DATA_KEY_INPUT_IDS], nrl_node_size(ids));
}

nrl_status data_read_ids(arena *a, const data_schema *s, const nrl_node *row, data_sample *out)
{
    (void)a;
    out->shape = DATA_SHAPE_IDS;
    if (out->n_sides == 2) {
        NRL_TRY(read_list(s, row, DATA_KEY_PROMPT_INPUT_IDS, &out->prompt_ids));
        NRL_TRY(read_list(s, row, DATA_KEY_CHOSEN_INPUT_IDS, &out->ids[0]));
        return read_list(s, row, DATA_KEY_REJECTED_INPUT_IDS, &out->ids[1]);
    }
    NRL_TRY(read_list(s, row, DATA_KEY_INPUT_IDS, &out->ids[0]));
    /* A packed batch has no padding, so a row with padding must not train on it unnoticed. */
    const nrl_node *mask = data_row_find(s, row, DATA_KEY_ATTENTION_MASK);
    if (mask && nrl_node_kind(mask) != NRL_NODE_LIST)
        return fail_kind(s->name[DATA_KEY_ATTENTION_MASK], mask, "a list of ones");
    if (mask) NRL_TRY(same_size(s, DATA_KEY_ATTENTION_MASK, mask, out->ids[0]));
    for (size_t i = 0; i < nrl_node_size(mask); i++)
        if (nrl_node_int(nrl_node_at(mask, i), 0) != 1)
            return nrl_fail(NRL_ERR_DATA, "%s[%zu] is not 1: padded rows are not supported; remove the padding",
                            s->name[DATA_KEY_ATTENTION_MASK], i);
    if (!data_row_find(s, row, DATA_KEY_LABELS)) return NRL_OK;
    NRL_TRY(read_list(s, row, DATA_KEY_LABELS, &out->labels));
    return same_size(s, DATA_KEY_LABELS, out->labels, out->ids[0]);
}

/* ---- unpaired preferences: one answer and a label ---- */

nrl_status data_read_label(const data_schema *s, const nrl_node *row, data_sample *out)
{
    data_key key = data_row_find(s, row, DATA_KEY_LABEL) ? DATA_KEY_LABEL : DATA_KEY_KTO_TAG;
    const nrl_node *value = data_row_find(s, row, key);
    const data_messages *chat = &out->chat[0];
    if (!value)
        return nrl_fail(NRL_ERR_DATA, "no key '%s' or '%s': expected true (a desirable answer) or false",
                        s->name[DATA_KEY_LABEL], s->name[DATA_KEY_KTO_TAG]);
    int said = data_node_bool(value);
    if (said < 0) return fail_kind(s->name[key], value, "true or false");
    out->extra[s->n_extra - 1] = (float)said;
    /* A label belongs to the last message, which must be of the assistant. All messages before it are the prompt. */
    if (out->shape != DATA_SHAPE_CHAT || out->n_prompt || !chat->n) return NRL_OK;
    const char *role = chat->items[chat->n - 1].role;
    if (strcmp(role, "assistant") != 0)
        return nrl_fail(NRL_ERR_DATA, "the last message is from '%s'; a label requires a message of the assistant",
                        role);
    out->n_prompt = chat->n - 1;
    return NRL_OK;
}
