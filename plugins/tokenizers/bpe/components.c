/*
 * components.c - normalizer, pre_tokenizer, post_processor and added_tokens of tokenizer.json. An
 * unknown component is an error that names it, because a tokenizer that is slightly wrong would
 * train a model on wrong ids.
 */
#include "load.h"
#include "regex.h"
#include "scan.h"
#include <string.h>

enum {
    LONGEST_CONTENT = 1024,
    MOST_NORMALIZERS = 64
}; /* LONGEST_CONTENT: bytes that a normalizer may substitute for
    * one character */

static const char *text_of(const nrl_node *map, const char *key, size_t *size)
{
    const nrl_node *n = nrl_node_find(map, key);
    if (size) *size = nrl_node_string_size(n);
    return nrl_node_string(n, NULL);
}

static nrl_status unknown(const char *what, const nrl_node *node, const char *known)
{
    return nrl_fail(NRL_ERR_DATA, "%s '%s' is not supported\nhint: supported are %s", what,
                    nrl_node_string(nrl_node_find(node, "type"), "without a type"), known);
}

static nrl_status wrong(const char *what, const char *key, const char *expected)
{
    return nrl_fail(NRL_ERR_DATA, "%s: %s: expected %s", what, key, expected);
}

static bool is_type(const nrl_node *node, const char *type)
{
    return !strcmp(nrl_node_string(nrl_node_find(node, "type"), ""), type);
}

static bool absent(const nrl_node *node)
{
    return nrl_node_kind(node) == NRL_NODE_NONE || nrl_node_kind(node) == NRL_NODE_NULL;
}

/* ---- growing the plans; the arrays live in the arena and are copied when they grow ---- */

split_step *load_add_split(bpe_tokenizer *tok, split_kind kind, split_behavior behavior)
{
    split_step *steps = arena_alloc(&tok->memory, (tok->n_split + 1) * sizeof *steps);
    if (tok->n_split) memcpy(steps, tok->split, tok->n_split * sizeof *steps);
    tok->split = steps;
    steps += tok->n_split++;
    *steps = (split_step){.kind = kind, .behavior = behavior};
    return steps;
}

normal_step *load_add_normal(bpe_tokenizer *tok, normal_kind kind)
{
    normal_step *steps = arena_alloc(&tok->memory, (tok->n_normal + 1) * sizeof *steps);
    if (tok->n_normal) memcpy(steps, tok->normal, tok->n_normal * sizeof *steps);
    tok->normal = steps;
    steps += tok->n_normal++;
    *steps = (normal_step){.kind = kind};
    return steps;
}

void load_prefix(bpe_tokenizer *tok, int32_t id, bool suffix)
{
    int32_t **list = suffix ? &tok->suffix : &tok->prefix;
    size_t *n = suffix ? &tok->n_suffix : &tok->n_prefix;
    int32_t *ids = arena_alloc(&tok->memory, (*n + 1) * sizeof *ids);
    if (*n) memcpy(ids, *list, *n * sizeof *ids);
    ids[(*n)++] = id;
    *list = ids;
}

/* Calls load for each entry of the list `key` of a Sequence. The depth limit of the JSON parser
 * bounds the recursion. */
static nrl_status each(bpe_tokenizer *tok, const nrl_node *node, const char *key,
                       nrl_status (*load)(bpe_tokenizer *, const nrl_node *))
{
    const nrl_node *list = nrl_node_find(node, key);
    if (nrl_node_kind(list) != NRL_NODE_LIST) return wrong("a Sequence", key, "a list");
    for (size_t i = 0; i < nrl_node_size(list); i++)
        NRL_TRY(load(tok, nrl_node_at(list, i)));
    return NRL_OK;
}

/* ---- normalizer ---- */

static unicode_form form_of(const nrl_node *node)
{
    static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD"};
    for (int i = 0; i < 4; i++)
        if (is_type(node, names[i])) return (unicode_form)(FORM_NFC + i);
    return FORM_NONE;
}

