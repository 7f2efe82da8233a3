/*
 * test_txt.c - the txt dataset: the units of text that become rows, how long texts are split, and
 * files that cannot be read.
 */
#include "base/utf8.h"
#include "unit/data/rows_support.h"

static void text(void **state, const char *options, const char *bytes, const char *expected)
{
    rows_expect(*state, "txt", options, "t.txt", bytes, strlen(bytes), expected);
}

static void lines_paragraphs_and_documents_are_rows(void **state)
{
    static const char bytes[] = "\n a b\r\nc\n \t\n\nd\r\n\r\ne";
    text(state, NULL, bytes, "2:{\"text\": \" a b\"}\n3:{\"text\": \"c\"}\n6:{\"text\": \"d\"}\n8:{\"text\": \"e\"}\n");
    text(state, "{\"sample_by\": \"paragraph\"}", bytes,
         "2:{\"text\": \" a b\\r\\nc\"}\n6:{\"text\": \"d\"}\n8:{\"text\": \"e\"}\n");
    text(state, "{\"sample_by\": \"document\"}", bytes,
         "1:{\"text\": \"\\n a b\\r\\nc\\n \\t\\n\\nd\\r\\n\\r\\ne\"}\n");
    text(state, NULL, "\xEF\xBB\xBFx", "1:{\"text\": \"x\"}\n");
    text(state, NULL, "", "");
    text(state, "{\"sample_by\": \"document\"}", " \n\n", "");
}

static void long_texts_are_cut_before_white_space(void **state)
{
    text(state, "{\"chunk\": 10}", "one two three four\nfive\n",
         "1:{\"text\": \"one two\"}\n1:{\"text\": \" three\"}\n1:{\"text\": \" four\"}\n2:{\"text\": \"five\"}\n");
    text(state, "{\"chunk\": 10, \"overlap\": 5}", "one two three four",
         "1:{\"text\": \"one two\"}\n1:{\"text\": \" two three\"}\n1:{\"text\": \"three four\"}\n");
    text(state, "{\"chunk\": 4}", "abcdefghij",
         "1:{\"text\": \"abcd\"}\n1:{\"text\": \"efgh\"}\n1:{\"text\": \"ij\"}\n");
    text(state, "{\"chunk\": 2}", "\xE4\xB8\xAD\xE4\xB8\xAD\xE4\xB8\xAD",
         "1:{\"text\": \"\xE4\xB8\xAD\xE4\xB8\xAD\"}\n1:{\"text\": \"\xE4\xB8\xAD\"}\n");
    text(state, "{\"chunk\": 5, \"sample_by\": \"document\"}", "ab\ncd\nef\n",
         "1:{\"text\": \"ab\\ncd\"}\n2:{\"text\": \"\\nef\\n\"}\n");
}

/* The rows of a document without overlap, joined, are the document, wherever ranges end; with overlap every row repeats
 * the end of the one before. */
static void chunks_of_a_document_join_to_it(void **state)
{
    fixture *f = *state;
    buffer bytes = {0}, joined = {0};
    for (int i = 0; bytes.size < 5000000; i++)
        buffer_print(&bytes, i % 11 ? "word%d \xC3\xBC\xF0\x9F\x98\x80" : "%d\n", i * 7919 % 10007);
    char *path = mem_printf("%s/t.md", f->dir);
    support_write_bytes(path, bytes.text, bytes.size);
    for (int overlap = 0; overlap <= 200; overlap += 200) {
        arena a = {0};
        char *options = arena_printf(&a, "{\"sample_by\": \"document\", \"chunk\": 1000, \"overlap\": %d}", overlap);
        char *rows = rows_read(f, "txt", options, path), *line = rows;
        joined.size = 0;
        size_t n = 0;
        for (char *stop; *line && (stop = strchr(line, '\n')); line = stop + 1, n++) {
            nrl_node *row;
            arena memory = {0};
            line = strchr(line, ':') + 1;
            ASSERT_OK(json_parse(&memory, "row", line, (size_t)(stop - line), &row));
            const char *part = nrl_node_string(nrl_node_find(row, "text"), "");
            size_t size = strlen(part), characters = 0, repeated = 0, step;
            for (const char *c = part; *c; c += step, characters++)
                utf8_next(c, part + size, &step);
            assert_true(characters <= 1000);
            if (overlap && joined.size) {
                for (repeated = size < joined.size ? size : joined.size; repeated; repeated--)
                    if (!memcmp(part, joined.text + joined.size - repeated, repeated)) break;
                assert_true(repeated > 100);
            }
            buffer_add(&joined, part + repeated, size - repeated);
            arena_free(&memory);
        }
        assert_int_equal(joined.size, bytes.size);
        assert_memory_equal(joined.text, bytes.text, bytes.size);
        assert_true(n > 2500);
        free(rows);
        arena_free(&a);
    }
    free(path);
    buffer_free(&bytes);
    buffer_free(&joined);
}

static void mistakes_have_a_line(void **state)
{
    fixture *f = *state;
    text(state, NULL, "a\nb\xFF\n", "1:{\"text\": \"a\"}\nt.txt:2: the text is not UTF-8\n");
    text(state, "{\"sample_by\": \"document\"}", "a\nb\xFF\n", "t.txt:2: the text is not UTF-8\n");
    text(state, "{\"chunk\": 4}",
         "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"
         "\x80",
         "t.txt:1: the text is not UTF-8\n");
    rows_expect(f, "txt", NULL, "t.txt", "a\n\0\n", 4,
                "1:{\"text\": \"a\"}\nt.txt:2: the text contains a NUL character\n");
    text(state, NULL, "PK\003\004", "t.txt: a zip file; expected plain text in UTF-8\nhint: ");
    text(state, "{\"chunk\": 10, \"overlap\": 6}", "a",
         "reader 'txt': overlap 6: expected at most half of chunk, which is 10");
    text(state, "{\"overlap\": 6}", "a", "reader 'txt': overlap 6: expected at most half of chunk, which is 0");
    char *large = mem_alloc(40 << 20);
    memset(large, 'x', 40 << 20);
    memcpy(large, "a\n", 2);
    rows_expect(f, "txt", NULL, "t.txt", large, 40 << 20,
                "1:{\"text\": \"a\"}\nt.txt:2: a text of more than 16 MiB begins here\nhint: the option chunk");
    free(large);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lines_paragraphs_and_documents_are_rows),
        TEST(long_texts_are_cut_before_white_space),
        TEST(chunks_of_a_document_join_to_it),
        TEST(mistakes_have_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
