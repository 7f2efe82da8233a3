/*
 * test_tokenizer.c - encoding and decoding with small tokenizers defined here, and errors about
 * hostile files.
 */
#include "base/buffer.h"
#include "text/shared.h"
#include <pthread.h>

/* "the" = t h e; " t" and "he" merge first, then " the". */
static const char the_vocab[] = ", \"\\u0120t\": 256, \"he\": 257, \"\\u0120the\": 258";
static const char the_merges[] = "\"\\u0120 t\", [\"h\", \"e\"], [\"\\u0120t\", \"he\"]";

static const char llama_json[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true},"
    "                    {\"id\": 1, \"content\": \"<s>\", \"special\": true}],"
    " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": ["
    "    {\"type\": \"Prepend\", \"prepend\": \"\xe2\x96\x81\"},"
    "    {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "
    "\"\xe2\x96\x81\"}]},"
    " \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": ["
    "    {\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\"}}],"
    "    \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [1], \"tokens\": [\"<s>\"]}}},"
    " \"decoder\": {\"type\": \"Sequence\", \"decoders\": ["
    "    {\"type\": \"Replace\", \"pattern\": {\"String\": \"\xe2\x96\x81\"}, \"content\": \" \"},"
    "    {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"},"
    "    {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]},"
    " \"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, "
    "\"byte_fallback\": true,"
    "    \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"\xe2\x96\x81\": 2, \"a\": 3, \"b\": 4,"
    "               \"\xe2\x96\x81"
    "a\": 5, \"ab\": 6, \"<0xC3>\": 7, \"<0xA9>\": 8, \"\xe2\x96\x81\xe2\x96\x81\": 9},"
    "    \"merges\": [\"\xe2\x96\x81 a\", \"a b\", \"\xe2\x96\x81 \xe2\x96\x81\"]}}";

static void byte_level_merges_by_rank(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer(the_vocab, the_merges, "");
    assert_encodes(tok, "the", "116 257");
    assert_encodes(tok, " the the", "258 258");
    assert_encodes(tok, "", "");
    assert_encodes(tok, "\xc3\xa9", "195 169");
    tokenizer_close(tok);
}

static void long_words_merge_like_short_ones(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer(", \"aa\": 256, \"aaaa\": 257", "\"a a\", \"aa aa\"", "");
    char text[4000];
    memset(text, 'a', sizeof text);
    for (size_t n = 1; n < sizeof text; n += 37) {
        char *got = encode_text(tok, text, n, 0);
        size_t tokens = n / 4 + (n % 4) / 2 + n % 2, seen = 1;
        for (char *p = got; *p; p++)
            seen += *p == ' ';
        assert_int_equal(seen, tokens);
        free(got);
    }
    tokenizer_close(tok);
}

static void nul_bytes_are_characters(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer("", "", "");
    char *got = encode_text(tok, "a\0b", 3, 0);
    assert_string_equal(got, "97 0 98");
    free(got);
    tokenizer_close(tok);
}

static void broken_utf8_becomes_replacement_characters(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer("", "", "");
    assert_encodes(tok, "a\xff", "97 239 191 189");
    assert_encodes(tok, "\xe2\x82z", "239 191 189 122");                        /* one for the maximal subpart */
    assert_encodes(tok, "\xed\xa0\x80", "239 191 189 239 191 189 239 191 189"); /* a surrogate */
    tokenizer_close(tok);
}

static void added_tokens_win_over_merges(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer(the_vocab, the_merges,
                                    "{\"id\": 300, \"content\": \"<e>\", \"special\": true},"
                                    "{\"id\": 301, \"content\": \"<e>x\", \"special\": true, "
                                    "\"lstrip\": true, \"rstrip\": true},"
                                    "{\"id\": 302, \"content\": \"the\", \"special\": false, "
                                    "\"normalized\": false, \"single_word\": true}");
    assert_encodes(tok, "a<e>a", "97 300 97");
    assert_encodes(tok, "a  <e>x  a", "97 301 97"); /* the longest match; spaces belong to it */
    assert_encodes(tok, "the then", "302 258 110");
    char *got = encode_text(tok, "<e>", 3, NRL_ENCODE_SPECIAL_AS_TEXT);
    assert_string_equal(got, "60 101 62");
    free(got);
    tokenizer_close(tok);
}

static void assert_encodes_as_text(const tokenizer *tok, const char *text, const char *expected)
{
    char *got = encode_text(tok, text, strlen(text), NRL_ENCODE_SPECIAL_AS_TEXT);
    assert_string_equal(got, expected);
    free(got);
}

/* As with encode_special_tokens of Hugging Face: special tokens only, of the raw and of the normalized text. */
static void only_special_tokens_become_text(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer("", "",
                                    "{\"id\": 300, \"content\": \"<r>\", \"special\": true, \"normalized\": false},"
                                    "{\"id\": 301, \"content\": \"<n>\", \"special\": true, \"normalized\": true},"
                                    "{\"id\": 302, \"content\": \"[r]\", \"special\": false, \"normalized\": false},"
                                    "{\"id\": 303, \"content\": \"[n]\", \"special\": false, \"normalized\": true}");
    assert_encodes(tok, "<r><n>[r][n]", "300 301 302 303");
    assert_encodes_as_text(tok, "<r>", "60 114 62");
    assert_encodes_as_text(tok, "<n>", "60 110 62");
    assert_encodes_as_text(tok, "a[r]a[n]", "97 302 97 303");
    tokenizer_close(tok);
}

static void llama_style_puts_a_mark_before_each_stretch(void **state)
{
    (void)state;
    tokenizer *tok = open_text_or_fail(llama_json);
    assert_encodes(tok, "a ab", "5 5 4");
    assert_encodes(tok, "bab", "2 4 6");
    assert_encodes(tok, "<s>a", "1 5");
    assert_encodes(tok, "  a", "9 5"); /* marks before the last are a run of their own */
    assert_encodes(tok, "\xc3\xa9", "2 7 8");
    assert_encodes(tok, "??", "2 0"); /* one unknown for the run */
    char *got = encode_text(tok, "a", 1, NRL_ENCODE_ADD_SPECIAL);
    assert_string_equal(got, "1 5");
    free(got);
    tokenizer_close(tok);
}

static void decoding_strips_the_first_mark_only(void **state)
{
    (void)state;
    tokenizer *tok = open_text_or_fail(llama_json);
    const int32_t ids[] = {1, 5, 5, 7, 8, 7};
    char *text;
    assert_int_equal(tokenizer_decode(tok, ids, 6, true, &text, NULL), NRL_OK);
    assert_string_equal(text, "a a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* the run is not UTF-8 */
    free(text);
    assert_int_equal(tokenizer_decode(tok, ids, 5, true, &text, NULL), NRL_OK);
    assert_string_equal(text, "a a\xc3\xa9");
    free(text);
    assert_int_equal(tokenizer_decode(tok, (int32_t[]){99}, 1, true, &text, NULL), NRL_ERR_DATA);
    tokenizer_close(tok);
}

static void a_stream_gives_whole_characters_only(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer("", "", "");
    nrl_decode_stream s = {0};
    char out[64];
    assert_int_equal(tok->open.table->decode_next(tok->open.self, &s, 0xe2, false, out, sizeof out), 0);
    assert_int_equal(tok->open.table->decode_next(tok->open.self, &s, 0x82, false, out, sizeof out), 0);
    assert_int_equal(tok->open.table->decode_next(tok->open.self, &s, 0xac, false, out, sizeof out), 3);
    assert_string_equal(out, "\xe2\x82\xac");
    assert_int_equal(tok->open.table->decode_next(tok->open.self, &s, 0xe2, false, out, sizeof out), 0);
    tok->open.table->decode_next(tok->open.self, &s, 'x', false, out, sizeof out);
    assert_string_equal(out, "\xef\xbf\xbdx");
    tok->open.table->decode_next(tok->open.self, &s, 0xe2, false, out, sizeof out);
    tok->open.table->decode_next(tok->open.self, &s, NRL_TOKEN_NONE, false, out, sizeof out);
    assert_string_equal(out, "\xef\xbf\xbd");
    tokenizer_close(tok);
}

static void starts_are_offsets_in_the_callers_text(void **state)
{
    (void)state;
    tokenizer *tok = open_text_or_fail(llama_json);
    tokenizer_scratch *s = tokenizer_scratch_create(tok);
    nrl_token_ids ids = {.want_starts = true};
    assert_int_equal(tokenizer_encode(tok, s, "a ab<s>b", 8, 0, &ids), NRL_OK);
    const size_t want[] = {0, 1, 3, 4, 7, 7}; /* a mark that was put stands where its text begins */
    char *got = ids_text(ids.ids, ids.n);
    assert_string_equal(got, "5 5 4 1 2 4");
    for (size_t i = 0; i < ids.n; i++)
        assert_int_equal(ids.starts[i], want[i]);
    free(got);
    nrl_token_ids_free(&ids);
    tokenizer_scratch_destroy(s);
    tokenizer_close(tok);
}

static void characters_without_a_token_are_counted(void **state)
{
    (void)state;
    tokenizer *tok = open_text_or_fail("{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []},"
                                       "\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}}");
    tokenizer_scratch *s = tokenizer_scratch_create(tok);
    nrl_token_ids ids = {0};
    for (int i = 0; i < 2; i++)
        assert_int_equal(tokenizer_encode(tok, s, "abb a", 5, 0, &ids), NRL_OK);
    assert_int_equal(ids.n, 4);
    assert_int_equal(tokenizer_scratch_dropped(s), 4);
    nrl_token_ids_free(&ids);
    tokenizer_scratch_destroy(s);
    tokenizer_close(tok);
}

/* ---- one tokenizer, several threads ---- */

static void *encode_often(void *shared)
{
    tokenizer_scratch *s = tokenizer_scratch_create(shared);
    nrl_token_ids ids = {0};
    size_t wrong = 0;
    for (int i = 0; i < 2000; i++) {
        ids.n = 0;
        wrong += tokenizer_encode(shared, s, "the the 12 x", 12, 0, &ids) != NRL_OK || ids.n != 8;
    }
    nrl_token_ids_free(&ids);
    tokenizer_scratch_destroy(s);
    return wrong ? shared : NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer(the_vocab, the_merges, "");
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, encode_often, tok);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    tokenizer_close(tok);
}

/* ---- hostile files ---- */

static void assert_refused(const char *json, const char *words)
{
    tokenizer *tok;
    assert_int_equal(test_tokenizer_bytes("bad.json", json, strlen(json), &tok), NRL_ERR_DATA);
    if (!strstr(nrl_error_text(), words)) fail_msg("'%s' has no '%s'", nrl_error_text(), words);
    assert_non_null(strstr(nrl_error_text(), "bad.json"));
}

#define MODEL(vocab, merges) "{\"model\": {\"vocab\": {" vocab "}, \"merges\": [" merges "]}}"

static void hostile_models_are_refused_with_the_reason(void **state)
{
    (void)state;
    assert_refused("{", "expected");
    assert_refused("{}", "expected a 'model'");
    assert_refused("{\"model\": 3}", "expected a map");
    assert_refused("{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", "model type 'Unigram'");
    assert_refused("{\"model\": {\"vocab\": {}}}", "expected 'vocab' and 'merges'");
    assert_refused(MODEL("\"a\": -1", ""), "id -1, expected 0 to");
    assert_refused(MODEL("\"a\": 99999999999", ""), "id 99999999999, expected 0 to");
    assert_refused(MODEL("\"a\": 1e3", ""), "expected a whole number");
    assert_refused(MODEL("\"a\": \"0\"", ""), "expected a whole number");
    assert_refused(MODEL("\"a\": 0, \"b\": 0", ""), "have the same id 0");
    assert_refused(MODEL("\"a\": 0, \"a\": 1", ""), "occurs twice");
    assert_refused(MODEL("\"a\": 0", "\"a b\""), "expected merges of tokens in the vocabulary");
    assert_refused(MODEL("\"a\": 0", "\"a a\""), "expected merges of tokens in the vocabulary");
    assert_refused(MODEL("\"a\": 0", "\"aa\""), "one space between");
    assert_refused(MODEL("\"a\": 0", "[\"a\"]"), "expected two tokens in a merge");
    assert_refused(MODEL("\"\\ud800\": 0", ""), "surrogate");
    assert_refused(MODEL("\"\xff\": 0", ""), "UTF-8");
    assert_refused("{\"model\": {\"vocab\": {}, \"merges\": []}, \"model\": {}}", "each key once");
    assert_refused(MODEL("\"a\": 0", "") "x", "end of the file");
}

#define PART(name, value) "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}, \"" name "\": " value "}"

static void unknown_components_are_named(void **state)
{
    (void)state;
    assert_refused(PART("normalizer", "{\"type\": \"Nmt\"}"), "normalizer 'Nmt' is not supported");
    assert_refused(PART("pre_tokenizer", "{\"type\": \"UnicodeScripts\"}"), "'UnicodeScripts'");
    assert_refused(PART("pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, "
                                         "\"behavior\": \"Isolated\"}"),
                   "regular expression '('");
    assert_refused(PART("pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"String\": \"x\"}}"), "behavior");
    assert_refused(PART("pre_tokenizer",
                        "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a-z&&[^b]]\"}, \"behavior\": "
                        "\"Isolated\"}"),
                   "nested sets");
    assert_refused(PART("decoder", "{\"type\": \"CTC\"}"), "decoder 'CTC'");
    assert_refused(PART("post_processor", "{\"type\": \"X\"}"), "post_processor 'X'");
    assert_refused(PART("added_tokens", "[{\"id\": 0, \"content\": \"b\"}]"), "the same id 0");
    assert_refused(PART("added_tokens", "[{\"content\": \"b\"}]"), "row 0");
    assert_refused(PART("added_tokens", "{}"), "a list");
}

static void a_pattern_that_explodes_is_an_error_not_a_hang(void **state)
{
    (void)state;
    tokenizer *tok = open_text_or_fail(PART("pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": "
                                                             "\"(a|aa)+$\"}, \"behavior\": \"Isolated\"}"));
    tokenizer_scratch *s = tokenizer_scratch_create(tok);
    nrl_token_ids ids = {0};
    char text[200];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'b';
    assert_int_equal(tokenizer_encode(tok, s, text, sizeof text, 0, &ids), NRL_ERR_DATA);
    nrl_token_ids_free(&ids);
    tokenizer_scratch_destroy(s);
    tokenizer_close(tok);
}

/* The ids are those of tokenizers 0.23, which uses Oniguruma: an empty match separates, {1,2}+ repeats, \p{Han} is the
 * script alone. */
static void patterns_split_as_in_oniguruma(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *behavior, *invert, *text, *ids;
    } cases[] = {
        {"(?=(\\\\d{3})+(?!\\\\d))", "Isolated", "false", "1234", "0 5"},
        {"(?=(\\\\d{3})+(?!\\\\d))", "MergedWithPrevious", "true", "1234a1", "0 5 10"},
        {"\\\\d*", "Removed", "false", "ab12a\xe3\x80\x82", "7 8 7 11"},
        {"|b", "MergedWithNext", "false", "ab", "7 8"},
        {"(?<=a)", "Contiguous", "false", "aba1", "7 8 7 0"},
        {"\\\\d{1,2}+", "Isolated", "false", "1234ab", "6 9"},
        {"(?:a|\\\\d){,2}+", "Isolated", "false", "a1234b", "7 6 8"},
        {"\\\\p{Han}+|\\\\P{Han}+", "Isolated", "false",
         "a\xe3\x80\x82"
         "ab",
         "12 9"},
        {"\\\\x{61}+", "Isolated", "false", "ab", "7 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json = mem_printf(
            "{\"model\": {\"vocab\": {\"1\": 0, \"2\": 1, \"3\": 2, \"4\": 3, \"23\": 4, \"234\": 5, \"1234\": 6, "
            "\"a\": 7, "
            "\"b\": 8, \"ab\": 9, \"a1\": 10, \"\xe3\x80\x82\": 11, \"a\xe3\x80\x82\": 12}, \"merges\": [\"2 3\", \"23 "
            "4\", "
            "\"1 234\", \"a b\", \"a 1\", \"a \xe3\x80\x82\"]}, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": "
            "{\"Regex\": \"%s\"}, \"behavior\": \"%s\", \"invert\": %s}}",
            cases[i].pattern, cases[i].behavior, cases[i].invert);
        tokenizer *tok = open_text_or_fail(json);
        assert_encodes(tok, cases[i].text, cases[i].ids);
        tokenizer_close(tok);
        free(json);
    }
}