static nrl_status load_replace(bpe_tokenizer *tok, const nrl_node *node)
{
    const nrl_node *pattern = nrl_node_find(node, "pattern");
    normal_step step = {0};
    step.text = text_of(pattern, "String", &step.text_size);
    step.content = text_of(node, "content", &step.content_size);
    size_t regex_size;
    const char *regex_text = text_of(pattern, "Regex", &regex_size);
    if (!step.content || step.content_size > LONGEST_CONTENT)
        return wrong("normalizer 'Replace'", "content", "a string of at most 1024 bytes");
    if (!step.text && !regex_text)
        return wrong("normalizer 'Replace'", "pattern", "{\"String\": ...} or {\"Regex\": ...}");
    step.kind = step.text ? NORMAL_REPLACE : NORMAL_REGEX;
    if (regex_text) NRL_TRY(regex_create(regex_text, regex_size, &step.pattern));
    *load_add_normal(tok, step.kind) = step;
    return NRL_OK;
}

nrl_status load_normalizer(bpe_tokenizer *tok, const nrl_node *node)
{
    if (absent(node)) return NRL_OK;
    if (tok->n_normal == MOST_NORMALIZERS) return wrong("normalizer", "normalizers", "at most 64");
    if (is_type(node, "Sequence")) return each(tok, node, "normalizers", load_normalizer);
    if (is_type(node, "Replace")) return load_replace(tok, node);
    if (form_of(node)) {
        load_add_normal(tok, NORMAL_FORM)->form = form_of(node);
    } else if (is_type(node, "Lowercase")) {
        load_add_normal(tok, NORMAL_LOWER);
    } else if (is_type(node, "Strip")) {
        normal_step *s = load_add_normal(tok, NORMAL_STRIP);
        s->left = nrl_node_bool(nrl_node_find(node, "strip_left"), true);
        s->right = nrl_node_bool(nrl_node_find(node, "strip_right"), true);
    } else if (is_type(node, "Prepend")) {
        normal_step *s = load_add_normal(tok, NORMAL_PREPEND);
        s->text = text_of(node, "prepend", &s->text_size);
        if (!s->text || s->text_size > LONGEST_CONTENT)
            return wrong("normalizer 'Prepend'", "prepend", "a string of at most 1024 bytes");
    } else {
        return unknown("normalizer", node, "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace");
    }
    return NRL_OK;
}

/* ---- pre_tokenizer ---- */

static bool behavior_of(const nrl_node *node, split_behavior *out)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *text = text_of(node, "behavior", NULL);
    for (int i = 0; text && i < 5; i++)
        if (!strcmp(text, names[i])) {
            *out = (split_behavior)(KEEP_REMOVED + i);
            return true;
        }
    return false;
}

/* The known patterns match every part of a text, so the two behaviors, to keep all parts or only
 * matches, are equal. */
static bool use_scanner(bpe_tokenizer *tok, const char *pattern, size_t size, split_behavior behavior, bool invert)
{
    static const struct {
        const char *pattern;
        split_kind kind;
        int max_digits;
    } known[] = {{scan_gpt2_pattern, SPLIT_GPT2, 0},
                 {scan_llama3_pattern, SPLIT_LLAMA3, 3},
                 {scan_qwen2_pattern, SPLIT_LLAMA3, 1}};
    if (!(behavior == KEEP_ISOLATED && !invert) && !(behavior == KEEP_REMOVED && invert)) return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].pattern) == size && !memcmp(known[i].pattern, pattern, size)) {
            load_add_split(tok, known[i].kind, KEEP_ISOLATED)->max_digits = known[i].max_digits;
            return true;
        }
    return false;
}

static nrl_status load_split(bpe_tokenizer *tok, const nrl_node *node)
{
    const nrl_node *pattern = nrl_node_find(node, "pattern");
    size_t regex_size;
    const char *regex_text = text_of(pattern, "Regex", &regex_size);
    split_step step = {.kind = regex_text ? SPLIT_REGEX : SPLIT_TEXT,
                       .invert = nrl_node_bool(nrl_node_find(node, "invert"), false)};
    step.text = text_of(pattern, "String", &step.text_size);
    if (!behavior_of(node, &step.behavior))
        return wrong("pre_tokenizer 'Split'", "behavior",
                     "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
    if (!regex_text && !step.text)
        return wrong("pre_tokenizer 'Split'", "pattern", "{\"String\": ...} or {\"Regex\": ...}");
    if (regex_text && use_scanner(tok, regex_text, regex_size, step.behavior, step.invert)) return NRL_OK;
    if (regex_text) NRL_TRY(regex_create(regex_text, regex_size, &step.pattern));
    *load_add_split(tok, step.kind, step.behavior) = step;
    return NRL_OK;
}

static nrl_status must_come_first(const bpe_tokenizer *tok, const char *what)
{
    if (!tok->n_split && !tok->edit.replacement && !tok->edit.space_first) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "pre_tokenizer: %s after another step is not supported", what);
}

