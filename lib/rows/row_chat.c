/*
 * row_chat.c - reads the messages of a row, and finds the prompt that two conversations or texts share.
 */
#include "base/json.h"
#include "rows/formats.h"
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

/* share: ShareGPT's `from`. Some templates have a role `observation` of their own. */
static const char *role_of(const char *name, bool share)
{
    static const struct {
        const char *name, *role;
        bool share;
    } other[] = {
        {"human", "user", false},
        {"gpt", "assistant", false},
        {"chatgpt", "assistant", false},
        {"bot", "assistant", false},
        {"model", "assistant", false},
        {"observation", "tool", true},
        {"function_call", "assistant", true},
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (!strcmp(other[i].name, name) && (share || !other[i].share)) return other[i].role;
    return name;
}

static nrl_status part_text(const nrl_node *part, size_t i, data_text *out)
{
    const char *type = nrl_node_string(nrl_node_find(part, "type"), "");
    const nrl_node *text = nrl_node_find(part, "text");
    if (!text) text = nrl_node_find(part, "value");
    if (strcmp(type, "text") || nrl_node_kind(text) != NRL_NODE_STRING)
        return nrl_fail(NRL_ERR_DATA,
                        "content[%zu]: only parts of type text are supported\n"
                        "hint: to train only on the text: jq -c '.messages[].content |= (if type == \"array\" then "
                        "map(select(.type == \"text\")) else . end)' FILE >rows.jsonl",
                        i);
    *out = (data_text){nrl_node_string(text, ""), nrl_node_string_size(text)};
    return NRL_OK;
}

static nrl_status message_text(arena *a, const nrl_node *node, const char *key, data_text *out)
{
    const nrl_node *value = nrl_node_find(node, key);
    if (!value) return nrl_fail(NRL_ERR_DATA, "no key '%s'", key);
    if (nrl_node_kind(value) == NRL_NODE_LIST) {
        /* Joins the texts of [{"type": "text", "text": ...}, ...]. */
        size_t size = 0;
        data_text t;
        for (size_t i = 0; i < nrl_node_size(value); i++) {
            NRL_TRY(part_text(nrl_node_at(value, i), i, &t));
            size += t.size;
        }
        char *joined = arena_try(a, size + 1, "the text of a message");
        if (!joined) return NRL_ERR_MEMORY;
        *out = (data_text){joined, size};
        for (size_t i = 0; i < nrl_node_size(value); i++) {
            NRL_TRY(part_text(nrl_node_at(value, i), i, &t));
            memcpy(joined, t.text, t.size);
            joined += t.size;
        }
        return NRL_OK;
    }
    if (nrl_node_kind(value) != NRL_NODE_STRING)
        return nrl_fail(NRL_ERR_DATA, "key '%s': expected text, found %s", key, node_kind_name(nrl_node_kind(value)));
    *out = (data_text){nrl_node_string(value, ""), nrl_node_string_size(value)};
    return NRL_OK;
}

static bool is_given(const nrl_node *map, const char *key)
{
    const nrl_node *value = nrl_node_find(map, key);
    return value && nrl_node_kind(value) != NRL_NODE_NULL;
}

/* Keys of a message that state whether it is trained. */
typedef struct {
    const char *key;
    enum { TRAIN_BY_NUMBER = 1, TRAIN_BY_BOOL, TRAIN_REFUSED } kind;
} train_key;

static const train_key train_keys[] = {
    {"weight", TRAIN_BY_NUMBER},      /* OpenAI */
    {"loss_weight", TRAIN_BY_NUMBER}, /* LLaMA-Factory */
    {"train", TRAIN_BY_BOOL},
    {"training", TRAIN_BY_BOOL}, /* Axolotl */
    {"loss", TRAIN_BY_BOOL},     /* ms-swift */
    /* Ignoring these keys would train messages that the author of the data excluded. */
    {"train_detail", TRAIN_REFUSED},
    {"trainable", TRAIN_REFUSED},
    {"loss_mask", TRAIN_REFUSED},
    {"loss_scale", TRAIN_REFUSED},
    {"mask", TRAIN_REFUSED},
};
enum { N_TRAIN_KEYS = sizeof train_keys / sizeof *train_keys };

/* A fraction would require a weight per token, which no loss supports. */
static nrl_status read_train(const train_key *k, const nrl_node *value, uint32_t *out)
{
    nrl_node_type kind = nrl_node_kind(value);
    bool number = k->kind == TRAIN_BY_NUMBER;
    double weight = !number                                          ? nrl_node_bool(value, false)
                    : kind == NRL_NODE_INT || kind == NRL_NODE_FLOAT ? nrl_node_f64(value, -1)
                                                                     : -1;
    if (k->kind == TRAIN_REFUSED)
        return nrl_fail(NRL_ERR_DATA,
                        "cannot read key '%s': expected weight (0 or 1) or train (true or false) to state whether a "
                        "message is trained",
                        k->key);
    if ((number || kind == NRL_NODE_BOOL) && (weight == 0 || weight == 1)) {
        *out = weight == 1 ? NRL_MESSAGE_TRAINED : NRL_MESSAGE_UNTRAINED;
        return NRL_OK;
    }
    char *found = json_write(value, 0);
    nrl_status st = nrl_fail(NRL_ERR_DATA, "cannot read key '%s': expected %s, got %.40s", k->key,
                             number ? "0 (not trained) or 1 (trained)" : "true or false", found);
    free(found);
    return st;
}

static nrl_status read_training(const nrl_node *node, uint32_t *out)
{
    const char *given_by = NULL;
    *out = NRL_MESSAGE_UNSAID;
    for (int i = 0; i < N_TRAIN_KEYS; i++) {
        const train_key *k = &train_keys[i];
        uint32_t said;
        if (!is_given(node, k->key)) continue;
        NRL_TRY(read_train(k, nrl_node_find(node, k->key), &said));
        if (given_by && said != *out)
            return nrl_fail(NRL_ERR_DATA, "keys '%s' and '%s' contradict each other", given_by, k->key);
        given_by = k->key;
        *out = said;
    }
    return NRL_OK;
}

static bool is_known(const char *key)
{
    bool known = false;
    for (int i = 0; i < N_TRAIN_KEYS && !known; i++)
        known = !strcmp(train_keys[i].key, key);
    return known;
}

static void note_unknown(const nrl_node *node, const char *role_key, const char *content_key, data_sample *notes)
{
    for (size_t i = 0; i < nrl_node_size(node) && !notes->unknown_key; i++) {
        const char *key = nrl_node_key(node, i);
        if (strcmp(key, role_key) && strcmp(key, content_key) && !is_known(key)) notes->unknown_key = key;
    }
}

static nrl_status add_call(arena *a, const nrl_node *call, nrl_node *list)
{
    const nrl_node *name = nrl_node_find(call, "name"), *arguments = nrl_node_find(call, "arguments");
    if (!nrl_node_string(name, NULL) || !arguments)
        return nrl_fail(NRL_ERR_DATA,
                        "a message from 'function_call': expected {\"name\": ..., \"arguments\": ...}, or "
                        "a list of these, as JSON");
    nrl_node *item = node_new(a, NRL_NODE_MAP), *function = node_new(a, NRL_NODE_MAP);
    node_append(a, function, "name", node_copy(a, name));
    node_append(a, function, "arguments", node_copy(a, arguments));
    node_append(a, item, "type", node_text(a, "function"));
    node_append(a, item, "function", function);
    node_append(a, list, NULL, item);
    return NRL_OK;
}

/* LLaMA-Factory's ShareGPT has calls of tools as the JSON text of a message; templates read them as tool_calls. */
static nrl_status read_calls(arena *a, nrl_message *m)
{
    nrl_node *calls, *node = node_new(a, NRL_NODE_MAP), *list = node_new(a, NRL_NODE_LIST);
    NRL_TRY(json_parse(a, "function_call", m->content, m->content_size, &calls));
    const bool is_list = nrl_node_kind(calls) == NRL_NODE_LIST;
    for (size_t i = 0; i < (is_list ? nrl_node_size(calls) : 1); i++)
        NRL_TRY(add_call(a, is_list ? nrl_node_at(calls, i) : calls, list));
    node_append(a, node, "role", node_text(a, m->role));
    node_append(a, node, "content", node_text(a, ""));
    node_append(a, node, "tool_calls", list);
    m->node = node;
    m->content = "";
    m->content_size = 0;
    return NRL_OK;
}

static nrl_status read_message(arena *a, const nrl_node *node, data_sample *notes, nrl_message *out)
{
    data_text text;
    if (nrl_node_kind(node) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_DATA, "expected a message {role, content}, found %s",
                        node_kind_name(nrl_node_kind(node)));
    bool share = !nrl_node_find(node, "role") && nrl_node_find(node, "from");
    const char *role_key = share ? "from" : "role", *content_key = share ? "value" : "content";
    const char *role = nrl_node_string(nrl_node_find(node, role_key), NULL);
    if (!role)
        return nrl_fail(NRL_ERR_DATA, "key '%s', the role (%s/%s), has no text", role_key, role_key, content_key);
    bool calls = nrl_node_size(nrl_node_find(node, "tool_calls")) > 0, content = is_given(node, content_key);
    text = (data_text){"", 0};
    if (content || !calls) NRL_TRY(message_text(a, node, content_key, &text));
    *out = (nrl_message){role_of(role, share), text.text, text.size, node, NRL_MESSAGE_UNSAID, 0};
    if (share && !strcmp(role, "function_call")) {
        NRL_TRY(read_calls(a, out));
        note_unknown(out->node, "role", "content", notes);
    }
    note_unknown(node, role_key, content_key, notes);
    return read_training(node, &out->train);
}

nrl_status data_read_messages(arena *a, const char *label, const nrl_node *node, data_sample *notes, data_messages *out)
{
    bool list = nrl_node_kind(node) == NRL_NODE_LIST;
    out->n = list ? nrl_node_size(node) : 1;
    out->items = arena_try(a, out->n * sizeof *out->items, "the messages of a row");
    if (!out->items) return NRL_ERR_MEMORY;
    for (size_t i = 0; i < out->n; i++) {
        nrl_status st = read_message(a, list ? nrl_node_at(node, i) : node, notes, &out->items[i]);
        if (st == NRL_OK) continue;
        if (list)
            nrl_add_context("%s[%zu]", label, i);
        else
            nrl_add_context("%s", label);
        return st;
    }
    return NRL_OK;
}

nrl_status data_messages_add(arena *a, data_messages *list, data_messages more)
{
    if (!more.n) return NRL_OK;
    nrl_message *items = arena_try(a, (list->n + more.n) * sizeof *items, "the messages of a row");
    if (!items) return NRL_ERR_MEMORY;
    if (list->n) memcpy(items, list->items, list->n * sizeof *items);
    memcpy(items + list->n, more.items, more.n * sizeof *items);
    *list = (data_messages){items, list->n + more.n};
    return NRL_OK;
}

nrl_status data_text_add(arena *a, data_messages *list, const char *role, data_text text)
{
    nrl_message m = {.role = role, .content = text.text, .content_size = text.size};
    return data_messages_add(a, list, (data_messages){&m, 1});
}

/* tools is a list, or its JSON text, because some tables hold only text. */
static nrl_status read_tools(arena *a, const data_schema *s, const nrl_node *row, const nrl_node **out)
{
    const char *name = s->name[DATA_KEY_TOOLS];
    const nrl_node *value = data_row_find(s, row, DATA_KEY_TOOLS);
    if (nrl_node_kind(value) == NRL_NODE_STRING) {
        nrl_node *read;
        size_t size = nrl_node_string_size(value);
        if (!size) return NRL_OK;
        nrl_status st = json_parse(a, name, nrl_node_string(value, ""), size, &read);
        if (st != NRL_OK) return st;
        value = read;
    }
    if (value && nrl_node_kind(value) != NRL_NODE_LIST)
        return nrl_fail(NRL_ERR_DATA, "key '%s': expected a list of tools, found %s", name,
                        node_kind_name(nrl_node_kind(value)));
    *out = value;
    return NRL_OK;
}

nrl_status data_read_chat_options(arena *a, const data_schema *s, const nrl_node *row, data_sample *out)
{
    NRL_TRY(read_tools(a, s, row, &out->tools));
    const nrl_node *kwargs = data_row_find(s, row, DATA_KEY_TEMPLATE_KWARGS);
    if (kwargs && nrl_node_kind(kwargs) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_DATA, "key '%s': expected a map, found %s", s->name[DATA_KEY_TEMPLATE_KWARGS],
                        node_kind_name(nrl_node_kind(kwargs)));
    out->template_kwargs = kwargs;
    return NRL_OK;
}

/* ---- the common prompt of two answers ---- */

/* Whether y has the keys of x with the same values: tool calls, reasoning and other keys are part of a message like its
 * text. A null and an empty list are no value: tables write them for absent keys. */
static bool has_keys(const nrl_node *x, const nrl_node *y)
{
    static const char *const compared[] = {"role", "content", "from", "value"};
    for (size_t i = 0; i < nrl_node_size(x); i++) {
        const char *key = nrl_node_key(x, i);
        const nrl_node *a = nrl_node_at(x, i), *b = nrl_node_find(y, key);
        bool skips = nrl_node_kind(a) == NRL_NODE_NULL || (nrl_node_kind(a) == NRL_NODE_LIST && !nrl_node_size(a));
        for (size_t k = 0; k < sizeof compared / sizeof *compared; k++)
            skips |= !strcmp(key, compared[k]);
        if (skips) continue;
        if (!b) return false;
        char *p = json_write(a, 0), *q = json_write(b, 0);
        const bool same = !strcmp(p, q);
        free(p);
        free(q);
        if (!same) return false;
    }
    return true;
}

size_t data_common_messages(data_messages chosen, data_messages rejected)
{
    size_t n = 0;
    for (; n < chosen.n && n < rejected.n; n++) {
        const nrl_message *x = &chosen.items[n], *y = &rejected.items[n];
        if (strcmp(x->role, y->role) || x->content_size != y->content_size ||
            memcmp(x->content, y->content, x->content_size) != 0 || !has_keys(x->node, y->node) ||
            !has_keys(y->node, x->node))
            break;
    }
    return n;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* In transcripts of the form "\n\nHuman: ...\n\nAssistant: ..." the prompt ends after the last "\n\nAssistant:" that
 * both texts have. In other texts it ends before the white space in front of the word in which they differ, so that no
 * word is split and the answers keep their leading space. */
size_t data_common_prompt(data_text chosen, data_text rejected)
{
    static const char turn[] = "\n\nAssistant:";
    const size_t turn_size = sizeof turn - 1;
    size_t n = 0, least = chosen.size < rejected.size ? chosen.size : rejected.size;
    while (n < least && chosen.text[n] == rejected.text[n])
        n++;
    for (size_t i = n; i >= turn_size; i--)
        if (!memcmp(chosen.text + i - turn_size, turn, turn_size)) return i;
    while (n && !is_space(chosen.text[n - 1]))
        n--;
    while (n && is_space(chosen.text[n - 1]))
        n--;
    return n;
}
