/*
 * vocab.c - the tokenizer in a GGUF file, read from tokenizer.json: tokens with scores and types, merges, special
 * tokens and the chat template. llama.cpp has two kinds of BPE:
 *   gpt2   Bytes are written as printable characters, and merges are listed. The rule that splits a text into words is
 *          built into llama.cpp and named by tokenizer.ggml.pre.
 *   llama  SentencePiece: spaces are U+2581, unknown characters become tokens of one byte. The pair whose result has
 *          the highest score is merged first, so a token's score is minus the rank of the merge that makes it.
 */
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "gguf.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILE = 256 << 20, NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

typedef struct {
    const char *text;
    size_t size;
    int32_t type; /* 0: there is no token with this id */
    float score;
} token;

typedef struct {
    arena memory;
    const char *path;                        /* of tokenizer.json */
    const nrl_node *root, *model, *settings; /* settings: tokenizer_config.json, or NULL */
    bool is_llama;
    token *tokens;
    int64_t n;
    const token **sorted; /* by text */
} vocab;

/* ---- tokens ---- */

static int by_text(const void *x, const void *y)
{
    const token *a = *(const token *const *)x, *b = *(const token *const *)y;
    int order = memcmp(a->text, b->text, a->size < b->size ? a->size : b->size);
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

/* Returns -1 if no token has this text. */
static int64_t id_of(const vocab *v, const char *text, size_t size)
{
    const token key = {.text = text, .size = size}, *at = &key;
    const token *const *found = bsearch(&at, v->sorted, (size_t)v->n, sizeof *v->sorted, by_text);
    return found ? *found - v->tokens : -1;
}

static nrl_status add_token(vocab *v, int64_t id, const char *text, size_t size, int32_t type)
{
    if (id < 0 || id >= v->n)
        return nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF: %s has the token %lld, but the model has %lld tokens",
                        v->path, (long long)id, (long long)v->n);
    v->tokens[id] = (token){text, size, type, 0};
    return NRL_OK;
}

static bool is_byte(const char *text, size_t size)
{
    return size == 6 && !strncmp(text, "<0x", 3) && text[5] == '>';
}

static nrl_status read_tokens(vocab *v)
{
    const nrl_node *map = nrl_node_find(v->model, "vocab"), *added = nrl_node_find(v->root, "added_tokens");
    const char *unknown = nrl_node_string(nrl_node_find(v->model, "unk_token"), "");
    if (nrl_node_kind(map) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_CONFIG, "cannot write GGUF: the model of %s is not BPE", v->path);
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const char *text = nrl_node_key(map, i);
        size_t size = strlen(text);
        int32_t type = !strcmp(text, unknown) ? UNKNOWN : v->is_llama && is_byte(text, size) ? BYTE : NORMAL;
        NRL_TRY(add_token(v, nrl_node_int(nrl_node_at(map, i), -1), text, size, type));
    }
    for (size_t i = 0; i < nrl_node_size(added); i++) {
        const nrl_node *t = nrl_node_at(added, i), *content = nrl_node_find(t, "content");
        const char *text = nrl_node_string(content, "");
        int32_t type = nrl_node_bool(nrl_node_find(t, "special"), false) ? CONTROL : USER_DEFINED;
        if (v->is_llama && !strcmp(text, unknown)) type = UNKNOWN;
        NRL_TRY(add_token(v, nrl_node_int(nrl_node_find(t, "id"), -1), text, nrl_node_string_size(content), type));
    }
    for (int64_t i = 0; i < v->n; i++)
        if (!v->tokens[i].type) {
            const char *text = arena_printf(&v->memory, "[PAD%lld]", (long long)i);
            v->tokens[i] = (token){text, strlen(text), UNUSED, 0};
        }
    for (int64_t i = 0; i < v->n; i++)
        v->sorted[i] = &v->tokens[i];
    qsort(v->sorted, (size_t)v->n, sizeof *v->sorted, by_text);
    return NRL_OK;
}