/* One replacement makes much of little, of a text or at every match of a pattern; and there may be many. */
static void a_normalizer_that_grows_is_an_error(void **state)
{
    (void)state;
    enum { LARGE = 1000, TEXT = 100000 };
    static const char *const patterns[] = {"String", "Regex"};
    char *large = mem_alloc(LARGE + 1), *text = mem_alloc(TEXT);
    memset(large, 'x', LARGE);
    memset(text, 'a', TEXT);
    for (int i = 0; i < 2; i++) {
        char *json =
            mem_printf(PART("normalizer", "{\"type\": \"Replace\", \"pattern\": {\"%s\": \"a\"}, \"content\": \"%s\"}"),
                       patterns[i], large);
        tokenizer *tok = open_text_or_fail(json);
        tokenizer_scratch *s = tokenizer_scratch_create(tok);
        nrl_token_ids ids = {0};
        assert_int_equal(tokenizer_encode(tok, s, text, TEXT, 0, &ids), NRL_ERR_DATA);
        assert_non_null(strstr(nrl_error_text(), "normalizer makes a text too large: expected at most 18577216 bytes"));
        nrl_token_ids_free(&ids);
        tokenizer_scratch_destroy(s);
        tokenizer_close(tok);
        free(json);
    }
    buffer b = {0};
    for (int i = 0; i < 65; i++)
        buffer_puts(&b, i ? ", {\"type\": \"NFC\"}" : "{\"type\": \"NFC\"}");
    char *json = mem_printf(PART("normalizer", "{\"type\": \"Sequence\", \"normalizers\": [%s]}"), b.text);
    assert_refused(json, "normalizers: expected at most 64");
    free(json);
    buffer_free(&b);
    free(text);
    free(large);
}

