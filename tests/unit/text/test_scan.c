/*
 * test_scan.c - the hand-written scanners compared with the regular expressions that they replace,
 * on texts of difficult parts; and normalization forms, whose result must not depend on how the
 * text is divided.
 */
#include "regex.h"
#include "scan.h"
#include "text/shared.h"

static const char *const pieces[] = {"'s",
                                     "'S",
                                     "'\xc5\xbf",
                                     "'re",
                                     "'LL",
                                     "'",
                                     "a",
                                     "the",
                                     "X",
                                     " ",
                                     "  ",
                                     "\n",
                                     "\r\n",
                                     "\t",
                                     "1",
                                     "123",
                                     "\xc2\xa0",
                                     "\xe3\x80\x80",
                                     "\xe1\xa0\x8e",
                                     "\xc2\x85",
                                     "\xe2\x80\xa8",
                                     "\xd9\xa3",
                                     "\xe2\x85\xa7",
                                     "\xc2\xbd",
                                     "\xc3\xa9",
                                     "e\xcc\x81",
                                     "\xe4\xb8\xad",
                                     "\xf0\x9f\x98\x80",
                                     "\xe2\x80\x8d",
                                     "!",
                                     "...",
                                     "_",
                                     "-",
                                     "\x1c"};
enum { N_PIECES = sizeof pieces / sizeof *pieces, N_TEXTS = 20000 };

/* A fixed linear congruential generator: the texts are the same on every machine. */
static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static size_t make_text(uint64_t *state, char *out)
{
    size_t n = 0;
    for (uint32_t k = next_random(state) % 12; k; k--) {
        const char *piece = pieces[next_random(state) % N_PIECES];
        memcpy(out + n, piece, strlen(piece));
        n += strlen(piece);
    }
    return n;
}

static void compare(const char *pattern, void (*scan)(const char *, size_t, spans *))
{
    regex *r;
    void *matches = NULL;
    spans words = {0};
    uint64_t state = 1;
    if (regex_create(pattern, strlen(pattern), &r)) fail_msg("%s", nrl_error_text());
    for (int i = 0; i < N_TEXTS; i++) {
        char text[256];
        size_t size = make_text(&state, text), at = 0, begin, end;
        bool found;
        words.n = 0;
        scan(text, size, &words);
        for (size_t k = 0; k < words.n; k++, at = end) {
            assert_int_equal(regex_find(r, &matches, text, size, at, false, &begin, &end, &found), NRL_OK);
            if (!found || begin != words.at[k].begin || end != words.at[k].end)
                fail_msg("text %d '%.*s': word %zu", i, (int)size, text, k);
        }
        assert_int_equal(at, size);
    }
    free(words.at);
    regex_matches_free(matches);
    regex_destroy(r);
}

static void gpt2(const char *text, size_t size, spans *out)
{
    scan_gpt2(text, 0, size, out);
}

static void llama3(const char *text, size_t size, spans *out)
{
    scan_llama3(text, 0, size, 3, out);
}

static void qwen2(const char *text, size_t size, spans *out)
{
    scan_llama3(text, 0, size, 1, out);
}

static void scanners_cut_as_their_patterns_do(void **state)
{
    (void)state;
    compare(scan_gpt2_pattern, gpt2);
    compare(scan_llama3_pattern, llama3);
    compare(scan_qwen2_pattern, qwen2);
}

static void check_form(unicode_form form, const char *text, const char *expected)
{
    text_buffer out = {.mapped = true};
    size_t size = strlen(text);
    uint32_t map[256];
    for (size_t i = 0; i < size; i++)
        map[i] = (uint32_t)i;
    unicode_normalize(form, text, size, map, &out);
    assert_int_equal(out.n, strlen(expected));
    assert_memory_equal(out.data, expected, out.n);
    for (size_t i = 0; i < out.n; i++)
        assert_true(out.from[i] < size && (!i || out.from[i] >= out.from[i - 1]));
    text_buffer_free(&out);
}

static void normalization_forms_compose_and_order_marks(void **state)
{
    (void)state;
    check_form(FORM_NFC, "cafe\xcc\x81!", "caf\xc3\xa9!");
    check_form(FORM_NFC, "a\xcc\x81\xcc\xa3", "\xe1\xba\xa1\xcc\x81");            /* dot below goes first */
    check_form(FORM_NFC, "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81"); /* Hangul */
    check_form(FORM_NFC, "\xe2\x84\xab", "\xc3\x85");                             /* Angstrom sign */
    check_form(FORM_NFD, "\xc3\xa9x", "e\xcc\x81x");
    check_form(FORM_NFKC, "\xef\xac\x81\xc2\xb2", "fi2");
    check_form(FORM_NFKD, "\xea\xb0\x81", "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8");
}

/* utf8proc alone would sort such a run in quadratic time. */
static void a_million_marks_take_no_long_time(void **state)
{
    (void)state;
    enum { MARKS = 1000000 };
    char *text = mem_alloc(2 * MARKS + 1);
    text[0] = 'a';
    for (size_t i = 0; i < MARKS; i++)
        memcpy(text + 1 + 2 * i, i & 1 ? "\xcc\xa3" : "\xcc\x81", 2);
    text_buffer out = {0};
    unicode_normalize(FORM_NFC, text, 2 * MARKS + 1, NULL, &out);
    assert_true(out.n > MARKS);
    text_buffer_free(&out);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scanners_cut_as_their_patterns_do),
        cmocka_unit_test(normalization_forms_compose_and_order_marks),
        cmocka_unit_test(a_million_marks_take_no_long_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