/* A merge is "left right" or ["left", "right"]; returns the text "left right". */
static const char *merge_text(vocab *v, const nrl_node *merge, size_t *space)
{
    const char *left = nrl_node_string(nrl_node_at(merge, 0), NULL),
               *right = nrl_node_string(nrl_node_at(merge, 1), NULL);
    const char *text = left && right ? arena_printf(&v->memory, "%s %s", left, right) : nrl_node_string(merge, "");
    const char *at = strchr(text + (*text != 0), ' ');
    *space = left && right ? strlen(left) : at ? (size_t)(at - text) : 0;
    return text;
}

static nrl_status put_merges(vocab *v, gguf_metadata *m)
{
    const nrl_node *merges = nrl_node_find(v->model, "merges");
    size_t n = nrl_node_size(merges);
    if (!v->is_llama) gguf_put_array(m, "tokenizer.ggml.merges", GGUF_STRING, n);
    for (int64_t i = 0; v->is_llama && i < v->n; i++)
        v->tokens[i].score = v->tokens[i].type == NORMAL ? -(float)n - 1 : 0;
    for (size_t i = 0; i < n; i++) {
        size_t space;
        const char *text = merge_text(v, nrl_node_at(merges, i), &space);
        if (!space) return nrl_fail(NRL_ERR_DATA, "%s: merge %zu is '%s'; expected two tokens", v->path, i, text);
        if (v->is_llama) {
            char *joined = arena_printf(&v->memory, "%.*s%s", (int)space, text, text + space + 1);
            int64_t id = id_of(v, joined, strlen(joined));
            if (id < 0)
                return nrl_fail(NRL_ERR_DATA, "%s: the result of merge %zu, '%s', is not a token", v->path, i, joined);
            if (v->tokens[id].score < -(float)i) v->tokens[id].score = -(float)i;
        } else {
            gguf_add_text(&m->bytes, text, strlen(text));
        }
    }
    return NRL_OK;
}

static void put_tokens(const vocab *v, gguf_metadata *m)
{
    gguf_put_array(m, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)v->n);
    for (int64_t i = 0; i < v->n; i++)
        gguf_add_text(&m->bytes, v->tokens[i].text, v->tokens[i].size);
    gguf_put_array(m, "tokenizer.ggml.token_type", GGUF_INT32, (uint64_t)v->n);
    for (int64_t i = 0; i < v->n; i++)
        gguf_add(&m->bytes, &v->tokens[i].type, sizeof v->tokens[i].type);
    if (!v->is_llama) return;
    gguf_put_array(m, "tokenizer.ggml.scores", GGUF_FLOAT32, (uint64_t)v->n);
    for (int64_t i = 0; i < v->n; i++)
        gguf_add(&m->bytes, &v->tokens[i].score, sizeof v->tokens[i].score);
}

/* ---- how texts are split ---- */

/* The patterns of tokenizer.json that split a text into words, and the names of llama.cpp for the same rules. */
static const struct {
    const char *pattern, *name;
} splits[] = {
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     "llama-bpe"},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     "qwen2"},
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'"
     "ll|'d)?|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'"
     "ll|'d)?|"
     "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "gpt-4o"},
};

/* What the steps of the pre-tokenizer do. */
typedef struct {
    const char *pattern; /* of the only Split step */
    bool digits;         /* a Digits step that splits single digits */
    bool words;          /* a ByteLevel step with GPT-2's own pattern */
    bool others;         /* anything else */
} split_steps;

static void read_step(const nrl_node *step, split_steps *s)
{
    const char *type = nrl_node_string(nrl_node_find(step, "type"), "");
    if (!strcmp(type, "Sequence")) {
        const nrl_node *list = nrl_node_find(step, "pretokenizers");
        for (size_t i = 0; i < nrl_node_size(list); i++)
            read_step(nrl_node_at(list, i), s);
    } else if (!strcmp(type, "Split") && !s->pattern) {
        s->pattern = nrl_node_string(nrl_node_find(nrl_node_find(step, "pattern"), "Regex"), NULL);
        s->others |= !s->pattern;
    } else if (!strcmp(type, "Digits")) {
        s->digits = nrl_node_bool(nrl_node_find(step, "individual_digits"), false);
        s->others |= !s->digits;
    } else if (!strcmp(type, "ByteLevel")) {
        s->words = nrl_node_bool(nrl_node_find(step, "use_regex"), true);
    } else {
        s->others = true;
    }
}