static nrl_status load_byte_level(bpe_tokenizer *tok, const nrl_node *node)
{
    if (nrl_node_bool(nrl_node_find(node, "add_prefix_space"), true)) {
        NRL_TRY(must_come_first(tok, "ByteLevel with add_prefix_space"));
        tok->edit.space_first = true;
    }
    if (nrl_node_bool(nrl_node_find(node, "use_regex"), true)) load_add_split(tok, SPLIT_GPT2, KEEP_ISOLATED);
    tok->byte_level = true;
    return NRL_OK;
}

static nrl_status load_metaspace(bpe_tokenizer *tok, const nrl_node *node)
{
    NRL_TRY(must_come_first(tok, "Metaspace"));
    edit_plan *e = &tok->edit;
    e->replacement = text_of(node, "replacement", &e->replacement_size);
    if (!e->replacement || !e->replacement_size || e->replacement_size > 4)
        return wrong("pre_tokenizer 'Metaspace'", "replacement", "a character");
    const char *scheme = text_of(node, "prepend_scheme", NULL);
    bool add = nrl_node_bool(nrl_node_find(node, "add_prefix_space"), true);
    if (!scheme) scheme = add ? "always" : "never";
    if (strcmp(scheme, "always") && strcmp(scheme, "first") && strcmp(scheme, "never"))
        return wrong("pre_tokenizer 'Metaspace'", "prepend_scheme", "always, first or never");
    e->prepend = strcmp(scheme, "never") != 0;
    e->first_only = !strcmp(scheme, "first");
    if (nrl_node_bool(nrl_node_find(node, "split"), true)) {
        split_step *s = load_add_split(tok, SPLIT_TEXT, KEEP_WITH_NEXT);
        s->text = e->replacement;
        s->text_size = e->replacement_size;
    }
    return NRL_OK;
}

static nrl_status load_punctuation(bpe_tokenizer *tok, const nrl_node *node)
{
    split_behavior behavior = KEEP_ISOLATED;
    if (nrl_node_find(node, "behavior") && !behavior_of(node, &behavior))
        return wrong("pre_tokenizer 'Punctuation'", "behavior", "a known behavior");
    load_add_split(tok, SPLIT_PUNCTUATION, behavior);
    return NRL_OK;
}

nrl_status load_pre_tokenizer(bpe_tokenizer *tok, const nrl_node *node)
{
    if (absent(node)) return NRL_OK;
    if (tok->byte_level) return nrl_fail(NRL_ERR_DATA, "pre_tokenizer: a step after ByteLevel is not supported");
    if (is_type(node, "Sequence")) return each(tok, node, "pretokenizers", load_pre_tokenizer);
    if (is_type(node, "Split")) return load_split(tok, node);
    if (is_type(node, "ByteLevel")) return load_byte_level(tok, node);
    if (is_type(node, "Metaspace")) return load_metaspace(tok, node);
    if (is_type(node, "Punctuation")) return load_punctuation(tok, node);
    if (is_type(node, "Digits")) {
        bool alone = nrl_node_bool(nrl_node_find(node, "individual_digits"), false);
        load_add_split(tok, SPLIT_DIGITS, alone ? KEEP_ISOLATED : KEEP_CONTIGUOUS);
    } else if (is_type(node, "WhitespaceSplit")) {
        load_add_split(tok, SPLIT_SPACES, KEEP_REMOVED);
    } else if (is_type(node, "Whitespace")) {
        load_add_split(tok, SPLIT_WORDS, KEEP_REMOVED)->invert = true;
    } else if (is_type(node, "BertPreTokenizer")) {
        load_add_split(tok, SPLIT_SPACES, KEEP_REMOVED);
        load_add_split(tok, SPLIT_PUNCTUATION, KEEP_ISOLATED);
    } else {
        return unknown("pre_tokenizer", node,
                       "Sequence, Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, "
                       "WhitespaceSplit, BertPreTokenizer");
    }
    return NRL_OK;
}

/* ---- post_processor ---- */

static nrl_status add_around(bpe_tokenizer *tok, const nrl_node *id, const char *name, bool suffix)
{
    int64_t value = nrl_node_int(id, -1);
    if (!vocab_has(&tok->words, value))
        return nrl_fail(NRL_ERR_DATA, "post_processor: token '%s' has id %lld, which is not in the vocabulary", name,
                        (long long)value);
    load_prefix(tok, (int32_t)value, suffix);
    return NRL_OK;
}

