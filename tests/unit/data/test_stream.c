/*
 * test_stream.c - unpacking, and rows out of bytes, wherever the pieces that are read happen to
 * end.
 */
#include "rows.h"
#include "unit/data/support.h"
#include <zlib.h>

static size_t gzip(const char *text, size_t size, unsigned char *out, size_t room)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)text;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

static nrl_status read_all(const void *bytes, size_t size, buffer *out)
{
    jsonl_stream *s;
    char chunk[7];
    size_t n;
    nrl_status st;
    jsonl_stream_open_memory("memory.gz", bytes, size, &s);
    while ((st = jsonl_stream_read(s, chunk, sizeof chunk, &n)) == NRL_OK && n)
        buffer_add(out, chunk, n);
    jsonl_stream_close(s);
    return st;
}

static void members_of_a_gzip_file_follow_each_other(void **state)
{
    (void)state;
    unsigned char packed[400] = {0};
    buffer out = {0};
    size_t n = gzip("hello ", 6, packed, 150);
    n += gzip("world", 5, packed + n, 150);
    ASSERT_OK(read_all(packed, n + 20, &out)); /* zero padding behind */
    assert_string_equal(out.text, "hello world");
    buffer_free(&out);
}

static void a_cut_gzip_file_is_an_error_at_every_length(void **state)
{
    (void)state;
    unsigned char packed[200];
    size_t n = gzip("{\"text\": \"abc abc abc\"}\n", 24, packed, sizeof packed);
    for (size_t cut = 2; cut < n; cut++) {
        buffer out = {0};
        ASSERT_FAILS(read_all(packed, cut, &out), NRL_ERR_DATA, "the file is cut off");
        char *place = mem_printf("at byte %zu of the file", cut);
        assert_non_null(strstr(nrl_error_text(), place));
        free(place);
        buffer_free(&out);
    }
}

static void damaged_gzip_data_is_an_error(void **state)
{
    (void)state;
    unsigned char packed[200];
    buffer out = {0};
    size_t n = gzip("{\"text\": \"abc abc abc\"}\n", 24, packed, sizeof packed);
    packed[n - 6] ^= 0x55; /* in the checksum */
    ASSERT_FAILS(read_all(packed, n, &out), NRL_ERR_DATA, "damaged gzip data near byte");
    buffer_free(&out);
}

static void a_gzip_file_is_read_as_its_text(void **state)
{
    fixture *f = *state;
    unsigned char packed[200];
    char *path = mem_printf("%s/data.jsonl.gz", f->dir);
    support_write_bytes(path, packed, gzip("{\"text\": \"abc\"}\n", 16, packed, sizeof packed));
    dataset_options o = {
        .host = test_host(), .source = node_string(&f->memory, path, strlen(path)), .tokenizer = f->tok, .quiet = true};
    dataset *d = support_open(&o);
    assert_int_equal(dataset_example_tokens(d, 0), 5);
    dataset_close(d);
    free(path);
}

/* "line:column:text|" of each row. */
static char *rows_of(const char *bytes, size_t size)
{
    jsonl_stream *s;
    jsonl_rows *r;
    jsonl_text row;
    bool end;
    buffer out = {0};
    jsonl_stream_open_memory("memory", bytes, size, &s);
    jsonl_rows_create(s, "memory", &r);
    for (;;) {
        ASSERT_OK(jsonl_rows_next(r, &row, &end));
        if (end) break;
        buffer_print(&out, "%d:%d:%.*s|", (int)row.line, (int)row.column, (int)row.size, row.text);
    }
    jsonl_rows_destroy(r);
    return buffer_take(&out);
}

static void assert_rows(const char *bytes, const char *expected)
{
    char *got = rows_of(bytes, strlen(bytes));
    assert_string_equal(got, expected);
    free(got);
}

static void rows_know_their_places(void **state)
{
    (void)state;
    assert_rows("{1}\n\n {2} \r\n{3}", "1:1:{1}|3:2:{2}|4:1:{3}|");
    assert_rows("[{1}, {2\n},\n  {3}]\n", "1:2:{1}|1:7:{2\n}|3:3:{3}|");
    assert_rows("\xEF\xBB\xBF[ ]", "");
    assert_rows("[{\"]\\\"}\"}]", "1:2:{\"]\\\"}\"}|");
}

static void rows_larger_than_the_window_stay_whole(void **state)
{
    (void)state;
    size_t size = 3 << 20;
    char *bytes = mem_alloc(size + 8);
    memset(bytes, 'x', size);
    bytes[0] = '{';
    memcpy(bytes + size, "\n{y}", 4);
    char *got = rows_of(bytes, size + 4);
    assert_int_equal(strlen(got), 4 + size + 9);
    assert_string_equal(got + 4 + size, "|2:1:{y}|");
    free(got);
    free(bytes);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(members_of_a_gzip_file_follow_each_other),
        TEST(a_cut_gzip_file_is_an_error_at_every_length),
        TEST(damaged_gzip_data_is_an_error),
        TEST(a_gzip_file_is_read_as_its_text),
        TEST(rows_know_their_places),
        TEST(rows_larger_than_the_window_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