static void sentencepiece_rubbish_is_refused(void **state)
{
    (void)state;
    tokenizer *tok;
    static const char *const files[] = {"", "\x0a", "\x0a\xff\xff\xff\xff\x7f", "hello", "IQ== 0\nrubbish\n"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_int_equal(test_tokenizer_bytes("bad.model", files[i], strlen(files[i]), &tok), NRL_ERR_DATA);
    assert_non_null(strstr(nrl_error_text(), "bad.model:2: expected base64"));
}

static void gaps_between_ids_are_fine(void **state)
{
    (void)state;
    tokenizer *tok = open_text_or_fail(MODEL("\"a\": 0, \"b\": 1000", ""));
    assert_int_equal(tok->info.vocab_size, 1001);
    assert_encodes(tok, "ab", "0 1000");
    uint32_t flags;
    assert_null(tokenizer_token_text(tok, 500, &flags));
    tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_merges_by_rank),
        cmocka_unit_test(long_words_merge_like_short_ones),
        cmocka_unit_test(nul_bytes_are_characters),
        cmocka_unit_test(broken_utf8_becomes_replacement_characters),
        cmocka_unit_test(added_tokens_win_over_merges),
        cmocka_unit_test(only_special_tokens_become_text),
        cmocka_unit_test(llama_style_puts_a_mark_before_each_stretch),
        cmocka_unit_test(decoding_strips_the_first_mark_only),
        cmocka_unit_test(a_stream_gives_whole_characters_only),
        cmocka_unit_test(starts_are_offsets_in_the_callers_text),
        cmocka_unit_test(characters_without_a_token_are_counted),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(hostile_models_are_refused_with_the_reason),
        cmocka_unit_test(unknown_components_are_named),
        cmocka_unit_test(a_pattern_that_explodes_is_an_error_not_a_hang),
        cmocka_unit_test(patterns_split_as_in_oniguruma),
        cmocka_unit_test(a_normalizer_that_grows_is_an_error),
        cmocka_unit_test(sentencepiece_rubbish_is_refused),
        cmocka_unit_test(gaps_between_ids_are_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
