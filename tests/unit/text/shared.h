/*
 * shared.h - for tests of text/: helpers for one open tokenizer, of bytes or real.
 */
#ifndef TESTS_TEXT_SHARED_H
#define TESTS_TEXT_SHARED_H
#include "base/arena.h"
#include "support/shared.h"
#include "support/text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static inline tokenizer *open_or_fail(const char *path)
{
    tokenizer *tok = NULL;
    if (test_tokenizer_open(path, &tok) != NRL_OK) fail_msg("%s", nrl_error_text());
    return tok;
}

static inline tokenizer *open_text_or_fail(const char *json)
{
    tokenizer *tok = NULL;
    if (test_tokenizer_text(json, &tok) != NRL_OK) fail_msg("%s", nrl_error_text());
    return tok;
}

/* Ids as "1 2 3", malloc'd: what tests compare. */
static inline char *ids_text(const int32_t *ids, size_t n)
{
    char *out = mem_alloc(n * 12 + 1);
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        at += (size_t)sprintf(out + at, i ? " %d" : "%d", ids[i]);
    return out;
}

static inline char *encode_text(const tokenizer *tok, const char *text, size_t size, unsigned flags)
{
    tokenizer_scratch *s = tokenizer_scratch_create(tok);
    nrl_token_ids ids = {0};
    if (tokenizer_encode(tok, s, text, size, flags, &ids) != NRL_OK) fail_msg("%s", nrl_error_text());
    char *out = ids_text(ids.ids, ids.n);
    nrl_token_ids_free(&ids);
    tokenizer_scratch_destroy(s);
    return out;
}

static inline void assert_encodes(const tokenizer *tok, const char *text, const char *expected)
{
    char *got = encode_text(tok, text, strlen(text), 0);
    assert_string_equal(got, expected);
    free(got);
}

/* tokenizer.json of byte-level BPE: ids 0 to 255 are the bytes; words continues with ', "he": 256',
 * merges and added are lists without brackets. Malloc'd. */
static inline char *byte_level_json(const char *words, const char *merges, const char *added)
{
    char *json = mem_alloc((1 << 14) + strlen(words) + strlen(merges) + strlen(added));
    size_t at = (size_t)sprintf(json, "{\"model\": {\"type\": \"BPE\", \"merges\": [%s], \"vocab\": {", merges);
    for (int b = 0; b < 256; b++) {
        int32_t c = b;
        bool self = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (!self) c = b <= 0x20 ? 0x100 + b : b == 0xad ? 0x143 : 0x121 + (b - 0x7f);
        at += (size_t)sprintf(json + at, "%s\"\\u%04x\": %d", b ? "," : "", (unsigned)c, b);
    }
    sprintf(json + at,
            "%s}}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
            "\"decoder\": {\"type\": \"ByteLevel\"}, \"added_tokens\": [%s]}",
            words, added);
    return json;
}

static inline tokenizer *byte_tokenizer(const char *words, const char *merges, const char *added)
{
    char *json = byte_level_json(words, merges, added);
    tokenizer *tok = open_text_or_fail(json);
    free(json);
    return tok;
}

#endif