static nrl_status load_template(bpe_tokenizer *tok, const nrl_node *node)
{
    const nrl_node *single = nrl_node_find(node, "single");
    const nrl_node *tokens = nrl_node_find(node, "special_tokens");
    bool after = false;
    if (nrl_node_kind(single) != NRL_NODE_LIST) return wrong("post_processor 'TemplateProcessing'", "single", "a list");
    for (size_t i = 0; i < nrl_node_size(single); i++) {
        const nrl_node *piece = nrl_node_at(single, i);
        if (nrl_node_find(piece, "Sequence")) {
            if (after) return wrong("post_processor", "single", "one Sequence");
            after = true;
            continue;
        }
        const char *name = text_of(nrl_node_find(piece, "SpecialToken"), "id", NULL);
        if (!name) return wrong("post_processor", "single", "SpecialToken or Sequence in each row");
        const nrl_node *ids = nrl_node_find(nrl_node_find(tokens, name), "ids");
        if (!nrl_node_size(ids)) return wrong("post_processor: special_tokens", name, "ids");
        for (size_t k = 0; k < nrl_node_size(ids); k++)
            NRL_TRY(add_around(tok, nrl_node_at(ids, k), name, after));
    }
    return after ? NRL_OK : wrong("post_processor", "single", "a Sequence");
}

/* {"cls": ["<s>", 0], "sep": ["</s>", 2]} */
static nrl_status load_cls_sep(bpe_tokenizer *tok, const nrl_node *node)
{
    const nrl_node *cls = nrl_node_find(node, "cls"), *sep = nrl_node_find(node, "sep");
    NRL_TRY(add_around(tok, nrl_node_at(cls, 1), nrl_node_string(nrl_node_at(cls, 0), "cls"), false));
    return add_around(tok, nrl_node_at(sep, 1), nrl_node_string(nrl_node_at(sep, 0), "sep"), true);
}

nrl_status load_post_processor(bpe_tokenizer *tok, const nrl_node *node)
{
    if (absent(node) || is_type(node, "ByteLevel")) return NRL_OK; /* ByteLevel only changes offsets */
    if (is_type(node, "Sequence")) return each(tok, node, "processors", load_post_processor);
    if (is_type(node, "TemplateProcessing")) return load_template(tok, node);
    if (is_type(node, "BertProcessing") || is_type(node, "RobertaProcessing")) return load_cls_sep(tok, node);
    return unknown("post_processor", node,
                   "Sequence, ByteLevel, TemplateProcessing, "
                   "BertProcessing, RobertaProcessing");
}

/* ---- added_tokens ---- */

nrl_status load_added_token(bpe_tokenizer *tok, const char *text, size_t size, int64_t id, const nrl_node *flags,
                            bool special)
{
    if (!size) return NRL_OK; /* an empty token would match everywhere; Hugging Face skips it too */
    NRL_TRY(vocab_add_or_match(&tok->words, text, size, id));
    if (tok->words.entries[id].added) return NRL_OK;
    special = nrl_node_bool(nrl_node_find(flags, "special"), special);
    added_token a = {.id = (int32_t)id,
                     .lstrip = nrl_node_bool(nrl_node_find(flags, "lstrip"), false),
                     .rstrip = nrl_node_bool(nrl_node_find(flags, "rstrip"), false),
                     .single_word = nrl_node_bool(nrl_node_find(flags, "single_word"), false),
                     .normalized = nrl_node_bool(nrl_node_find(flags, "normalized"), !special),
                     .special = special};
    return added_push(tok, &a);
}

nrl_status load_added_tokens(bpe_tokenizer *tok, const nrl_node *list)
{
    if (absent(list)) return NRL_OK;
    if (nrl_node_kind(list) != NRL_NODE_LIST) return wrong("added_tokens", "value", "a list");
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const nrl_node *row = nrl_node_at(list, i), *id = nrl_node_find(row, "id");
        size_t size;
        const char *text = text_of(row, "content", &size);
        if (!text || nrl_node_kind(id) != NRL_NODE_INT)
            return nrl_fail(NRL_ERR_DATA,
                            "added_tokens: row %zu: expected a map with a whole "
                            "number 'id' and a string 'content'",
                            i);
        NRL_TRY(load_added_token(tok, text, size, nrl_node_int(id, -1), row, false));
    }
    return NRL_OK;
}
