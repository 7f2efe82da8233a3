/*
 * parts.h - the parts of an open tokenizer, private to this directory. To encode a text, its added
 * tokens are found, the ranges between them are normalized (normal) and edited (spaces become
 * U+2581, one is put in front), split into words (split), and each word is merged (words). Decoding
 * is in decode.c.
 */
#ifndef TEXT_PARTS_H
#define TEXT_PARTS_H
#include "base/arena.h"
#include "bpe.h"
#include "unicode.h"
#include "vocab.h"
#include <nrl/node.h>

/* ---- normalizers ---- */

typedef enum {
    NORMAL_NONE = 0,
    NORMAL_FORM, /* Unicode normalization form */
    NORMAL_LOWER,
    NORMAL_PREPEND, /* puts `text` in front of a text that is not empty */
    NORMAL_REPLACE, /* replaces `text` by `content` */
    NORMAL_REGEX,   /* replaces matches of the pattern by `content` */
    NORMAL_STRIP    /* removes white space at the left, right */
} normal_kind;

typedef struct regex regex; /* regex.h */

typedef struct {
    normal_kind kind;
    unicode_form form;
    const char *text, *content;
    size_t text_size, content_size;
    regex *pattern;
    bool left, right;
} normal_step;

/* ---- splitting into words ---- */

typedef enum {
    SPLIT_NONE = 0,
    SPLIT_GPT2,   /* the pattern of GPT-2, implemented by hand */
    SPLIT_LLAMA3, /* the pattern of Llama 3 (max_digits 3) and Qwen 2 (1), implemented by hand */
    SPLIT_REGEX,
    SPLIT_TEXT,   /* at a fixed text */
    SPLIT_DIGITS, /* numbers, alone or in runs */
    SPLIT_SPACES, /* at white space, which is removed */
    SPLIT_PUNCTUATION,
    SPLIT_WORDS, /* \w+ | [^\w\s]+, white space is removed */
    SPLIT_RUNS   /* before each run of `text`: does not change ids, only makes words short */
} split_kind;

typedef enum {
    KEEP_NONE = 0,
    KEEP_REMOVED,
    KEEP_ISOLATED,
    KEEP_WITH_PREVIOUS,
    KEEP_WITH_NEXT,
    KEEP_CONTIGUOUS
} split_behavior;

typedef struct {
    split_kind kind;
    split_behavior behavior;
    bool invert;
    int max_digits; /* SPLIT_LLAMA3: digits per number; SPLIT_DIGITS: 1 = single digits, 0 = runs */
    const char *text;
    size_t text_size;
    regex *pattern;
} split_step;

/* Edits of the text that are part of a pre-tokenizer. */
typedef struct {
    bool space_first;        /* ByteLevel's add_prefix_space */
    const char *replacement; /* Metaspace: the replacement of a space; NULL = none */
    size_t replacement_size;
    bool prepend, first_only; /* Metaspace: put one in front; first_only: only of the first range of a text */
} edit_plan;

/* ---- added tokens ---- */

typedef struct {
    int32_t id;
    bool lstrip, rstrip, single_word, normalized, special;
} added_token;

typedef struct {
    int32_t child, sibling; /* node numbers, 0 = none */
    int32_t token;          /* number of an added token, or -1 */
    unsigned char byte;
} trie_node;

typedef struct {
    trie_node *nodes; /* [n]; nodes[0] is the root */
    int32_t n, room;
    bool starts[256]; /* bytes that begin a token */
} trie;

/* ---- decoding ---- */

typedef struct {
    const char *from, *to;
    size_t from_size, to_size;
} replacement;

typedef struct {
    bool join_spaces; /* the file has no decoder: put a space between tokens */
    bool byte_level, byte_fallback;
    const char *metaspace; /* becomes a space, or nothing in the first token if drop_first */
    size_t metaspace_size;
    bool drop_first;
    const char *strip; /* removed from the whole text, at most so many times */
    size_t strip_size;
    int64_t strip_start, strip_stop;
    replacement *replace;
    size_t n_replace;
} decode_plan;

enum { N_NAMED = 7 }; /* bos_token and the like */

struct bpe_tokenizer {
    arena memory;
    vocab words; /* all tokens, including added ones */
    merge_table merges;
    int32_t byte_ids[256]; /* byte level: the token of the byte's character; fallback: the token <0xNN> */
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    bool bos_by_default; /* the format cannot express that BOS is added, but users of it add BOS */
    int32_t unk;

    normal_step *normal;
    size_t n_normal;
    edit_plan edit;
    split_step *split;
    size_t n_split;
    decode_plan decode;

    added_token *added;
    size_t n_added, added_room;
    trie raw, normalized; /* matched before and after normalization */

    int32_t *prefix, *suffix; /* the tokens that NRL_ENCODE_ADD_SPECIAL adds around a text */
    size_t n_prefix, n_suffix;
    int32_t bos, pad;
    int32_t *eos;
    size_t n_eos;

    const char *source, *folder, *chat_template, *tools_template;
    nrl_named_token named[N_NAMED];
    uint32_t n_named;
    const nrl_node *config, *special; /* tokenizer_config.json, special_tokens_map.json; or NULL */
    nrl_node *new_tokens; /* list of entries for added_tokens of tokenizer.json, of the option add_tokens; or NULL */
    void *hashing;        /* XXH3 state while files are read */
    char hash[33];
    uint64_t key[2]; /* the hash as numbers, which identifies the tokenizer of a scratch's cache */
};

/* ---- one thread's buffers ---- */

typedef struct {
    uint32_t begin, end;
} span;

typedef struct {
    span *at;
    size_t n, room;
} spans;
void spans_push(spans *s, size_t begin, size_t end);

typedef struct word_cache word_cache; /* bpe.h */

struct bpe_scratch {
    text_buffer clean, one, two; /* sanitized input, and the two buffers that normal steps alternate between */
    spans words, next;
    void *matches; /* of PCRE2 */
    word_cache *bpe;
    size_t dropped;
    size_t most, made; /* bytes that the normalizer may produce for the current text, and has produced */
};

/* A text and its origin: byte i comes from map[i], or from start + i if map is NULL. */
typedef struct {
    const char *text;
    size_t size, start;
    const uint32_t *map;
    bool mapped; /* origins are requested */
} mapped_text;

/* normal.c: applies the file's normalizer, then the edits. The result is in text itself or in
 * s->one or s->two. */
void normal_begin(bpe_scratch *s, size_t size); /* before the ranges of a text of that size */
nrl_status normal_apply(const bpe_tokenizer *tok, bpe_scratch *s, mapped_text *text);
nrl_status normal_edit(const bpe_tokenizer *tok, bpe_scratch *s, mapped_text *text);

/* split.c: the words of text, as spans in s->words. */
nrl_status split_apply(const bpe_tokenizer *tok, bpe_scratch *s, const char *text, size_t size);

/* added.c */
nrl_status added_push(bpe_tokenizer *tok, const added_token *token);
nrl_status added_index(bpe_tokenizer *tok); /* builds both tries */
/* Iterates over the added tokens of a text, with the flags of encoding. Zero-initialise; before the first and after
 * each token, `at` is the start of the text that was not consumed yet. */
typedef struct {
    const added_token *token;
    size_t begin, end; /* of the token, including the spaces that it strips */
    size_t at;         /* set to `end` by the next call */
    size_t resume;     /* where the search continues: spaces that rstrip consumes may begin a token */
} added_walk;
bool added_next(const bpe_tokenizer *tok, const trie *t, const char *text, size_t size, unsigned flags, added_walk *w);
void trie_free(trie *t);

#endif