static const char *split_name(const vocab *v)
{
    split_steps s = {0};
    read_step(nrl_node_find(v->root, "pre_tokenizer"), &s);
    for (size_t i = 0; !s.others && !s.words && !s.digits && s.pattern && i < sizeof splits / sizeof *splits; i++)
        if (!strcmp(s.pattern, splits[i].pattern)) return splits[i].name;
    if (!s.others && !s.pattern && s.words) return s.digits ? "smollm" : "gpt-2";
    nrl_warn("GGUF: the pre_tokenizer of %s has no known name in llama.cpp, which will split text by its default "
             "rule; tokens can differ from those in training",
             v->path);
    return "default";
}

/* Whether the first word of a text gets a space in front. */
static bool has_space_prefix(const vocab *v)
{
    const nrl_node *normalizer = nrl_node_find(v->root, "normalizer"), *pre = nrl_node_find(v->root, "pre_tokenizer");
    const nrl_node *list = nrl_node_find(normalizer, "normalizers");
    for (size_t i = 0; i < nrl_node_size(list); i++)
        if (!strcmp(nrl_node_string(nrl_node_find(nrl_node_at(list, i), "type"), ""), "Prepend")) return true;
    return !strcmp(nrl_node_string(nrl_node_find(pre, "type"), ""), "Metaspace") &&
           (nrl_node_bool(nrl_node_find(pre, "add_prefix_space"), false) ||
            strcmp(nrl_node_string(nrl_node_find(pre, "prepend_scheme"), "never"), "never"));
}

/* ---- special tokens ---- */

/* Puts the id of a token such as "bos" if tokenizer_config.json or config.json names it. */
static void put_special(const vocab *v, const nrl_node *config, const char *name, const char *key, gguf_metadata *m)
{
    char word[64];
    snprintf(word, sizeof word, "%s_token", name);
    const nrl_node *node = nrl_node_find(v->settings, word), *content = nrl_node_find(node, "content");
    const char *text = nrl_node_string(content ? content : node, NULL);
    int64_t id = text ? id_of(v, text, strlen(text)) : -1;
    snprintf(word, sizeof word, "%s_token_id", name);
    const nrl_node *ids = nrl_node_find(config, word);
    if (id < 0) id = nrl_node_int(nrl_node_kind(ids) == NRL_NODE_LIST ? nrl_node_at(ids, 0) : ids, -1);
    if (id >= 0 && id < v->n) gguf_put_u32(m, key, (uint32_t)id);
}

/* Whether the post-processor puts a special token in front of a text. */
static bool begins_with_special(const nrl_node *processor)
{
    const nrl_node *list = nrl_node_find(processor, "processors");
    for (size_t i = 0; i < nrl_node_size(list); i++)
        if (begins_with_special(nrl_node_at(list, i))) return true;
    return nrl_node_find(nrl_node_at(nrl_node_find(processor, "single"), 0), "SpecialToken") != NULL;
}

/* The file that replaces one of the companions; its text is NULL if the file is left out. */
static const nrl_format_file *replacement(const nrl_format_write *what, const char *name)
{
    for (int64_t i = 0; i < what->n_files; i++)
        if (!strcmp(what->files[i].name, name)) return &what->files[i];
    return NULL;
}

static nrl_status put_template(vocab *v, const nrl_format_write *what, gguf_metadata *m)
{
    const nrl_format_file *replaced = replacement(what, "chat_template.jinja");
    const char *path = arena_printf(&v->memory, "%s/chat_template.jinja", what->companions);
    const char *jinja = replaced ? replaced->text : NULL;
    const nrl_node *node = nrl_node_find(v->settings, "chat_template");
    char *text = NULL;
    size_t size;
    if (!jinja && !access(path, F_OK)) {
        NRL_TRY(file_read(path, MAX_FILE, &text, &size));
        jinja = text;
    }
    for (size_t i = 0; nrl_node_kind(node) == NRL_NODE_LIST && i < nrl_node_size(node) && !jinja; i++)
        if (!strcmp(nrl_node_string(nrl_node_find(nrl_node_at(node, i), "name"), ""), "default"))
            jinja = nrl_node_string(nrl_node_find(nrl_node_at(node, i), "template"), NULL);
    if (!jinja) jinja = nrl_node_string(node, NULL);
    if (jinja) gguf_put_text(m, "tokenizer.chat_template", jinja, strlen(jinja));
    free(text);
    return NRL_OK;
}

static nrl_status put_all(vocab *v, const nrl_format_write *what, const nrl_node *config, gguf_metadata *m)
{
    const char *model = v->is_llama ? "llama" : "gpt2";
    NRL_TRY(read_tokens(v));
    gguf_put_text(m, "tokenizer.ggml.model", model, strlen(model));
    if (v->is_llama) {
        gguf_put_bool(m, "tokenizer.ggml.add_space_prefix", has_space_prefix(v));
    } else {
        const char *name = split_name(v);
        gguf_put_text(m, "tokenizer.ggml.pre", name, strlen(name));
    }
    NRL_TRY(put_merges(v, m));
    put_tokens(v, m);
    put_special(v, config, "bos", "tokenizer.ggml.bos_token_id", m);
    put_special(v, config, "eos", "tokenizer.ggml.eos_token_id", m);
    put_special(v, config, "pad", "tokenizer.ggml.padding_token_id", m);
    put_special(v, config, "unk", "tokenizer.ggml.unknown_token_id", m);
    /* Only these classes of transformers read add_bos_token beside a tokenizer.json. */
    const char *class = nrl_node_string(nrl_node_find(v->settings, "tokenizer_class"), "");
    const bool reads = !strncmp(class, "Llama", 5) || !strncmp(class, "CodeLlama", 9) || !strncmp(class, "Gemma", 5);
    gguf_put_bool(m, "tokenizer.ggml.add_bos_token",
                  nrl_node_bool(reads ? nrl_node_find(v->settings, "add_bos_token") : NULL,
                                begins_with_special(nrl_node_find(v->root, "post_processor"))));
    return put_template(v, what, m);
}

/* *out is NULL if there is no such file. */
static nrl_status read_companion(vocab *v, const nrl_format_write *what, const char *name, const nrl_node **out)
{
    const nrl_format_file *replaced = replacement(what, name);
    const char *path = arena_printf(&v->memory, "%s/%s", what->companions, name);
    nrl_node *root = NULL;
    if (replaced && replaced->text)
        NRL_TRY(json_parse(&v->memory, name, replaced->text, strlen(replaced->text), &root));
    else if (!replaced && !access(path, F_OK))
        NRL_TRY(json_read_file(&v->memory, path, MAX_FILE, &root));
    *out = root;
    return NRL_OK;
}

static nrl_status read_files(vocab *v, const nrl_format_write *what)
{
    NRL_TRY(read_companion(v, what, "tokenizer.json", &v->root));
    NRL_TRY(read_companion(v, what, "tokenizer_config.json", &v->settings));
    v->model = nrl_node_find(v->root, "model");
    v->is_llama = nrl_node_bool(nrl_node_find(v->model, "byte_fallback"), false);
    return NRL_OK;
}

nrl_status gguf_put_tokenizer(gguf_metadata *m, const nrl_format_write *what, const nrl_node *config,
                              int64_t vocab_size)
{
    vocab v = {.n = vocab_size};
    v.path = arena_printf(&v.memory, "%s/tokenizer.json", what->companions);
    if (access(v.path, F_OK)) {
        nrl_warn("GGUF: '%s' has no tokenizer.json; the file contains no tokenizer", what->companions);
        gguf_put_text(m, "tokenizer.ggml.model", "no_vocab", strlen("no_vocab"));
        arena_free(&v.memory);
        return NRL_OK;
    }
    v.tokens = mem_try((size_t)v.n * sizeof *v.tokens, "the tokens of a GGUF file");
    v.sorted = v.tokens ? mem_try((size_t)v.n * sizeof *v.sorted, "the tokens of a GGUF file") : NULL;
    nrl_status st = v.sorted ? read_files(&v, what) : NRL_ERR_MEMORY;
    if (st == NRL_OK) st = put_all(&v, what, config, m);
    free(v.tokens);
    free(v.sorted);
    arena_free(&v.memory);
    return st;
}
